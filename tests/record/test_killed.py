"""Killed a hundred times at random moments: nothing sealed is lost, every recording is valid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: An interpreter of its own, so that forking is cheap and safe: each child is a whole recorder
#: with quick flushes and segments, killed after a random time; then its directory is looked at.
_KENNEL = r"""
import json, os, random, signal, sys, time
from pathlib import Path
from sexton.model.rows.cpu import CoreTimes
from sexton.record.recorder import Options, Recorder
from sexton.host.host import open_host
from sexton.sources.registry import sources_of
from sexton.store.layout import prepare, segments_in
from sexton.store.recording import Recording
from sexton.store.retention import Limits

place, rounds = Path(sys.argv[1]), int(sys.argv[2])
prepare(place)
chosen = random.Random(int(sys.argv[3]))
sealed = {}
told = {"problems": [], "lost": [], "flushed": 0, "segments": 0, "born": 0}

def record():
    from dataclasses import replace
    sources = [replace(each, period_s=0.01) for each in sources_of(CoreTimes)]
    options = Options(place, Limits(3600.0, 1 << 30), probe=False, segment_s=0.15, flush_s=0.03)
    with Recorder(open_host(), options, (), sources) as recorder:
        recorder.run()

def begun():
    child = os.fork()
    if child == 0:
        try:
            record()
        finally:
            os._exit(7)
    return child

def flushes(journal):
    try:
        return journal.read_bytes().count(b"\n") - 1
    except FileNotFoundError:  # sealed meanwhile
        return 0

def segments():
    return list(place.glob("segments/*/manifest.json"))

# How long one takes here from its start to its first sealed segment: the kills are to hit all of
# that, on a quick machine and on one that others keep busy.
began, child = time.monotonic(), begun()
while not segments() and time.monotonic() < began + 60:
    time.sleep(0.01)
first_s = min(max(time.monotonic() - began, 0.3), 1.0)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)

for number in range(rounds):
    child = begun()
    time.sleep(chosen.uniform(0.15, 2.0) * first_s)
    lines = sum(flushes(path) for path in place.glob("open/*/journal"))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        told["problems"].append(f"round {number}: ended by itself with {status}")
    found = Recording(place)
    told["problems"] += found.problems
    told["born"] += bool(found.segments)
    for segment in found.segments:
        rows = sum(len(batch.rows) for batch in segment.batches(CoreTimes))
        if segment.sealed:
            sealed.setdefault(segment.name, rows)
    told["problems"] += found.problems
    there = {each.text for each in segments_in(place / "segments")}
    told["lost"] += [name for name in sealed if name not in there]
    if lines > 0 and not found.segments:
        told["lost"].append(f"round {number}: {lines} flushes")
    told["flushed"] += max(lines, 0)
again = Recording(place)
for segment in again.segments:
    rows = sum(len(batch.rows) for batch in segment.batches(CoreTimes))
    if segment.name in sealed and rows != sealed[segment.name]:
        told["lost"].append(f"{segment.name}: {sealed[segment.name]} rows, now {rows}")
times = [b.mono_s for s in again.segments for b in s.batches(CoreTimes)]
told["ordered"] = times == sorted(times) and len(set(times)) == len(times)
told["segments"] = len(again.segments)
print(json.dumps(told))
"""


@pytest.mark.whole
def test_a_hundred_kills_at_random_moments_lose_nothing_that_was_sealed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _KENNEL, str(tmp_path / "r"), "100", "20261115"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    document = json.loads(ended.stdout)
    assert document["problems"] == []
    assert document["lost"] == []
    assert document["ordered"]
    assert document["born"] > 30, "most rounds lived long enough to record something"
    assert document["segments"] > 30
    assert document["flushed"] > 100


def started(place: Path, *options: str) -> subprocess.Popen[bytes]:
    """A recorder as a person starts it, once it records."""
    command = [sys.executable, "-m", "sexton", "record", str(place), *options]
    child = subprocess.Popen(command, stderr=subprocess.PIPE)
    end = time.monotonic() + 120
    while not _records(place, child.pid):
        assert child.poll() is None, child.stderr and child.stderr.read().decode()
        assert time.monotonic() < end, "it did not begin to record"
        time.sleep(0.1)
    return child


def _records(place: Path, pid: int) -> bool:
    """Whether the recorder that this process waits for is the one that records there."""
    try:
        recorder = json.loads((place / "status.json").read_text())["pid"]
    except FileNotFoundError:
        return False
    return recorder == pid or recorder in children_of(pid)


def descendants_of(pid: int) -> list[int]:
    """The recorder, which is the command's child, and its children."""
    return [below for child in children_of(pid) for below in (child, *descendants_of(child))]


def children_of(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(name))
    return found


@pytest.mark.root
def test_after_a_kill_no_child_survives_and_the_next_start_takes_over(tmp_path: Path) -> None:
    place = tmp_path / "r"
    child = started(place, "--stacks")
    try:
        deadline = time.monotonic() + 180
        while len(descendants_of(child.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        offspring = descendants_of(child.pid)
        assert len(offspring) > 1, "perf runs beside the recorder"
    finally:
        child.kill()
        child.wait()
    deadline = time.monotonic() + 180
    while any(Path(f"/proc/{pid}").exists() for pid in offspring):
        assert time.monotonic() < deadline, "a child outlived the recorder"
        time.sleep(0.1)
    again = started(place)
    again.terminate()
    assert again.wait(120) == 0
    result = subprocess.run(
        [sys.executable, "-m", "sexton", "recording", "verify", str(place), "--json"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    info = json.loads(
        subprocess.run(
            [sys.executable, "-m", "sexton", "recording", "info", str(place), "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert "taken over" in json.dumps(info)


def test_asked_to_end_it_seals_what_it_has_and_ends_in_order(tmp_path: Path) -> None:
    place = tmp_path / "r"
    child = started(place)
    child.terminate()
    assert child.wait(120) == 0
    assert not list(place.glob("open/*"))
    assert len(list(place.glob("segments/*/manifest.json"))) == 1
    assert json.loads((place / "status.json").read_text())["state"] == "stopped"

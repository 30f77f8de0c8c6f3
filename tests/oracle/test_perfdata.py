"""What `perf script` says of a capture, and what our reader says: every sample, every address."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sexton.errors import SextonError, SourceMalformed
from sexton.profile.files import members, rotated, without_stamp
from sexton.profile.perf.perfdata import read_raw
from tests.kernel.conftest import until
from tests.profile.perf.perfdata_cases import row_of
from tests.support.perf_oracle import Sample, load, perf_record, perf_script
from tests.support.tools import need

pytestmark = [pytest.mark.oracle, pytest.mark.root]

WHOLE = ("-a", "-g", "--all-cgroups", "--buildid-mmap", "-k", "CLOCK_MONOTONIC")
FAST = ("-F", "997", "-e", "cpu-clock")
#: Without them perf 6.1 dies where another perf asks for build ids (see `mapping`).
IDS = "--buildid-mmap"
#: Until another process has had half a second of a core, and until perf has closed three files.
UNTIL_BUSY = """
import sys, time
def used():
    parts = open(f"/proc/{sys.argv[1]}/stat").read().rpartition(")")[2].split()
    return int(parts[11]) + int(parts[12])
began = used()
while used() < began + 50:
    time.sleep(0.05)
"""
#: Threads that last: perf gives up if one exits while it lists them. Processes may come and go.
THREADS = """
import subprocess, threading
def burn():
    while True: sum(range(200))
for _ in range(2): threading.Thread(target=burn, daemon=True).start()
print("ready", flush=True)
while True: subprocess.run(["true"])
"""
UNTIL_ROTATED = """
import os, pathlib, signal, sys, time
while len([*pathlib.Path(sys.argv[1]).glob("perf.data.*")]) < 3:
    until = time.process_time() + 0.5
    while time.process_time() < until:
        sum(range(100000))
    os.kill(os.getppid(), signal.SIGUSR2)  # perf by the clock misses its alarm on a busy machine
"""


def samples(raw) -> list[Sample]:
    columns = raw.columns
    starts, frames = columns.stack_start.tolist(), columns.stack_frame.tolist()
    addresses = columns.address.tolist()
    stacks = [tuple(addresses[frame] for frame in frames[a:b]) for a, b in pairwise(starts)]
    rows = zip(*(getattr(columns, name).tolist() for name in _COLUMNS), strict=True)
    return [
        Sample(*who, shown(raw.comms[comm]), raw.events[event].name, stacks[stack])
        for *who, comm, event, stack in rows
    ]


def shown(comm: str) -> str:
    return comm.replace("\n", "").strip()


def in_files(raw) -> dict[tuple[int, int], int]:
    """Where an address of a process lies in the file mapped there: perf shows that in chains."""
    found = {}
    for number, space in enumerate(raw.spaces):
        mine = raw.columns.address[raw.columns.space == number]
        row = np.array([row_of(space.maps, address) for address in mine.tolist()], np.int64)
        mine, row = mine[row >= 0], row[row >= 0]
        places = mine + space.maps.pgoff[row] - space.maps.start[row]
        for address, place in zip(mine.tolist(), places.tolist(), strict=True):
            found.setdefault((space.pid, address), set()).add(place)
    return found


_COLUMNS = ("time_ns", "cpu", "pid", "tid", "comm", "event", "stack")


def agree(path: str, *, cpu: bool = True, least: int = 300):
    """Holds our reading of a capture against perf's; both readings."""
    theirs, raw = perf_script(path, cpu=cpu), read_raw(path)
    ours = samples(raw)
    if not cpu:
        assert {sample.cpu for sample in ours} == {-1}
    assert len(theirs) >= least
    for what in ("comm", "cpu", "event"):
        counted = Counter(getattr(sample, what) for sample in ours)
        assert counted == Counter(getattr(sample, what) for sample in theirs), what
    second = Counter(sample.time_ns // 1_000_000_000 for sample in ours)
    assert second == Counter(sample.time_ns // 1_000_000_000 for sample in theirs)
    assert different(raw, sorted(ours), sorted(theirs)) == []
    assert raw.facts.problems == []
    return raw, theirs


def different(raw, ours: list[Sample], theirs: list[Sample]) -> list[tuple[Sample, Sample]]:
    """Samples that differ, but for chains perf throws away whole: a program without frame pointers
    may leave a word there that looks like a mark perf does not know. We keep what came before."""
    places = in_files(raw)
    found, thrown_away = [], 0
    for a, b in zip(ours, theirs, strict=True):
        if a == b:
            continue
        if a.frames and a._replace(frames=()) == b:
            thrown_away += 1
        elif (
            a[:6] != b[:6]
            or len(a.frames) != len(b.frames)
            or not all(
                x == y or y in places.get((a.pid, x), ())
                for x, y in zip(a.frames, b.frames, strict=True)
            )
        ):
            found.append((a, b))
    assert thrown_away <= len(theirs) / 100
    return found


def test_a_whole_machine_with_chains_cgroups_and_build_ids(tmp_path):
    raw, theirs = agree(perf_record(tmp_path / "perf.data", *FAST, *WHOLE))
    comms = {sample.comm for sample in theirs}
    assert {"dd", "sh", "first name", "second:[1]", "7/7 [000] 1.0:"} <= comms
    assert "\udcff\udcfe odd" in comms
    assert all(path.startswith("/") for path in raw.cgroups)
    assert (raw.columns.cgroup >= 0).all()
    assert any(file.build_id for file in raw.files)
    assert raw.kernel.text_symbol in ("_text", "_stext")
    assert raw.facts.clock.kind == "monotonic"
    first = raw.facts.clock.wall_s(int(raw.columns.time_ns[0]))
    assert abs(time.time() - first) < 60
    assert raw.facts.host == os.uname().nodename
    assert raw.facts.release == os.uname().release
    assert "--all-cgroups" in raw.facts.command


def test_each_sample_has_the_cgroup_its_task_was_in(tmp_path):
    """perf 6.1 cannot show it, so the kernel's own word for each task is the oracle."""
    top = f"{unified()}/sexton-test-{os.getpid()}"
    script = """
        mkdir "$0/during"
        for place in "$0/before" "$0/during"; do
            (echo 0 > "$place/cgroup.procs"; sed -n s/^0:://p /proc/self/cgroup >> "$1";
             exec dd if=/dev/zero of=/dev/null bs=4k count=300000 2> /dev/null)
        done
    """
    os.makedirs(f"{top}/before")
    told = tmp_path / "told"
    try:
        command = ["sh", "-c", script, top, str(told)]
        path = perf_record(tmp_path / "perf.data", *FAST, *WHOLE, command=command)
    finally:
        for name in ("before", "during", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(f"{top}/{name}")
    raw = read_raw(path)
    expected = set(told.read_text().split())
    assert len(expected) == 2
    shown = Counter(
        raw.cgroups[cgroup]
        for comm, cgroup in zip(raw.columns.comm, raw.columns.cgroup, strict=True)
        if raw.comms[comm] == "dd"
    )
    assert expected <= shown.keys()
    assert all(path.startswith("/") for path in raw.cgroups)


def unified() -> str:
    """Where the hierarchy is mounted that perf tells of."""
    with open("/proc/mounts") as mounts:
        for line in mounts:
            _, place, kind, *_ = line.split()
            if kind == "cgroup2":
                return place
    return pytest.skip("no cgroup2 is mounted: mount -t cgroup2 none DIR")


def test_what_was_lost_is_what_the_kernel_says(tmp_path):
    """perf is stopped, so that its small buffers run over."""
    stopped = "kill -STOP $PPID; sleep 0.7; kill -CONT $PPID; sleep 0.3"
    path = perf_record(
        *(tmp_path / "perf.data", "-F", "3000", "-e", "cpu-clock", "-a", "-g", IDS, "-m", "1"),
        command=["sh", "-c", stopped],
    )
    perf = need("perf", package="linux-perf")
    dump = subprocess.run(
        [perf, "script", "-D", "-i", path], capture_output=True, timeout=60
    ).stdout
    at_once = sum(int(n) for n in re.findall(rb"RECORD_LOST: id:\d+: lost:(\d+)", dump))
    summed = sum(int(n) for n in re.findall(rb"LOST_SAMPLES.*lost samples ?:\s*(\d+)", dump))
    assert at_once > 100
    assert read_raw(path).facts.lost == max(at_once, summed)


@pytest.mark.whole
def test_compressed(tmp_path):
    path = perf_record(tmp_path / "perf.data", *FAST, *WHOLE, "-z")
    agree(path)


def test_through_a_pipe_saved_to_a_file(tmp_path):
    perf = need("perf", package="linux-perf")
    path = tmp_path / "piped"
    with open(path, "wb") as output:
        argv = [perf, "record", "-q", *FAST, *WHOLE, "-o", "-", "--", *load()]
        subprocess.run(argv, check=True, stdout=output, stderr=subprocess.DEVNULL, timeout=60)
    raw, _ = agree(str(path))
    assert raw.facts.host == os.uname().nodename
    assert raw.facts.clock.wall_minus_ns is not None


def test_through_a_pipe_compressed(tmp_path):
    perf = need("perf", package="linux-perf")
    path = tmp_path / "piped"
    with open(path, "wb") as output:
        argv = [perf, "record", "-q", *FAST, *WHOLE, "-z", "-o", "-", "--", *load()]
        subprocess.run(argv, check=True, stdout=output, stderr=subprocess.DEVNULL, timeout=60)
    agree(str(path))


@pytest.mark.whole
def test_two_events(tmp_path):
    events = ("-F", "499", "-e", "cpu-clock", "-e", "task-clock:u", "-e", "context-switches")
    raw, theirs = agree(perf_record(tmp_path / "perf.data", *events, "-a", "-g", IDS))
    assert [event.name for event in raw.events] == ["cpu-clock", "task-clock:u", "context-switches"]
    assert len({sample.event for sample in theirs}) == 3
    assert raw.facts.clock.wall_minus_ns is None
    assert raw.facts.clock.kind == "perf"


@pytest.mark.whole
def test_without_chains(tmp_path):
    agree(perf_record(tmp_path / "perf.data", *FAST, "-a", IDS))


@pytest.mark.whole
def test_one_program_without_cores(tmp_path):
    agree(perf_record(tmp_path / "perf.data", *FAST, "-g", IDS), cpu=False)


def perfs() -> list[Path]:
    """Every perf that runs on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            found += [path] if path.read_text() == "perf\n" else []
    return found


@pytest.mark.alone  # perf reports files that another perf has open at the same time
def test_build_ids_that_perf_looked_for_at_the_end(tmp_path):
    dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=512", "count=400000"]
    assert until(lambda: not perfs()), "perf dies of build ids that another perf reads meanwhile"
    path = perf_record(tmp_path / "perf.data", *FAST, "-g", command=dd)
    perf = need("perf", package="linux-perf")
    shown = subprocess.run([perf, "buildid-list", "-i", path], check=True, capture_output=True)
    lines = (line.split(maxsplit=1) for line in shown.stdout.decode().splitlines())
    theirs = {name: number for number, name in lines}
    raw = read_raw(path)
    ours = {file.path: file.build_id for file in raw.files if file.build_id}
    assert any("/libc" in name for name in ours)
    assert ours.items() <= theirs.items()
    assert raw.kernel.build_id == theirs["[kernel.kallsyms]"]


def test_one_process_and_its_threads_by_number(tmp_path):
    perf = need("perf", package="linux-perf")
    path = tmp_path / "perf.data"
    program = subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE)
    argv = [perf, "record", "-q", *FAST, "-g", "-p", str(program.pid), IDS, "-o", str(path)]
    try:
        assert program.stdout.readline() == b"ready\n"
        busy = [sys.executable, "-c", UNTIL_BUSY, str(program.pid)]
        subprocess.run([*argv, "--", *busy], check=True, capture_output=True)
    finally:
        program.kill()
        program.communicate()
    agree(str(path), cpu=False, least=100)


@pytest.mark.whole
def test_one_stream_for_each_core(tmp_path):
    path = perf_record(tmp_path / "perf.data", *FAST, "-a", "-g", "--threads", IDS)
    assert os.path.isdir(path)
    agree(path)


@pytest.mark.whole
def test_rotated_files_each_stand_alone_and_stand_in_order(tmp_path):
    perf = need("perf", package="linux-perf")
    target = str(tmp_path / "perf.data")
    argv = [perf, "record", "-q", *FAST, *WHOLE, "--switch-output=signal", "-o", target]
    rotating = [sys.executable, "-c", UNTIL_ROTATED, str(tmp_path)]
    subprocess.run([*argv, "--", *rotating], check=True, capture_output=True)
    found = members(tmp_path)
    assert len(found) >= 3
    ordered = rotated(sorted(found, reverse=True))
    assert {*map(without_stamp, ordered)} == {target}
    assert list(ordered) == sorted(found)
    # Each core's buffer is emptied by itself: only within a core does a later file begin later.
    last: dict[int, int] = {}
    for path in ordered:
        _, theirs = agree(path, least=1)
        first = {sample.cpu: sample.time_ns for sample in reversed(theirs)}
        assert all(time >= last.get(core, 0) for core, time in first.items())
        last |= {sample.cpu: sample.time_ns for sample in theirs}


@pytest.mark.whole
def test_a_later_file_of_a_compressed_set_is_refused_with_the_reason(tmp_path):
    perf = need("perf", package="linux-perf")
    target = str(tmp_path / "perf.data")
    argv = [perf, "record", "-q", *FAST, *WHOLE, "-z", "--switch-output=signal", "-o", target]
    rotating = [sys.executable, "-c", UNTIL_ROTATED, str(tmp_path)]
    subprocess.run([*argv, "--", *rotating], check=True, capture_output=True)
    first, second, *_ = sorted(members(tmp_path))
    assert len(read_raw(first).columns.time_ns) > 100
    with pytest.raises(SourceMalformed, match="in an earlier file of the set") as refused:
        read_raw(second)
    assert "\n" not in str(refused.value)


def sampled(path: str) -> int:
    """Samples in a file that perf still writes."""
    try:
        return len(read_raw(path).columns.time_ns)
    except (OSError, SextonError):  # not there yet, or only its head
        return 0


def test_a_killed_perf_leaves_what_it_had(tmp_path):
    perf = need("perf", package="linux-perf")
    path = str(tmp_path / "perf.data")
    argv = [perf, "record", "-q", *FAST, *WHOLE, "-m", "8", "-o", path, "--", *load(60)]
    child = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert until(lambda: sampled(path) > 100)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    raw = read_raw(path)
    assert len(raw.columns.time_ns) > 100
    assert "perf was killed while writing this file: read to its end" in raw.facts.problems
    # Without its closing sections perf still says which clock it was.
    assert raw.facts.clock == ("monotonic", None)


@pytest.mark.whole
def test_stacks_that_would_have_to_be_unwound_are_told_of(tmp_path):
    # Of the load alone: of the whole machine, perf script once failed (EFAULT) beside other tests.
    path = perf_record(tmp_path / "perf.data", *FAST, "--call-graph", "dwarf,4096", IDS)
    raw = read_raw(path)
    assert any("--call-graph dwarf" in problem for problem in raw.facts.problems)
    assert Counter(sample.comm for sample in samples(raw)) == Counter(
        sample.comm for sample in perf_script(path, cpu=False)
    )

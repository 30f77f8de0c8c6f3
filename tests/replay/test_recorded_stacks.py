"""A real recorder with stacks: perf's files become annexes, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sexton.model.rows.memory import VmCounter
from sexton.record import companions
from sexton.record.companions import Stacks
from sexton.record.decoding import Decoding
from sexton.record.stacks import Rotation
from sexton.store.recording import Recording
from sexton.store.verify import verify
from tests.kernel.conftest import until
from tests.record.running import options, recording, source
from tests.record.test_decode_child import NAME, SAMPLES, START_S, asked, recorded
from tests.record.test_killed import started
from tests.support.cli import sexton
from tests.support.tools import need


@pytest.fixture
def perf() -> str:
    return need("perf", package="linux-perf")


def annexes(place: Path) -> list[str]:
    return [annex.name for segment in Recording(place).segments for annex in segment.annexes]


def be_sampled(cpu_s: float) -> None:
    """Use so much CPU time, mostly in system calls: perf samples what runs, however slowly."""
    enough_s = time.process_time() + cpu_s
    with open("/dev/zero", "rb", buffering=0) as zero:
        while time.process_time() < enough_s:
            zero.read(1)


def raw_files(place: Path) -> list[str]:
    return [path.name for path in place.glob("stacks/perf.data*")]


@pytest.mark.root
def test_files_become_annexes_of_their_segments_while_it_records(tmp_path, perf, monkeypatch):
    place = tmp_path / "r"
    short = classmethod(lambda cls, cores: Rotation(segment_s=4))
    monkeypatch.setattr(Rotation, "for_cores", short)
    monkeypatch.setattr(companions, "_POLL_S", 1.0)
    calm = source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])
    made = [Stacks, Decoding]
    with recording(options(place, segment_s=4.0), [calm], made) as recorder:
        decoder = next(
            companion for companion in recorder._companions if companion.name == "perf.decode"
        )
        assert until(lambda: decoder.status()["decoded"] >= 2, 240)
        assert len(annexes(place)) >= 2
    assert decoder.status()["failed"] == 0
    found = Recording(place)
    assert found.problems == []
    for segment in found.segments:
        for annex in segment.annexes:
            assert annex.boot_id == segment.boot_id == recorder.boot_id
            assert annex.fact("samples")
            shared = min(annex.end[0], segment.end[0]) - max(annex.start[0], segment.start[0])
            assert shared > -4.0
    assert raw_files(place) == [], "what was left was decoded at the end"
    assert verify(place).whole


@pytest.mark.root
@pytest.mark.whole
def test_sigterm_decodes_the_last_file_and_info_counts_its_samples(tmp_path, perf):
    place = tmp_path / "r"
    child = started(place, "--stacks", "--no-probe", "--no-ring")
    assert until(lambda: (place / "stacks" / "perf.data").exists(), 60)
    be_sampled(3)
    child.terminate()
    assert child.wait(60) == 0
    assert raw_files(place) == []
    profiles = json.loads(sexton("recording", "info", place, "--json").stdout)["profiles"]
    assert (profiles["annexes"], profiles["waiting"]) == (1, 0)
    assert profiles["samples"] > 100
    assert b"samples" in sexton("recording", "info", place).stdout
    assert verify(place).whole
    names = set()
    for annex in Recording(place).segments[0].annexes:
        names |= set(annex.table("frame").column("name").to_pylist())
    assert "do_syscall_64" in names, "the kernel's functions have names"


@pytest.mark.root
@pytest.mark.whole
def test_the_file_of_a_killed_recorder_is_decoded_by_the_next(tmp_path, perf):
    place = tmp_path / "r"
    for _ in range(2):  # the first is sealed by the second: its segment is there then
        child = started(place, "--stacks", "--no-probe", "--no-ring")
        assert until(lambda: (place / "stacks" / "perf.data").exists(), 60)
        be_sampled(0.5)
        child.kill()  # perf notices it and finishes its file
        child.wait()
    assert raw_files(place)
    last = started(place, "--stacks", "--no-probe", "--no-ring")
    last.terminate()
    assert last.wait(60) == 0
    status = json.loads((place / "status.json").read_text())["companions"]["perf.decode"]
    left = raw_files(place)
    assert status["failed"] == len(left), "what stays was told: perf was killed before its head"
    assert annexes(place)
    assert verify(place).whole


HOLDER = """
import json, sys, time
from pathlib import Path
from sexton.record import decoding
from sexton.record.companions import Place
from sexton.host.host import open_host
real = decoding.start
def slow(argv, manners):
    return real([sys.executable, "-c", "import time; time.sleep(600)"], manners)
decoding.start = slow
pace = decoding.Pace(patience_s=0.0)
made = decoding.Decoding(Place(open_host(), Path(sys.argv[1]), "node", "boot", 1 << 30), pace)
made.beat(time.monotonic() + 100, False)
print(made._batch.child.pid, flush=True)
time.sleep(600)
"""


def test_a_child_does_not_outlive_the_recorder(tmp_path):
    place = tmp_path / "r"
    raw = recorded(place, tmp_path, START_S)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, place], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        assert Path(f"/proc/{child}").exists()
    finally:
        holder.kill()
        holder.wait()
    assert until(lambda: not Path(f"/proc/{child}").exists())
    assert raw.exists()


@pytest.mark.whole
def test_killed_at_any_moment_there_is_the_file_or_its_annex_and_never_both_halves(tmp_path):
    place = tmp_path / "r"
    raw = recorded(place, tmp_path, START_S)
    content, when = raw.read_bytes(), raw.stat().st_mtime_ns
    chance = random.Random(20261115)
    ended = {"before": 0, "after": 0}
    code = "import sys, sexton.record.decode_child as child; sys.exit(child.main(sys.argv[1:]))"
    command = [sys.executable, "-I", "-c", code, str(place), json.dumps([asked()])]
    began = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    takes_s = time.monotonic() - began
    for _ in range(25):
        if not raw.exists():  # begin again
            for path in list(place.glob("segments/*/profile-*/*")):
                path.unlink()
            next(place.glob("segments/*/profile-*")).rmdir()
            raw.write_bytes(content)
            os.utime(raw, ns=(when, when))
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.0, takes_s))
        child.send_signal(signal.SIGKILL)
        child.wait()
        found = annexes(place)
        assert raw.exists() or len(found) == 1
        assert len(found) <= 1
        assert verify(place).whole
        if found:
            (annex,) = Recording(place).segments[0].annexes
            assert annex.fact("samples") == SAMPLES
        ended["after" if found else "before"] += 1
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    assert not raw.exists()
    assert annexes(place) == [f"profile-{NAME.removeprefix('perf.data.')}"]
    assert not list(place.glob("stacks/.new-*"))
    assert ended["before"] > 0

"""A recorder on a node in trouble: a full disk, deaths by the thousand, a storm of processes."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from lab.zombie_maker import scratch_cgroup
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.recorder import RecorderNote
from sexton.model.rows.task import Process
from sexton.record.companions import Stacks
from sexton.sources.registry import sources_of
from sexton.store.recording import Recording
from tests.record.running import (
    every,
    moments,
    options,
    reads_of,
    recording,
    wait_for_reads,
    wait_until,
)

pytestmark = pytest.mark.root


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for a few segments."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "sexton-test", str(place)], check=True)
    try:
        yield place
    finally:
        # Lazily: children of a killed recorder may take a moment to end.
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A real ext4, and the switch that makes it meet an error: then it turns read-only."""
    image, place = tmp_path / "image", tmp_path / "ext4"
    place.mkdir()
    with image.open("wb") as stream:
        stream.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(place)], check=True)
    try:
        found = subprocess.run(
            ["findmnt", "-no", "SOURCE", str(place)], check=True, capture_output=True, text=True
        )
        device = Path(found.stdout.strip()).name
        yield place, Path(f"/sys/fs/ext4/{device}/trigger_fs_error")
    finally:
        # Lazily: children of a killed recorder may take a moment to end.
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(path: Path) -> None:
    """Take all the room there is left."""
    with path.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))
    assert os.statvfs(path).f_bavail == 0


def test_a_full_disk_stops_nothing_and_what_waited_is_there_afterwards(small_disk: Path) -> None:
    place = small_disk / "r"
    with recording(options(place), sources_of(CoreTimes)) as recorder:
        wait_until(lambda: recorder._writer.written.segments >= 1)
        fill(small_disk / "filler")
        full_s = time.monotonic()
        wait_until(lambda: recorder.problem)
        assert recorder.problem == os.strerror(errno.ENOSPC)
        wait_for_reads(recorder, "procfs.stat", 2)
        room_s = time.monotonic()
        (small_disk / "filler").unlink()
        wait_until(lambda: not recorder.problem)
        wait_for_reads(recorder, "procfs.stat", 1)
    found = Recording(place)
    assert found.problems == []
    assert any(full_s < moment < room_s for moment in moments(place, CoreTimes)), (
        "what was read while the disk was full waited in memory"
    )
    told = [note.detail for note in every(place, RecorderNote) if note.kind == "disk"]
    assert any("cannot write: No space left" in words for words in told)


@pytest.mark.whole
def test_a_disk_that_stays_full_costs_old_minutes_and_never_the_recorder(small_disk: Path) -> None:
    place = small_disk / "r"
    with recording(options(place, segment_s=0.6, flush_s=0.2), sources_of(CoreTimes)) as recorder:
        wait_until(lambda: recorder._writer.written.segments >= 3)
        first = Recording(place).segments[0].name
        fill(small_disk / "filler")
        wait_until(lambda: not (place / "segments" / first).exists())
        newest = time.monotonic()
        wait_until(lambda: max(moments(place, CoreTimes), default=0.0) > newest)
    told = [note.detail for note in every(place, RecorderNote)]
    assert any("to make room" in words for words in told)


@pytest.mark.parametrize(
    "companions",
    [
        pytest.param((), id="alone", marks=pytest.mark.whole),
        pytest.param((Stacks,), id="with stacks"),
    ],
)
def test_a_disk_that_turns_read_only_stops_no_reading_and_keeps_what_was_sealed(
    failing_disk: tuple[Path, Path], companions: tuple[type[Stacks], ...]
) -> None:
    disk, switch = failing_disk
    place = disk / "r"
    with recording(options(place), sources_of(CoreTimes), companions) as recorder:
        wait_until(lambda: recorder._writer.written.segments >= 1)
        sealed = {segment.name for segment in Recording(place).segments if segment.sealed}
        switch.write_text("1")
        # A sync that is under way when the journal gives up is told EIO; every later one, EROFS.
        lines = [os.strerror(number) for number in (errno.EROFS, errno.EIO)]
        wait_until(lambda: recorder.problem in lines)
        wait_for_reads(recorder, "procfs.stat", 2)
    found = Recording(place)
    assert sealed <= {segment.name for segment in found.segments if segment.sealed}
    assert found.problems == []


def test_a_quota_that_is_used_up_is_met_like_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "r"
    over = threading.Event()
    plain = os.fdatasync

    def sync(descriptor: int) -> None:  # a fake: what a file system with quotas answers
        if over.is_set():
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        plain(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    with recording(options(place, segment_s=0.6, flush_s=0.2), sources_of(CoreTimes)) as recorder:
        wait_until(lambda: recorder._writer.written.segments >= 2)
        first = Recording(place).segments[0].name
        over.set()
        wait_until(lambda: not (place / "segments" / first).exists())
        over.clear()
        wait_until(lambda: not recorder.problem)
    told = [note.detail for note in every(place, RecorderNote)]
    assert any("Disk quota exceeded: deleted" in words for words in told)


def test_two_thousand_cgroups_a_minute_die_and_every_death_is_there(tmp_path: Path) -> None:
    place = tmp_path / "r"
    made = 400
    with scratch_cgroup("sexton-test") as (_, parent), recording(options(place)) as recorder:
        wait_until(lambda: _is_traced(recorder))
        for number in range(made):
            grave = parent / f"death-{number}"
            grave.mkdir()
            grave.rmdir()
            time.sleep(0.03)  # 2,000 a minute
        wait_for_reads(recorder, "tracefs.cgroup_events", 2)
    deaths = [
        event.path.rpartition("/")[2]
        for event in every(place, CgroupEvent)
        if event.kind == "rmdir" and "/death-" in event.path
    ]
    lost = sum(gap.lost for gap in every(place, CgroupEventGap))
    assert lost == 0
    assert sorted(deaths) == sorted(f"death-{number}" for number in range(made))


def _is_traced(recorder: object) -> bool:
    states = {state.id: state.state for state in recorder._sampler.states()}  # type: ignore[attr-defined]
    return states["tracefs.cgroup_events"] == "ok"


_STORM = """
import os, sys, time
end = time.monotonic() + float(sys.argv[1])
born = 0
while time.monotonic() < end:
    for _ in range(20):
        child = os.fork()
        if child == 0:
            os._exit(0)
        born += 1
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
print(born)
"""


@pytest.mark.whole
def test_a_storm_of_processes_is_survived_at_the_usual_pace(tmp_path: Path) -> None:
    place = tmp_path / "r"
    storm_s = 5
    with recording(options(place)) as recorder:
        wait_for_reads(recorder, "procfs.stat", 1)
        began = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-c", _STORM, str(storm_s)], capture_output=True, text=True, check=True
        )
        recorder._sampler.read_now(("procfs.tasks",))
        wait_for_reads(recorder, "procfs.stat", 2)
        states = {state.id: state for state in recorder._sampler.states()}
    assert int(ended.stdout) > 100
    assert states["procfs.tasks"].state == "ok"
    assert every(place, Process)
    times = [moment for moment in moments(place, CoreTimes) if moment >= began]
    longest = max(later - earlier for earlier, later in pairwise(times))
    assert longest < storm_s, "it did not wait for the storm's end"


@pytest.mark.whole
@pytest.mark.alone  # everybody else would lose the core
def test_a_core_that_goes_and_comes_back_is_survived(tmp_path: Path) -> None:
    switch = Path("/sys/devices/system/cpu/cpu1/online")
    if not switch.exists() or switch.read_text().strip() != "1":
        pytest.skip("this machine has no second core that can be taken offline")
    names = ("procfs.stat", "procfs.softirqs", "procfs.softnet_stat", "procfs.interrupts")
    place = tmp_path / "r"
    with recording(options(place)) as recorder:
        wait_until(lambda: reads_of(recorder, "procfs.stat") > 0)
        try:
            switch.write_text("0")
            wait_for_reads(recorder, "procfs.stat", 2)
        finally:
            switch.write_text("1")
        back = {name: reads_of(recorder, name) for name in names}
        wait_until(lambda: all(reads_of(recorder, name) >= back[name] + 2 for name in names))
        states = {state.id: state for state in recorder._sampler.states()}
    cores = [
        {row.cpu for row in batch.rows}
        for segment in Recording(place).segments
        for batch in segment.batches(CoreTimes)
    ]
    assert {0, 1} in cores
    assert {0} in cores
    assert cores[-1] == {0, 1}
    for name in names:
        assert states[name].state == "ok", states[name]

"""Hours out of minutes: nothing lost, nothing there twice, whatever is killed or read meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sexton.model.window import Batch
from sexton.store.compaction import SETTLED_S, compact
from sexton.store.export import export_recording
from sexton.store.layout import replaced_in, segments_in
from sexton.store.pins import Pin, add_pin
from sexton.store.recording import Recording
from sexton.store.retention import GRACE_S, Limits, Retention, drop_replaced
from sexton.store.schema import tables
from sexton.store.sealer import take_over
from sexton.store.summary import summarise
from sexton.store.verify import verify
from tests.support.annexes import annex, samples
from tests.support.profiles import profile_of
from tests.support.recordings import BOOT, HEADER, cores, damage_table, marks, shown, write_sealed

CORE, MARK = tables()["core_times"], tables()["mark"]
ALL = Limits(1e12, 1 << 40)
#: A moment at which an hour begins, by the wall clock of these recordings (`WALL_S` and so long).
START_S = 3600.0 - 1_700_000_000 % 3600


def minutes(place: Path, number: int, first: int = 1, start_s: float = START_S) -> list[Path]:
    """So many segments of two minutes, one after the other."""
    made = []
    for index in range(number):
        at = start_s + 120 * index
        readings = [at + second for second in range(0, 120, 8)]
        flush = {CORE: [cores(moment, 3) for moment in readings], MARK: [marks(index % 2, at + 1)]}
        made.append(write_sealed(place, [flush], first + index))
    return made


def everything(place: Path) -> dict[str, str]:
    found = Recording(place)
    assert found.problems == []
    return {
        name: shown([batch for segment in found.segments for batch in segment.batches(kind)])
        for name, kind in tables().items()
    }


def numbers(place: Path) -> list[tuple[int, int]]:
    return [(segment.sequence, segment.last) for segment in segments_in(place / "segments")]


def test_an_hour_becomes_one_segment_with_the_same_readings(tmp_path: Path) -> None:
    minutes(tmp_path, 35)
    before, summary = everything(tmp_path), summarise(Recording(tmp_path))
    done = compact(tmp_path, ALL, settled_s=0.0)
    assert (done.segments, done.replaced, done.problems) == (1, 30, [])
    assert numbers(tmp_path) == [(1, 30), *((index, index) for index in range(31, 36))]
    assert everything(tmp_path) == before, "while the old ones are still there"
    assert verify(tmp_path).whole
    assert drop_replaced(tmp_path / "segments") == 30
    assert everything(tmp_path) == before
    assert verify(tmp_path).whole
    after = summarise(Recording(tmp_path))
    assert (after.watched_s, after.start, after.end) == (
        summary.watched_s,
        summary.start,
        summary.end,
    )
    assert after.tables["core_times"].rows == summary.tables["core_times"].rows
    assert after.tables["core_times"].readings == summary.tables["core_times"].readings
    assert [source.segments for source in after.sources] == [
        source.segments for source in summary.sources
    ]
    assert after.gaps == []
    assert after.jumps == []


def test_rows_of_a_thing_are_together_and_by_time(tmp_path: Path) -> None:
    minutes(tmp_path, 30)
    compact(tmp_path, ALL, settled_s=None)
    (hour,) = Recording(tmp_path).segments
    found = hour.table(CORE)
    assert found is not None
    keys = list(
        zip(found.column("cpu").to_pylist(), found.column("read_mono_s").to_pylist(), strict=True)
    )
    assert keys == sorted(keys)


def test_an_hour_waits_until_it_is_over_and_settled(tmp_path: Path) -> None:
    minutes(tmp_path, 30)
    assert compact(tmp_path, ALL).segments == 0, "the hour may go on"
    minutes(tmp_path, 1, 31, START_S + 3600)
    assert compact(tmp_path, ALL).segments == 0, "pins are shipped and stacks decoded first"
    minutes(tmp_path, int(SETTLED_S // 120), 32, START_S + 3720)
    assert compact(tmp_path, ALL).segments == 1
    assert compact(tmp_path, ALL).segments == 0, "once"


@pytest.mark.parametrize("what", ["gap", "boot", "jump", "version", "number"])
def test_what_happens_between_two_segments_stays_visible(tmp_path: Path, what: str) -> None:
    minutes(tmp_path, 5)
    at, header, sequence = START_S + 600, dict(HEADER), 6
    if what == "gap":
        at += 30
    elif what == "boot":
        header["boot_id"] = BOOT.replace("1", "2")
    elif what == "version":
        header["sexton"] = "1"
    elif what == "number":
        sequence = 7
    for index in range(5):
        batches = [cores(at + 120 * index + second) for second in range(0, 120, 8)]
        if what == "jump":
            batches = [Batch(batch.mono_s, batch.wall_s + 5, batch.rows) for batch in batches]
        write_sealed(tmp_path, [{CORE: batches}], sequence + index, header)
    before = everything(tmp_path)
    compact(tmp_path, ALL, settled_s=None)
    drop_replaced(tmp_path / "segments")
    assert numbers(tmp_path) == [(1, 5), (sequence, sequence + 4)]
    assert everything(tmp_path) == before


def test_a_damaged_segment_stays_as_it_is_and_the_others_are_merged(tmp_path: Path) -> None:
    made = minutes(tmp_path, 9)
    damage_table(made[4], "core_times")
    done = compact(tmp_path, ALL, settled_s=None)
    drop_replaced(tmp_path / "segments")
    assert numbers(tmp_path) == [(1, 4), (5, 5), (6, 9)]
    assert "checksum differs" in done.problems[0]
    assert not verify(tmp_path).whole, "the damage is still there to be seen"


def test_segments_are_merged_no_further_than_retention_can_delete(tmp_path: Path) -> None:
    minutes(tmp_path, 30)
    size = sum(segment.bytes for segment in Recording(tmp_path).segments)
    compact(tmp_path, Limits(1e12, 4 * size), settled_s=None)
    assert len(numbers(tmp_path)) > 4
    compact(tmp_path, Limits(1e12, 1 << 40), settled_s=None)
    assert len(numbers(tmp_path)) > 4, "what is merged is not merged again"


def test_annexes_move_with_their_segment_late_ones_too(tmp_path: Path) -> None:
    made = minutes(tmp_path, 4)
    annex(made[1], profile_of(samples(START_S + 120)), "2026111513300407")
    compact(tmp_path, ALL, settled_s=None)
    annex(made[2], profile_of(samples(START_S + 240)), "2026111513320407")
    drop_replaced(tmp_path / "segments")
    (hour,) = Recording(tmp_path).segments
    assert [item.name for item in hour.annexes] == [
        "profile-2026111513300407",
        "profile-2026111513320407",
    ]
    assert verify(tmp_path).whole


def test_retention_deletes_replaced_segments_after_a_while_and_a_reader_reads_on(
    tmp_path: Path,
) -> None:
    minutes(tmp_path, 30)
    opened = Recording(tmp_path)
    before = everything(tmp_path)
    compact(tmp_path, ALL, settled_s=None)
    keeper = Retention(tmp_path, ALL)
    keeper.tidy((1.0, 1.0), BOOT)
    assert len(replaced_in(tmp_path / "segments")) == 30
    keeper.tidy((1.0 + GRACE_S, 1.0), BOOT)
    assert replaced_in(tmp_path / "segments") == {}
    read = {
        name: shown([batch for segment in opened.segments for batch in segment.batches(kind)])
        for name, kind in tables().items()
    }
    assert read == before
    assert opened.problems == []


def test_pins_age_and_copies_work_on_hours(tmp_path: Path) -> None:
    place = tmp_path / "r"
    minutes(place, 60)
    compact(place, ALL, settled_s=None)
    drop_replaced(place / "segments")
    pin = Pin("a", "mark", "x", "", BOOT, START_S + 10, START_S + 20, 1.0)
    add_pin(place, pin)
    first, second = Recording(place).segments
    export_recording(Recording(place), tmp_path / "copy", [first], [pin])
    assert verify(tmp_path / "copy").whole
    Retention(place, Limits(600.0, 1 << 40)).tidy((START_S + 1e5, second.end[1] + 1e5), BOOT)
    assert numbers(place) == [(1, 30)], "pinned"


#: Forks a child per round, which compacts and kills itself at the n-th call that changes the disk.
_KILLED = r"""
import json, os, shutil, signal, sys
from pathlib import Path
from sexton.store import compaction, sealed
from sexton.store.recording import Recording
from sexton.store.retention import Limits, drop_replaced
from sexton.store.schema import tables
from sexton.store.sealer import take_over
from sexton.store.verify import verify

source, work = Path(sys.argv[1]), Path(sys.argv[2])
ALL = Limits(1e12, 1 << 40)

def read(place):
    found = Recording(place)
    return repr((found.problems, [
        (name, [batch for each in found.segments for batch in each.batches(kind)])
        for name, kind in sorted(tables().items())
    ]))

def change_until(left):
    def counted(real):
        def call(*given, **named):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)
        return call
    for name in ("fsync", "rename", "unlink", "rmdir", "mkdir", "open", "link"):
        setattr(os, name, counted(getattr(os, name)))

before, rounds, bad = read(source), 0, []
while True:
    place = work / str(rounds)
    shutil.copytree(source, place)
    child = os.fork()
    if child == 0:
        change_until([rounds])
        compaction.compact(place, ALL, settled_s=None)
        drop_replaced(place / "segments")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if read(place) != before:
        bad.append(f"{rounds}: readings differ after the kill")
    take_over(place)
    compaction.compact(place, ALL, settled_s=None)
    drop_replaced(place / "segments")
    if read(place) != before or not verify(place).whole or len(Recording(place).segments) != 1:
        bad.append(f"{rounds}: not whole after the next recorder's start")
    shutil.rmtree(place)
    if not os.WIFSIGNALED(status):
        break
    rounds += 1
print(json.dumps({"rounds": rounds, "bad": bad}))
"""


@pytest.mark.whole
def test_killed_at_every_single_step_nothing_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    source = tmp_path / "source"
    made = minutes(source, 3)
    annex(made[1], profile_of(samples(START_S + 120)), "2026111513300407")
    work = tmp_path / "work"
    work.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", _KILLED, str(source), str(work)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    document: dict[str, Any] = json.loads(ended.stdout)
    assert document["bad"] == []
    assert document["rounds"] > 30


def test_the_next_recorder_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    minutes(tmp_path, 4)
    compact(tmp_path, ALL, settled_s=None)
    assert len(replaced_in(tmp_path / "segments")) == 4
    take_over(tmp_path)
    assert replaced_in(tmp_path / "segments") == {}
    assert numbers(tmp_path) == [(1, 4)]

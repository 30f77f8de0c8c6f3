"""Who left zombies, second by second: after the grace, across segments, and with events lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.incident import replayed
from sexton.detect.deaths import already_dying, deaths
from sexton.detect.owners import owners
from sexton.explorer.tiles.view import View
from sexton.model.lane import COLUMNS
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupEventGap
from sexton.model.rows.kubernetes import Pod
from sexton.model.window import Batch
from sexton.replay.span import between
from sexton.store.recording import Recording
from tests.support.recordings import WALL_S, write_sealed

START = 1000


def flush(first: int, last: int, dying: int, lost: int = 0) -> dict[type[Row], list[Batch[Any]]]:
    """A reading a second; one cgroup is removed in each and every third is released a second later,
    number 3 only after nine."""
    events: dict[int, list[CgroupEvent]] = {at: [] for at in range(first, last)}
    for at in range(first, last):
        moment = int((START + at - 0.5) * 1e9)
        events[at].append(CgroupEvent("rmdir", at, f"/system.slice/a.service/{at}", moment))
        for dead in {at - 1} if (at - 1) % 3 == 0 and at != 4 else {at - 9} & {3}:
            events[at].append(CgroupEvent("release", dead, "", moment))
    census = CgroupCensus("v1", 1, "/m", "node", dying + 9, 9, dying, "m", None)
    made: dict[type[Row], list[Batch[Any]]] = {
        CgroupEvent: [batch(at, *rows) for at, rows in events.items()],
        CgroupCensus: [batch(first, census), batch(last - 1, census)],
    }
    return made | ({CgroupEventGap: [batch(first, CgroupEventGap(lost))]} if lost else {})


def batch(at: int, *rows: Row) -> Batch[Any]:
    return Batch(float(START + at), WALL_S + START + at, rows)


def line(place: Path, owner: str = "a.service") -> dict[int, float]:
    view = View.open(place)
    assert view.span is not None
    first = int(view.span[0]) // COLUMNS
    strip = view.strip("memcgs", 0, first, int(view.span[1]) // COLUMNS - first + 1)
    row = strip.planes["mean"][0, strip.names.index(f"from {owner}")]
    begin = int(WALL_S) + START
    return {
        first * COLUMNS + at - begin: float(value)
        for at, value in enumerate(row)
        if not np.isnan(value)
    }


def zombies(at: int) -> int:
    """Removed for five seconds and not released."""
    return sum(dead % 3 != 0 or (dead == 3 and at < 12) for dead in range(1, at - 4))


def test_a_zombie_is_one_after_its_grace_and_until_its_release(tmp_path: Path):
    write_sealed(tmp_path, [flush(1, 40, 30)], 1)
    write_sealed(tmp_path, [flush(40, 80, 60)], 2)
    found = line(tmp_path)
    shown = [found[at] for at in range(1, 79)]
    # A second is drawn with the reading at its end.
    assert shown == pytest.approx([zombies(at + 1) for at in range(1, 79)], abs=1e-3)


def test_after_lost_events_there_are_no_more_than_the_census_counts(tmp_path: Path):
    write_sealed(tmp_path, [flush(1, 40, 30)], 1)
    write_sealed(tmp_path, [flush(40, 80, 10, lost=50)], 2)
    found = line(tmp_path)
    assert found[38] == zombies(39)
    assert max(found.values()) > 10 >= found[78]


def test_a_census_after_the_last_reading_of_the_trace_ends_them_for_good(tmp_path: Path):
    for number, dying in enumerate((30, 10, 0, 0)):
        made = flush(max(1, 40 * number), 40 * (number + 1), dying, lost=50 * (number == 1))
        if number > 1:  # nothing is removed any more
            made[CgroupEvent] = [batch(at) for at in range(40 * number, 40 * (number + 1))]
            made[CgroupEvent][0] = batch(40 * number, CgroupEvent("mkdir", 9999, "/x", 0))
        late = made[CgroupCensus][-1]
        made[CgroupCensus][-1] = Batch(late.mono_s + 0.05, late.wall_s + 0.05, late.rows)
        write_sealed(tmp_path, [made], number + 1)
    found = line(tmp_path)
    assert found[77] > 10 >= found[79]
    assert found[119] == found[158] == 0


def test_readings_forty_seconds_apart_are_no_pause(tmp_path: Path):
    for number in range(2):
        first = 1 + 200 * number
        made = flush(first, first + 200, 10)
        read = {at: batch(at) for at in range(first + 39, first + 200, 40)}
        for at, one in zip(range(first, first + 200), made[CgroupEvent], strict=True):
            end = next(end for end in read if end >= at)
            read[end] = batch(end, *read[end].rows, *one.rows)
        write_sealed(tmp_path, [made | {CgroupEvent: [*read.values()]}], number + 1)
    found = line(tmp_path)
    shown = [found.get(at) for at in (79, 100, 239, 260, 399)]
    expected = [zombies(at) for at in (80, 120, 240, 280, 400)]
    assert shown == expected


@pytest.mark.parametrize("first", [1, 155])
def test_after_lost_events_the_verdict_knows_as_many_as_the_lane(tmp_path: Path, first: int):
    for number in range(4):
        begin, end = max(1, 40 * number), 40 * (number + 1)
        write_sealed(tmp_path, [flush(begin, end, 10, lost=50 * (number == 1))], number + 1)
    shown = line(tmp_path)[158]
    begin_s = WALL_S + START
    window = replayed(tmp_path, between(Recording(tmp_path), begin_s + first, begin_s + 159)).window
    traced = deaths(window)
    assert traced is not None
    assert len(traced.unreleased) + len(already_dying(window).deaths) == shown == 6
    assert [owner.dying for owner in owners(window) if owner.unit == "a.service"] == [shown]


def test_a_burst_that_was_freed_while_events_were_lost_is_not_shown_as_zombies(tmp_path: Path):
    made = flush(1, 40, 0)
    burst = [
        CgroupEvent(
            "rmdir", 1_000 + number, f"/system.slice/b.service/{number}", (START + 20) * 10**9
        )
        for number in range(200)
    ]
    made[CgroupEvent][20] = batch(21, *burst, *made[CgroupEvent][20].rows)
    made[CgroupEventGap] = [batch(1), batch(21, CgroupEventGap(500))]
    dying = {at: sum(dead % 3 != 0 for dead in range(1, at)) + 5 for at in range(1, 40)}
    made[CgroupCensus] = [
        batch(at, CgroupCensus("v1", 1, "/m", "node", number + 9, 9, number, "m", None))
        for at, number in dying.items()
    ]
    write_sealed(tmp_path, [made], 1)
    assert line(tmp_path, "b.service")[38] == 0
    assert line(tmp_path)[38] >= 15


def test_containers_of_a_pod_are_one_line_with_its_name(tmp_path: Path):
    events = [
        batch(
            at, CgroupEvent("rmdir", at, f"/kubepods/pod{'a' * 32}/{at:064x}", (START + at) * 10**9)
        )
        for at in range(10)
    ]
    readings = [*events, *(batch(at) for at in range(10, 30))]
    census = CgroupCensus("v1", 1, "/m", "node", 19, 9, 10, "m", None)
    # The name is read after the first deaths: they are not counted under two owners.
    named = [batch(12, Pod("a" * 32, "prod", "api-7c9f4d5b6-x2k4z"))]
    tables = {CgroupEvent: readings, CgroupCensus: [batch(0, census)], Pod: named}
    write_sealed(tmp_path, [tables])
    assert [*line(tmp_path, "pods prod/api-*").values()][-1] == 10

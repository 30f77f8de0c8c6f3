"""What is kept, what goes first, and that the directory stays bounded whatever happens."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.store.layout import prepare, segments_in
from sexton.store.pins import Pin, add_pin, drop_pin, pins_in
from sexton.store.recording import Recording
from sexton.store.retention import PINNED_SHARE, Limits, Retention, size_of
from tests.support.annexes import annex, samples
from tests.support.examples import examples
from tests.support.profiles import profile_of
from tests.support.recordings import BOOT, HEADER, WALL_S, scratch, simple, write_sealed

OTHER_BOOT = "0f8c2f5e-0000-4000-8000-000000000002"
HOUR = 3600.0


def fill(directory: Path, number: int, boot_id: str = BOOT, first: int = 1) -> None:
    """Segments one minute after the other, from minute `first` on."""
    for sequence in range(first, first + number):
        moment = sequence * 60.0
        write_sealed(directory, [simple(moment)], sequence, {**HEADER, "boot_id": boot_id})


def kept(directory: Path) -> list[int]:
    return [name.sequence for name in segments_in(directory / "segments")]


def one(directory: Path) -> int:
    """What a segment takes."""
    return max(size_of(path) for path in (directory / "segments").iterdir())


def pin(name: str, minute: int, boot_id: str = BOOT) -> Pin:
    start_s = minute * 60.0
    return Pin(name, "mark", name, "", boot_id, start_s, start_s + 1.0, WALL_S + start_s)


def loose(directory: Path, name: str, minute: float, size: int = 4096) -> Path:
    path = directory / name
    path.write_bytes(b"x" * size)
    os.utime(path, (WALL_S + minute * 60.0,) * 2)
    return path


def at(minute: float, wall_off_s: float = 0.0) -> tuple[float, float]:
    return minute * 60.0, WALL_S + minute * 60.0 + wall_off_s


def held(directory: Path) -> int:
    places = [*(directory / "segments").iterdir(), directory / "stacks", directory / "rings"]
    return sum(size_of(place) for place in places)


def test_what_is_too_old_goes(tmp_path: Path):
    fill(tmp_path, 6)
    keeper = Retention(tmp_path, Limits(150.0, 1 << 40))
    assert keeper.tidy(at(6.5), BOOT) == []
    assert kept(tmp_path) == [4, 5, 6]
    assert keeper.bytes == sum(size_of(path) for path in (tmp_path / "segments").iterdir())
    assert Recording(tmp_path).problems == []
    assert len(os.listdir(tmp_path / "segments")) == 3


def segments(directory: Path) -> list[Path]:
    return list((directory / "segments").iterdir())


@pytest.mark.parametrize("jump_s", [13 * HOUR, -13 * HOUR, 1e9])
def test_a_wall_clock_that_jumps_deletes_nothing_of_this_boot(tmp_path: Path, jump_s: float):
    fill(tmp_path, 4)
    (tmp_path / "segments" / "00000002-20231114T221320Z" / "manifest.json").write_text("damaged")
    path = loose(tmp_path / "stacks", "perf.data.1", 2)
    keeper = Retention(tmp_path, Limits(12 * HOUR, 1 << 40))
    assert keeper.tidy(at(5, jump_s), BOOT) == []
    assert kept(tmp_path) == [1, 2, 3, 4]
    assert path.exists()


def test_segments_of_an_earlier_boot_age_by_the_wall(tmp_path: Path):
    fill(tmp_path, 2, OTHER_BOOT)
    fill(tmp_path, 2, BOOT, first=3)
    keeper = Retention(tmp_path, Limits(12 * HOUR, 1 << 40))
    keeper.tidy((300.0, WALL_S + 300.0), BOOT)
    assert kept(tmp_path) == [1, 2, 3, 4]
    keeper.tidy((300.0, WALL_S + 13 * HOUR), BOOT)
    assert kept(tmp_path) == [3, 4]


def test_past_the_bytes_the_oldest_goes_by_sequence(tmp_path: Path):
    fill(tmp_path, 6)
    keeper = Retention(tmp_path, Limits(1e9, 3 * one(tmp_path)))
    keeper.tidy(at(7), BOOT)
    assert kept(tmp_path) == [4, 5, 6]
    keeper.tidy(at(7), BOOT, other_bytes=one(tmp_path))
    assert kept(tmp_path) == [5, 6]


def test_pinned_segments_outlive_age_and_bytes(tmp_path: Path):
    fill(tmp_path, 6)
    add_pin(tmp_path, pin("a", 2))
    keeper = Retention(tmp_path, Limits(90.0, 3 * one(tmp_path)))
    assert keeper.tidy(at(100), BOOT) == []
    assert kept(tmp_path) == [2]
    assert [item.id for item in pins_in(tmp_path)[0]] == ["a"]


def test_a_pin_holds_the_segment_that_has_the_stacks_of_its_minutes(tmp_path: Path):
    fill(tmp_path, 6)
    keeper = Retention(tmp_path, Limits(HOUR, 1 << 40))
    add_pin(tmp_path, pin("noon", 2))
    keeper.tidy(at(6), BOOT)  # what it knows of the segments is from before the annex
    four = sorted((tmp_path / "segments").iterdir())[3]
    annex(four, profile_of(samples(start_s=119.0, seconds=130)))  # begins in minute 1
    keeper.tidy(at(70), BOOT)
    assert kept(tmp_path) == [2, 4]


def test_a_pin_of_another_boot_holds_nothing_and_goes(tmp_path: Path):
    fill(tmp_path, 3)
    add_pin(tmp_path, pin("a", 2, OTHER_BOOT))
    Retention(tmp_path, Limits(30.0, 1 << 40)).tidy(at(100), BOOT)
    assert kept(tmp_path) == []
    assert pins_in(tmp_path) == ([], [])


def test_a_pin_of_minutes_that_are_not_sealed_yet_stays(tmp_path: Path):
    fill(tmp_path, 3)
    add_pin(tmp_path, pin("a", 9))
    keeper = Retention(tmp_path, Limits(600.0, 1 << 40))
    keeper.tidy(at(5), BOOT)
    assert [item.id for item in pins_in(tmp_path)[0]] == ["a"]
    keeper.tidy(at(100), BOOT)
    assert pins_in(tmp_path) == ([], [])


def test_pins_past_their_share_give_way_the_oldest_first_and_that_is_told(tmp_path: Path):
    fill(tmp_path, 8)
    for minute in range(1, 7):
        add_pin(tmp_path, pin(f"p{minute}", minute))
    most = 6 * one(tmp_path)
    lines = Retention(tmp_path, Limits(1e9, most)).tidy(at(9), BOOT)
    assert lines == [
        f"mark p{minute}: pinned minutes take more than their share" for minute in (1, 2, 3)
    ]
    assert [item.id for item in pins_in(tmp_path)[0]] == ["p4", "p5", "p6"]
    assert {4, 5, 6} <= set(kept(tmp_path))
    assert held(tmp_path) <= most


def test_a_pin_that_holds_nothing_yet_does_not_give_way(tmp_path: Path):
    fill(tmp_path, 4)
    late = pin("late", 5)
    add_pin(tmp_path, Pin(**{**asdict(late), "wall_s": 0.0}))  # by a clock that was wrong
    for minute in range(1, 5):
        add_pin(tmp_path, pin(f"p{minute}", minute))
    lines = Retention(tmp_path, Limits(1e9, 4 * one(tmp_path))).tidy(at(5), BOOT)
    assert [line.partition(":")[0] for line in lines] == ["mark p1", "mark p2"]
    assert {item.id for item in pins_in(tmp_path)[0]} == {"late", "p3", "p4"}


def test_pins_leave_room_for_other_bytes(tmp_path: Path):
    fill(tmp_path, 4)
    add_pin(tmp_path, pin("a", 1))
    add_pin(tmp_path, pin("b", 4))
    size = one(tmp_path)
    lines = Retention(tmp_path, Limits(1e9, 4 * size)).tidy(at(5), BOOT, other_bytes=3 * size)
    assert len(lines) == 1
    assert kept(tmp_path) == [4]


def test_damaged_segments_age_out_and_make_room_like_the_others(tmp_path: Path):
    fill(tmp_path, 4)
    for name in segments(tmp_path):
        if name.name.startswith(("00000001", "00000003")):
            (name / "manifest.json").write_text("damaged")
            os.utime(name, (WALL_S + 60.0,) * 2)
    keeper = Retention(tmp_path, Limits(150.0, 1 << 40))
    keeper.tidy(at(4.6), BOOT)
    assert kept(tmp_path) == [3, 4]  # by the wall 3 is old enough; by its neighbour it is not
    Retention(tmp_path, Limits(1e9, one(tmp_path))).tidy(at(4.5), BOOT)
    assert kept(tmp_path) == [4]
    Retention(tmp_path, Limits(10.0, 1 << 40)).tidy(at(99), BOOT)
    assert kept(tmp_path) == []


def test_room_for_newest_minutes_is_made_by_the_oldest_unpinned(tmp_path: Path):
    fill(tmp_path, 3)
    add_pin(tmp_path, pin("a", 1))
    keeper = Retention(tmp_path, Limits(1e9, 1 << 40))
    assert keeper.drop_oldest().startswith("00000002")
    assert keeper.drop_oldest().startswith("00000003")
    assert keeper.drop_oldest() == ""
    assert kept(tmp_path) == [1]


def test_stacks_and_rings_count_and_go_with_the_minutes_they_are_of(tmp_path: Path):
    fill(tmp_path, 4)
    size = one(tmp_path)
    for minute in range(1, 5):
        loose(tmp_path / "stacks", f"perf.data.{minute}", minute - 0.5, size)
    loose(tmp_path / "rings", "a.parquet", 3.5, size)
    most = 5 * size
    Retention(tmp_path, Limits(1e9, most)).tidy(at(5), BOOT)
    assert held(tmp_path) <= most
    assert kept(tmp_path) == [3, 4]
    assert sorted(os.listdir(tmp_path / "stacks")) == ["perf.data.3", "perf.data.4"]
    assert os.listdir(tmp_path / "rings") == ["a.parquet"]


def test_stacks_age_out_by_the_wall(tmp_path: Path):
    fill(tmp_path, 1, first=100)
    old = loose(tmp_path / "stacks", "perf.data.1", 1)
    new = loose(tmp_path / "stacks", "perf.data.2", 100)
    write_sealed(tmp_path, [simple(6000.0)], 101)
    (tmp_path / "segments" / "00000101-20231114T221320Z" / "manifest.json").write_text("damaged")
    Retention(tmp_path, Limits(HOUR, 1 << 40)).tidy(at(101), BOOT)
    assert not old.exists()
    assert new.exists()


def test_the_ring_of_a_pinned_alarm_is_kept_with_its_minutes_and_given_up_with_them(tmp_path: Path):
    fill(tmp_path, 4)
    add_pin(tmp_path, pin("a", 1))
    ring = loose(tmp_path / "rings", "a.parquet", 1.01)
    Retention(tmp_path, Limits(HOUR, 1 << 40)).tidy(at(200), BOOT)
    assert ring.exists()
    assert kept(tmp_path) == [1]
    Retention(tmp_path, Limits(HOUR, 4096)).tidy(at(200), BOOT)
    assert not ring.exists()
    assert kept(tmp_path) == []


def test_what_perf_writes_into_and_this_boots_symbols_are_not_deleted(tmp_path: Path):
    prepare(tmp_path)
    names = ["perf.data", f"kallsyms-{BOOT}.gz", f"kallsyms-{OTHER_BOOT}.gz", "perf.data.1"]
    for name in names:
        loose(tmp_path / "stacks", name, 1)
    Retention(tmp_path, Limits(HOUR, 0)).tidy(at(200), BOOT)
    assert sorted(os.listdir(tmp_path / "stacks")) == sorted(names[:2])


@settings(max_examples=examples(25))
@given(st.data())
def test_whatever_lies_there_it_is_bounded_afterwards(data):
    with scratch() as place:
        prepare(place)
        fill(place, data.draw(st.integers(1, 5)))
        size = one(place)
        for number in data.draw(st.lists(st.integers(0, 6), max_size=5)):
            add_pin(
                place, pin(f"p{number}", number, data.draw(st.sampled_from([BOOT, OTHER_BOOT])))
            )
        for number, minute in enumerate(data.draw(st.lists(st.floats(0, 10), max_size=5))):
            folder = data.draw(st.sampled_from(["stacks", "rings"]))
            loose(place / folder, f"f{number}", minute, data.draw(st.integers(0, 3 * size)))
        most = data.draw(st.integers(0, 12)) * size
        elsewhere = data.draw(st.integers(0, 3)) * size
        before = set(kept(place))
        keeper = Retention(place, Limits(1e9, most))
        keeper.tidy(at(11), BOOT, elsewhere)
        assert held(place) == 0 or held(place) + elsewhere <= most
        pinned = sum(
            item.bytes
            for item in keeper._kept.values()
            if any(p.holds(item.own) for p in pins_in(place)[0])
        )
        assert pinned <= most * PINNED_SHARE
        gone = before - set(kept(place))
        assert keeper.tidy(at(11), BOOT, elsewhere) == []
        assert before - set(kept(place)) == gone


def test_pins_are_read_back_oldest_first_and_others_are_named(tmp_path: Path):
    prepare(tmp_path)
    hostile = Pin("b", "nic_reset", "eth\udcff", 'a"\n', BOOT, 1.0, 2.0, 3.0)
    add_pin(tmp_path, pin("a", 5))
    add_pin(tmp_path, hostile)
    add_pin(tmp_path, hostile)
    (tmp_path / "pins" / ".new-c.json").write_text("{")
    junk = ["{", "[]", "3", "{}", '{"kind": 1}', "null", "[" * 60_000]
    for index, text in enumerate(junk):
        (tmp_path / "pins" / f"junk{index}.json").write_text(text)
    nan = '{"kind":"","about":"","detail":"","boot_id":"","start_s":NaN,"end_s":0,"wall_s":0}'
    (tmp_path / "pins" / "nan.json").write_text(nan)
    (tmp_path / "pins" / "x\x1b.txt").write_text(nan.replace("NaN", "0"))
    found, problems = pins_in(tmp_path)
    assert found == [hostile, pin("a", 5)]
    assert len(problems) == len(junk) + 2
    assert all(problem.isprintable() for problem in problems)
    assert drop_pin(tmp_path, hostile)
    assert pins_in(tmp_path)[0] == [pin("a", 5)]


@pytest.mark.parametrize("name", ["../a", "", "a/b", ".hidden", "a\nb", "x" * 300])
def test_a_pins_id_must_be_a_files_name(tmp_path: Path, name: str):
    prepare(tmp_path)
    with pytest.raises(ValueError, match="not a name"):
        add_pin(tmp_path, Pin(name, "mark", "", "", BOOT, 1.0, 2.0, 3.0))
    assert os.listdir(tmp_path / "pins") == []

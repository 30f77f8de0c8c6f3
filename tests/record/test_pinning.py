"""Which alarms share their minutes."""

from __future__ import annotations

from sexton.record.triggers import Pinning, Raised


def held(core: int, now: float, *, goes_on: bool = False) -> Raised:
    return Raised("held_core", f"core {core}", "held", now, goes_on)


def test_a_machine_that_hangs_on_every_core_is_one_pin_and_one_closer_look() -> None:
    pinning = Pinning("boot")
    placed = [pinning.place(held(core, 1000.0)) for core in range(192)]
    assert all(each.is_news for each in placed), "each core is told"
    assert len({each.pin.id for each in placed}) == 1
    assert sum(each.is_first for each in placed) == 1
    assert sum(each.is_moved for each in placed) == 1


def test_while_it_goes_on_for_all_of_them_the_one_pin_is_moved_now_and_then() -> None:
    pinning = Pinning("boot")
    for core in range(192):
        pinning.place(held(core, 1000.0))
    moved = [
        pinning.place(held(core, 1000.0 + second, goes_on=True))
        for second in range(1, 62)
        for core in range(192)
    ]
    assert not any(each.is_news for each in moved)
    assert sum(each.is_moved for each in moved) == 2
    assert moved[-1].pin.end_s == 1060.0 + 120.0


def test_a_core_that_is_held_later_has_a_pin_of_its_own() -> None:
    pinning = Pinning("boot")
    first = pinning.place(held(0, 1000.0)).pin
    later = pinning.place(held(1, 1100.0))
    assert later.is_first
    assert later.pin.id != first.id
    assert (later.pin.start_s, later.pin.end_s) == (800.0, 1220.0)


def test_two_remarks_of_one_moment_are_two() -> None:
    pinning = Pinning("boot")
    said = [pinning.place(Raised("mark", text, text, 1000.0)).pin for text in ("a", "b")]
    assert [pin.about for pin in said] == ["a", "b"]
    assert len({pin.id for pin in said}) == 2


def test_a_flood_of_names_is_bounded() -> None:
    pinning = Pinning("boot")
    for number in range(5000):
        pinning.place(Raised("nic_reset", f"eth{number}", "", 1000.0))
    assert len(pinning._pins) == len(pinning._of) == 2000

"""What raises an alarm, and what does not."""

from __future__ import annotations

import pytest

from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupEventGap
from sexton.model.rows.cpu import CoreTimes, SoftirqWait
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import Nic, NicCounter
from sexton.model.rows.node import Node
from sexton.model.window import Batch
from sexton.record.triggers import CALM_S, LONGEST_S, Pinning, Raised, Triggers, _LeakWatch


def core(cpu: int, system_ms: int, user_ms: int = 0, softirq_ms: int = 0) -> CoreTimes:
    return CoreTimes(cpu, user_ms, 0, system_ms, 0, 0, 0, softirq_ms, 0)


def watched(seconds: int, system: int = 0, user: int = 0, softirq: int = 0) -> list[Raised]:
    """Alarms while core 5 spends so many ms a second and core 0 sleeps."""
    triggers = Triggers()
    return [
        raised
        for now in range(seconds + 1)
        for raised in triggers.feed(
            CoreTimes,
            Batch(float(now), 0.0, (core(0, 0), core(5, now * system, now * user, now * softirq))),
        )
    ]


def test_a_core_held_in_the_kernel_for_two_seconds_is_told_once_and_then_goes_on() -> None:
    alarms = watched(6, system=960)
    words = "core 5 in the kernel for 2.0 s so far"
    assert alarms[0] == Raised("held_core", "core 5", words, 2.0)
    assert alarms[-1].detail == "core 5 in the kernel for 6.0 s so far"
    assert [alarm.goes_on for alarm in alarms] == [False, True, True, True, True]


def test_softirq_time_holds_a_core_as_well() -> None:
    assert watched(3, system=400, softirq=550)[0].about == "core 5"


def test_one_second_is_a_burst_and_user_time_is_work() -> None:
    assert watched(1, system=1000) == []
    assert watched(10, user=1000) == []
    assert watched(10, system=800, user=200) == []


def test_counters_that_start_again_raise_nothing() -> None:
    triggers = Triggers()
    alarms = [
        raised
        for now, spent in enumerate((9_000_000, 9_000_960, 0, 960, 5))
        for raised in triggers.feed(CoreTimes, Batch(float(now), 0.0, (core(5, spent),)))
    ]
    assert alarms == []


def test_what_lasts_stops_being_an_alarm_until_it_was_calm() -> None:
    alarms = watched(int(LONGEST_S) + 300, system=1000)
    assert alarms[-1].mono_s <= LONGEST_S + 2.0
    triggers = Triggers()
    held = {0: 0, 1: 1000, 2: 2000, int(CALM_S) + 10: 2000, int(CALM_S) + 11: 3000}
    held[int(CALM_S) + 12] = 4000
    again = [
        raised.goes_on
        for now, spent in held.items()
        for raised in triggers.feed(CoreTimes, Batch(float(now), 0.0, (core(5, spent),)))
    ]
    assert again == [False, False]


def event(family: str, mono_us: int | None, **fields: int | str) -> KernelEvent:
    return KernelEvent("some_pattern", family, "a line\x1b[2J", mono_us, None, fields)


def test_a_nic_reset_and_a_soft_lockup_are_told_by_whom_they_concern() -> None:
    rows = (event("nic_reset", 99_000_000, nic="eth0"), event("soft_lockup", 99_500_000, cpu=3))
    alarms = Triggers().feed(KernelEvent, Batch(100.0, 0.0, rows))
    assert [(alarm.kind, alarm.about) for alarm in alarms] == [
        ("nic_reset", "eth0"),
        ("soft_lockup", "3"),
    ]
    assert "\x1b" not in alarms[0].detail


def test_the_lines_of_one_reset_are_one_alarm_whether_they_name_the_nic_or_its_place() -> None:
    triggers = Triggers()
    nic = Nic("eth0", True, "ena", None, "0000:20:03.0", "up")
    assert triggers.feed(Nic, Batch(1.0, 0.0, (nic,))) == []
    rows = (
        event("nic_starved", 99_000_000, nic="eth0", bus="0000:20:03.0"),
        event("nic_reset", 99_100_000, bus="0000:20:03.0"),
    )
    alarms = triggers.feed(KernelEvent, Batch(100.0, 0.0, rows))
    assert {alarm.about for alarm in alarms} == {"eth0"}


def test_lines_from_before_the_recorder_raise_nothing() -> None:
    rows = (event("nic_reset", 5_000_000, nic="eth0"), event("nic_reset", None, nic="eth0"))
    assert Triggers().feed(KernelEvent, Batch(100.0, 0.0, rows)) == []


def census(dying: int | None, live: int) -> Batch[CgroupCensus]:
    row = CgroupCensus("v1", 1, "/sys/fs/cgroup/memory", "node", None, live, dying, "x", None)
    return Batch(1.0, 0.0, (row,))


def test_zombies_are_told_past_the_limit_and_at_each_doubling() -> None:
    triggers = Triggers()
    told = [
        bool(triggers.feed(CgroupCensus, census(dying, 240)))
        for dying in (None, 20, 499, 500, 600, 999, 1000, 1999, 2000)
    ]
    assert told == [False, False, False, True, False, False, True, False, True]


def leaking(
    per_s: float, until: float, *, kept: bool = True, traced: bool = True, uptime_s: float = 9e4
) -> list[Raised]:
    """Cgroups that are made and removed at a pace, and kept or released after a second; a count of
    ten live ones and of the dying every ten seconds, the events of each half second in between."""
    triggers, raised, died = Triggers(), [], 0
    fields = dict.fromkeys(Node.__dataclass_fields__) | {"uptime_s": uptime_s}
    triggers.feed(Node, Batch(0.0, 0.0, (Node(**fields),)))
    for half in range(int(until * 2) + 1):
        now, rows = half / 2, []
        for number in range(died, int(now * per_s)):
            path, at = f"/a.slice/job-{number}.scope", int(now * 1e9)
            rows += [CgroupEvent(kind, number, path, at) for kind in ("mkdir", "rmdir")]
            if not kept:
                rows.append(CgroupEvent("release", number, path, at + 10**9))
            died = number + 1
        if traced:
            raised += triggers.feed(CgroupEvent, Batch(now, now, tuple(rows)))
        if now % 10 == 0:
            staying = died if kept else int(per_s)
            row = CgroupCensus("v2", 2, "/c", "node", None, 10, staying, "x", None)
            raised += triggers.feed(CgroupCensus, Batch(now, now, (row,)))
    return raised


@pytest.mark.parametrize(
    ("per_s", "until", "traced"),
    [
        (10.0, 20.0, True),  # 200 are dying
        (10.0, 40.0, False),
        (0.1, 130.0, True),  # the slow original
        (0.02, 600.0, True),  # 1,000 within a day
    ],
)
def test_a_proven_leak_is_told_long_before_there_are_many(per_s, until, traced) -> None:
    raised = leaking(per_s, until, traced=traced)
    assert {(alarm.kind, alarm.about) for alarm in raised} == {("zombie_memcgs", "leak")}
    assert [alarm.goes_on for alarm in raised] == [False] + [True] * (len(raised) - 1)
    assert "an hour" in raised[0].detail
    assert ("from /a.slice/job-*.scope" in raised[0].detail) is traced


def test_healthy_churn_and_boot_are_no_leak() -> None:
    assert leaking(20.0, 120.0, kept=False) == []
    assert leaking(0.001, 3600.0) == []  # 86 a day
    assert leaking(0.3, 120.0, traced=False, uptime_s=60.0) == []


def test_what_a_leak_is_judged_by_stays_small() -> None:
    watch = _LeakWatch()
    for half in range(20_000):
        rows = (CgroupEvent("rmdir", half, "/a", half),) if half % 5000 < 4500 else ()
        watch.add(CgroupEvent, Batch(half / 2, 0.0, rows))
        watch.add(CgroupEventGap, Batch(half / 2, 0.0, ()))
    assert len(watch._events) <= 4500
    assert not watch._lost


def test_zombies_that_went_and_came_back_are_told_again() -> None:
    triggers = Triggers()
    told = [
        bool(triggers.feed(CgroupCensus, census(dying, 240)))
        for dying in (2000, 1900, 2100, 30, 400, 600, 700)
    ]
    assert told == [True, False, False, False, False, True, False]


def test_many_zombies_beside_more_live_ones_raise_nothing() -> None:
    assert Triggers().feed(CgroupCensus, census(5_000, 4_000)) == []


def test_a_second_of_waiting_is_told_before_the_driver_loses_patience() -> None:
    def row(cpu: int, longest: int | None, pending: int | None) -> SoftirqWait:
        return SoftirqWait(cpu, "NET_RX", 10, 10, 100, longest, pending, (10,))

    rows = (row(0, 900_000, None), row(1, 1_200_000, None), row(2, None, 2_000_000))
    alarms = Triggers().feed(SoftirqWait, Batch(1.0, 0.0, rows))
    assert [(alarm.kind, alarm.about) for alarm in alarms] == [
        ("softirq_wait", "core 1"),
        ("softirq_wait", "core 2"),
    ]
    assert alarms[1].detail == "NET_RX of core 2 waited 2.0 s"


def held(core: int, now: float, *, goes_on: bool = False) -> Raised:
    return Raised("held_core", f"core {core}", "held", now, goes_on)


def test_a_machine_that_hangs_on_every_core_is_one_pin_and_one_closer_look() -> None:
    pinning = Pinning("boot")
    placed = [pinning.place(held(core, 1000.0)) for core in range(192)]
    assert all(item.is_news for item in placed), "each core is told"
    assert len({item.pin.id for item in placed}) == 1
    assert sum(item.is_first for item in placed) == 1
    assert sum(item.is_moved for item in placed) == 1


def test_while_it_goes_on_for_all_of_them_the_one_pin_is_moved_now_and_then() -> None:
    pinning = Pinning("boot")
    for core in range(192):
        pinning.place(held(core, 1000.0))
    moved = [
        pinning.place(held(core, 1000.0 + second, goes_on=True))
        for second in range(1, 62)
        for core in range(192)
    ]
    assert not any(placed.is_news for placed in moved)
    assert sum(placed.is_moved for placed in moved) == 2
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


def _counted(*readings: dict[str, int]) -> list[Raised]:
    """Alarms while a NIC's counters read so, a second apart."""
    triggers = Triggers()
    return [
        raised
        for now, values in enumerate(readings)
        for raised in triggers.feed(
            NicCounter,
            Batch(float(now), 0.0, tuple(NicCounter("eth0", *pair) for pair in values.items())),
        )
    ]


def test_a_reset_that_only_a_counter_shows_is_an_alarm() -> None:
    alarms = _counted(
        {"tx_timeout": 3, "rx_bytes": 1}, {"tx_timeout": 3, "rx_bytes": 9}, {"tx_timeout": 4}
    )
    words = "eth0: the driver's counter tx_timeout has risen"
    assert alarms == [Raised("nic_reset", "eth0", words, 2.0)]


def test_counters_of_resets_that_are_new_or_begin_again_are_no_alarm() -> None:
    assert _counted({}, {"total_resets": 7}, {"total_resets": 0}, {}, {"total_resets": 7}) == []


def test_a_line_and_a_counter_of_one_reset_are_one_alarm() -> None:
    triggers = Triggers()
    for now, value in ((0.0, 1), (1.0, 2)):
        row = NicCounter("eth0", "total_resets", value)
        raised = triggers.feed(NicCounter, Batch(now, 0.0, (row,)))
    assert [alarm.goes_on for alarm in raised] == [False]
    line = KernelEvent("some_pattern", "nic_reset", "eth0: reset", 1_000_000, None, {"nic": "eth0"})
    (again,) = triggers.feed(KernelEvent, Batch(2.0, 0.0, (line,)))
    assert (again.kind, again.about, again.goes_on) == ("nic_reset", "eth0", True)

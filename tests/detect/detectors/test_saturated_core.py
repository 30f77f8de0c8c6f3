"""Which core was held in the kernel, for how long, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.detectors.cpu.saturated_core import BY_KIND, detect
from sexton.model.finding import Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.task import Thread
from sexton.model.window import Window
from tests.support.windows import EPOCH, make_window


class Core:
    """A core's counters, moved on step by step."""

    def __init__(self, cpu: int) -> None:
        self.cpu = cpu
        self.user = self.system = self.softirq = 50_000
        self.idle = 900_000

    def run(self, system: float = 0.0, user: float = 0.0, softirq: float = 0.0) -> CoreTimes:
        """A second later, with these shares of it."""
        self.system += int(1000 * system)
        self.user += int(1000 * user)
        self.softirq += int(1000 * softirq)
        self.idle += int(1000 * max(0.0, 1 - system - user - softirq))
        return self.row()

    def row(self) -> CoreTimes:
        return CoreTimes(self.cpu, self.user, 0, self.system, self.idle, 0, 0, self.softirq, 0)


def cores(shares: Sequence[float], cpu: int = 5) -> Window:
    """A window of one core with these system shares, second by second."""
    core = Core(cpu)
    readings: list[tuple[float, Sequence[Row]]] = [(0.0, [core.row()])]
    readings += [(second, [core.run(share)]) for second, share in enumerate(shares, 1)]
    return make_window(readings)


def thread(tid: int, cpu: int, system_ms: float, comm: str = "kubelet") -> Thread:
    return Thread(2113, tid, comm, "R", 5000, 100, int(system_ms), cpu)


def burning(threads: Callable[[int], Sequence[Thread]], lag_s: float = 0.03) -> Window:
    """Core 5 held for five seconds, with these threads read a moment after the core."""
    core = Core(5)
    readings: list[tuple[float, Sequence[Row]]] = []
    for second in range(6):
        readings.append((second, [core.run(1.0) if second else core.row()]))
        readings.append((second + lag_s, threads(second)))
    return make_window(readings, empty=())


def test_the_burning_thread_is_blamed_and_not_its_leader_on_another_core():
    finding = detect(burning(lambda s: [thread(2113, 2, 50), thread(2140, 5, 1000 * s)]))
    assert finding.entities["task"] == ("kubelet[2113/2140]",)
    assert finding.entities["core"] == ("5",)


def test_a_thread_that_burns_elsewhere_is_not_blamed_for_this_core():
    finding = detect(burning(lambda s: [thread(2140, 7, 1000 * s)]))
    assert "task" not in finding.entities
    assert finding.missing[0].grant == "sudo perf top -g -C 5"


def test_a_thread_first_seen_after_it_began_to_burn_is_blamed():
    def threads(second: int) -> list[Thread]:
        return [thread(2140, 5, 1000 * second)] if second >= 2 else []

    assert detect(burning(threads)).entities["task"] == ("kubelet[2113/2140]",)


def test_a_thread_seen_for_a_fraction_of_the_stall_is_not_blamed():
    def threads(second: int) -> list[Thread]:
        return [thread(2140, 5, 1000 * second)] if second >= 4 else []

    assert "task" not in detect(burning(threads)).entities


def test_a_thread_that_jumps_between_cores_is_believed_only_for_half():
    finding = detect(burning(lambda s: [thread(2140, 5 if s % 2 else 6, 980 * s)]))
    assert "task" not in finding.entities


def test_threads_read_every_other_second_still_name_a_stall_that_ends_in_between():
    core = Core(5)
    readings: list[tuple[float, Sequence[Row]]] = [(0, [core.row()])]
    readings += [(s, [core.run(1.0 if 3 <= s <= 7 else 0.0)]) for s in range(1, 9)]
    burnt = {4: 2000, 6: 4000, 8: 5000}
    readings += [(s + 0.02, [thread(2140, 5, ms)]) for s, ms in burnt.items()]
    assert detect(make_window(readings)).entities["task"] == ("kubelet[2113/2140]",)


def test_threads_of_one_process_that_take_turns_are_blamed_as_the_process():
    finding = detect(burning(lambda s: [thread(1, 5, 450 * s), thread(2, 5, 450 * s)]))
    assert finding.entities["task"] == ("kubelet[2113]",)
    assert "kubelet[2113], 2 threads on core 5" in [item.what for item in finding.evidence]


def test_two_processes_that_share_the_core_are_both_below_the_limit():
    def threads(second: int) -> list[Thread]:
        return [Thread(pid, pid, "x", "R", 10, 0, 450 * second, 5) for pid in (8, 9)]

    assert "task" not in detect(burning(threads)).entities


def test_a_reused_thread_id_is_another_thread():
    def threads(second: int) -> list[Thread]:
        return [Thread(9, 9, "x", "R", second, 0, 1000 * second, 5)]

    assert "task" not in detect(burning(threads)).entities


def test_a_kernel_thread_is_blamed_by_its_name():
    def threads(second: int) -> list[Thread]:
        return [Thread(812, 812, "kworker/5:1", "R", 10, 0, 990 * second, 5)]

    assert detect(burning(threads)).entities["task"] == ("kworker/5:1[812]",)


def test_a_hostile_name_is_escaped():
    def threads(second: int) -> list[Thread]:
        return [Thread(9, 9, "\x1b[2J\n", "R", 1, 0, 1000 * second, 5)]

    finding = detect(burning(threads))
    assert finding.entities["task"] == ("\\x1b[2J\\n[9]",)
    assert "\x1b" not in finding.summary


def test_threads_never_read_are_said_to_be_missing():
    finding = detect(cores([1.0] * 4))
    assert finding.verdict is Verdict.PRESENT
    assert "not recorded" in finding.missing[0].what


@pytest.mark.parametrize(
    ("shares", "verdict", "severity"),
    [
        ([0.9, 0.9], Verdict.PRESENT, Severity.WARNING),
        ([0.89, 0.89, 0.89], Verdict.ABSENT, Severity.INFO),
        ([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], Verdict.ABSENT, Severity.INFO),
        ([1.0] * 4, Verdict.PRESENT, Severity.WARNING),
        ([1.0] * 5, Verdict.PRESENT, Severity.CRITICAL),
        ([0.0, 0.8, 1.0, 1.0, 1.0, 0.8, 0.0], Verdict.PRESENT, Severity.WARNING),
    ],
)
def test_the_limits_and_their_edges(shares, verdict, severity):
    finding = detect(cores(shares))
    assert (finding.verdict, finding.severity) == (verdict, severity)


def test_a_stall_is_as_long_as_its_whole_steps_and_its_shares_are_of_them():
    finding = detect(cores([0.0, 0.4, 1.0, 0.96, 1.0, 1.0, 0.4, 0.0]))
    assert finding.evidence[0].number == pytest.approx(4.0)
    assert finding.start == pytest.approx(EPOCH + 2.0, rel=0, abs=1e-3)
    assert finding.end == pytest.approx(EPOCH + 6.0, rel=0, abs=1e-3)
    assert "for 4.0 s" in finding.summary
    (kinds,) = (item for item in finding.evidence if item.what.endswith(BY_KIND))
    assert kinds.number == pytest.approx(99.0)


def test_a_counter_that_goes_backwards_ends_the_stall_and_is_no_burst():
    core = Core(5)
    readings = [(s, [core.run(1.0) if s else core.row()]) for s in range(3)]
    core.system = 0  # the counter started again
    readings += [(s, [core.run(0.1)]) for s in (3, 4, 5)]
    finding = detect(make_window(readings))
    assert finding.verdict is Verdict.PRESENT
    assert finding.evidence[0].number == pytest.approx(2.0)


def test_counters_that_only_go_backwards_are_unknown():
    readings = [(s, [CoreTimes(0, 900 - s, 0, 900 - s, 0, 0, 0, 0, 0)]) for s in range(4)]
    assert detect(make_window(readings)).verdict is Verdict.UNKNOWN


def test_a_core_that_was_offline_in_between_was_not_held_meanwhile():
    other, core = Core(0), Core(5)
    readings: list[tuple[float, Sequence[Row]]] = [(0, [other.row(), core.row()])]
    for second in range(1, 9):
        core.run(1.0)
        rows = [other.run(0.1)] + ([] if second in (2, 3, 4, 5, 6, 7) else [core.row()])
        readings.append((second, rows))
    assert detect(make_window(readings)).verdict is Verdict.ABSENT


def test_a_core_busy_in_user_mode_is_not_a_problem():
    core = Core(0)
    readings = [(s, [core.run(0.05, user=0.95) if s else core.row()]) for s in range(11)]
    finding = detect(make_window(readings))
    assert finding.verdict is Verdict.ABSENT
    assert "core 0, 5 %" in finding.summary


def test_a_flood_says_softirq_and_not_kernel():
    core = Core(3)
    readings = [(s, [core.run(0.05, softirq=0.94) if s else core.row()]) for s in range(6)]
    finding = detect(make_window(readings))
    assert "held in softirq" in finding.summary
    (kind,) = [item for item in finding.evidence if item.what.endswith("by kind")]
    assert kind.number == pytest.approx(5)
    assert "softirq 94 %" in kind.value


def test_two_cores_are_both_named_the_longest_first():
    five, nine = Core(5), Core(9)
    readings: list[tuple[float, Sequence[Row]]] = [(0, [five.row(), nine.row()])]
    readings += [(s, [five.run(1.0 if s < 3 else 0), nine.run(1.0)]) for s in range(1, 7)]
    finding = detect(make_window(readings))
    assert finding.entities["core"] == ("9", "5")
    assert "core 9 (and 1 more core)" in finding.summary


def test_a_core_held_twice_is_named_once_with_its_longest_stall():
    finding = detect(cores([1, 1, 0, 1, 1, 1, 0]))
    assert finding.entities["core"] == ("5",)
    assert finding.evidence[0].what == "core 5 in the kernel, 2 times"
    assert finding.evidence[0].number == pytest.approx(3.0)


def over_a_gap(shares: Sequence[float], gap_after: int) -> Window:
    """The same as `cores`, with readings missing after that second."""
    window = cores(shares)
    read = list(window.batches(CoreTimes) or ())
    read[gap_after + 1] = replace(read[gap_after + 1], follows=False)
    return Window({CoreTimes: read})


def test_a_hold_that_may_go_on_where_readings_are_missing_says_so_and_counts_once():
    """An overloaded recorder waits for the held core, too: 54 s in starved_nic-6.1-v2."""
    gap = over_a_gap([0, 1, 1, 1, 1, 1, 1, 1, 0], gap_after=4)
    finding = detect(gap)
    assert finding.evidence[0].what == "core 5 in the kernel"
    assert finding.evidence[0].number == pytest.approx(7.0)
    assert not any("too far apart" in lack.what for lack in finding.missing)
    # Hardly any tick of the next 21 s was counted.
    later = [replace(batch, mono_s=batch.mono_s + 20, wall_s=batch.wall_s + 20) if at > 4 else batch
             for at, batch in enumerate(gap.batches(CoreTimes) or ())]  # fmt: skip
    finding = detect(Window({CoreTimes: later}))
    assert finding.evidence[0].what == "core 5 in the kernel"
    (lack,) = (lack for lack in finding.missing if "too far apart" in lack.what)
    assert lack.what.startswith("whether core 5 was held for up to 21.0 s more")


def blind(kernel_ms: int, calm_s: int = 3) -> Window:
    """Calm seconds, 15 s without a reading with so much time in the kernel, and calm again."""
    core = Core(5)
    read: list[tuple[float, Sequence[Row]]] = [(0, [core.row()])]
    read += [(at, [core.run(0.1)]) for at in range(1, calm_s + 1)]
    core.system += kernel_ms
    core.idle += 15_000 - kernel_ms
    read += [(calm_s + 15, [core.row()])]
    read += [(calm_s + 15 + at, [core.run(0.1)]) for at in range(1, calm_s + 1)]
    batches = list(make_window(read).batches(CoreTimes) or ())
    batches[calm_s + 1] = replace(batches[calm_s + 1], follows=False)
    return Window({CoreTimes: batches})


@pytest.mark.parametrize(
    ("kernel_ms", "verdict"),
    [
        (13_940, Verdict.PRESENT),
        (13_400, Verdict.UNKNOWN),
        (7_600, Verdict.UNKNOWN),
        (7_400, Verdict.ABSENT),
        (300, Verdict.ABSENT),
    ],
)
def test_a_time_without_a_reading_is_judged_by_the_counters_across_it(
    kernel_ms: int, verdict: Verdict
):
    finding = detect(blind(kernel_ms))
    assert finding.verdict is verdict, finding.summary
    if verdict is Verdict.PRESENT:
        assert "was held in the kernel for 15.0 s (no reading in 15.0 s of it)" in finding.summary
    if verdict is Verdict.UNKNOWN:
        share = f"{kernel_ms / 150:.0f} % of it in the kernel"
        assert f"nothing was read for 15.0 s, and core 5 spent {share}" in finding.summary
        assert finding.missing[0].what.startswith("whether core 5 was held: ")
    if verdict is Verdict.ABSENT:
        assert bool(finding.missing) is (kernel_ms > 2000)


def test_a_gap_that_borders_on_no_hold_is_not_mentioned():
    finding = detect(over_a_gap([1, 1, 0, 0, 0, 0, 1, 1], gap_after=4))
    assert finding.evidence[0].what == "core 5 in the kernel, 2 times"
    assert not any("too far apart" in lack.what for lack in finding.missing)


def test_a_short_window_is_unknown_and_says_how_to_ask_again():
    core = Core(0)
    window = make_window([(0, [core.row()]), (1.0, [core.run(1.0)])])
    finding = detect(window)
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing[0].grant == "sexton diagnose --seconds 10"


def test_other_sources_do_not_make_the_window_longer():
    core = Core(0)
    readings = [(0.0, [core.row()]), (0.5, [core.run(1.0)]), (60.0, [thread(1, 0, 0)])]
    assert detect(make_window(readings)).verdict is Verdict.UNKNOWN


def test_one_reading_is_unknown():
    assert detect(make_window([(0, [Core(0).row()])])).verdict is Verdict.UNKNOWN


def test_far_readings_say_what_they_average_away():
    first, last = CoreTimes(0, 0, 0, 0, 0, 0, 0, 0, 0), CoreTimes(0, 0, 0, 4000, 6000, 0, 0, 0, 0)
    finding = detect(make_window([(0, [first]), (10, [last])]))
    assert finding.verdict is Verdict.ABSENT
    assert "10.0 s apart" in finding.missing[0].what


def test_a_core_held_from_one_far_reading_to_the_next_is_seen():
    first, last = CoreTimes(0, 0, 0, 0, 0, 0, 0, 0, 0), CoreTimes(0, 0, 0, 9900, 0, 0, 0, 0, 0)
    finding = detect(make_window([(0, [first]), (10, [last])]))
    assert finding.severity is Severity.CRITICAL


def test_every_core_of_a_large_machine_held_is_one_finding_of_bounded_length():
    machine = [Core(cpu) for cpu in range(96)]
    readings: list[tuple[float, Sequence[Row]]] = [(0, [core.row() for core in machine])]
    for second in range(1, 11):
        rows: list[Row] = [core.run(1.0) for core in machine]
        rows += [thread(cpu + 3000, cpu, 1000 * second) for cpu in range(96)]
        readings.append((second, rows))
    finding = detect(make_window(readings))
    assert len(finding.entities["core"]) == 96
    assert len(finding.evidence) <= 20


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=8, max_size=8), min_size=2, max_size=8))
def test_any_counters_give_a_verdict_and_never_a_negative_length(counters):
    readings = [(s, [CoreTimes(0, *values)]) for s, values in enumerate(counters)]
    finding = detect(make_window(readings))
    assert all(item.number is None or item.number >= 0 for item in finding.evidence)
    if finding.start is not None and finding.end is not None:
        assert finding.start <= finding.end


def given(shares: Sequence[tuple[int, int, int]]) -> Window:
    """A core with so many milliseconds of user, system and idle time, second by second: where they
    are not a thousand, a hypervisor kept the rest and did not say so."""
    user = system = idle = 1_000
    readings: list[tuple[float, Sequence[Row]]] = []
    for second, (one, two, three) in enumerate([(0, 0, 0), *shares]):
        user, system, idle = user + one, system + two, idle + three
        readings.append((second, [CoreTimes(5, user, 0, system, idle, 0, 0, 0, 0)]))
    return make_window(readings)


def test_a_core_that_has_half_the_time_and_spends_all_of_it_in_the_kernel_is_held():
    finding = detect(given([(0, 500, 0)] * 4))
    assert finding.verdict is Verdict.PRESENT
    assert "held in the kernel for 4.0 s" in finding.summary
    (had,) = (item for item in finding.evidence if item.what == "core 5, time accounted for")
    assert had.value == "50 %"
    (kinds,) = (item for item in finding.evidence if item.what.startswith("core 5 by"))
    assert kinds.value == "user 0 % · system 100 % · softirq 0 %"


@pytest.mark.parametrize("second", [(250, 250, 0), (0, 500, 500), (0, 440, 60), (0, 850, 140)])
def test_one_that_does_something_else_or_nothing_in_what_it_has_is_not(
    second: tuple[int, int, int],
):
    finding = detect(given([second] * 6))
    assert finding.verdict is Verdict.ABSENT, finding.summary


def test_one_that_has_too_little_to_be_judged_by_is_unknown():
    finding = detect(given([(0, 150, 0)] * 6))
    assert finding.verdict is Verdict.UNKNOWN, finding.summary
    print(finding)


def test_a_core_that_has_all_its_time_says_nothing_of_that():
    finding = detect(cores([1.0] * 5))
    assert finding.verdict is Verdict.PRESENT
    assert not any("time accounted for" in item.what for item in finding.evidence)

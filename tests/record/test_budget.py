"""What the recorder gives up when it costs more than it may."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from sexton.record.budget import CLOSER_TIMES, Budget, Spent, Verdict


def judged(budget: Budget, minutes: float, rates: dict[str, float], rss: int = 0) -> list[Verdict]:
    """Verdicts over `minutes` in which each source uses `rates` (CPU seconds a second) unless it is
    paused, a quarter if it is slowed."""
    start = getattr(budget, "_now", 1000.0)
    costs = getattr(budget, "_costs", dict.fromkeys(rates, 0.0))
    found = []
    now = start
    while now < start + minutes * 60:
        now += 10
        shed = {name: 0.0 if how == "rest" else 0.25 for how, name in budget.given_up}
        costs = {
            name: costs[name] + 10 * rate * shed.get(name, 1.0) for name, rate in rates.items()
        }
        verdict = budget.judge(now, Spent(sum(costs.values()), 0.0, 0.0, rss), costs)
        if verdict is not None:
            found.append(verdict)
    return found


def test_below_its_limit_nothing_is_given_up() -> None:
    assert judged(Budget(2.0), 30, {"procfs.tasks": 0.01}) == []


def test_over_its_limit_the_costliest_source_is_slowed_and_then_left_out() -> None:
    budget = Budget(0.1)
    verdicts = judged(budget, 5, {"procfs.tasks": 0.05, "procfs.vmstat": 0.002})
    assert [(verdict.action, verdict.source) for verdict in verdicts[:3]] == [
        ("slow", "procfs.tasks"),
        ("rest", "procfs.tasks"),
        ("slow", "procfs.vmstat"),
    ]
    assert verdicts[0].why == "5.2 % of a core, limit 0.10 %"


def test_each_change_gets_a_minute_to_work_before_the_next() -> None:
    verdicts = judged(Budget(0.1), 3.4, {"procfs.tasks": 0.05, "procfs.vmstat": 0.002})
    assert len(verdicts) == 3


def test_looking_closer_at_an_alarm_is_not_what_the_source_is_given_up_for() -> None:
    def verdicts(times: float) -> list[Verdict | None]:
        budget = Budget(2.0)
        return [
            budget.judge(now, Spent(0.06 * now, 0.0, 0.0, 0), {"procfs.tasks": 0.06 * now}, times)
            for now in range(0, 100, 10)
        ]

    assert not any(verdicts(times=CLOSER_TIMES))
    assert any(verdicts(times=1.0))
    assert any(verdicts(times=2.0)), "there is a limit to it"


def test_what_everything_else_rests_on_is_never_given_up() -> None:
    verdicts = judged(Budget(0.1), 10, {"procfs.stat": 0.05, "kmsg.log": 0.05})
    assert {verdict.action for verdict in verdicts} == {"report"}


def test_where_nothing_is_left_to_pause_the_excess_is_reported_every_ten_minutes() -> None:
    budget = Budget(1.0)
    verdicts = judged(budget, 25, {"procfs.stat": 0.05, "perf.decode": 0.01})
    assert [(verdict.action, verdict.source) for verdict in verdicts] == [
        ("rest", "perf.decode"),
        ("report", "CPU time"),
        ("report", "CPU time"),
        ("report", "CPU time"),
    ]
    assert verdicts[1].why == "5.0 % of a core, limit 1.0 %; nothing is left to pause"


def test_what_decoding_still_owes_pauses_nothing_else() -> None:
    """Its cost is counted over the minutes it decoded, long after it was paused."""
    budget = Budget(1.0)
    told = []
    for now in range(0, 600, 10):
        costs = {"perf.decode": 0.02 * now, "tracefs.cgroup_events": 0.004 * now}
        told.append(budget.judge(now, Spent(0.0, sum(costs.values()), 0.0, 0), costs))
    assert [verdict.source for verdict in told if verdict] == ["perf.decode"]


def test_too_much_memory_ends_a_child_and_is_told_where_there_is_none() -> None:
    budget = Budget(50.0, memory_bytes=100 << 20)
    heavy = {"ship": 0, "perf.stacks": 13 << 20}
    assert budget.judge_memory(1000.0, 99 << 20, heavy) is None
    why = "101 MB of memory, limit 100 MB"
    first = budget.judge_memory(1010.0, 101 << 20, heavy)
    assert first == Verdict("rest", "perf.stacks", why)
    assert budget.judge_memory(1020.0, 101 << 20, heavy) is None
    told = [budget.judge_memory(now, 101 << 20, heavy) for now in range(1080, 2080, 10)]
    assert [entry for entry in told if entry] == [Verdict("report", "memory", why)] * 2


def test_too_much_memory_ends_first_what_can_be_had_later_and_the_heavier_of_equals() -> None:
    budget = Budget(50.0, memory_bytes=100 << 20)
    heavy = {"perf.stacks": 90 << 20, "tracefs.ring": 95 << 20, "ship": 8 << 20,
             "perf.decode": 20 << 20}  # fmt: skip
    told = [budget.judge_memory(now, 101 << 20, heavy) for now in range(1000, 1400, 10)]
    ended = [entry.source for entry in told if entry and entry.action == "rest"]
    assert ended == ["perf.decode", "ship", "perf.stacks", "tracefs.ring"]


def test_time_the_kernel_spends_on_our_behalf_counts() -> None:
    budget = Budget(1.0)
    found = [
        budget.judge(now, Spent(0.0, 0.0, 0.05 * now, 0), {"bpf.softirq_wait": 0.05 * now})
        for now in range(0, 100, 10)
    ]
    assert [verdict.source for verdict in found if verdict] == ["bpf.softirq_wait"]


def test_what_can_be_had_later_goes_first_and_what_the_mission_needs_last() -> None:
    rates = {"procfs.tasks": 0.1, "perf.stacks": 0.2, "perf.decode": 0.08, "bpf.softirq_wait": 0.3,
             "procfs.vmstat": 0.00005, "procfs.stat": 0.1}  # fmt: skip
    told = [(verdict.action, verdict.source) for verdict in judged(Budget(0.1), 5.9, rates)]
    assert told == [
        ("rest", "perf.decode"),
        ("slow", "procfs.tasks"),
        ("rest", "procfs.tasks"),
        ("rest", "perf.stacks"),
        ("slow", "bpf.softirq_wait"),
    ]


def test_a_source_that_must_go_again_stays_away_longer() -> None:
    budget = Budget(1.0)
    told: list[tuple[int, str]] = []
    spent = 0.0
    for now in range(0, 3600, 10):
        awake = not budget.given_up
        spent += 0.5 if awake else 0.01  # 5 % of a core wherever it is not given up
        verdict = budget.judge(now, Spent(spent, 0.0, 0.0, 0), {"perf.decode": spent})
        if verdict is not None:
            told.append((now, verdict.action))
    assert [action for _, action in told[:4]] == ["rest", "restore", "rest", "restore"]
    waits = [back - gone for (gone, _), (back, _) in zip(told[::2], told[1::2], strict=False)]
    assert all(later > earlier for earlier, later in pairwise(waits)), waits


def test_what_was_given_up_comes_back_after_calm_minutes() -> None:
    budget = Budget(1.0)
    told = []
    spent = 0.0
    for now in range(0, 1500, 10):
        spent += 0.5 if now < 80 else 0.01  # 5 % of a core, then 0.1 %
        verdict = budget.judge(now, Spent(spent, 0.0, 0.0, 0), {"procfs.tasks": spent})
        if verdict is not None:
            told.append((now, verdict.action))
    (slowed_at, slowed), (back_at, back) = told
    assert (slowed, back) == ("slow", "restore")
    assert back_at - slowed_at >= 120
    assert budget.given_up == ()


def paused_until(shares: Callable[[float, bool], float], limit: float, minutes: int) -> list[int]:
    """When `perf.decode` was paused and resumed (seconds), if the recorder uses `shares(now,
    paused)` per cent of a core, a quarter of it for decoding where that is not paused."""
    budget = Budget(limit)
    told: list[int] = []
    spent = decoding = 0.0
    for now in range(0, minutes * 60, 10):
        paused = bool(budget.given_up)
        used = shares(now, paused) / 10
        spent += used
        decoding += 0.0 if paused else used / 4
        verdict = budget.judge(now, Spent(spent, 0.0, 0.0, 0), {"perf.decode": decoding})
        if verdict is not None and verdict.action != "report":
            told.append(now)
    return told


def test_what_fits_comes_back_although_the_rest_takes_more_than_half() -> None:
    """A recorder that uses 1.2 of 2 % without decoding resumes it once it has room again."""
    worst_s = 600

    def share(now: float, paused: bool) -> float:
        return (1.8 if paused else 2.4) if now < worst_s else (1.2 if paused else 1.8)

    told = paused_until(share, 2.0, 30)
    assert len(told) == 2
    assert worst_s < told[1] < worst_s + 300


def test_nothing_stays_away_for_what_it_cost_on_a_worse_day() -> None:
    """It took 8 % once, so it never seems to fit; half an hour below the limit is enough."""
    told = paused_until(lambda now, paused: 16.0 if now < 80 else 1.2, 2.0, 60)
    assert len(told) == 2
    assert 1800 <= told[1] - told[0] < 1800 + 180


def test_what_has_to_go_again_and_again_does_not_keep_others_away() -> None:
    budget = Budget(1.0)
    told: list[tuple[str, str]] = []
    spent = {"perf.decode": 0.0, "procfs.tasks": 0.0}
    for now in range(0, 3 * 3600, 10):
        shed = {name for _, name in budget.given_up}
        spent["perf.decode"] += 0.0 if "perf.decode" in shed else 0.2 if now < 100 else 0.0005
        spent["procfs.tasks"] += 0.001 if "procfs.tasks" in shed else 0.3
        verdict = budget.judge(now, Spent(sum(spent.values()), 0.0, 0.0, 0), spent)
        if verdict is not None:
            told.append((verdict.action, verdict.source))
    assert told.index(("restore", "perf.decode")) < 8
    assert ("rest", "perf.decode") not in told[told.index(("restore", "perf.decode")) :]


def test_a_cost_that_fell_is_unknown_and_not_a_saving() -> None:
    """The time of a child that ended may be in no counter for a moment."""
    budget = Budget(1.0)
    budget.judge(1000.0, Spent(10.0, 5.0, 0.0, 0), {"procfs.tasks": 1.0})
    budget.judge(1010.0, Spent(10.1, 0.0, 0.0, 0), {"procfs.tasks": 1.1})
    assert budget.share is None

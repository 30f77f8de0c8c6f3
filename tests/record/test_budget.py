"""What the recorder gives up when it costs more than it may."""

from __future__ import annotations

from itertools import pairwise

from sexton.record.budget import CLOSER_TIMES, Budget, Spent, Verdict


def judged(budget: Budget, minutes: float, rates: dict[str, float], rss: int = 0) -> list[Verdict]:
    """Verdicts over `minutes` in which each source uses `rates` (CPU seconds a second)."""
    start = getattr(budget, "_now", 1000.0)
    costs = getattr(budget, "_costs", dict.fromkeys(rates, 0.0))
    found = []
    now = start
    while now < start + minutes * 60:
        now += 10
        costs = {name: costs.get(name, 0.0) + 10 * rate for name, rate in rates.items()}
        verdict = budget.judge(now, Spent(sum(costs.values()), 0.0, 0.0, rss), costs)
        if verdict is not None:
            found.append(verdict)
    return found


def test_below_its_limit_nothing_is_given_up() -> None:
    assert judged(Budget(2.0), 30, {"procfs.tasks": 0.01}) == []


def test_over_its_limit_the_costliest_source_is_slowed_and_then_left_out() -> None:
    budget = Budget(1.0)
    verdicts = judged(budget, 5, {"procfs.tasks": 0.05, "procfs.vmstat": 0.002})
    assert [(verdict.action, verdict.source) for verdict in verdicts[:3]] == [
        ("slow", "procfs.tasks"),
        ("rest", "procfs.tasks"),
        ("slow", "procfs.vmstat"),
    ]
    assert "limit 1.0 %" in verdicts[0].why


def test_each_change_gets_a_minute_to_work_before_the_next() -> None:
    verdicts = judged(Budget(1.0), 3.4, {"procfs.tasks": 0.05, "procfs.vmstat": 0.002})
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
    assert judged(Budget(0.1), 10, {"procfs.stat": 0.05, "kmsg.log": 0.05}) == []


def test_too_much_memory_ends_the_child_that_holds_most_and_is_told_where_there_is_none() -> None:
    budget = Budget(50.0, memory_bytes=100 << 20)
    heavy = {"ship": 0, "perf.stacks": 13 << 20}
    assert budget.judge_memory(1000.0, 99 << 20, heavy) is None
    why = "101 MB of memory, limit 100 MB"
    first = budget.judge_memory(1010.0, 101 << 20, heavy)
    assert first == Verdict("rest", "perf.stacks", why)
    assert budget.judge_memory(1020.0, 101 << 20, heavy) is None
    told = [budget.judge_memory(now, 101 << 20, heavy) for now in range(1080, 2080, 10)]
    assert [entry for entry in told if entry] == [Verdict("report", "memory", why)] * 2


def test_time_the_kernel_spends_on_our_behalf_counts() -> None:
    budget = Budget(1.0)
    found = [
        budget.judge(now, Spent(0.0, 0.0, 0.05 * now, 0), {"bpf.softirq_wait": 0.05 * now})
        for now in range(0, 100, 10)
    ]
    assert [verdict.source for verdict in found if verdict] == ["bpf.softirq_wait"]


def test_what_can_be_had_later_goes_first_and_what_the_mission_needs_last() -> None:
    rates = {"procfs.tasks": 0.1, "perf.stacks": 0.2, "perf.decode": 0.08, "bpf.softirq_wait": 0.3,
             "procfs.vmstat": 0.001, "procfs.stat": 0.1}  # fmt: skip
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


def test_a_cost_that_fell_is_unknown_and_not_a_saving() -> None:
    """The time of a child that ended may be in no counter for a moment."""
    budget = Budget(1.0)
    budget.judge(1000.0, Spent(10.0, 5.0, 0.0, 0), {"procfs.tasks": 1.0})
    budget.judge(1010.0, Spent(10.1, 0.0, 0.0, 0), {"procfs.tasks": 1.1})
    assert budget.share is None

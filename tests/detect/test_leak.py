"""A leak is proven by its pace; churn, boot, mass removal and a draining backlog are not leaks."""

from __future__ import annotations

import random
import re
import string
from dataclasses import replace

import pytest

from sexton.detect.detectors.cgroups.zombie_memcgs import detect
from sexton.detect.leak import Leak, leak, undecided
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupEventGap
from sexton.model.rows.node import Node
from sexton.model.window import Window
from tests.support.windows import make_window

Deaths = list[tuple[float, float | None]]  # when it died, when it was released


def census(dying: int, live: int = 9) -> CgroupCensus:
    return CgroupCensus("v1", 1, "/m", "node", dying + live, live, dying, "m", None)


def node(uptime_s: float) -> Node:
    fields = dict.fromkeys(Node.__dataclass_fields__)
    return Node(**(fields | {"uptime_s": uptime_s}))  # type: ignore[arg-type]


def traced(
    deaths: Deaths, until: float, *, dying: int = 0, path: str = "/a/job-{}", born: bool = True
) -> Window:
    """Cgroups that died, with a count of the dying every five seconds."""
    events: list[tuple[float, CgroupEvent]] = []
    for number, (died, released) in enumerate(deaths, 1):
        name = path.format(number)
        if born:
            events.append((died - 0.2, CgroupEvent("mkdir", number, name, int(died * 1e9 - 2e8))))
        events.append((died, CgroupEvent("rmdir", number, name, int(died * 1e9))))
        if released is not None and released <= until:
            events.append((released, CgroupEvent("release", number, name, int(released * 1e9))))
    batches: list[tuple[float, list[object]]] = [(0.0, [])]
    moment = 0.0
    while moment <= until:
        staying = sum(
            died <= moment and (released is None or released > moment) for died, released in deaths
        )
        batches.append((moment, [census(dying + staying)]))
        moment += 5.0
    batches.append((until, [event for _, event in sorted(events, key=lambda pair: pair[0])]))
    return make_window(batches, empty=[CgroupEvent])


def counted(
    *numbers: int, live: tuple[int, int] = (9, 9), uptime_s: float = 86_400.0, every_s: float = 5.0
) -> Window:
    """Nothing traced: only counts."""
    first, last = live
    step = (last - first) / max(len(numbers) - 1, 1)
    batches: list[tuple[float, list[object]]] = [(0.0, [node(uptime_s)])]
    batches += [
        (every_s * n, [census(number, round(first + step * n))]) for n, number in enumerate(numbers)
    ]
    return make_window(batches)


def every(seconds: float, until: float, start: float = 0.5) -> Deaths:
    return [(start + seconds * n, None) for n in range(int((until - start) / seconds))]


def found(window: Window) -> Leak:
    made = leak(window)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("deaths", "until", "severity"),
    [
        (every(1 / 45, 10.0), 10.0, Severity.CRITICAL),  # 45 a second
        (every(0.6, 20.0), 20.0, Severity.CRITICAL),  # 6,000 an hour
        (every(0.8, 25.0), 25.0, Severity.CRITICAL),  # a timer
        (every(10.0, 3600.0), 3600.0, Severity.WARNING),  # the slow original: 360 an hour
        (every(10.0, 60.0), 60.0, Severity.WARNING),
        # Shorter than it takes to call them zombies, but the count grew by as many.
        (every(0.78, 10.0), 10.0, Severity.CRITICAL),
        (every(1 / 45, 5.0), 5.0, Severity.CRITICAL),
        # A timer that leaves ten at once every five minutes, and has just paused for four.
        (
            [(300.0 * k + 0.1 * n, None) for k in range(12) for n in range(1, 11)],
            3540.0,
            Severity.WARNING,
        ),
        # Twenty a second, then four.
        ([*every(0.05, 30.0), *every(0.25, 60.0, 30.0)], 60.0, Severity.CRITICAL),
        # Some deaths hours ago do not hide the leak of the last ten minutes.
        ([*((n, None) for n in (5.0, 900.0, 1800.0)), *every(1.0, 36_000.0, 35_400.0)], 36_000.0,
         Severity.CRITICAL),
    ],
)  # fmt: skip
def test_a_traced_leak_is_a_problem_whatever_the_number_of_the_dying(
    deaths: Deaths, until: float, severity: Severity
):
    window = traced(deaths, until)
    assert found(window).severity is severity
    finding = detect(window)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)
    assert re.search(r"processes\) and [\d,.]+ more an hour \(1,000 (within|in) ", finding.summary)
    assert "/a" in finding.summary  # who leaves them
    pace = next(each for each in finding.evidence if each.what == "memory cgroups leaked")
    assert "/a/job-*" in pace.value
    assert "UTC" in pace.value


def test_what_was_removed_a_moment_ago_is_unknown_and_not_zero():
    finding = detect(traced(every(1 / 45, 5.0), 5.0))
    freed = next(each for each in finding.evidence if each.what.startswith("removed but not freed"))
    assert freed.number is None
    assert freed.value.startswith("unknown: 202 removals in 5.0 s, 202 more not yet released")


def test_the_one_that_leaks_now_is_named_beside_the_one_that_left_the_most():
    old = [(0.1 * n, f"/old/pod-{n}") for n in range(1, 901)]  # until second 90
    new = [(100.0 + n, f"/a/job-{n}") for n in range(50)]
    events = [
        CgroupEvent(kind, number, path, int((died + early) * 1e9))
        for number, (died, path) in enumerate([*old, *new])
        for kind, early in (("mkdir", -0.05), ("rmdir", 0.0))
    ]
    counts = [
        (moment, [census(sum(died <= moment for died, _ in [*old, *new]))])
        for moment in (5.0 * n for n in range(31))
    ]
    summary = detect(make_window([(0.0, []), *counts, (150.0, events)], [CgroupEvent])).summary
    assert "900 of them left under /old/pod-*" in summary
    assert "3,680 more an hour (1,000 within a minute)" in summary
    assert summary.endswith("; leaking from /a/job-*")


def lossy(leaks: Deaths, until: int, burst_s: int) -> Window:
    """A leak; in one second others remove and free 555 cgroups at once. Of that 600 events are
    lost: all of their releases, and 45 removals."""
    every = [(died, 5000 + n, f"/slow/run-{n}") for n, (died, _) in enumerate(leaks)]
    every += [(burst_s - 0.9 + n / 1000, n, f"/demo/job-{n}") for n in range(510)]
    events = sorted(
        (
            CgroupEvent(kind, number, path, int((died + early) * 1e9))
            for died, number, path in every
            for kind, early in (("mkdir", -0.05), ("rmdir", 0.0))
        ),
        key=lambda event: event.mono_ns,
    )
    return make_window(
        [
            (
                float(at),
                [
                    *(one for one in events if at - 1 < one.mono_ns / 1e9 <= at),
                    census(400 + sum(died <= at for died, _ in leaks)),
                    *([CgroupEventGap(600)] if at == burst_s else []),
                ],
            )
            for at in range(until + 1)
        ],
        empty=[CgroupEvent, CgroupEventGap],
    )


def test_a_burst_whose_events_were_lost_does_not_hide_a_steady_leak():
    made = found(lossy(every(10.0, 600.0, start=5.5), 600, burst_s=570))
    # Counts before and after bound what was lost: at most 45 of 58 may have been freed. How many
    # there are in all is counted.
    assert made.shown == "/slow/run-* (at least 13)"
    assert (made.number, made.severity) == (59, Severity.WARNING)


def test_a_leak_that_began_after_events_were_lost_is_not_in_doubt():
    old: Deaths = [(5.5 + 4 * n, None) for n in range(10)]
    made = found(lossy([*old, *every(2.0, 300.0, start=101.5)], 300, burst_s=60))
    # Those of the last five seconds may still be released.
    assert (made.number, made.shown) == (72, "/slow/run-*")
    assert made.per_hour == pytest.approx(1800, rel=0.02)


def test_the_pace_is_of_the_stretch_in_which_it_leaked():
    made = found(traced(every(1.0, 600.0, start=500.0), 600.0))
    assert made.per_hour == pytest.approx(3600, rel=0.05)
    assert made.arrives_s == pytest.approx(900, rel=0.05)


def test_a_leak_with_few_dying_is_the_first_that_is_shown():
    first, second, *_ = detect(traced(every(10.0, 300.0), 300.0)).evidence
    assert (first.what, first.normal) == ("memory cgroups leaked", "0")
    assert first.value.startswith("354 an hour (29 in 4 min 54 s) from /a/job-*; ")
    assert second.what == "dying memory cgroups"
    many = detect(traced(every(3.0, 3600.0), 3600.0, dying=1500)).evidence
    assert many[0].what == "dying memory cgroups"


def test_those_removed_a_moment_ago_are_not_of_unknown_origin():
    finding = detect(traced(every(1 / 45, 10.0), 10.0))
    assert "(224 more, removed in the last 5 s)" in finding.summary
    assert not [each for each in finding.evidence if "unknown" in each.what]


def test_where_many_are_dying_already_the_pace_counts_and_not_their_number():
    slow, fast = every(300.0, 3600.0), every(3.0, 3600.0)
    assert found(traced(slow, 3600.0, dying=1500)).severity is None
    finding = detect(traced(fast, 3600.0, dying=1500))
    assert finding.severity is Severity.CRITICAL
    assert "1,201 more an hour (another 1,000 in 49 min 57 s)" in finding.summary
    assert any("will reach another 1,000 dying in" in each.value for each in finding.evidence)


def test_the_hour_it_gets_there_has_its_date_if_that_is_another_day():
    finding = detect(traced(every(80.0, 3600.0), 3600.0))
    pace = next(each for each in finding.evidence if each.what == "memory cgroups leaked")
    assert " at 2023-11-15 " in pace.value


def test_a_fifth_that_stays_is_a_leak_if_the_count_grows_as_well():
    churn: Deaths = [(0.1 * n, None if n % 5 == 0 else 0.1 * n + 0.2) for n in range(1, 250)]
    window = traced(churn, 25.0)
    assert found(window).severity is Severity.CRITICAL
    flat = [
        (batch.mono_s, [census(4)])
        for batch in window.batches(CgroupCensus) or ()
    ]  # fmt: skip
    events = [(batch.mono_s, list(batch.rows)) for batch in window.batches(CgroupEvent) or ()]
    assert leak(make_window(sorted([*flat, *events], key=lambda pair: pair[0]))) is None


@pytest.mark.parametrize("trace", [True, False])
def test_a_watch_too_short_to_tell_is_unknown_and_not_healthy(trace: bool):
    deaths = every(1 / 45, 2.0)
    window = traced(deaths, 2.0) if trace else counted(0, 20, 45, 70, 90, every_s=0.5)
    if trace:
        window = make_window([
            *((batch.mono_s, list(batch.rows)) for batch in window.batches(CgroupEvent) or ()),
            (0.0, [census(0)]), (2.0, [census(88)]),
        ])  # fmt: skip
    finding = detect(window)
    assert finding.verdict is Verdict.UNKNOWN
    assert "too short to tell whether they stay" in finding.summary
    assert "--seconds 15" in finding.missing[0].grant


@pytest.mark.parametrize(
    "deaths",
    [
        [(0.02 * n, 0.02 * n + 0.3) for n in range(1, 100)],  # churn: released at once
        [(1.9 + 0.001 * n, None) for n in range(40)],  # forty that end together
        [(0.5 * n, None) for n in range(1, 4)],  # too few
    ],
)
def test_a_short_watch_of_a_healthy_node_is_healthy(deaths: Deaths):
    assert undecided(traced(deaths, 2.0)) is None


def test_one_that_takes_more_than_a_day_is_a_line_and_no_problem():
    window = traced(every(120.0, 3600.0), 3600.0)
    assert found(window).severity is None
    assert detect(window).verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    "deaths",
    [
        [(0.5 * n, 0.5 * n + 0.3) for n in range(1, 40)],  # churn: released at once
        [(0.5 * n, 0.5 * n + 8.0) for n in range(1, 40)],  # churn: released late
        [(1.0 + 0.001 * n, None) for n in range(300)],  # a burst, then nothing
        [(0.5 + 0.1 * n, None) for n in range(60)],  # it has stopped
        [(5.0 * n, None) for n in range(1, 4)],  # too few
        [(1.0, None), *((23.0 + 0.2 * n, None) for n in range(9))],  # two pods that end together
        # A pod of 17 containers that ended just longer ago than a release may take.
        [(24.6 + 0.02 * n, None) for n in range(17)],
    ],
)
def test_what_is_no_leak(deaths: Deaths):
    assert leak(traced(deaths, 30.0)) is None


def renamed(window: Window, names: list[str]) -> Window:
    """The same, with other paths."""
    events = [
        (batch.mono_s, [replace(row, path=names[row.cgroup_id - 1]) for row in batch.rows])
        for batch in window.batches(CgroupEvent) or ()
    ]
    counts = [(batch.mono_s, list(batch.rows)) for batch in window.batches(CgroupCensus) or ()]
    return make_window(sorted([*events, *counts], key=lambda pair: pair[0]), empty=[CgroupEvent])


@pytest.mark.parametrize(
    ("deaths", "until"),
    [(every(1 / 45, 10.0), 10.0), (every(0.6, 20.0), 20.0), (every(10.0, 3600.0), 3600.0)],
)
def test_a_leak_under_random_names_is_a_leak(deaths: Deaths, until: float):
    chance = random.Random(1)
    letters = string.ascii_letters + string.digits
    names = [f"/a/tmp.{''.join(chance.choices(letters, k=10))}" for _ in deaths]
    made = found(renamed(traced(deaths, until), names))
    assert made == found(traced(deaths, until))._replace(shown="/a/tmp.*")


def test_existing_cgroups_that_are_removed_are_no_leak():
    assert leak(traced(every(0.2, 20.0), 20.0, born=False)) is None


def test_existing_cgroups_that_are_removed_while_others_come_and_go_are_no_leak():
    """A node is drained; each probe of those that are left makes a cgroup and removes it."""
    events, counts = [], []
    for n in range(1, 41):
        events.append(CgroupEvent("rmdir", n, f"/pods/pod-{n}", int((0.5 * n) * 1e9)))
        for kind, later in (("mkdir", 0.1), ("rmdir", 0.2), ("release", 0.3)):
            at = int((0.5 * n + later) * 1e9)
            events.append(CgroupEvent(kind, 100 + n, f"/probes/exec-{n}", at))
    for n in range(5):
        counts.append((5.0 * n, [census(10 * n, live=90 - 10 * n)]))
    window = make_window([(0.0, []), *counts, (21.0, events)], empty=[CgroupEvent])
    assert leak(window) is None
    assert undecided(window) is None


def test_units_that_leave_one_each_at_boot_are_no_leak():
    names = ["alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa", "theta"]
    paths = [f"/system.slice/{name}-{size}.service" for name in names for size in ("big", "small")]
    window = traced([(1.0 * n, None) for n in range(1, 17)], 20.0)
    assert leak(renamed(window, paths)) is None


@pytest.mark.parametrize(
    ("window", "leaks"),
    [
        (counted(0, 20, 40, 60, 80), True),
        (counted(0, 20, 40, 60, 80, uptime_s=120.0), False),  # the node starts
        (counted(0, 90, 180, 270, 360, uptime_s=120.0), True),  # no boot leaves so many
        (counted(0, 20, 40, 60, 80, live=(90, 9)), False),  # others are being removed
        (counted(0, 70, 78, 79, 80), False),  # a backlog that builds up, and slows down
        (counted(80, 60, 40, 20, 0), False),
        (counted(0, 80), False),
        (counted(0, 1, 2, 3, 4), False),
        (counted(0, 3, 6, 9, 12, every_s=2.5), True),  # ten seconds
        (counted(0, 60, 120, every_s=5.0), False),  # nothing shows that it went on
        (counted(*[40, 44, 38, 45, 39, 44] * 9), False),  # up and down
        (counted(*[40] * 400, *range(40, 190)), True),  # it began ten minutes ago
        (counted(*range(40, 190), *[190] * 60), False),  # it ended five minutes ago
    ],
)
def test_without_a_trace_growth_must_hold(window: Window, leaks: bool):
    assert (leak(window) is not None) is leaks


@pytest.mark.parametrize(
    ("number", "uptime_s", "verdict"),
    [
        (40, 120.0, Verdict.ABSENT),  # a boot
        (140, 120.0, Verdict.UNKNOWN),
        (40, 86_400.0, Verdict.UNKNOWN),
    ],
)
def test_a_short_look_at_a_node_that_booted_excuses_what_a_boot_leaves(
    number: int, uptime_s: float, verdict: Verdict
):
    assert detect(counted(0, number, uptime_s=uptime_s, every_s=3.0)).verdict is verdict


def test_what_was_freed_meanwhile_is_no_leak():
    deaths = every(0.5, 20.0)
    batches = [(0.0, []), (20.0, [
        event for number, (died, _) in enumerate(deaths, 1)
        for event in (CgroupEvent("mkdir", number, f"/a/job-{number}", int(died * 1e9 - 2e8)),
                      CgroupEvent("rmdir", number, f"/a/job-{number}", int(died * 1e9)))
    ])]  # fmt: skip
    counts = [(5.0 * n, [census(3)]) for n in range(5)]
    assert leak(make_window([*batches, *counts], empty=[CgroupEvent])) is None

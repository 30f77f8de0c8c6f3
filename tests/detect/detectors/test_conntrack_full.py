"""The kernel's table of connections, and what is reported when it is full."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sexton.detect.detectors.network.conntrack_full import ALLOWANCE, detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import NOT_TRACKING, Conntrack, NicCounter
from sexton.model.window import SourceState, Window
from tests.support.log import events, log
from tests.support.windows import EPOCH, make_window

NOW = 864_000.0
FULL = "nf_conntrack: nf_conntrack: table full, dropping packet"
ELSEWHERE = "nf_conntrack: nf_conntrack: table full in netns 4026532247, dropping packet"
STATE = SourceState("procfs.nf_conntrack", "/proc/net/stat/nf_conntrack", "absent", NOT_TRACKING)


def table(count: int, drops: int = 0, early: int = 0, maximum: int | None = 1000) -> Conntrack:
    return Conntrack(count, maximum, drops, early, 0)


def run(*rows: Sequence[Row], logged: Sequence[KernelEvent] = ()) -> Finding:
    """Readings ten seconds apart, the last of them now, with a whole log."""
    read = [(NOW - 10.0 * (len(rows) - 1 - turn), [*row, log()]) for turn, row in enumerate(rows)]
    read[-1][1].extend(logged)
    return detect(make_window(read, empty=(KernelEvent,)))


@pytest.mark.parametrize(
    ("count", "severity"),
    [(949, Severity.INFO), (950, Severity.WARNING), (800, Severity.INFO), (799, None), (0, None)],
)
def test_the_fill_decides_where_nothing_was_dropped(count, severity):
    finding = run([table(10)], [table(count)])
    if severity is None:
        assert finding.verdict is Verdict.ABSENT
        assert finding.summary == f"{max(count, 10):,} of 1,000 tracked connections at most"
    else:
        assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)


def test_the_fullest_reading_counts_and_not_the_last():
    finding = run([table(10)], [table(1000)], [table(10)])
    assert "(1,000 of 1,000, 100 %)" in finding.summary
    assert (finding.start, finding.end) == (EPOCH + NOW - 10, EPOCH + NOW - 10)


def test_packets_dropped_by_a_full_table_are_critical():
    finding = run([table(1000, drops=5)], [table(1000, drops=45)])
    assert finding.severity is Severity.CRITICAL
    assert "dropped 40 packets" in finding.summary


def test_packets_that_lost_a_race_are_only_counted():
    finding = run([Conntrack(50, 1000, 5, 0, 7)], [Conntrack(60, 1000, 9, 0, 11)])
    assert finding.verdict is Verdict.ABSENT
    assert any("lost a race" in item.what and item.number == 4 for item in finding.evidence)


def test_entries_thrown_out_tell_that_it_was_full_between_readings():
    finding = run([table(700, early=3)], [table(700, early=9)])
    assert finding.severity is Severity.WARNING
    assert "6 entries evicted to make room" in finding.summary


def test_no_limit_is_never_full():
    assert run([table(10**6, maximum=0)], [table(10**6, maximum=0)]).verdict is Verdict.ABSENT
    assert run([table(10**6, maximum=None)]).verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("age_s", "severity"),
    [(5, Severity.CRITICAL), (3600, Severity.WARNING), (90_000, Severity.INFO)],
)
def test_a_line_is_as_grave_as_it_is_young(age_s, severity):
    finding = run([table(1)], [table(1)], logged=events([FULL], NOW - age_s))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)
    assert finding.start == pytest.approx(EPOCH + NOW - age_s)


def test_an_undated_line_is_a_warning():
    finding = run([table(1)], logged=events([FULL], None))
    assert finding.severity is Severity.WARNING
    assert finding.start is None


def test_the_line_alone_is_enough_and_its_namespace_is_named():
    finding = run([], [], logged=events([ELSEWHERE], NOW - 3))
    assert finding.severity is Severity.WARNING
    assert finding.summary.endswith("in network namespace 4026532247")
    assert "another network namespace" in finding.evidence[-1].wrong_if


@pytest.mark.parametrize("age_s", [3600, 90_000, None])
def test_a_containers_table_that_was_full_earlier_is_only_noted(age_s):
    logged = events([ELSEWHERE], None if age_s is None else NOW - age_s)
    finding = run([table(1)], [table(1)], logged=logged)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)


def test_a_line_of_the_first_namespace_names_none():
    logged = [*events([ELSEWHERE], NOW - 4), *events([FULL], NOW - 3)]
    assert "namespace" not in run([], [], logged=logged).summary


def test_the_instances_own_table_is_told_by_the_driver():
    def counted(value: int) -> NicCounter:
        return NicCounter("eth0", ALLOWANCE, value)

    finding = run([counted(7), table(1)], [counted(29), table(1)])
    assert finding.severity is Severity.WARNING
    assert "packets of eth0 were dropped" in finding.summary
    assert finding.entities == {"nic": ("eth0",)}
    assert run([counted(7), table(1)], [counted(7), table(1)]).severity is Severity.INFO
    assert run([counted(0), table(1)], [counted(0), table(1)]).verdict is Verdict.ABSENT


def test_counters_that_started_again_dropped_nothing():
    finding = run([table(1000, drops=500)], [table(1000, drops=3)])
    assert finding.severity is Severity.WARNING


def test_where_nothing_is_tracked_nothing_can_be_full():
    window = make_window([(NOW, [log()])], empty=(KernelEvent,), states=[STATE])
    assert detect(window).verdict is Verdict.NOT_APPLICABLE


def test_a_tree_without_the_files_is_judged_by_its_log_and_says_what_it_lacks():
    window = make_window([(NOW, [log()])], empty=(KernelEvent,))
    finding = detect(window)
    assert finding.verdict is Verdict.ABSENT
    assert finding.summary == "0 full conntrack tables since boot"
    assert len(finding.missing) == 1


def test_without_table_and_log_it_is_unknown():
    finding = detect(Window({}))
    assert finding.verdict is Verdict.UNKNOWN
    assert len(finding.missing) == 2


def test_the_table_alone_is_an_answer_that_says_what_it_lacks():
    finding = detect(make_window([(NOW, [table(5)])]))
    assert finding.verdict is Verdict.ABSENT
    assert len(finding.missing) == 1
    assert finding.missing[0].what.startswith(("not recorded", "/dev/kmsg", "kmsg.log"))


def test_other_lines_are_not_conntracks():
    logged = events(["cgroup: fork rejected by pids controller in /a"], NOW - 3)
    assert run([table(1)], logged=logged).verdict is Verdict.ABSENT

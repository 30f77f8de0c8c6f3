"""Kills for memory: who, by which limit, how often, and how long ago it still counts."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.memory.oom_kills import detect
from sexton.detect.oom import kills
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cgroup import CgroupCensus, CgroupMemory
from sexton.model.rows.memory import VmCounter
from sexton.model.text import clock
from sexton.model.window import Batch, Window
from tests.support.log import events, log
from tests.support.windows import EPOCH, make_window, providers

NOW = 100_000.0
HOUR = 3600.0


def memcg(pid: int, cgroup: str = "/a", comm: str = "python3") -> list[str]:
    """As 6.18 prints it, without the dump."""
    return [
        "memory: usage 40960kB, limit 40960kB, failcnt 94",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        f"oom_memcg={cgroup},task_memcg={cgroup},task={comm},pid={pid},uid=0",
        bare(pid, comm),
    ]


def bare(pid: int, comm: str = "python3") -> str:
    return (
        f"Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:57596kB,"
        " anon-rss:47720kB, file-rss:6624kB, shmem-rss:0kB, UID:0 pgtables:156kB oom_score_adj:0"
    )


def node(pid: int, constraint: str = "CONSTRAINT_NONE") -> list[str]:
    return [
        f"oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        f"task_memcg=/,task=java,pid={pid},uid=0",
        f"Out of memory: Killed process {pid} (java) total-vm:9kB, anon-rss:8kB, file-rss:0kB,"
        " shmem-rss:0kB, UID:0 pgtables:156kB oom_score_adj:0",
    ]


def seen(*said: tuple[float, list[str]], begins: float = 0.0, seconds: float = 10.0):
    """A window that ends now; lines by the second they were said in."""
    rows = [event for at, lines in said for event in events(lines, at)]
    return make_window([(NOW - seconds, [log(begins)]), (NOW, [*rows, log(begins)])])


@pytest.mark.parametrize(
    ("age", "lines", "severity"),
    [
        (60, memcg(7), Severity.WARNING),
        (HOUR - 1, memcg(7), Severity.WARNING),
        (HOUR + 1, memcg(7), Severity.INFO),
        (60, node(7), Severity.CRITICAL),
        (23 * HOUR, node(7), Severity.CRITICAL),
        (25 * HOUR, node(7), Severity.INFO),
        (60, node(7, "CONSTRAINT_CPUSET"), Severity.WARNING),
    ],
)
def test_how_long_a_kill_counts(age, lines, severity):
    finding = detect(seen((NOW - age, lines)))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)


def test_a_kill_inside_a_long_window_counts_however_long_ago():
    window = seen((NOW - 8 * HOUR, memcg(7)), seconds=12 * HOUR)
    assert detect(window).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("apart", "number", "severity"),
    [
        (10, 2, Severity.WARNING),
        (10, 3, Severity.CRITICAL),
        (HOUR / 2 - 1, 3, Severity.CRITICAL),
        (HOUR / 2 + 10, 3, Severity.WARNING),
    ],
)
def test_three_kills_of_one_cgroup_in_an_hour_are_a_loop(apart, number, severity):
    said = [(NOW - 60 - apart * turn, memcg(7 + turn)) for turn in range(number)]
    window = seen(*reversed(said), seconds=3 * HOUR)
    finding = detect(window)
    assert finding.severity is severity
    assert f"killed {number} processes in /a (limit 40.0 MiB) within" in finding.summary


def test_kills_of_different_cgroups_are_no_loop():
    said = [(NOW - 60 - turn, memcg(7 + turn, f"/pod{turn}")) for turn in range(3)]
    finding = detect(seen(*said))
    assert finding.severity is Severity.WARNING
    assert "; also at 2 other limits" in finding.summary


def test_containers_that_are_made_anew_in_one_pod_are_one_loop():
    pod = "/kubepods/pod0a1b2c3d-1111-2222-3333-444455556666"
    said = [(NOW - 90 + 10 * turn, memcg(7 + turn, f"{pod}/{turn:064x}")) for turn in range(3)]
    finding = detect(seen(*said))
    assert finding.severity is Severity.CRITICAL
    assert finding.entities["cgroup"][0] == pod


def test_a_loop_does_not_hide_a_single_kill_elsewhere():
    loop = [(NOW - 90 + 10 * turn, memcg(7 + turn)) for turn in range(3)]
    finding = detect(seen(*loop, (NOW - 5, memcg(99, "/b", "trainer"))))
    assert finding.severity is Severity.CRITICAL
    assert finding.summary.endswith("; also 1 in /b")
    assert "trainer[99]" in finding.entities["task"]
    assert "/b" in finding.entities["cgroup"]


def test_an_old_kill_is_no_part_of_a_new_problem():
    finding = detect(seen((NOW - 2 * HOUR, memcg(7, "/old")), (NOW - 5, memcg(99, "/b"))))
    assert "/old" not in str(finding.summary) + str(finding.entities)


def anew(turn: int) -> str:
    return f"/docker/{turn:064x}"


def test_a_container_that_its_runtime_makes_anew_is_one_loop_whatever_its_id():
    said = [(NOW - 90 + 10 * turn, memcg(7 + turn, anew(turn))) for turn in range(3)]
    finding = detect(seen(*said))
    assert finding.severity is Severity.CRITICAL
    assert "killed 3 processes in /docker/* (limit 40.0 MiB) within" in finding.summary
    assert finding.entities["cgroup"][:4] == (anew(2), anew(1), anew(0), "/docker")


def test_containers_with_different_programs_are_no_loop():
    said = [(NOW - 60 - turn, memcg(7, anew(turn), f"job{turn}")) for turn in range(3)]
    finding = detect(seen(*said))
    assert finding.severity is Severity.WARNING
    assert "; also at 2 other limits" in finding.summary


def test_a_group_is_killed_once():
    group = "Tasks in /a are going to be killed due to memory.oom.group set"
    finding = detect(seen((NOW - 60, [*memcg(1), group, bare(2), bare(3), bare(4)])))
    assert finding.severity is Severity.WARNING
    assert "killed 4 processes in /a (limit 40.0 MiB), once" in finding.summary


def test_a_kill_without_its_details_has_an_unknown_cgroup_and_no_stranger_s():
    """The kernel prints the details ten times in five seconds."""
    found = kills(seen((NOW - 600, memcg(1)), (NOW - 60, [bare(2)])))
    assert [(each.pid, each.cgroup, each.limit_bytes) for each in found] == [
        (1, "/a", 40 << 20),
        (2, None, None),
    ]


def test_a_kernel_before_4_20_names_the_cgroup_in_another_line():
    lines = [
        "Task in /docker/0f killed as a result of limit of /docker",
        "Killed process 4711 (java) total-vm:100kB, anon-rss:10kB, file-rss:4kB, shmem-rss:0kB",
    ]
    (kill,) = kills(seen((NOW - 60, lines)))
    assert (kill.scope, kill.cgroup, kill.task_cgroup) == ("cgroup", "/docker", "/docker/0f")
    assert kill.rss_bytes == 14 << 10


def test_lines_read_twice_are_one_kill():
    once = events(memcg(7), NOW - 60)
    window = make_window([(NOW - 10, [*once, log()]), (NOW, [*once, log()])])
    assert len(kills(window)) == 1


def test_the_line_of_the_kill_may_be_lost():
    (kill,) = kills(seen((NOW - 60, memcg(7)[:2])))
    assert (kill.task, kill.cgroup, kill.rss_bytes) == ("python3[7]", "/a", None)


def test_a_hostile_name_is_escaped():
    finding = detect(seen((NOW - 60, memcg(7, "/a\x1b[2J", "x\x1by"))))
    assert "\x1b" not in finding.summary
    assert finding.entities["cgroup"] == ("/a\\x1b[2J",)


def test_undated_lines_are_a_problem_of_an_unknown_time():
    rows = events(memcg(7), None)
    finding = detect(make_window([(NOW, [*rows, log()])]))
    assert finding.severity is Severity.WARNING
    assert "at an unknown time" in finding.summary


def counted(before: int, after: int, *, begins: float | None = None):
    readings = []
    for at, value in ((NOW - 10, before), (NOW, after)):
        rows = [VmCounter("oom_kill", value), VmCounter("pgfault", 5)]
        readings.append((at, [*rows, log(begins)] if begins is not None else rows))
    return make_window(readings)


@pytest.mark.parametrize(
    ("window", "verdict"),
    [
        (counted(0, 0), Verdict.ABSENT),
        (counted(0, 0, begins=NOW - 60), Verdict.ABSENT),
        (counted(2, 2), Verdict.PRESENT),
        (counted(2, 2, begins=NOW - 2 * HOUR), Verdict.ABSENT),
        (counted(2, 3), Verdict.PRESENT),
        (counted(3, 2), Verdict.PRESENT),
        (seen(begins=0), Verdict.ABSENT),
        (seen(begins=NOW - 60), Verdict.UNKNOWN),
        (make_window([(NOW, [])]), Verdict.UNKNOWN),
    ],
)
def test_none_is_said_only_where_the_counter_or_a_log_that_is_long_enough_says_so(window, verdict):
    finding = detect(window)
    assert finding.verdict is verdict, finding.summary
    assert bool(finding.missing) is (verdict in (Verdict.UNKNOWN, Verdict.PRESENT))


@pytest.mark.parametrize(("used", "near"), [(89, False), (90, True)])
def test_cgroups_close_to_their_limits_are_evidence(used, near):
    rows = [CgroupMemory("/db", 100, used, 0, 0), VmCounter("oom_kill", 0)]
    finding = detect(make_window([(NOW, rows)]))
    assert any(each.what == "/db now" for each in finding.evidence) is near
    assert finding.verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (1, "memory.usage_in_bytes, memory.limit_in_bytes"),
        (2, "memory.current, memory.max"),
        (None, "memory.current, memory.max; v1: memory.usage_in_bytes, memory.limit_in_bytes"),
    ],
)
def test_the_files_are_those_of_the_node(version, files):
    census = CgroupCensus("hybrid", version, "/m", "node", 9, 9, 0, "m", None)
    rows = [CgroupMemory("/db", 100, 95, 0, 0), VmCounter("oom_kill", 0), census]
    finding = detect(make_window([(NOW, rows)]))
    assert [each.source for each in finding.evidence if each.what == "/db now"] == [files]


@pytest.mark.parametrize(
    ("booted", "severity"), [(HOUR / 2, Severity.WARNING), (24 * HOUR, Severity.INFO)]
)
@pytest.mark.parametrize("begins", [None, 60.0])
def test_kills_that_only_the_counters_know_are_as_recent_as_the_boot(booted, severity, begins):
    rows = [
        VmCounter("oom_kill", 3),
        VmCounter("pgfault", 5),
        CgroupMemory("/pods", 100 << 20, 9 << 20, 8, 3),
        CgroupMemory("/pods/a", 40 << 20, 8 << 20, 8, 3),
        CgroupMemory("/b", 40 << 20, 20 << 20, 0, 0),
    ]
    if begins is not None:
        rows.append(log(booted - begins))  # the ring has forgotten what came before
    finding = detect(make_window([(booted - 10, rows), (booted, rows)]))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)
    assert "killed 3 processes since boot" in finding.summary
    assert "3 of them in /pods/a" in finding.summary
    assert finding.entities["cgroup"] == ("/pods/a",)
    assert bool(finding.missing) is (begins is None)  # nothing brings back what the ring forgot
    assert any(each.what == "/b now" for each in finding.evidence)


def test_a_kill_that_the_log_has_no_line_of_is_not_hidden_by_an_old_one():
    old = events(memcg(7), NOW - 5 * HOUR)
    first = [*old, log(), VmCounter("oom_kill", 1), VmCounter("pgfault", 5)]
    last = [log(), VmCounter("oom_kill", 2), VmCounter("pgfault", 5)]
    finding = detect(make_window([(NOW - 10, first), (NOW, last)]))
    assert finding.severity is Severity.WARNING
    assert "killed 1 process in 10.0 s; the log does not name" in finding.summary


def test_a_kill_without_a_log_is_dated_by_the_readings_around_it():
    """As in Prometheus, which has the counter and no log: the time is what to look at next."""

    def counted(at, number):
        return at, [VmCounter("oom_kill", number), VmCounter("pgfault", 5)]

    window = make_window(
        [counted(NOW - 600, 1), counted(NOW - 300, 1), counted(NOW - 285, 3), counted(NOW, 3)]
    )
    finding = detect(window)
    assert (finding.start, finding.end) == (window.wall(NOW - 300), window.wall(NOW - 285))
    at = f"between {clock(finding.start)} and {clock(finding.end)} UTC"
    assert f"killed 2 processes {at}; only the kernel log has names" in finding.summary


def test_a_kill_in_a_gap_is_dated_by_the_window():
    batches = [
        Batch(at, EPOCH + at, (VmCounter("oom_kill", number), VmCounter("pgfault", 5)), follows)
        for at, number, follows in ((NOW - 100, 1, True), (NOW - 10, 2, False), (NOW, 3, True))
    ]
    finding = detect(Window({VmCounter: batches}, (), providers()))
    assert "killed 2 processes in 1 min 40 s" in finding.summary


def test_how_close_the_next_is_comes_right_after_the_kill():
    rows = [CgroupMemory("/a", 100, 10, 3, 1), CgroupMemory("/next", 100, 67, 0, 0)]
    window = make_window([(NOW - 10, [log()]), (NOW, [*events(memcg(7), NOW - 60), log(), *rows])])
    shown = [(each.what, each.value) for each in detect(window).evidence[:3]]
    assert shown[2] == ("/next now", "67 % of 100 B")


def test_the_cgroup_of_the_killed_process_is_named_beside_the_one_with_the_limit():
    lines = memcg(7, "/parent")
    lines[1] = lines[1].replace("task_memcg=/parent", "task_memcg=/parent/child")
    assert detect(seen((NOW - 60, lines))).entities["cgroup"] == ("/parent", "/parent/child")

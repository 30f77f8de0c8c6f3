"""Directories that stay without processes, and all that only looks so."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.cgroups.leaked_scopes import detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupDir
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.node import Node
from sexton.model.rows.task import ProcessCgroup
from tests.support.windows import make_window

USER = "/user.slice/user-0.slice"


def tree(number: int, name: str = "session-{}.scope", first: int = 100) -> list[Row]:
    paths = [f"{USER}/{name.format(n)}" for n in range(number)]
    return [
        CgroupDir("/", 1, 2),
        CgroupDir("/init.scope", 2, 0),
        CgroupDir("/user.slice", 3, 1),
        CgroupDir(USER, 4, number),
        *(CgroupDir(path, first + n, 0) for n, path in enumerate(paths)),
    ]


def inside(*paths: str) -> list[Row]:
    return [ProcessCgroup(n, path, False) for n, path in enumerate(("/init.scope", *paths), 1)]


def look(*readings: list[Row]) -> Finding:
    return detect(make_window([(10.0 * n, rows) for n, rows in enumerate(readings)]))


@pytest.mark.parametrize(
    ("number", "verdict", "severity"),
    [
        (0, Verdict.ABSENT, Severity.INFO),
        (99, Verdict.ABSENT, Severity.INFO),
        (100, Verdict.PRESENT, Severity.WARNING),
        (4_095, Verdict.PRESENT, Severity.WARNING),
        (4_096, Verdict.PRESENT, Severity.CRITICAL),
    ],
)
def test_the_limits_are_where_the_page_says(number: int, verdict: Verdict, severity: Severity):
    finding = look([*tree(number), *inside()])
    assert (finding.verdict, finding.severity) == (verdict, severity)


@pytest.mark.parametrize(
    "name", ["run-r{:032x}.scope", "session-{}.scope", "docker-{:064x}.scope", "{:064x}"]
)
def test_scopes_of_all_kinds_are_known(name: str):
    assert look([*tree(150, name), *inside()]).is_problem


def test_other_empty_directories_are_no_scopes():
    assert look([*tree(150, "job-{}"), *inside()]).verdict is Verdict.ABSENT


def test_scopes_with_somebody_in_them_are_sessions():
    rows = tree(150)
    everyone = inside(*(f"{USER}/session-{n}.scope" for n in range(150)))
    assert look([*rows, *everyone]).verdict is Verdict.ABSENT


def test_a_scope_with_directories_of_its_own_is_not_empty():
    scopes = [CgroupDir(f"/machine.slice/m{n}.scope", 900 + n, 1) for n in range(150)]
    inner = [CgroupDir(f"{scope.path}/payload", 9_000 + n, 0) for n, scope in enumerate(scopes)]
    people = inside(*(cgroup_dir.path for cgroup_dir in inner))
    assert look([*tree(0), *scopes, *inner, *people]).verdict is Verdict.ABSENT


def test_scopes_that_come_and_go_are_not_left():
    assert (
        look([*tree(150), *inside()], [*tree(150, first=5_000), *inside()]).verdict
        is Verdict.ABSENT
    )


def test_a_process_whose_directory_is_gone_occupies_nothing():
    gone = [ProcessCgroup(9, f"{USER}/session-{n}.scope", True) for n in range(150)]
    assert look([*tree(150), *inside(), *gone]).is_problem


def test_without_the_processes_emptiness_is_not_claimed():
    assert look(tree(150)).verdict is Verdict.UNKNOWN
    few = look(tree(20))
    assert few.verdict is Verdict.ABSENT
    assert "emptiness unknown" in few.summary
    assert few.missing


def test_a_container_that_sees_only_itself_claims_nothing():
    blind = [ProcessCgroup(1, "/", False)]
    assert look([*tree(150), *blind]).verdict is Verdict.UNKNOWN
    above = [ProcessCgroup(1, "/../..", False), *inside()]
    assert look([*tree(150), *above]).verdict is Verdict.UNKNOWN
    node = Node("h", "6.1", 1, None, None, None, None, None, None, None, None, None, "docker")
    assert look([*tree(150), *inside(), node]).verdict is Verdict.UNKNOWN


def test_a_crowd_of_scopes_is_a_warning_where_emptiness_cannot_be_told():
    finding = look(tree(1_200))
    assert finding.severity is Severity.WARNING
    assert "is unknown" in finding.summary


def test_a_crowd_of_live_directories_is_told_and_is_not_zombies():
    finding = look([*tree(1_200, "job-{}"), *inside()])
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)
    assert f"1,200 live directories under {USER}, not zombies" in finding.summary


def refused() -> KernelEvent:
    line = "Maximum number of sessions (8192) reached"
    return KernelEvent("sessions-limit", "sessions", line, None, None, {"limit": 8192})


def test_logins_that_were_refused_are_critical_while_the_scopes_are_there():
    assert look([*tree(150), *inside(), refused()]).severity is Severity.CRITICAL


def test_logins_refused_once_upon_a_time_are_history():
    finding = look([*tree(3), *inside(), refused()])
    assert finding.verdict is Verdict.ABSENT
    assert any("ran out of sessions" in item.what for item in finding.evidence)


def test_hostile_names_are_escaped():
    finding = look([*tree(150, "\x1b[2J-{}.scope"), *inside()])
    assert finding.is_problem
    assert "\x1b" not in repr(finding)

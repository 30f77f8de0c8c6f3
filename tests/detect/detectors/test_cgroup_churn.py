"""Container loops are found; busy machines are left in peace."""

from __future__ import annotations

import random

from sexton.detect.detectors.cgroups.cgroup_churn import detect
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir, CgroupEvent, CgroupEventGap
from tests.support.windows import make_window

ID = "0123456789abcdef" * 4


def life(
    number: int, path: str, died_s: float, released_s: float | None = None
) -> list[CgroupEvent]:
    events = [
        CgroupEvent("mkdir", number, path, int((died_s - 0.1) * 1e9)),
        CgroupEvent("rmdir", number, path, int(died_s * 1e9)),
    ]
    if released_s is not None:
        events.append(CgroupEvent("release", number, path, int(released_s * 1e9)))
    return events


def census(dying: int) -> CgroupCensus:
    return CgroupCensus("v1", 1, "/m", "node", dying + 9, 9, dying, "m", None)


def look(lives: list[list[CgroupEvent]], *rows: Row, until: float = 30.0) -> Finding:
    events = [event for group in lives for event in group]
    return detect(make_window([(0.0, []), (until, [*events, *rows])], empty=[CgroupEvent]))


def test_nothing_removed_is_a_number_too():
    finding = look([])
    assert finding.verdict is Verdict.ABSENT
    assert finding.summary == "no cgroup was removed in 30.0 s"


def test_neither_events_nor_two_counts_is_unknown():
    one = make_window([(0.0, [CgroupDir("/", 1, 0)])])
    assert detect(one).verdict is Verdict.UNKNOWN
    assert detect(make_window([])).verdict is Verdict.UNKNOWN


def test_a_container_made_again_and_again_under_new_names_is_one_loop():
    lives = [life(n, f"/docker/{n:064x}", 2.0 * n) for n in range(1, 11)]
    finding = look(lives)
    assert finding.severity is Severity.WARNING
    assert finding.verdict is Verdict.PRESENT
    assert "docker containers matching /docker/* were removed in" in finding.summary
    assert finding.entities["cgroup"] == ("/docker",)


def test_a_container_made_again_under_its_own_id_is_a_loop_with_a_path():
    finding = look([life(n, f"/docker/{ID}", 2.0 * n) for n in range(1, 11)])
    assert finding.entities["cgroup"] == ("/docker", f"/docker/{ID}")


def test_a_command_per_cgroup_that_is_released_is_ordinary_even_by_the_clock():
    lives = [life(n, f"/process_api/{n:032x}", 0.5 * n, 0.5 * n + 0.1) for n in range(1, 50)]
    assert look(lives).verdict is Verdict.ABSENT


def test_commands_that_leave_page_cache_at_odd_times_are_worth_a_line_and_no_more():
    chance = random.Random(7)
    lives = [life(n, f"/process_api/{n:032x}", chance.uniform(0, 20)) for n in range(1, 20)]
    assert look(lives, census(80)).severity is Severity.INFO
    assert not look(lives, census(80)).is_problem
    assert look(lives, census(2_000)).severity is Severity.WARNING


def test_a_busy_build_machine_with_containers_at_odd_times_is_fine():
    chance = random.Random(3)
    times = [chance.uniform(0, 25) for _ in range(40)]
    lives = [life(n, f"/docker/{n:064x}", at, at + 0.2) for n, at in enumerate(times)]
    assert look(lives).verdict is Verdict.ABSENT


def test_a_container_by_the_clock_is_a_loop_though_it_leaves_nothing():
    lives = [life(n, f"/docker/{n:064x}", 3.0 * n, 3.0 * n + 0.2) for n in range(1, 9)]
    finding = look(lives)
    assert finding.is_problem
    assert "one every 3.0 s" in finding.summary


def ended(*times_s: float) -> Finding:
    """Cgroups that existed before, removed and not released."""
    removed = [life(n, f"/job/step-{n}", at)[1:] for n, at in enumerate(times_s)]
    return look(removed, census(40))


def test_a_job_that_ends_is_no_loop_however_regularly_its_cgroups_go():
    assert ended(*(3.0 + 0.002 * n for n in range(40))).verdict is Verdict.ABSENT
    assert ended(*(2.0 * n for n in range(1, 10))).verdict is Verdict.ABSENT


def test_containers_that_are_stopped_one_after_the_other_are_no_loop():
    """Each takes the ten seconds after which it is killed."""
    stopped = [life(n, f"/docker/{n:064x}", 10.0 * n, 10.0 * n + 0.2)[1:] for n in range(1, 7)]
    assert look(stopped, until=70.0).verdict is Verdict.ABSENT


def test_what_is_created_and_removed_at_once_is_worth_a_line_and_no_more():
    burst = [life(n, f"/job/step-{n}", 3.0 + 0.002 * n) for n in range(40)]
    assert look(burst, census(40)).severity is Severity.INFO


def test_two_deaths_are_chance():
    assert look([life(n, f"/docker/{n:064x}", n) for n in (1, 2)]).verdict is Verdict.ABSENT


def test_three_deaths_in_ten_minutes_are_no_churn():
    lives = [life(n, f"/docker/{n:064x}", 100.0 * n) for n in (1, 2, 3)]
    assert look(lives, until=600.0).verdict is Verdict.ABSENT


def test_those_who_died_a_moment_ago_prove_nothing():
    finding = look([life(n, f"/docker/{n:064x}", 26 + 0.3 * n**1.7) for n in range(1, 4)])
    assert finding.verdict is Verdict.ABSENT
    assert "3 not yet" in finding.summary


def test_as_many_as_the_buffer_lost_are_not_held_against_anybody():
    lives = [life(n, f"/jobs/run-{n}", float(n * n) / 8) for n in range(1, 9)]
    assert look(lives).is_problem
    assert not look(lives, CgroupEventGap(6)).is_problem


def test_lost_events_do_not_matter_where_the_count_grew_as_much():
    lives = [life(n, f"/jobs/run-{n}", float(n * n) / 8) for n in range(1, 9)]
    rows = [event for item in lives for event in item]
    window = make_window(
        [(0.0, [census(600)]), (30.0, [*rows, CgroupEventGap(500), census(608)])], [CgroupEvent]
    )
    assert detect(window).is_problem


def test_different_names_under_one_parent_are_no_family():
    names = ("alpha", "beta", "gamma", "delta", "epsilon")
    lives = [life(n, f"/{name}", 2.0 * n) for n, name in enumerate(names, 1)]
    assert look(lives).verdict is Verdict.ABSENT


def counts(*runs: int, dying: int = 100, step: int = 0) -> Finding:
    readings: list[tuple[float, list[Row]]] = []
    for n, run in enumerate(runs):
        rows: list[Row] = [
            CgroupDir("/", 1, 1),
            CgroupDir("/docker", 2, 1),
            census(dying + step * n),
        ]
        rows.append(CgroupDir(f"/docker/{run:064x}", 100 + run, 0))
        readings.append((5.0 * n, rows))
    return detect(make_window(readings))


def test_without_tracefs_gone_inodes_are_a_lower_bound():
    finding = counts(1, 2, 3, 4)
    assert finding.verdict is Verdict.UNKNOWN, "two counts cannot show that there is no loop"
    assert finding.summary.startswith("at least 3 cgroups removed in 15.0 s; only a trace can show")
    assert finding.missing


def test_without_tracefs_a_container_is_suspect_while_the_dead_grow():
    assert counts(1, 2, 3, 4, step=2).severity is Severity.WARNING
    assert counts(1, 2, 3, 4, step=1).verdict is Verdict.UNKNOWN


def test_a_directory_made_again_under_its_name_is_told_by_its_inode():
    def rows(inode: int) -> list[Row]:
        return [CgroupDir("/", 1, 1), CgroupDir("/docker", inode, 0)]

    again = detect(make_window([(0.0, rows(7)), (5.0, rows(8))]))
    assert "at least 1 cgroup removed" in again.summary


def test_in_a_copied_tree_inodes_mean_nothing():
    def rows(first: int) -> list[Row]:
        return [CgroupDir(path, first + n, 0) for n, path in enumerate(("/", "/a", "/b", "/c"))]

    assert "no cgroup was removed" in detect(make_window([(0.0, rows(1)), (5.0, rows(9))])).summary


def test_a_list_of_directories_that_was_cut_is_not_compared():
    def reading(at: float, path: str) -> tuple[float, list[Row]]:
        full = CgroupCensus("v1", 1, "/m", "node", 90_000, 90_000, 0, "m", None)
        return (at, [full, CgroupDir("/", 1, 1), CgroupDir(path, ord(path[1]), 0)])

    assert detect(make_window([reading(0.0, "/a"), reading(5.0, "/b")])).verdict is Verdict.UNKNOWN


def test_hostile_names_are_escaped():
    finding = look([life(n, "/x/\x1b[2J\udcff", n * 2.0) for n in range(1, 9)])
    assert finding.is_problem
    assert "\x1b" not in repr(finding)

"""The restart ledger, with planted culprits and planted innocents."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sexton.detect.ledger import Suspect, suspects
from sexton.model.chain import Strength
from sexton.model.row import Row
from sexton.model.rows.cgroup import (
    CgroupCensus,
    CgroupDir,
    CgroupEvent,
    CgroupEventGap,
    CgroupStat,
    OfflineMemcg,
)
from sexton.model.rows.node import Node
from sexton.model.rows.unit import RestartMark, Timer, Unit
from sexton.model.window import Window
from tests.support.windows import EPOCH, make_window

CRASH = "/system.slice/crash.service"
#: Something alive, so that the trace is seen to have gone on.
LAST = CgroupEvent("mkdir", 999, "/x", int(1010e9))


def unit(name: str, restarts: int, start_us: int = 0, sub: str = "auto-restart") -> Unit:
    return Unit(
        f"{name}.service", "loaded", "activating", sub, "enabled", restarts, "always",
        10_000_000, start_us, start_us + 200_000, 0, "exit-code", 1,
        f"/system.slice/{name}.service", "slice + name",
    )  # fmt: skip


def census(dying: int | None, scope: str = "node") -> CgroupCensus:
    total = None if dying is None else dying + 240
    return CgroupCensus("v1", 1, "/sys/fs/cgroup/memory", scope, total, 240, dying, "test", None)


def node(uptime_s: float) -> Node:
    return Node("n", "6.1", 2, "b", uptime_s, *[None] * 8)


def window(*readings: Sequence[Row], every_s: float = 10.0) -> Window:
    return make_window([(1000 + i * every_s, rows) for i, rows in enumerate(readings)])


def death(number: int, path: str, second: float, released: bool = False) -> list[CgroupEvent]:
    at = int(second * 1e9)
    events = [CgroupEvent("mkdir", number, path, at - 10), CgroupEvent("rmdir", number, path, at)]
    return [*events, CgroupEvent("release", number, path, at + 10)] if released else events


def only(found: tuple[Suspect, ...]) -> Suspect:
    (suspect,) = found
    return suspect


def test_restarts_that_match_the_dead_name_the_unit():
    looked = window(
        [unit("crash", 68_400, 1), census(68_420)], [unit("crash", 68_401, 2), census(68_421)]
    )
    suspect = only(suspects(looked))
    assert (suspect.owner, suspect.path, suspect.kind) == ("crash.service", CRASH, "unit")
    assert suspect.strength is Strength.LIKELY
    assert suspect.matched == 68_401
    assert suspect.ratio == pytest.approx(1.0, abs=0.01)
    assert "restarts match dying cgroups 1.00 : 1" in suspect.sentence


def test_a_unit_left_no_more_dead_than_it_has_restarts_though_its_period_fits_too():
    """Seen on 6.1: 756 restarts, and 759 dead of which boot had left 11."""
    looked = window(
        [unit("crash", 755, 1), node(7731.8), census(758)],
        [unit("crash", 756, 2), node(7741.8), census(759)],
    )
    suspect = only(suspects(looked))
    assert "its period matches" in suspect.sentence
    assert suspect.matched == 756


def test_the_period_is_the_restart_delay_and_the_run_time():
    looked = window([unit("crash", 100, 1), census(100)], [unit("crash", 101, 2), census(101)])
    assert only(suspects(looked)).period_s == pytest.approx(10.2)


def test_three_restarts_do_not_own_five_thousand_dead():
    looked = window([unit("crash", 2, 1), census(5_000)], [unit("crash", 3, 2), census(5_001)])
    suspect = only(suspects(looked))
    assert suspect.strength is Strength.POSSIBLE
    assert suspect.matched == 3
    assert "3 restarts against 5,001 dying cgroups" in suspect.sentence


def test_a_number_that_matches_while_nothing_restarts_is_only_possible():
    still = unit("old", 5_000, 1, sub="running")
    suspect = only(suspects(window([still, census(5_000)], [still, census(5_000)])))
    assert suspect.strength is Strength.POSSIBLE
    assert "no longer restarts" in suspect.sentence


def test_a_unit_that_neither_matches_nor_restarts_is_no_suspect():
    still = unit("old", 40, 1, sub="running")
    assert suspects(window([still, census(5_000)], [still, census(5_000)])) == ()


def test_no_dead_no_suspects():
    looked = window([unit("crash", 50, 1), census(0)], [unit("crash", 60, 2), census(0)])
    assert suspects(looked) == ()


def test_an_unknown_count_of_dead_is_not_zero():
    looked = window([unit("crash", 50, 1), census(None)], [unit("crash", 60, 2), census(None)])
    suspect = only(suspects(looked))
    assert (suspect.strength, suspect.matched, suspect.ratio) == (Strength.POSSIBLE, 0, None)


def test_a_subtrees_count_is_not_the_nodes():
    looked = window([unit("crash", 50, 1), census(50, "subtree")], [unit("crash", 51, 2)])
    assert only(suspects(looked)).strength is Strength.POSSIBLE


def test_growth_in_the_window_matches_restarts_in_the_window():
    looked = window([unit("crash", 10, 1), census(9_000)], [unit("crash", 60, 2), census(9_051)])
    suspect = only(suspects(looked))
    assert suspect.strength is Strength.LIKELY
    assert suspect.ratio == pytest.approx(50 / 51)


def test_a_cleared_counter_is_made_good_by_the_period():
    looked = window(
        [unit("crash", 6, 1), census(10_000), node(102_000)], [unit("crash", 7, 2), census(10_001)]
    )
    suspect = only(suspects(looked))
    assert suspect.strength is Strength.LIKELY
    assert suspect.matched == 10_001
    assert "its period matches" in suspect.sentence


def test_the_journal_remembers_what_a_cleared_counter_forgot():
    marks = [RestartMark("crash.service", n, EPOCH - 900 + n) for n in range(1, 401)]
    marks += [RestartMark("crash.service", n, EPOCH + n) for n in range(1, 101)]
    looked = window(
        [unit("crash", 99, 1), census(500), *marks], [unit("crash", 100, 2), census(500)]
    )
    suspect = only(suspects(looked))
    assert suspect.matched == 500
    assert suspect.strength is Strength.LIKELY
    assert suspect.period_s == pytest.approx(1.0)


def test_the_journal_alone_names_a_unit_where_systemd_cannot_be_asked():
    marks = [RestartMark("crash.service", n, EPOCH + 900 + n) for n in range(1, 106)]
    suspect = only(suspects(window([census(104), *marks], [census(105)])))
    assert (suspect.owner, suspect.path) == ("crash.service", CRASH)
    assert suspect.strength is Strength.LIKELY


def test_deaths_traced_under_its_own_path_are_proof():
    events = [event for i in range(10) for event in death(i, CRASH, 1001 + i / 10)]
    looked = window([unit("crash", 3, 1), census(5_000), *events], [unit("crash", 13, 2), LAST])
    suspect = suspects(looked)[0]
    assert suspect.strength is Strength.PROVEN
    assert suspect.matched == 10
    assert "10 dying cgroups under its path" in suspect.sentence


def test_deaths_that_were_released_prove_nothing():
    events = [event for i in range(10) for event in death(i, CRASH, 1001 + i / 10, released=True)]
    looked = window(
        [unit("crash", 3, 1), census(5_000), *events], [unit("crash", 13, 2), census(5_000)]
    )
    assert only(suspects(looked)).strength is Strength.POSSIBLE


def test_a_trace_that_lost_events_is_no_proof():
    events = [event for i in range(10) for event in death(i, CRASH, 1001 + i / 10)]
    looked = window(
        [unit("crash", 3, 1), census(5_000), *events, CgroupEventGap(7)],
        [unit("crash", 13, 2), LAST],
    )
    assert only(suspects(looked)).strength is Strength.LIKELY


def test_a_few_of_its_own_among_many_of_others_are_no_proof():
    events = [event for i in range(3) for event in death(i, CRASH, 1001 + i / 10)]
    events += [e for i in range(3, 100) for e in death(i, "/other/thing", 1001 + i / 100)]
    looked = window(
        [unit("crash", 3, 1), census(5_000), *events], [unit("crash", 6, 2), census(5_100), LAST]
    )
    assert only(suspects(looked)).strength is Strength.POSSIBLE


def test_lru_gen_proves_it_long_after():
    offline = [OfflineMemcg(CRASH)] * 200
    still = unit("crash", 200, 1, sub="running")
    suspect = only(suspects(window([still, census(200), *offline])))
    assert (suspect.strength, suspect.matched) == (Strength.PROVEN, 200)


def test_a_path_that_only_begins_alike_is_another_unit():
    offline = [OfflineMemcg("/system.slice/crash.service2")] * 200
    still = unit("crash", 40, 1, sub="running")
    assert suspects(window([still, census(200), *offline])) == ()


def test_two_units_share_the_dead():
    looked = window(
        [unit("one", 1_000, 1), unit("two", 500, 1), unit("small", 3, 1), census(1_500)],
        [unit("one", 1_001, 2), unit("two", 501, 2), unit("small", 4, 2), census(1_502)],
    )
    found = {suspect.owner: suspect for suspect in suspects(looked)}
    assert found["one.service"].strength is Strength.LIKELY
    assert found["two.service"].strength is Strength.LIKELY
    assert "together with two.service restarts match dying cgroups 1.00 : 1" in (
        found["one.service"].sentence
    )
    assert found["small.service"].strength is Strength.POSSIBLE
    assert found["one.service"].matched == 1_001


def test_one_that_matches_alone_shares_with_nobody():
    looked = window(
        [unit("one", 1_000, 1), unit("two", 300, 1), census(1_000)],
        [unit("one", 1_001, 2), unit("two", 301, 2), census(1_001)],
    )
    first, second = suspects(looked)
    assert (first.owner, first.strength) == ("one.service", Strength.LIKELY)
    assert (second.owner, second.strength) == ("two.service", Strength.POSSIBLE)


def test_on_v2_the_parents_own_count_is_compared():
    stats = [CgroupStat("/", 300, 9_000, None), CgroupStat("/system.slice", 40, 105, None)]
    looked = window(
        [unit("crash", 104, 1), census(9_000), *stats],
        [unit("crash", 105, 2), census(9_000), *stats],
    )
    suspect = only(suspects(looked))
    assert suspect.strength is Strength.LIKELY
    assert suspect.matched == 105


def test_on_v2_a_parent_without_dead_children_acquits():
    stats = [CgroupStat("/", 300, 9_000, None), CgroupStat("/system.slice", 40, 0, None)]
    looked = window(
        [unit("crash", 9_000, 1), census(9_000), *stats],
        [unit("crash", 9_001, 2), census(9_000), *stats],
    )
    assert suspects(looked) == ()


def test_a_timer_whose_period_fits_is_a_suspect():
    def timer(last_us: int) -> Timer:
        return Timer("job.timer", "job.service", last_us, 60_000_000)

    looked = window(
        [timer(950_000_000), census(1_000), node(60_000)],
        [timer(1_010_000_000), census(1_001), node(60_060)],
        every_s=60,
    )
    suspect = only(suspects(looked))
    assert (suspect.owner, suspect.kind) == ("job.timer", "timer")
    assert suspect.path == "/system.slice/job.service"
    assert suspect.strength is Strength.LIKELY


def test_a_timer_that_stopped_long_ago_is_only_possible():
    timer = Timer("job.timer", "job.service", 1_000_000, 60_000_000)
    looked = window([timer, census(1_000), node(60_000)], [timer, census(1_000), node(60_000)])
    assert only(suspects(looked)).strength is Strength.POSSIBLE


def container(number: int) -> str:
    return f"/docker/{number:064x}"


def test_containers_that_come_and_go_are_found_where_no_unit_restarts():
    events = [e for i in range(8) for e in death(i, container(i + 10**20), 1001 + i / 10)]
    looked = window([unit("ecs", 0, 1, sub="running"), census(500), *events], [census(508), LAST])
    suspect = only(suspects(looked))
    assert (suspect.owner, suspect.kind) == ("docker containers", "container")
    assert suspect.path.startswith("/docker/*")
    assert suspect.strength is Strength.PROVEN
    assert suspect.matched == 8


def test_without_a_trace_vanished_ids_are_counted():
    def directories(first: int) -> list[CgroupDir]:
        return [CgroupDir(container(first + i), first + i, 0) for i in range(6)]

    looked = window([*directories(100), census(500)], [*directories(200), census(506)])
    suspect = only(suspects(looked))
    assert suspect.kind == "container"
    assert suspect.strength is Strength.LIKELY
    assert suspect.ratio == pytest.approx(1.0)


def test_one_container_that_ended_is_nobodys_churn():
    directory = CgroupDir(container(7), 7, 0)
    root = CgroupDir("/", 1, 1)
    assert suspects(window([root, directory, census(500)], [root, census(500)])) == ()


def test_a_hostile_name_is_escaped_in_the_sentence():
    evil = "\x1b[2J"
    looked = window([unit(evil, 100, 1), census(100)], [unit(evil, 101, 2), census(101)])
    assert "\x1b" not in only(suspects(looked)).sentence


def test_an_empty_window_has_no_suspects():
    assert suspects(window([])) == ()

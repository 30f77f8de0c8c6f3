"""Owners from every method, the strongest first."""

from __future__ import annotations

from sexton.detect.detectors.cgroups import zombie_memcgs
from sexton.detect.owners import COUNTED, LEDGER, LISTED, TRACED, owners
from sexton.model.chain import Strength
from sexton.model.row import Row
from sexton.model.rows.cgroup import (
    CgroupCensus,
    CgroupDir,
    CgroupEvent,
    CgroupEventGap,
    CgroupResidual,
    CgroupStat,
    OfflineMemcg,
)
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.rows.unit import Unit
from tests.support.windows import make_window


def removed(number: int, path: str, at_s: float = 1.0) -> CgroupEvent:
    return CgroupEvent("rmdir", number, path, int(at_s * 1e9))


def live(*paths: str) -> list[Row]:
    return [CgroupDir(path, index + 1, 0) for index, path in enumerate(("/", *paths))]


def stat(path: str, dying: int, memory: int | None = None) -> CgroupStat:
    return CgroupStat(path, 1, dying, memory)


def census(dying: int) -> CgroupCensus:
    return CgroupCensus("v1", 1, "/sys/fs/cgroup/memory", "node", dying + 9, 9, dying, "m", None)


def restarting(name: str, restarts: int, start_us: int) -> Unit:
    return Unit(
        name, "loaded", "activating", "auto-restart", "enabled", restarts, "always", 1_000_000,
        start_us, start_us + 1000, 0, "exit-code", 1, f"/system.slice/{name}", "slice + name",
    )  # fmt: skip


def test_nothing_known_is_nobody():
    assert owners(make_window([(0.0, [census(900)])])) == ()


def test_traced_deaths_name_the_live_parent_and_the_pattern():
    events = [removed(n, f"/demo/run-{n}") for n in range(7)]
    (owner,) = owners(make_window([(0.0, events), (10.0, live("/demo"))], empty=[CgroupEvent]))
    assert (owner.path, owner.names, owner.dying) == ("/demo", "run-*", 7)
    assert (owner.strength, owner.method) == (Strength.PROVEN, TRACED)
    assert owner.shown == "/demo/run-*"
    assert owner.exact is None


def test_lost_events_make_a_traced_owner_only_likely():
    window = make_window(
        [(0.0, [removed(1, "/a/x"), CgroupEventGap(1)]), (10.0, [])], [CgroupEvent]
    )
    assert owners(window)[0].strength is Strength.LIKELY


def test_lost_events_do_not_weaken_what_the_count_confirms():
    rows = [*(removed(n, f"/a/run-{n}") for n in range(10)), CgroupEventGap(99)]
    window = make_window([(0.0, [census(5), *rows]), (10.0, [census(15)])], [CgroupEvent])
    assert owners(window)[0].strength is Strength.PROVEN


def test_lost_events_do_not_weaken_what_died_after_them():
    events = [removed(1, "/a/x", 1.0), CgroupEventGap(1)], [removed(2, "/b/y", 4.0)]
    window = make_window([(2.0, events[0]), (5.0, events[1]), (15.0, [])], [CgroupEvent])
    strengths = {owner.path: owner.strength for owner in owners(window)}
    assert strengths == {"/a": Strength.LIKELY, "/b": Strength.PROVEN}


def test_which_are_left_is_only_likely_if_the_count_shows_missed_releases():
    rows = [*(removed(n, f"/a/run-{n}") for n in range(30)), CgroupEventGap(99)]
    window = make_window([(0.0, [census(0), *rows]), (10.0, [census(10)])], [CgroupEvent])
    (owner,) = owners(window)
    assert (owner.dying, owner.strength) == (10, Strength.LIKELY)


def test_where_the_parent_died_too_the_deepest_live_directory_owns_them():
    window = make_window([(0.0, [*live("/pods"), OfflineMemcg("/pods/pod-1/inner-2")])])
    (owner,) = owners(window)
    assert (owner.path, owner.names) == ("/pods", "pod-1/inner-2")


def test_offline_memcgs_of_one_unit_are_one_owner_with_its_unit():
    rows = [OfflineMemcg("/system.slice/ecs.service")] * 40 + [
        OfflineMemcg("/system.slice/x.mount")
    ]
    first, second = owners(make_window([(0.0, [*live("/system.slice"), *rows])]))
    assert (first.unit, first.dying, first.exact) == (
        "ecs.service",
        40,
        "/system.slice/ecs.service",
    )
    assert first.method == LISTED
    assert second.unit == "x.mount"


def test_a_list_and_a_trace_of_the_same_dead_are_not_added_up():
    rows = [OfflineMemcg(f"/demo/run-{n}") for n in range(20)]
    events = [removed(n, f"/demo/run-{n}") for n in range(5)]
    window = make_window([(0.0, events), (10.0, [*live("/demo"), *rows])], empty=[CgroupEvent])
    (owner,) = owners(window)
    assert owner.dying == 20
    assert TRACED in owner.method
    assert LISTED in owner.method


def test_what_nobody_named_stays_with_its_directory_so_that_counts_add_up():
    events = [removed(n, "/system.slice/ecs.service") for n in range(6)]
    window = make_window(
        [(0.0, events), (10.0, [*live("/system.slice"), stat("/", 50), stat("/system.slice", 50)])],
        empty=[CgroupEvent],
    )
    found = owners(window)
    assert [(owner.names, owner.dying, owner.method) for owner in found] == [
        (None, 44, COUNTED),
        ("ecs.service", 6, TRACED),
    ]


def test_what_died_below_a_directory_that_was_made_again_is_counted_once_and_above():
    """A unit with cgroups of its own restarted: the dead are below the slice, not the new unit."""
    events = [removed(n, f"/node.slice/agent.service/task-{n}") for n in range(30)]
    stats = [stat("/node.slice", 50), stat("/node.slice/agent.service", 2)]
    now = [*live("/node.slice", "/node.slice/agent.service"), *stats]
    found = owners(make_window([(0.0, events), (10.0, now)], empty=[CgroupEvent]))
    assert [(owner.path, owner.names, owner.dying) for owner in found] == [
        ("/node.slice", "agent.service/task-*", 30),
        ("/node.slice", None, 18),
        ("/node.slice/agent.service", None, 2),
    ]
    assert found[0].unit == "agent.service"
    assert found[0].strength is Strength.PROVEN


def test_what_died_below_a_directory_that_was_made_after_the_counts_is_above():
    events = [removed(n, f"/node.slice/agent.service/task-{n}") for n in range(30)]
    now = [*live("/node.slice", "/node.slice/agent.service"), stat("/node.slice", 50)]
    found = owners(make_window([(0.0, events), (10.0, now)], empty=[CgroupEvent]))
    assert [(owner.path, owner.dying) for owner in found] == [
        ("/node.slice", 30),
        ("/node.slice", 20),
    ]


def test_what_died_below_a_directory_that_stayed_is_counted_there():
    events = [removed(n, f"/pods/pod/task-{n}") for n in range(30)]
    stats = [stat("/pods", 31), stat("/pods/pod", 30)]
    now = [*live("/pods", "/pods/pod"), *stats]
    found = owners(make_window([(0.0, events), (10.0, now)], empty=[CgroupEvent]))
    assert [(owner.path, owner.names, owner.dying) for owner in found] == [
        ("/pods/pod", "task-*", 30),
        ("/pods", None, 1),
    ]


def test_the_ledger_names_what_only_was_counted():
    window = make_window(
        [
            (990.0, [census(95), restarting("ecs.service", 95, 980_000_000)]),
            (1000.0, [census(105), restarting("ecs.service", 105, 999_000_000)]),
        ]
    )
    (owner,) = owners(window)
    assert (owner.path, owner.names, owner.unit) == ("/system.slice", "ecs.service", "ecs.service")
    assert owner.method == LEDGER
    assert owner.strength is Strength.LIKELY
    assert owner.dying is not None
    assert owner.dying <= 105


def test_a_number_of_restarts_is_about_and_one_that_was_traced_is_exact():
    """A trace of the last ten does not turn a thousand restarts into so many seen deaths."""
    died = [removed(n, "/system.slice/ecs.service", 980.0 + n) for n in range(10)]
    window = make_window(
        [
            (980.0, [census(995), restarting("ecs.service", 995, 979_000_000)]),
            (1000.0, [census(1005), restarting("ecs.service", 1005, 999_000_000), *died]),
        ],
        empty=[CgroupEvent],
    )
    (owner,) = owners(window)
    assert owner.method == f"{TRACED} + {LEDGER}"
    assert (owner.dying, owner.about) == (1005, True)
    assert "about 1,005 of them left under" in zombie_memcgs.detect(window).summary
    alone = make_window([(980.0, []), (1000.0, died)], empty=[CgroupEvent])
    assert [owner.about for owner in owners(alone)] == [False]


def test_a_mere_possibility_is_no_owner():
    rows = [census(5_000), restarting("a.service", 4, 999_000_000)]
    assert owners(make_window([(1000.0, rows)])) == ()


def test_two_suspects_never_own_more_than_there_are():
    def at(number: int, start: int) -> list[Row]:
        return [
            census(1000 + number),
            restarting("a.service", 1000 + number, start),
            restarting("b.service", 1001 + number, start),
        ]

    found = owners(make_window([(990.0, at(0, 980_000_000)), (1000.0, at(10, 999_000_000))]))
    assert sum(owner.dying or 0 for owner in found) <= 1010


def test_bytes_go_to_the_one_owner_of_a_directory():
    window = make_window(
        [(0.0, [*live("/a"), OfflineMemcg("/a/run-1"), CgroupResidual("/a", 4096, "exact")])]
    )
    (owner,) = owners(window)
    assert owner.bytes == 4096


def test_bytes_of_two_owners_are_not_divided_by_guess():
    rows = [
        OfflineMemcg("/a/run-1"),
        OfflineMemcg("/a/x.service"),
        CgroupResidual("/a", 9, "exact"),
    ]
    found = owners(make_window([(0.0, [*live("/a"), *rows])]))
    assert {owner.names: owner.bytes for owner in found} == {
        "run-1": None,
        "x.service": None,
        None: 9,
    }


def test_bytes_alone_are_only_possible_and_have_no_count():
    rows = [CgroupResidual("/a", 4096, "exact"), CgroupResidual("/b", 0, "exact")]
    (owner,) = owners(make_window([(0.0, rows)]))
    assert (owner.path, owner.dying, owner.bytes) == ("/a", None, 4096)
    assert owner.strength is Strength.POSSIBLE


def test_who_gained_bytes_while_we_watched_comes_before_who_had_them():
    old = CgroupResidual("/old", 90 << 20, "exact")
    new = CgroupResidual("/new", 2_000 * 4096, "exact")
    window = make_window([(0.0, [census(600), old]), (5.0, [census(2_600), old, new])])
    assert [(owner.path, owner.grown_bytes) for owner in owners(window)] == [
        ("/new", 2_000 * 4096),
        ("/old", 0),
    ]


def test_who_gained_more_of_what_there_was_comes_first():
    def at(left: int, right: int) -> list[Row]:
        return [CgroupResidual("/left", left, "exact"), CgroupResidual("/right", right, "exact")]

    found = owners(make_window([(0.0, at(90_000, 4_096)), (5.0, at(80_000, 8_192))]))
    assert [(owner.path, owner.grown_bytes) for owner in found] == [
        ("/right", 4_096),
        ("/left", -10_000),
    ]


def test_after_the_fact_nothing_grew_and_all_are_kept_by_bytes():
    rows = [CgroupResidual("/a", 4_096, "exact"), CgroupResidual("/b", 8_192, "exact")]
    once = owners(make_window([(0.0, rows)]))
    assert [(owner.path, owner.grown_bytes) for owner in once] == [("/b", None), ("/a", None)]
    twice = owners(make_window([(0.0, rows), (5.0, rows)]))
    assert [(owner.path, owner.grown_bytes) for owner in twice] == [("/b", 0), ("/a", 0)]


def test_a_first_reading_that_nobody_took_is_no_zero():
    rows = [CgroupResidual("/old", 90 << 20, "x"), CgroupResidual("/new", 8 << 20, "x")]
    window = make_window([(0.0, []), (5.0, rows)], empty=[CgroupResidual])
    assert {owner.path: owner.grown_bytes for owner in owners(window)} == {
        "/old": None,
        "/new": None,
    }


def test_bytes_by_two_methods_are_not_compared():
    first = [CgroupResidual("/a", 4_096, "exact")]
    bound = "counters (upper bound)"
    then = [CgroupResidual("/a", 90 << 20, bound), CgroupResidual("/b", 80 << 20, bound)]
    found = owners(make_window([(0.0, first), (5.0, then)]))
    assert [owner.grown_bytes for owner in found] == [None, None]


def test_counted_owners_tell_the_growth_of_their_bytes_too():
    def at(held: int) -> list[Row]:
        return [stat("/a", 5), CgroupResidual("/a", held, "exact")]

    (owner,) = owners(make_window([(0.0, at(4_096)), (5.0, at(12_288))]))
    assert (owner.dying, owner.bytes, owner.grown_bytes) == (5, 12_288, 8_192)


def test_bytes_that_are_an_upper_bound_say_so():
    rows = [stat("/a", 5), CgroupResidual("/a", 4096, "memory.current (upper bound: own pages)")]
    (owner,) = owners(make_window([(0.0, rows)]))
    assert "upper bound" in owner.method


def test_hostile_names_are_kept_raw_for_those_who_must_open_them():
    name = "/x/\x1b[2J<script>\udcff"
    (owner,) = owners(make_window([(0.0, [*live("/x"), OfflineMemcg(name)])]))
    assert owner.exact == name


POD, CRON = "/kubepods/burstable/pod" + "a" * 32, "/kubepods/besteffort"


def ids(first: int, number: int) -> list[str]:
    return [f"{at:064x}" for at in range(first, first + number)]


def test_dead_containers_are_named_by_their_pod_however_long_ago_it_was_named():
    apps, others = ids(0, 6), ids(100, 4)
    names = [
        *(Container(name, "prod", "api", "app", "a" * 32, at) for at, name in enumerate(apps)),
        Pod("a" * 32, "prod", "api"),
    ]
    events = [removed(at, f"{POD}/{name}") for at, name in enumerate([*apps, *others])]
    window = make_window(
        [(0.0, [*names, *events]), (10.0, live(POD))], empty=[CgroupEvent, Container, Pod]
    )
    app, rest = owners(window)
    assert (app.path, app.dying, app.called) == (POD, 6, "container app of pod prod/api")
    assert (rest.path, rest.dying, rest.called) == (POD, 4, "pod prod/api")
    assert app.shown == f"{POD}/*"


def test_dead_pods_are_named_by_their_workload():
    jobs = [Pod(f"{at:032x}", "ops", f"report-28391{at:03}-x2k4z") for at in range(40)]
    more = [Pod(f"{at:032x}", "test", f"rare-{at}") for at in range(100, 102)]
    events = [removed(at, f"{CRON}/pod{pod.uid}") for at, pod in enumerate([*jobs, *more])]
    window = make_window([(0.0, [*jobs, *more, *events]), (10.0, live(CRON))], empty=[CgroupEvent])
    found = [(owner.called, owner.dying) for owner in owners(window)]
    assert found == [("pods ops/report-*", 40), (f"{CRON}/pod*", 2)]


def test_a_pod_without_a_name_stays_a_path():
    events = [removed(at, f"{POD}/{name}") for at, name in enumerate(ids(0, 6))]
    (owner,) = owners(make_window([(0.0, events), (10.0, live(POD))], empty=[CgroupEvent]))
    assert owner.called == owner.shown == f"{POD}/*"

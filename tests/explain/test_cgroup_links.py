"""Scopes that slow statistics down, and timers that leave zombies without a crash."""

from __future__ import annotations

import pytest

from sexton.explain.links.cgroups import leaked_scopes_slow_stats, timer_leaves_zombies
from sexton.model.chain import Strength
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir, CgroupEvent, WalkCost
from sexton.model.rows.node import Node
from sexton.model.rows.unit import Timer
from tests.explain.making import EMPTY, evidence, finding, window

LEFT = evidence("scopes without any process", 4_000, source="directories of the memory hierarchy")


def walked(total: int, dying: int, root_s: float | None, measured_s: float = 0.001):
    census = CgroupCensus("v2", 2, None, "node", total, total - dying, dying, "cgroup.stat", None)
    return window(
        {10: [census, WalkCost("memory.stat", "/small", 40, measured_s, 2.0, root_s, "")]}
    )


@pytest.mark.parametrize(
    ("seen", "strength"),
    [
        (walked(5_000, 100, 2.0), Strength.PROVEN),
        (walked(5_000, 100, None), Strength.LIKELY),
        (walked(50_000, 100, 2.0), None),
        (walked(9_000, 4_500, 2.0), None),
        (EMPTY, None),
    ],
)
def test_leaked_scopes_answer_for_a_slow_read_where_they_are_most_of_it(seen, strength):
    leaked = finding("leaked_scopes", cgroup=("/user.slice",), evidence=[LEFT])
    link = leaked_scopes_slow_stats.join(leaked, finding("slow_memcg_stats"), seen)
    assert (link.strength if link else None) is strength


def test_a_small_subtree_that_is_as_slow_speaks_against_the_scopes():
    leaked = finding("leaked_scopes", evidence=[LEFT])
    slow = finding("slow_memcg_stats")
    assert not leaked_scopes_slow_stats.join(leaked, slow, walked(5_000, 9, 2.0)).against
    link = leaked_scopes_slow_stats.join(leaked, slow, walked(5_000, 9, 2.0, measured_s=1.9))
    assert link.against


def test_scopes_of_unknown_number_answer_for_nothing():
    leaked = finding("leaked_scopes", cgroup=("/user.slice",))
    assert (
        leaked_scopes_slow_stats.join(leaked, finding("slow_memcg_stats"), walked(9, 0, 2)) is None
    )


def runs(name: str = "backup", dead: int = 600, interval_s: float = 10.0):
    """A node up for 6,000 s on which a timer has run every ten, and the last deaths were traced."""
    path = f"/system.slice/{name}.service"
    census = CgroupCensus("v2", 2, None, "node", dead + 50, 50, dead, "cgroup.stat", None)
    node = Node("n", "6.1", 2, None, 6_000.0, *(None,) * 8)
    timer = Timer(f"{name}.timer", f"{name}.service", 5_990_000_000, int(interval_s * 1e6))
    earlier = Timer(f"{name}.timer", f"{name}.service", 5_940_000_000, int(interval_s * 1e6))
    deaths = [CgroupEvent("rmdir", n, path, 5_930_000_000_000 + n * 10**10) for n in range(6)]
    directory = CgroupDir("/system.slice", 1, 0)
    return window(
        {5_940: [node, earlier, directory, census], 6_000: [node, timer, *deaths, census]}
    )


def churned(path: str = "/system.slice"):
    return finding("cgroup_churn", cgroup=(path,)), finding("zombie_memcgs", cgroup=(path,))


def test_a_timer_whose_own_path_dies_is_proven():
    link = timer_leaves_zombies.join(*churned(), runs())
    assert (link.strength, link.shared) == (Strength.PROVEN, ("/system.slice",))
    assert "backup.timer" in link.sentence


def test_a_timer_elsewhere_or_of_another_pace_is_not_blamed():
    assert timer_leaves_zombies.join(*churned("/docker"), runs()) is None
    assert timer_leaves_zombies.join(*churned(), EMPTY) is None
    untraced = window(
        {
            at: [row for row in rows if not isinstance(row, CgroupEvent)]
            for at, rows in (
                (5_940, [Timer("a.timer", "a.service", 5_000_000_000, 10**9)]),
                (6_000, [Timer("a.timer", "a.service", 5_000_000_000, 10**9)]),
            )
        }
    )
    assert timer_leaves_zombies.join(*churned(), untraced) is None

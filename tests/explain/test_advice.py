"""Steps for what was found; where nothing can be stopped, where to look first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.detect.detectors.memory.oom_kills import detect
from sexton.explain.diagnosis import advise
from sexton.model.chain import Link, Strength
from sexton.model.finding import Severity
from sexton.model.rows.cgroup import CgroupEvent, Mount
from tests.explain.making import EMPTY, finding
from tests.explain.making import window as made
from tests.explain.test_cgroup_links import runs
from tests.support.fixtures import FIXTURES
from tests.support.windows import load_window


def commands(*findings):
    return [step.do for step in advise(findings, EMPTY)]


@pytest.mark.parametrize(
    ("found", "command"),
    [
        (finding("quota_throttling", unit=("job.service",)), "systemctl show"),
        (finding("quota_throttling", cgroup=("/kube pods",)), "cat '/sys/fs/cgroup/kube pods/cpu"),
        (finding("softirq_flood", nic=("ens5",)), "ethtool -S ens5"),
        (finding("conntrack_full"), "sysctl net.netfilter"),
        (finding("direct_reclaim"), "ps -eo rss"),
        (finding("page_fault_storm"), "pidstat -r"),
        (finding("leaked_scopes"), "loginctl"),
    ],
)
def test_a_cause_that_nothing_stops_gets_a_first_look(found, command):
    assert [other[: len(command)] for other in commands(found)] == [command]
    assert commands(replace(found, severity=Severity.INFO)) == []


@pytest.mark.parametrize(
    ("name", "first"), [("node", "dmesg -T"), ("present", "systemctl show -p MemoryMax")]
)
def test_where_the_node_ran_out_of_memory_no_limit_is_looked_at(name: str, first: str):
    """The killed process's unit may have none, and it was not reached."""
    window, _ = load_window(FIXTURES / "detectors" / "oom_kills" / f"{name}.json")
    found = detect(window)
    assert found.entities["unit"]
    told = [step.do for step in advise([found], window)]
    assert told[0].startswith(first)
    assert any("MemoryMax" in step for step in told) is (name != "node")
    assert any(step.startswith("ps -eo rss") for step in told) is (name == "node")


def test_for_containers_that_come_and_go_the_advice_queries_the_runtime():
    events = [CgroupEvent("rmdir", n, f"/docker/{n:064x}", n * 10**9) for n in range(1, 6)]
    window = made({0: events, 10: []})
    assert commands(finding("cgroup_churn", cgroup=("/docker",))) == []
    steps = advise([finding("cgroup_churn", cgroup=("/docker",))], window)
    assert [step.do for step in steps] == ["crictl ps -a 2>/dev/null || docker ps -a"]
    assert advise([finding("cgroup_churn", cgroup=("/other",))], window) == ()
    looping = finding("crash_looping_unit", unit=("ecs.service",))
    both = advise([finding("cgroup_churn", cgroup=("/docker",)), looping], window)
    assert all("crictl" not in step.do for step in both)


@pytest.mark.parametrize(("name", "stopped"), [("backup", True), ("systemd-tmpfiles-clean", False)])
def test_a_timer_that_leaves_the_dead_can_be_stopped_unless_the_system_needs_it(name, stopped):
    churned = finding("cgroup_churn", cgroup=("/system.slice",))
    link = Link("timer_leaves_zombies", churned.id, "zombie_memcgs", Strength.PROVEN, "so")
    told = [step.do for step in advise([churned], runs(name), [link])]
    assert told[0] == f"systemctl list-timers --all {name}.timer"
    assert (f"systemctl disable --now {name}.timer" in told) is stopped
    assert advise([churned], runs(name)) == ()


@pytest.mark.parametrize(
    ("nics", "command"), [(("ens5",), "ethtool -S ens5"), ((), "sar -n DEV 1 5")]
)
def test_a_flood_of_who_knows_which_interface_is_not_blamed_on_one(nics, command):
    assert commands(finding("softirq_flood", nic=nics))[0].startswith(command)


def test_a_quota_is_read_where_the_hierarchy_has_it():
    mount = Mount(
        1, "/", "/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cgroup", ("rw", "cpu", "cpuacct")
    )
    found = finding("quota_throttling", cgroup=("/a",))
    (step,) = advise([found], made({0: [mount]}))
    assert step.do == "cat /sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us"


def test_two_looks_are_enough_and_none_is_given_twice():
    assert len(commands(finding("memory_pressure"), finding("direct_reclaim"))) == 1
    several = [finding(name) for name in ("softirq_flood", "conntrack_full", "page_fault_storm")]
    assert len(commands(*several)) == 2


def test_what_is_proven_needs_no_look_and_what_lost_is_not_looked_at():
    core = finding("saturated_core", core=("5",))
    reclaim = finding("direct_reclaim")
    assert len(advise([core, reclaim], EMPTY)) == 2
    links = [
        Link("w", "zombie_memcgs", core.id, Strength.PROVEN, "so"),
        Link("r", reclaim.id, core.id, Strength.POSSIBLE, "so"),
    ]
    assert advise([core, reclaim], EMPTY, links) == ()

"""Steps for what was found; where nothing can be stopped, where to look first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.explain.advice import advise
from sexton.model.chain import Link, Strength
from sexton.model.finding import Severity
from tests.explain.making import EMPTY, finding


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
    assert [each[: len(command)] for each in commands(found)] == [command]
    assert commands(replace(found, severity=Severity.INFO)) == []


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

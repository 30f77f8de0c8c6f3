"""The catalogue: the agents that everybody meets are in it, with what makes each needed."""

from __future__ import annotations

import pytest

from sexton.prevent.audit.catalogue import Agent, agent_of, agents


@pytest.mark.parametrize(
    "unit",
    [
        "ecs.service", "amazon-ssm-agent.service", "amazon-cloudwatch-agent.service",
        "datadog-agent.service", "fluent-bit.service", "fluentd.service", "td-agent.service",
        "prometheus-node-exporter.service", "node_exporter.service", "docker.service",
        "snapd.service", "unattended-upgrades.service", "apt-daily-upgrade.timer",
    ],
)  # fmt: skip
def test_a_platforms_agent_is_known_with_what_makes_it_needed(unit: str):
    agent = agent_of(unit)
    assert agent is not None, unit
    assert agent.purpose
    assert agent.needed, f"{unit}: nothing could ever show that it is needed"
    assert all(condition.why for condition in (*agent.needed, *agent.unneeded))


def test_every_entry_has_a_name_and_no_unit_is_claimed_twice():
    every: list[Agent] = list(agents())
    assert len({part.id for part in every}) == len(every) >= 50
    patterns = [pattern for part in every for pattern in part.units]
    assert len(set(patterns)) == len(patterns)

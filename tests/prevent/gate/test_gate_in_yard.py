"""A booted system, its systemd real: a unit that loops closes the gate, and its waiver opens it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.prevent.gate.making import IN_TIME
from tests.yard.test_units import restarted
from tests.yard.yard import PYTHON, Yard, why_not

pytestmark = [pytest.mark.root, pytest.mark.systemd]

#: As the deb package's ecs.service, only faster: nothing slows it, no start limit ends it.
LOOP = (
    "[Unit]\nDefaultDependencies=no\nStartLimitIntervalSec=0\n"
    "[Service]\nExecStart=/bin/false\nRestart=on-failure\nRestartSec=200ms\n"
)
WAIVERS = "".join(
    f'[[waivers]]\nrule = "{rule}"\nsubject = "loop.service"\nowner = "o@example.com"\n'
    f"expires = {IN_TIME}\n"
    for rule in ("crash_loops", "restart_without_backoff")
)
#: In a cgroup namespace the node's counts cannot be had, which is not what is tried here.
COUNTS = "".join(
    f'[rules.{rule}]\non_unknown = "pass"\n' for rule in ("memcg_count", "dying_memcgs")
)


@pytest.fixture(scope="module")
def booted() -> Iterator[Yard]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Yard() as up:
        yield up


def gate(yard: Yard, policy: str) -> dict[str, Any]:
    script = (
        f"cat > /run/gate.toml <<'E'\n{policy}\nE\n"
        f"{PYTHON} -B -m sexton gate --policy /run/gate.toml --seconds 3 --format json"
    )
    document: dict[str, Any] = json.loads(yard.run("sh", "-c", f"{script} || true", deadline_s=60))
    document["outcomes"] = {rule["id"]: rule for rule in document["rules"]}
    return document


def test_a_unit_that_loops_closes_the_gate_until_it_is_waived_or_stopped(booted: Yard) -> None:
    calm = gate(booted, COUNTS)["outcomes"]["crash_loops"]
    assert calm["outcome"] == "pass", calm
    booted.install("loop.service", LOOP)
    booted.run("systemctl", "start", "--no-block", "loop.service")
    restarted(booted, "loop.service", 3)
    closed = gate(booted, COUNTS)
    rule = closed["outcomes"]["crash_loops"]
    assert (closed["exit"], rule["outcome"]) == (1, "fail"), rule
    assert "loop.service" in [violation["subject"] for violation in rule["violations"]]
    assert closed["outcomes"]["restart_without_backoff"]["outcome"] == "fail"
    excused = gate(booted, COUNTS + WAIVERS)["outcomes"]
    assert excused["crash_loops"]["closes"] is False, excused["crash_loops"]
    assert excused["restart_without_backoff"]["closes"] is False
    booted.run("systemctl", "stop", "loop.service")
    again = gate(booted, COUNTS)["outcomes"]["crash_loops"]
    assert again["outcome"] == "pass", again

"""A plan as it is read before somebody says yes."""

from __future__ import annotations

import subprocess

import pytest

from sexton.cure.apply import DONE, FAILED, SKIPPED, Applied, StepDone
from sexton.cure.journal import STOPPED, Run, StepRecord
from sexton.cure.remedies import reboot_node
from sexton.cure.rollback import RolledBack
from sexton.model.plan import Condition, Refusal
from sexton.reports.text.fix import (
    applied_json,
    applied_text,
    plan_shell,
    plan_text,
    refused_text,
    rolled_back_text,
    status_text,
)
from tests.model.test_plan import plan, step

HOSTILE = "\x1b[2J\u202eevil\nline"


def full():
    return plan(steps=(step(cannot_undo="its memory"), reboot_node.propose("2-reboot", "n1", True)))


def test_it_says_first_that_it_is_a_plan_and_last_how_to_go_on():
    text = plan_text(full(), 88)
    assert text.startswith("PLAN  node-1   1 step to apply · 1 only printed · 1 refused")
    assert "sudo sexton fix plan --out plan.json" in text
    kept = plan_text(full(), 88, file="plan.json")
    assert f"sudo sexton fix apply plan.json --confirm {full().hash[:16]}" in kept


def test_a_step_shows_risk_effect_condition_undo_loss_and_proof():
    text = plan_text(full(), 88)
    for part in (
        "risk low", "it dies anyway", "stops it", "LoadState: loaded", "starts it",
        "no undo   its memory", "it runs: no",
    ):  # fmt: skip
        assert part in text, part


def test_the_last_resort_is_only_printed_with_the_sentinel_that_kured_watches():
    text = plan_text(full(), 88)
    for line in ("kubectl cordon n1", "kubectl drain n1", "touch /var/run/reboot-required"):
        assert line in text
    script = plan_shell(full())
    assert "\n# kubectl drain n1" in script
    assert "\nkubectl" not in script


def test_a_refusal_names_the_option_that_lifts_it():
    text = " ".join(plan_text(plan(), 88).split())
    assert "kubelet.service: protected (allow with --accept-collateral)" in text


def test_nothing_to_do_is_said_and_offers_no_apply():
    text = plan_text(plan(steps=(), refusals=()), 88)
    assert text.startswith("NOTHING TO APPLY")
    assert "apply" not in text.partition("\n")[2]


@pytest.mark.parametrize("width", [60, 80, 110, 300])
def test_no_line_but_a_command_is_wider_than_the_page(width: int):
    long = Condition("what stops with it", "systemd", " ".join(["a-long-name.service"] * 9), "why")
    text = plan_text(plan(steps=(step(preconditions=(long,)),)), width)
    assert all(len(line) <= min(width, 110) for line in text.splitlines() if "sexton" not in line)


def test_hostile_names_disturb_no_terminal():
    hostile = plan(
        node=HOSTILE,
        steps=(step(target=HOSTILE, title=HOSTILE, commands=(f"rm {HOSTILE}",),
                    preconditions=(Condition(HOSTILE, "x", HOSTILE, "y"),)),),
        refusals=(Refusal(HOSTILE, HOSTILE),),
        notes=(HOSTILE,),
    )  # fmt: skip
    done = Applied("run", [StepDone(step(), DONE, "said", (("what", None, "x"),))], watched="x")
    for text in (
        plan_text(hostile, 88),
        plan_shell(hostile),
        applied_text(hostile, done, 88),
        refused_text(hostile, [HOSTILE], 88),
        rolled_back_text(RolledBack("r", [("1", HOSTILE)], [("2", HOSTILE)], []), 88),
    ):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_the_shell_is_shell_and_holds_no_line_of_anybody_elses():
    hostile = plan(
        node="n; touch /tmp/pwned",
        refusals=(Refusal("a\ntouch /tmp/pwned", "b\nrm -rf /"),),
        steps=(step(risk_why="x\nreboot", undo="y\nreboot", commands=("true",)),),
    )
    script = plan_shell(hostile)
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)
    code = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert code == ["set -eu", "true"]


def test_what_was_done_and_what_was_not_reached_are_distinct():
    steps = [
        StepDone(step(), DONE, "stopped it", (("it runs", True, "no"),)),
        StepDone(step(id="2-mask"), FAILED, "read-only file system"),
        StepDone(step(id="3-free"), SKIPPED),
    ]
    applied = Applied("run-1", steps, STOPPED, "read-only file system", "io pressure")
    text = applied_text(plan(), applied, 88)
    assert text.startswith("STOPPED  node-1   1 of 3 steps")
    assert "it runs: no (ok)" in text
    assert "not reached" in text
    assert "sudo sexton fix rollback run-1" in text
    assert "fix verify" not in text


def test_what_a_freeing_step_measured_is_in_the_text_and_the_json():
    outcome = {
        "freed": 3000,
        "said": "3,000 dying cgroups freed",
        "told": [
            "running cgroups there: in swap 0 B before, 1.0 MiB after",
            "34.9 µs for each zombie",
        ],
    }
    done = StepDone(step(id="4-free"), DONE, "3,000 dying cgroups freed", (), outcome)
    text = " ".join(applied_text(plan(), Applied("run-1", [done]), 88).split())
    assert "in swap 0 B before, 1.0 MiB after 34.9 µs for each zombie" in text
    (shown,) = applied_json(plan(), Applied("run-1", [done]))["steps"]
    assert (shown["told"], shown["outcome"]) == (outcome["told"], {"freed": 3000})


def test_an_undo_of_nothing_is_told_from_one_that_was_done_before():
    assert "had changed nothing" in rolled_back_text(RolledBack("run-1"), 88)
    assert "already rolled back" in rolled_back_text(RolledBack("run-1", already=True), 88)


def test_a_cut_off_apply_cannot_be_overlooked():
    run = Run("run-1", plan(), 1.0, [StepRecord("1-stop", {})])
    text = status_text([run], 88, "/x")
    assert "INTERRUPTED" in text
    assert "may have been done in part" in text
    assert "sudo sexton fix rollback run-1" in text

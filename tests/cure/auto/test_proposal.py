"""Of a diagnosis only what a rule allows becomes a proposal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.cure.auto.policy import policy_of
from sexton.cure.auto.proposal import Proposal, _is_allowed, _narrowed, proposal_from_json, propose
from sexton.cure.plan import PlanContext
from sexton.errors import SourceError
from sexton.host.host import open_host
from sexton.model.chain import Chain, Link, Strength
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding, Severity, Silenced, Verdict
from sexton.model.window import Window
from sexton.sources.procfs.node import Identity
from tests.cure.auto.test_policy import GOOD
from tests.model.test_plan import plan, step

UNITS = ("a.service", "b.service")


def diagnosis(strength: Strength = Strength.PROVEN, **link: object) -> Diagnosis:
    host = open_host()
    (node,) = Identity(host).collect()
    loop = Finding("crash_looping_unit", Verdict.PRESENT, Severity.CRITICAL, "a.service restarts",
                   entities={"unit": UNITS})  # fmt: skip
    dead = Finding("zombie_memcgs", Verdict.PRESENT, Severity.CRITICAL, "1,000 zombies")
    other = Finding("nic_resets", Verdict.PRESENT, Severity.CRITICAL, "a reset")
    joined = Link("x", loop.id, dead.id, strength, "it leaves them", shared=UNITS[:1])
    chain = Chain((replace(joined, **link),))
    return Diagnosis(node, 0.0, 10.0, (loop, dead, other), (chain,), (), (), (), ())


def proposed(found: Diagnosis, text: str = GOOD) -> Proposal:
    return propose(found, Window({}), policy_of(text), PlanContext(open_host()))


def test_a_chain_that_its_rule_allows():
    found = proposed(diagnosis())
    assert found.plan is not None
    assert found.chain == "crash_looping_unit -> zombie_memcgs (proven)"
    assert found.why == ""
    assert proposal_from_json(found.to_json()) == found


def test_only_the_chain_is_planned_for():
    whole = diagnosis()
    narrow = _narrowed(whole, whole.chains[0])
    assert [finding.id for finding in narrow.findings] == ["crash_looping_unit", "zombie_memcgs"]


def test_only_units_that_the_chain_names_and_remedies_that_the_rule_names():
    rule = policy_of(GOOD).rules[0]
    units = frozenset(UNITS[:1])
    assert _is_allowed(step(parameters={"unit": "a.service"}), rule, units)
    assert not _is_allowed(step(parameters={"unit": "b.service"}), rule, units)
    assert not _is_allowed(step(remedy="mask_unit"), rule, units)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (diagnosis(Strength.LIKELY), "zombie_memcgs is likely, its rule wants proven"),
        (diagnosis(covers=(10, 100)), "explains less than half"),
        (replace(diagnosis(), chains=()), "no cause chain for crash_looping_unit, zombie_memcgs"),
        (replace(diagnosis(), chains=(), findings=()), "cannot tell"),
        (diagnosis(effect="nic_resets"), "no rule for crash_looping_unit -> nic_resets"),
    ],
)
def test_what_no_rule_allows_is_said(found: Diagnosis, why: str):
    made = proposed(found)
    assert made.plan is None
    assert why in made.why


def test_a_weaker_chain_if_the_rule_says_so():
    likely = GOOD.replace("steps", 'strength = "likely"\nsteps')
    assert proposed(diagnosis(Strength.LIKELY), likely).plan is not None
    assert proposed(diagnosis(Strength.POSSIBLE), likely).plan is None


def test_what_its_owner_silenced_is_left_alone():
    found = diagnosis()
    silenced = Silenced("until tomorrow", "known")
    loop, *others = found.findings
    found = replace(found, findings=(replace(loop, silenced=silenced), *others))
    assert "crash_looping_unit is silenced" in proposed(found).why


def test_a_rule_without_steps_on_the_node_needs_one_that_is_left():
    text = GOOD.replace('"cordon_node", "drain_node", ', "")
    assert "no step that the rule allows" in proposed(diagnosis(), text).why


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"exit": "x"}', "[" * 100_000, b"\xff"])
def test_anything_else_is_no_proposal(content):
    with pytest.raises(SourceError, match="proposal"):
        proposal_from_json(content)


def test_a_plan_that_was_changed_is_no_proposal():
    text = Proposal(1, plan=plan()).to_json()
    with pytest.raises(SourceError, match="hash mismatch"):
        proposal_from_json(text.replace("stop a.service", "stop b.service"))

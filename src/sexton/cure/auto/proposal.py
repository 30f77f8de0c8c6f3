"""What a policy allows to do about a diagnosis.

Made by a process that reads a recording, and so is given no credential: the steps on the Node are
added by the process that has one (`sexton.cure.auto.unattended`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from sexton.cure.auto.policy import ON_NODE, Policy, Rule
from sexton.cure.plan import PlanContext, make_plan
from sexton.detect.registry import title_of
from sexton.errors import SourceMalformed
from sexton.model.chain import Chain
from sexton.model.diagnosis import Diagnosis, Exit
from sexton.model.finding import Verdict
from sexton.model.plan import Plan, PlanError, Step, as_json, from_json
from sexton.model.text import printable
from sexton.model.window import Window


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan for one chain that a rule allows, or `why` there is none. `exit` is the diagnosis's.

    `only` are the steps that the rule allows.
    """

    exit: int
    why: str = ""
    root: str = ""
    symptom: str = ""
    strength: str = ""
    words: str = ""
    plan: Plan | None = None
    only: tuple[str, ...] = ()

    @property
    def chain(self) -> str:
        return f"{self.root} -> {self.symptom} ({self.strength})" if self.root else ""

    def to_json(self) -> str:
        plan = None if self.plan is None else as_json(self.plan)
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({**fields, "plan": plan})


def proposal_from_json(content: str | bytes) -> Proposal:
    """What `to_json` wrote; `SourceMalformed` if it is something else."""
    try:
        found: dict[str, Any] = json.loads(content)
        plan = None if found["plan"] is None else from_json(found["plan"])
        texts = {
            name: printable(str(found[name]))
            for name in ("why", "root", "symptom", "strength", "words")
        }
        only = tuple(str(name) for name in found["only"])
        return Proposal(int(found["exit"]), **texts, plan=plan, only=only)
    except (ValueError, TypeError, KeyError, RecursionError, PlanError) as error:
        raise SourceMalformed("proposal", 0, f"{type(error).__name__}: {error}") from None


def propose(diagnosis: Diagnosis, window: Window, policy: Policy, context: PlanContext) -> Proposal:
    """For the first chain that a rule allows."""
    status = int(diagnosis.exit)
    chosen, why = _chosen(diagnosis, policy)
    if chosen is None:
        return Proposal(status, why)
    chain, rule = chosen
    about = Proposal(
        status,
        "",
        chain.root,
        chain.symptom,
        chain.strength.value,
        diagnosis.by_id[chain.root].summary,
    )
    plan = make_plan(_narrowed(diagnosis, chain), window, context)
    units = frozenset(name for link in chain.links for name in link.shared)
    only = tuple(step.id for step in plan.automatic if _is_allowed(step, rule, units))
    if not only and not set(rule.steps) & set(ON_NODE):
        refused = "; ".join(f"{each.target}: {each.reason}" for each in plan.refusals[:3])
        return replace(about, why=f"no step that the rule allows{f' ({refused})' * bool(refused)}")
    return replace(about, plan=plan, only=only)


def _chosen(diagnosis: Diagnosis, policy: Policy) -> tuple[tuple[Chain, Rule] | None, str]:
    """The chain to act on and its rule; else why there is none."""
    rules = {(rule.root, rule.symptom): rule for rule in policy.rules}
    reasons = []
    for chain in diagnosis.chains:
        name = f"{chain.root} -> {chain.symptom}"
        rule = rules.get((chain.root, chain.symptom))
        found = [diagnosis.by_id[each] for each in chain.findings]
        if not any(finding.is_problem for finding in found):
            continue
        if rule is None:
            reasons.append(f"no rule for {name}")
        elif chain.strength.rank < rule.strength.rank:
            reasons.append(
                f"{name} is {chain.strength.value}, its rule wants {rule.strength.value}"
            )
        elif any(link.is_partial for link in chain.links):
            reasons.append(f"{name} explains less than half of it")
        elif silenced := [finding.id for finding in found if finding.silenced]:
            reasons.append(f"{name}: {silenced[0]} is silenced")
        else:
            return (chain, rule), ""
    if reasons:
        return None, "; ".join(dict.fromkeys(reasons))
    if diagnosis.exit is Exit.CANNOT_TELL:
        missing = [title_of(f.id) for f in diagnosis.essential if f.verdict is Verdict.UNKNOWN]
        return None, f"cannot tell: {', '.join(missing)}"
    problems = [finding.id for finding in diagnosis.findings if finding.is_problem]
    return None, f"no cause chain for {', '.join(problems)}" if problems else "no problem"


def _narrowed(diagnosis: Diagnosis, chain: Chain) -> Diagnosis:
    """Only what is in the chain: the rule allows nothing about other findings."""
    inside = set(chain.findings)
    findings = tuple(found for found in diagnosis.findings if found.id in inside)
    return replace(diagnosis, findings=findings, chains=(chain,))


def _is_allowed(step: Step, rule: Rule, units: frozenset[str]) -> bool:
    """A remedy of the rule; on units only those that the chain is about."""
    unit = step.parameters.get("unit")
    return step.remedy in rule.steps and (unit is None or printable(str(unit)) in units)

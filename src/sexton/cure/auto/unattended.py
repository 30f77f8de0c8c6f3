"""One pass of `sexton fix auto`: is there something to do, may it be done, and do it.

Each pass ends in one entry of the audit log: what was done, or why not. The checks come in an order
in which the cheap ones are first, and the Lease is taken last: a healthy node asks the API server
nothing. Under the Lease the kill switch, the pool and the clock are read again, since another node
may have acted in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from sexton.cure.apply import FixContext, Refused, apply, default_seconds
from sexton.cure.auto.lease import Lease, holder_name
from sexton.cure.auto.limits import clock_wrong, over_budget, thrown
from sexton.cure.auto.policy import ON_NODE, Policy, Rule
from sexton.cure.auto.proposal import Proposal
from sexton.cure.journal import (
    COMPLETE,
    ROLLED_BACK,
    RUNNING,
    STOPPED,
    all_runs,
    audit_log,
    check_log,
    log_event,
)
from sexton.cure.node_plan import CORDON, DRAIN, TAINT, NodeView, NodeWishes, node_steps, read_view
from sexton.cure.nodes import EMPTYDIR, UNMANAGED, Cluster
from sexton.cure.preconditions import Probes
from sexton.cure.writer import DryWriter
from sexton.errors import CommandError, SextonError
from sexton.model.plan import Plan
from sexton.model.text import printable
from sexton.model.text import seconds as duration

#: Older evidence is of a recorder that does not run, or of a clock that jumped.
FRESH_S = 600.0
#: Events of the audit log: the first pass on this node, and each decision.
STARTED, DECIDED = "auto_start", "auto"
NOTHING, HELD_BACK, WOULD = "nothing to do", "did not act", "would act"
ACTS, ACTED, FAILED = "acts", "done", "stopped"
_WORDS = {"cordon_node": CORDON, "taint_node": TAINT, "drain_node": DRAIN}


@dataclass(frozen=True, slots=True)
class Decision:
    """How a pass ended. `exit` is 0 if nothing is left to do, 1 if there is, 2, 3 as elsewhere."""

    how: str
    why: str = ""
    chain: str = ""
    run: str = ""
    exit: int = 1


@dataclass(slots=True)
class Unattended:
    """What a pass works with; `fix` is that of `sexton fix apply`, with the API server."""

    node: str
    policy: Policy
    fix: FixContext
    judge: Callable[[], Proposal]
    max_seconds: float | None = None
    _last: Decision | None = field(default=None)

    @property
    def cluster(self) -> Cluster:
        assert self.fix.cluster is not None
        return self.fix.cluster

    def run(self) -> Decision:
        """One pass. A failure is a decision too: nothing was done, and why is in the log."""
        started = self._started()
        try:
            decision = self._decide(started)
        except Refused as refused:
            decision = Decision(HELD_BACK, "; ".join(refused.reasons))
        except SextonError as error:
            decision = Decision(HELD_BACK, printable(str(error)), exit=2)
        self._log(decision)
        return decision

    def _started(self) -> float:
        """When the first pass was on this node; it is logged by that."""
        for line in audit_log(self.fix.state):
            if line["event"] == STARTED and line.get("node") == self.node:
                return float(line["unix"])
        self.fix.state.make()
        log_event(self.fix.state, STARTED, node=self.node, policy=self.policy.path)
        return time.time()

    def _decide(self, started: float) -> Decision:
        proposal = self.judge()
        if proposal.plan is None:
            how = HELD_BACK if proposal.exit else NOTHING
            return Decision(how, proposal.why, proposal.chain, exit=proposal.exit)
        rule = self._rule(proposal)
        held = [*_outdated(proposal.plan), *self._held_back()]
        if held:
            return Decision(HELD_BACK, "; ".join(held), proposal.chain)
        plan, only, why = self._completed(proposal, rule)
        if why or plan is None:
            return Decision(HELD_BACK, why, proposal.chain)
        dry = self.policy.why_dry(started, time.time())
        why = self._limits()
        if why:
            return Decision(HELD_BACK, why, proposal.chain)
        if dry:
            return self._rehearse(plan, only, proposal.chain, dry)
        return self._under_lease(plan, only, proposal.chain)

    def _rule(self, proposal: Proposal) -> Rule:
        """The rule that the proposal says it follows: it comes from a process that reads what
        others wrote."""
        for rule in self.policy.rules:
            if (rule.root, rule.symptom) == (proposal.root, proposal.symptom):
                return rule
        raise CommandError("a proposal that no rule allows")

    def _held_back(self) -> Iterator[str]:
        """Reasons on this node."""
        damage = check_log(self.fix.state).damage
        if damage:
            yield f"the audit log is damaged ({damage[0].what}): sexton audit-log verify"
        now = time.time()
        for run in all_runs(self.fix.state):
            if run.state == RUNNING:
                yield f"apply {run.id} was interrupted: sexton fix rollback {run.id}"
            elif run.state == STOPPED:
                yield f"apply {run.id} stopped ({run.ended_why}): sexton fix rollback {run.id}"
            if run.state in (COMPLETE, ROLLED_BACK):
                ended = max(run.began_unix, run.ended_unix)
                left_s = ended + self.policy.cool_down_s - now
                if ended > now:
                    yield f"apply {run.id} is in the future: the clock was or is wrong"
                elif left_s > 0:
                    yield f"cool-down after apply {run.id}: {duration(left_s)} left"

    def _completed(
        self, proposal: Proposal, rule: Rule
    ) -> tuple[Plan | None, tuple[str, ...], str]:
        """The plan with the steps on the Node, the steps to carry out, and why not."""
        plan = proposal.plan
        assert plan is not None
        steps = {step.id: step for step in plan.automatic}
        only = [name for name in proposal.only if name in steps]
        if any(steps[name].remedy not in rule.steps for name in only):
            raise CommandError("a proposal with a step that its rule does not allow")
        drain = self.policy.drain
        allowed = {EMPTYDIR: drain.delete_emptydir_data, UNMANAGED: drain.evict_unmanaged}
        wishes = NodeWishes(
            frozenset(_WORDS[name] for name in rule.steps if name in ON_NODE),
            frozenset(word for word, wanted in allowed.items() if wanted),
            float(drain.seconds),
        )
        # Read also if no step is wanted on it: it must be this machine.
        view = read_view(self.cluster, self.node, wishes)
        boot_id = Probes(self.fix.host).read("boot_id")
        if why := _why_not_this(view, boot_id):
            return None, (), why
        on_node = node_steps(view, boot_id)
        if on_node.refusals:
            refused = "; ".join(f"{each.target}: {each.reason}" for each in on_node.refusals)
            return None, (), refused
        only = [step.id for step in on_node.steps] + only
        if not only:
            return None, (), "no step that the rule allows"
        whole = (*on_node.steps, *plan.steps)
        return replace(plan, steps=whole, notes=(*on_node.notes, *plan.notes)), tuple(only), ""

    def _limits(self) -> str:
        """What the cluster says, in this order."""
        return (
            thrown(self.cluster, self.policy.kill_switch, self.node)
            or clock_wrong(self.cluster)
            or over_budget(self.cluster, self.policy.pool, self.node)
        )

    def _rehearse(self, plan: Plan, only: tuple[str, ...], chain: str, dry: str) -> Decision:
        """All checks, also the server's; nothing is changed."""
        fix = replace(
            self.fix, dry=True, writer=DryWriter(), cluster=replace(self.cluster, dry=True)
        )
        done = apply(plan, fix, self._seconds(plan), only)
        if done.why:
            return Decision(HELD_BACK, f"dry run: {done.why}", chain)
        names = ", ".join(step.step.id for step in done.steps)
        return Decision(WOULD, f"dry run, {dry}; steps: {names}", chain)

    def _seconds(self, plan: Plan) -> float:
        return self.max_seconds or default_seconds(plan)

    def _under_lease(self, plan: Plan, only: tuple[str, ...], chain: str) -> Decision:
        lease = Lease(
            self.cluster, self.policy.lease, holder_name(self.node), self.policy.lease_seconds
        )
        if why := lease.acquire(self.fix.interrupted):
            return Decision(HELD_BACK, why, chain)
        with lease:
            if why := self._limits():
                return Decision(HELD_BACK, why, chain)

            def forbidden() -> str:
                return lease.why_not_ours() or thrown(
                    self.cluster, self.policy.kill_switch, self.node
                )

            fix = replace(
                self.fix,
                interrupted=lambda: lease.why_lost() or self.fix.interrupted(),
                forbidden=forbidden,
            )
            log_event(
                self.fix.state, DECIDED, node=self.node, chain=chain, how="acts", plan=plan.hash
            )
            done = apply(plan, fix, self._seconds(plan), only)
        if done.why or done.unproven:
            why = done.why or f"no effect: {'; '.join(done.unproven)}"
            return Decision(FAILED, why, chain, done.run)
        if done.unread:
            return Decision(ACTED, f"not read: {'; '.join(done.unread)}", chain, done.run, 3)
        return Decision(ACTED, "", chain, done.run, 0)

    def _log(self, decision: Decision) -> None:
        """Every decision; that there is nothing to do once, until something else comes."""
        if decision.how == NOTHING and decision == self._previous():
            return
        self._last = decision
        details: dict[str, Any] = {
            "chain": decision.chain,
            "how": decision.how,
            "why": decision.why,
            "run": decision.run,
        }
        self._write(**{key: value for key, value in details.items() if value})

    def _write(self, **details: Any) -> None:
        log_event(self.fix.state, DECIDED, node=self.node, **details)

    def _previous(self) -> Decision | None:
        if self._last is None:
            for line in audit_log(self.fix.state):
                if line["event"] == DECIDED and line.get("node") == self.node:
                    how, why = str(line.get("how", "")), str(line.get("why", ""))
                    self._last = Decision(how, why, exit=0)
        return self._last


def _outdated(plan: Plan) -> Iterator[str]:
    age_s = time.time() - plan.evidence_until_unix
    if not -FRESH_S < age_s < FRESH_S:
        yield f"its evidence is {duration(abs(age_s))} {'old' if age_s > 0 else 'in the future'}"


def _why_not_this(view: NodeView, boot_id: str) -> str:
    """Why the Node is not this machine, as far as is known, or is out of service already."""
    state = view.state
    if state is None:
        return view.why_not
    if state.boot_id != boot_id:
        return f"Node {state.name} is another machine, or its kubelet has not reported this boot"
    if state.cordoned:
        return f"Node {state.name} is cordoned already"
    return ""

"""Applies a plan one step at a time.

First it checks that the plan is for this node and boot, the age of the evidence, that no earlier
apply was interrupted, and every precondition that can already be met. Then it takes the lock,
measures the node and opens the journal. For each step it checks the preconditions again, *writes
and syncs* everything an undo needs, acts, records the outcome and checks the proof. It stops when a
precondition is no longer met, an action fails, a proof fails, the watchdog reports a problem or
time is up. Completed steps stay in place; ``sexton fix rollback`` undoes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sexton.cure.journal import (
    COMPLETE,
    STOPPED,
    Journal,
    State,
    log_event,
    open_run,
    runs_of_plan,
    unfinished_runs,
)
from sexton.cure.lock import hold_lock
from sexton.cure.measures import are_fewer
from sexton.cure.nodes import Cluster
from sexton.cure.preconditions import Probes, satisfies, why_unmet
from sexton.cure.protected import Rule
from sexton.cure.reclaim.count import NODE
from sexton.cure.remedy import StepContext, detail_lines, remedy
from sexton.cure.watchdog import Watchdog
from sexton.cure.writer import Writer
from sexton.errors import CommandError, SourceError
from sexton.host.host import Host
from sexton.model.plan import Criterion, Plan, Step
from sexton.model.text import printable
from sexton.model.text import seconds as duration

#: Older evidence must be gathered again: an hour is enough to read and review a plan.
STALE_S = 3600.0
#: How far the clock may have been set back since.
_AHEAD_S = 300.0
SETTLE_S = 1.0
#: For all steps but drains, and the most for one of these.
LIMIT_S, MOST_WAIT_S = 300.0, 86_400.0
DONE, WOULD, REFUSED, FAILED, SKIPPED = "done", "would do", "refused", "failed", "not reached"


class Refused(CommandError):
    """Nothing was changed; `reasons` has one line each."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons), exit_code=1)
        self.reasons = reasons


@dataclass(slots=True)
class FixContext:
    """What apply and rollback work with; `dry` changes and journals nothing.

    `cluster`: the API server, for steps on a Node. `interrupted` and `forbidden` return a reason to
    stop, or "": the first is asked all the time, the second before every step.
    """

    host: Host
    writer: Writer
    state: State
    rules: tuple[Rule, ...] = ()
    progress: Callable[[str], None] = print
    dry: bool = False
    watch: Callable[[Host, float], Watchdog] = Watchdog
    cluster: Cluster | None = None
    interrupted: Callable[[], str] = lambda: ""
    forbidden: Callable[[], str] = lambda: ""


@dataclass(slots=True)
class StepDone:
    """Result of one step; `proofs` are (what, whether it holds, reading), `outcome` is what the
    remedy measured, as in the journal."""

    step: Step
    state: str
    message: str = ""
    proofs: tuple[tuple[str, bool | None, str], ...] = ()
    outcome: Mapping[str, Any] = field(default_factory=dict)

    @property
    def details(self) -> tuple[str, ...]:
        """Further lines for display."""
        return detail_lines(self.outcome)


@dataclass(slots=True)
class Applied:
    """Result of an apply. `why` is empty if every step was done; `unproven` and `unread` list the
    effects that are missing or unknown."""

    run: str
    steps: list[StepDone] = field(default_factory=list)
    how: str = COMPLETE
    why: str = ""
    watched: str = ""

    @property
    def unproven(self) -> list[str]:
        """Proofs that failed after a step was done, as "step: what: reading"."""
        return self._proofs(False)

    @property
    def unread(self) -> list[str]:
        """Proofs that could not be read."""
        return self._proofs(None)

    def _proofs(self, state: bool | None) -> list[str]:
        return [
            f"{done.step.id}: {what}" + (f": {reading}" if reading else "")
            for done in self.steps
            for what, holds, reading in done.proofs
            if holds is state
        ]

    @property
    def exit(self) -> int:
        """0 only where every step is done and proven."""
        if self.why or self.unproven:
            return 1
        return 3 if self.unread else 0


def default_seconds(plan: Plan) -> float:
    """The time for a plan, in which its drain may wait for as long as it says."""
    waits = [step.parameters.get("deadline_s", 0) for step in plan.automatic]
    return LIMIT_S + sum(
        wait for wait in waits if isinstance(wait, int | float) and 0 < wait <= MOST_WAIT_S
    )


def apply(plan: Plan, fix: FixContext, max_seconds: float, only: Sequence[str] = ()) -> Applied:
    """Apply the plan, or `only` some of its steps; raise `Refused` before anything is changed."""
    probes = Probes(fix.host, fix.rules, fix.cluster)
    known = [step.id for step in plan.automatic]
    if unknown := [name for name in only if name not in known]:
        raise CommandError(
            f"the plan has no step {printable(unknown[0])!r} that Sexton applies;"
            f" it has {', '.join(known) or 'none'}"
        )
    with _lock(fix, plan, max_seconds):
        reasons = refusal_reasons(plan, fix, probes, only)
        if reasons:
            _log(fix, "refused", plan, reasons=reasons)
            raise Refused(reasons)
        watch = fix.watch(fix.host, max_seconds)
        try:
            watch.settle(SETTLE_S)
            return _Apply(plan, fix, probes, watch, steps_of(plan, only)).run(bool(only))
        finally:
            watch.close()


def refusal_reasons(
    plan: Plan, fix: FixContext, probes: Probes, only: Sequence[str] = ()
) -> list[str]:
    """Every reason not to start."""
    chosen = steps_of(plan, only)
    found = []
    boot = probes.read("boot_id")
    if boot != plan.boot_id:
        found.append(
            "the plan is for another node, or the node was rebooted since:"
            f" boot ID is {printable(boot)[:8]}, the plan has {plan.boot_id[:8]}."
            " A reboot frees all zombies; run sexton diagnose again"
        )
        return found
    age = time.time() - plan.evidence_until_unix
    if age > STALE_S or age < -_AHEAD_S:
        found.append(
            f"its evidence is {duration(abs(age))} {'old' if age > 0 else 'in the future'}"
            f" (limit {duration(STALE_S)})"
        )
    for run in runs_of_plan(fix.state, plan.hash):
        done = {record.step for record in run.records if not record.undone}
        again = [step.id for step in chosen if step.id in done]
        if only and not again:
            continue
        what = f"step {again[0]} of this plan" if only else "this plan"
        found.append(
            f"{what} was already applied as {run.id} ({run.state}): verify it, or undo it first"
            f" (sexton fix rollback {run.id})"
        )
    if found:
        return found
    for run in unfinished_runs(fix.state):
        found.append(
            f"apply {run.id} was interrupted: undo it first (sexton fix rollback {run.id})"
        )
    if not plan.automatic:
        found.append("the plan has no step that Sexton applies")
    makes_true = {step.id for step in chosen}
    for step in chosen:
        remedy(step.remedy)
        for condition in step.preconditions:
            if condition.after in makes_true:
                continue  # an earlier step makes it true
            if why := why_unmet(probes, condition):
                found.append(f"step {step.id}: {why} ({condition.why})")
    return found


def steps_of(plan: Plan, only: Sequence[str]) -> tuple[Step, ...]:
    """The steps that an apply carries out: those named, or all."""
    return tuple(step for step in plan.automatic if not only or step.id in only)


@dataclass(slots=True)
class _Apply:
    """An apply in progress; `journal` is `None` in a dry run."""

    plan: Plan
    fix: FixContext
    probes: Probes
    watch: Watchdog
    steps: tuple[Step, ...]
    journal: Journal | None = None
    applied: Applied = field(default_factory=lambda: Applied("dry run"))

    def run(self, only: bool) -> Applied:
        """Carry out the steps; `only` if they are not all of the plan."""
        start = _start_readings(self.probes)
        if only:
            start["only"] = [step.id for step in self.steps]
        if not self.fix.dry:
            self.journal = open_run(self.fix.state, self.plan, start)
            self.applied.run = self.journal.run
        self.applied.watched = self.watch.watches
        self._log("begin")
        try:
            self._carry_out()
        except (KeyboardInterrupt, SystemExit):
            self.applied.why = "interrupted by the user"
            self._finish()
            raise
        self._finish()
        return self.applied

    def _carry_out(self) -> None:
        fix, watch, applied = self.fix, self.watch, self.applied
        context = StepContext(
            fix.host,
            fix.writer,
            self.probes,
            self._why_stop,
            fix.progress,
            lambda: watch.end_s - time.monotonic(),
            dry=fix.dry,
            cluster=fix.cluster,
            forbidden=fix.forbidden,
        )
        for step in self.steps:
            if applied.why:
                applied.steps.append(StepDone(step, SKIPPED))
                continue
            fix.progress(f"{step.id}: {step.title}")
            watch.reclaiming(remedy(step.remedy).RECLAIMS)
            done = self._step(step, context)
            watch.reclaiming(False)
            applied.steps.append(done)
            self._log("step", step=step.id, how=done.state, said=done.message)
            applied.why = _why_stop(done) or self._why_stop()

    def _why_stop(self) -> str:
        return self.watch.reason or self.fix.interrupted()

    def _step(self, step: Step, context: StepContext) -> StepDone:
        """Apply one step; any error ends it and is reported."""
        if why := context.stop() or context.forbidden():
            return StepDone(step, REFUSED, why)
        context.probes.forget()
        for condition in step.preconditions:
            if condition.after and self.journal is None:
                continue  # a dry run did not make it true, or it was checked before
            if why := why_unmet(context.probes, condition):
                return StepDone(step, REFUSED, f"{why} ({condition.why})")
        module = remedy(step.remedy)
        try:
            before = module.prepare(step, context)
            self._journal("before", step=step.id, remedy=step.remedy, before=before)
            outcome = module.carry_out(step, context)
        except (CommandError, SourceError) as error:
            self._journal("failed", step=step.id, why=str(error))
            return StepDone(step, FAILED, printable(str(error)))
        if self.journal is None:
            return StepDone(step, WOULD, step.effect)
        self._journal("done", step=step.id, outcome=outcome)
        context.probes.forget()
        proof = () if outcome.get("skipped") is True else step.proof  # nothing was done
        proofs = tuple(_proof(context.probes, criterion, outcome) for criterion in proof)
        return StepDone(step, DONE, printable(str(outcome.get("said", ""))), proofs, outcome)

    def _finish(self) -> None:
        self.applied.how = STOPPED if self.applied.why else COMPLETE
        self._journal("end", how=self.applied.how, why=self.applied.why)
        self._log("end", how=self.applied.how, why=self.applied.why)

    def _journal(self, kind: str, **details: Any) -> None:
        if self.journal is not None:
            self.journal.write(kind, **details)

    def _log(self, event: str, **details: Any) -> None:
        _log(self.fix, event, self.plan, run=self.applied.run, **details)


def _proof(
    probes: Probes, criterion: Criterion, outcome: Mapping[str, Any]
) -> tuple[str, bool | None, str]:
    """The criterion, whether it holds (`None`: could not be read), and the reading.

    Steps that free zombies count before and after, which is a better proof than the plan's number.
    Where only the whole node can be counted, their memory must have become less as well: others may
    have died or been freed meanwhile.
    """
    if not criterion.probe and "proven" in outcome:
        holds, reading = outcome["proven"]
        return criterion.what, bool(holds), printable(str(reading))
    if not criterion.probe:
        freed, left = outcome.get("freed"), outcome.get("dying_after")
        if freed is None or left is None:
            return criterion.what, None, ""
        before, reading = freed + left, f"{freed + left:,} before, {left:,} after"
        if are_fewer(before, freed) and _only_others_fewer(outcome):
            return criterion.what, False, f"{reading}, but none under {outcome.get('parent')}"
        return criterion.what, are_fewer(before, freed), reading
    try:
        found = probes.read(criterion.probe)
    except SourceError as error:
        return criterion.what, None, printable(str(error))
    return criterion.what, satisfies(criterion.test, found, str(criterion.value)), found


def _only_others_fewer(outcome: Mapping[str, Any]) -> bool:
    """Whether the memory charged to zombies under the parent is known and did not become less."""
    held, still = outcome.get("held_before_bytes"), outcome.get("held_after_bytes")
    return outcome.get("scope") == NODE and bool(held) and still is not None and still >= held


def _why_stop(done: StepDone) -> str:
    """Why to stop here. What a step could not free or remove is no reason, though it leaves the
    step unproven."""
    if done.state in (REFUSED, FAILED):
        return done.message
    if not remedy(done.step.remedy).RECLAIMS and "proven" not in done.outcome:
        for what, holds, found in done.proofs:
            if holds is False:
                return f"proof failed after {done.step.id}: {what}: {found}"
    return ""


def _start_readings(probes: Probes) -> dict[str, Any]:
    """What verify compares with, read before anything is changed."""
    start: dict[str, Any] = {"unix": time.time()}
    try:
        start["dying"] = int(probes.read("dying"))
    except SourceError as error:
        start["dying_unknown"] = str(error)
    return start


@contextmanager
def _lock(fix: FixContext, plan: Plan, max_seconds: float) -> Iterator[None]:
    """A dry run needs no lock, only the state directory for the audit log."""
    if fix.dry:
        fix.state.make()
        yield
        return
    with hold_lock(fix.state, f"apply {plan.hash[:12]}", max_seconds):
        yield


def _log(fix: FixContext, event: str, plan: Plan, **details: Any) -> None:
    name = f"dry_run_{event}" if fix.dry else f"apply_{event}"
    present = {key: value for key, value in details.items() if value not in ("", None)}
    log_event(fix.state, name, plan=plan.hash, node=plan.node, **present)

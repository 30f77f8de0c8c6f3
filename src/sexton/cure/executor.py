"""Carries out a plan, one step at a time, and never a step that it could not undo.

In this order: who asks (root, on the node the plan is for, in the boot it was made in), how old the
evidence is, whether an earlier apply was cut off, every precondition that can hold already; then
the lock, a look at the node as it is, and the journal. Each step: its preconditions once more, all
that an undo needs *written and synced*, the action, what came of it, and its proof. It ends early
where a precondition no longer holds, an action fails, a proof is missing, the watchdog barks or
time is over; what was done stays done, and ``sexton fix rollback`` undoes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sexton.cure.journal import COMPLETE, STOPPED, Journal, applied_as, open_run, unfinished
from sexton.cure.lock import held
from sexton.cure.log import note
from sexton.cure.probes import Probes, holds, why_not
from sexton.cure.protected import Rule
from sexton.cure.remedy import Hands, remedy, told_in
from sexton.cure.state import State
from sexton.cure.writer import Writer
from sexton.errors import CommandError, SourceError
from sexton.host.host import Host
from sexton.model.plan import Criterion, Plan, Step
from sexton.model.text import printable
from sexton.model.text import seconds as duration

#: Older evidence is looked for again: an hour is enough to read a plan and to ask somebody.
STALE_S = 3600.0
#: How far a clock may have been set back since.
_AHEAD_S = 300.0
SETTLE_S = 1.0
DONE, WOULD, REFUSED, FAILED, SKIPPED = "done", "would do", "refused", "failed", "not reached"


class Refused(CommandError):
    """Nothing was changed; `reasons` say why, one line each."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons), exit_code=1)
        self.reasons = reasons


class Watch(Protocol):
    """The part of a `Watchdog` that is used here."""

    @property
    def reason(self) -> str: ...

    @property
    def watches(self) -> str: ...

    @property
    def end_s(self) -> float: ...

    def settle(self, seconds: float) -> None: ...

    def reclaiming(self, on: bool) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Bench:
    """All that an apply works with; `dry` changes nothing and journals nothing."""

    host: Host
    writer: Writer
    state: State
    watch: Callable[[float], Watch]
    rules: tuple[Rule, ...] = ()
    tell: Callable[[str], None] = print
    dry: bool = False


@dataclass(slots=True)
class StepDone:
    """How one step went; `proofs` are (what, held, what was read), `outcome` what the remedy
    measured, as it is in the journal."""

    step: Step
    state: str
    said: str = ""
    proofs: tuple[tuple[str, bool | None, str], ...] = ()
    outcome: Mapping[str, Any] = field(default_factory=dict)

    @property
    def told(self) -> tuple[str, ...]:
        """Further lines for a person."""
        return told_in(self.outcome)


@dataclass(slots=True)
class Applied:
    """How the whole went. `why` is empty where every step was done."""

    run: str
    steps: list[StepDone] = field(default_factory=list)
    how: str = COMPLETE
    why: str = ""
    watched: str = ""


def apply(plan: Plan, bench: Bench, max_seconds: float) -> Applied:
    """Do it, or refuse before anything is touched (`Refused`)."""
    probes = Probes(bench.host, bench.rules)
    with _lock(bench, plan, max_seconds):
        reasons = objections(plan, bench, probes)
        if reasons:
            _log(bench, "refused", plan, reasons=reasons)
            raise Refused(reasons)
        watch = bench.watch(max_seconds)
        try:
            watch.settle(SETTLE_S)
            return _run(plan, bench, probes, watch)
        finally:
            watch.close()


def objections(plan: Plan, bench: Bench, probes: Probes) -> list[str]:
    """Everything that speaks against beginning at all."""
    found = []
    boot = probes.read("boot_id")
    if boot != plan.boot_id:
        found.append(
            "the node was booted since this plan was made, or it is of another node:"
            f" boot id {printable(boot)[:8]} is not the plan's {plan.boot_id[:8]};"
            " a boot frees every zombie: look again (sexton diagnose)"
        )
        return found
    age = time.time() - plan.evidence_until_unix
    if age > STALE_S or age < -_AHEAD_S:
        found.append(
            f"its evidence is {duration(abs(age))} {'old' if age > 0 else 'in the future'}:"
            f" more than {duration(STALE_S)} is stale"
        )
    for told in applied_as(bench.state, plan.hash):
        found.append(
            f"this very plan was applied already, as {told.id} ({told.state}): verify it, or undo"
            f" it first (sexton fix rollback {told.id})"
        )
    if found:
        return found
    for told in unfinished(bench.state):
        found.append(
            f"apply {told.id} was cut off half-way: first undo it (sexton fix rollback {told.id})"
        )
    if not plan.automatic:
        found.append("there is no step in it that Sexton would carry out")
    for step in plan.automatic:
        remedy(step.remedy)
        for condition in step.preconditions:
            if condition.after:
                continue  # an earlier step makes it true
            if why := why_not(probes, condition):
                found.append(f"step {step.id}: {why} ({condition.why})")
    return found


def _run(plan: Plan, bench: Bench, probes: Probes, watch: Watch) -> Applied:
    start = _first_look(probes)
    journal = None if bench.dry else open_run(bench.state, plan, start)
    applied = Applied(journal.run if journal is not None else "dry run", watched=watch.watches)
    _log(bench, "begin", plan, run=applied.run)
    hands = Hands(
        bench.host,
        bench.writer,
        probes,
        lambda: watch.reason,
        bench.tell,
        lambda: watch.end_s - time.monotonic(),
        dry=bench.dry,
    )
    try:
        _steps(plan, applied, (bench, hands, watch), journal)
    except (KeyboardInterrupt, SystemExit):
        applied.why = "interrupted by hand"
        _finish(plan, bench, applied, journal)
        raise
    _finish(plan, bench, applied, journal)
    return applied


def _steps(
    plan: Plan, applied: Applied, with_: tuple[Bench, Hands, Watch], journal: Journal | None
) -> None:
    bench, hands, watch = with_
    for step in plan.automatic:
        if applied.why:
            applied.steps.append(StepDone(step, SKIPPED))
            continue
        bench.tell(f"{step.id}: {step.title}")
        watch.reclaiming(remedy(step.remedy).RECLAIMS)
        done = _step(step, hands, journal)
        watch.reclaiming(False)
        applied.steps.append(done)
        _log(bench, "step", plan, run=applied.run, step=step.id, how=done.state, said=done.said)
        applied.why = _why_stop(done, watch)


def _finish(plan: Plan, bench: Bench, applied: Applied, journal: Journal | None) -> None:
    applied.how = STOPPED if applied.why else COMPLETE
    if journal is not None:
        journal.write("end", how=applied.how, why=applied.why)
    _log(bench, "end", plan, run=applied.run, how=applied.how, why=applied.why)


def _step(step: Step, hands: Hands, journal: Journal | None) -> StepDone:
    """One step; anything that goes wrong in it ends it, and is said."""
    if why := hands.stop():
        return StepDone(step, REFUSED, why)
    hands.probes.forget()
    for condition in step.preconditions:
        if condition.after and journal is None:
            continue  # in a dry run nothing made it true
        if why := why_not(hands.probes, condition):
            return StepDone(step, REFUSED, f"{why} ({condition.why})")
    acting = remedy(step.remedy)
    try:
        before = acting.prepare(step, hands)
        if journal is not None:
            journal.write("before", step=step.id, remedy=step.remedy, before=before)
        outcome = acting.carry_out(step, hands)
    except (CommandError, SourceError) as error:
        if journal is not None:
            journal.write("failed", step=step.id, why=str(error))
        return StepDone(step, FAILED, printable(str(error)))
    if journal is None:
        return StepDone(step, WOULD, step.effect)
    journal.write("done", step=step.id, outcome=outcome)
    hands.probes.forget()
    proof = () if outcome.get("skipped") is True else step.proof  # nothing was done, or promised
    proofs = tuple(_proof(hands.probes, each, outcome) for each in proof)
    return StepDone(step, DONE, printable(str(outcome.get("said", ""))), proofs, outcome)


def _proof(
    probes: Probes, criterion: Criterion, outcome: Mapping[str, Any]
) -> tuple[str, bool | None, str]:
    """What was promised, whether it holds (`None`: not to be read), and what was read.

    A freeing step counts on both sides of itself, which is a better proof than the plan's number.
    """
    if not criterion.probe:
        freed, left = outcome.get("freed"), outcome.get("dying_after")
        if freed is None or left is None:
            return criterion.what, None, ""
        return criterion.what, freed > 0, f"{freed + left:,} before, {left:,} after"
    try:
        found = probes.read(criterion.probe)
    except SourceError as error:
        return criterion.what, None, printable(str(error))
    return criterion.what, holds(criterion.test, found, str(criterion.value)), found


def _why_stop(done: StepDone, watch: Watch) -> str:
    """Freeing that freed nothing is told and is no failure; a unit that still runs is."""
    if done.state in (REFUSED, FAILED):
        return done.said
    if not remedy(done.step.remedy).RECLAIMS:
        for what, held_true, found in done.proofs:
            if held_true is False:
                return f"after {done.step.id}, {what}: {found}, which should not be"
    return watch.reason


def _first_look(probes: Probes) -> dict[str, Any]:
    """What verify compares with, read before anything is touched."""
    start: dict[str, Any] = {"unix": time.time()}
    try:
        start["dying"] = int(probes.read("dying"))
    except SourceError as error:
        start["dying_unknown"] = str(error)
    return start


@contextmanager
def _lock(bench: Bench, plan: Plan, max_seconds: float) -> Iterator[None]:
    """A dry run needs none, but it is written down that it was made."""
    if bench.dry:
        bench.state.make()
        yield
        return
    with held(bench.state, f"apply {plan.hash[:12]}", max_seconds):
        yield


def _log(bench: Bench, event: str, plan: Plan, **told: Any) -> None:
    name = f"dry_run_{event}" if bench.dry else f"apply_{event}"
    note(bench.state, name, plan=plan.hash, node=plan.node, **_short(told))


def _short(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value not in ("", None)}

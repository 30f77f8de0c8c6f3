"""Undo an apply from its journal alone, last step first; safe to run again after a crash."""

from __future__ import annotations

from dataclasses import dataclass, field

from sexton.cure.apply import FixContext
from sexton.cure.journal import ROLLED_BACK, Journal, Run, State, all_runs, log_event, read_run
from sexton.cure.lock import hold_lock
from sexton.cure.preconditions import Probes
from sexton.cure.remedy import StepContext, remedy
from sexton.errors import CommandError, SourceError
from sexton.model.text import printable

LIMIT_S = 300.0


@dataclass(slots=True)
class RolledBack:
    """What was restored, by step; `failed` is what could not be, and why. `already`: it had been
    undone before, nothing was checked."""

    run: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    cannot: list[str] = field(default_factory=list)
    already: bool = False


def choose(state: State, run: str | None) -> Run:
    """The named apply, or the newest that has not been undone.

    An older apply cannot be undone before a newer one that changed the same targets.
    """
    open_runs = [attempt for attempt in all_runs(state) if attempt.state != ROLLED_BACK]
    if run is not None:
        named = read_run(state, run)
        if named.state == ROLLED_BACK:
            return named
        newer = [
            open_run.id for open_run in open_runs if open_run.id > run and _overlap(open_run, named)
        ]
        if newer:
            raise CommandError(
                f"apply {newer[-1]} is newer and changed the same targets: roll that back first"
            )
        return named
    if not open_runs:
        raise CommandError(
            "nothing to roll back: no apply on this node, or all are undone", exit_code=1
        )
    return open_runs[-1]


def _overlap(one: Run, other: Run) -> bool:
    mine = {step.target for step in one.plan.automatic}
    return bool(mine & {step.target for step in other.plan.automatic})


def rollback(run: Run, fix: FixContext) -> RolledBack:
    """Undo every step that started. A failure does not stop the others from being undone."""
    done = RolledBack(run.id, already=run.state == ROLLED_BACK)
    if done.already:
        return done
    with hold_lock(fix.state, f"rollback {run.id}", LIMIT_S):
        run = read_run(fix.state, run.id)  # again, now that we hold the lock
        log_event(fix.state, "rollback_begin", run=run.id, plan=run.plan.hash)
        journal = Journal(fix.state, run.id)
        probes = Probes(fix.host, fix.rules, fix.cluster)
        context = StepContext(
            fix.host,
            fix.writer,
            probes,
            lambda: "",
            fix.progress,
            lambda: LIMIT_S,
            same_boot=probes.read("boot_id") == run.plan.boot_id,
            cluster=fix.cluster,
        )
        steps = {step.id: step for step in run.plan.steps}
        for record in run.undoable:
            step = steps.get(record.step)
            if step is None:
                done.failed.append((record.step, "no such step in the journalled plan"))
                continue
            fix.progress(f"undoing {step.id}: {step.title}")
            journal.write("undoing", step=step.id)
            try:
                lines = remedy(step.remedy).undo(record.before, context)
            except (CommandError, SourceError, KeyError, TypeError) as error:
                done.failed.append((step.id, printable(str(error))))
                continue
            journal.write("undone", step=step.id)
            done.lines += [(step.id, line) for line in lines or ["nothing to undo"]]
            if step.cannot_undo:
                done.cannot.append(step.cannot_undo)
        if not done.failed:
            journal.write("rolled_back")
        log_event(
            fix.state,
            "rollback_end",
            run=run.id,
            failed=[f"{step}: {why}" for step, why in done.failed],
        )
    return done

"""Undo an apply from its journal alone, the last step first; killed half-way, run it again."""

from __future__ import annotations

from dataclasses import dataclass, field

from sexton.cure.executor import Bench
from sexton.cure.journal import ROLLED_BACK, Journal, Told, every, read_run
from sexton.cure.lock import held
from sexton.cure.log import note
from sexton.cure.probes import Probes
from sexton.cure.remedy import Hands, remedy
from sexton.cure.state import State
from sexton.errors import CommandError, SourceError
from sexton.model.text import printable

LIMIT_S = 300.0


@dataclass(slots=True)
class RolledBack:
    """What was put back, step by step; `failed` is what could not be, and why. `already`: it was
    undone before, and nothing was looked at."""

    run: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    cannot: list[str] = field(default_factory=list)
    already: bool = False


def choose(state: State, run: str | None) -> Told:
    """The apply that is meant: the newest that was not undone, or the one that is named.

    Not an older one past a newer: it would put back a state that the newer one changed.
    """
    open_runs = [told for told in every(state) if told.state != ROLLED_BACK]
    if run is not None:
        asked = read_run(state, run)
        if asked.state == ROLLED_BACK:
            return asked
        newer = [each.id for each in open_runs if each.id > run and _overlap(each, asked)]
        if newer:
            raise CommandError(
                f"apply {newer[-1]} came after it and touched the same: roll that back first"
            )
        return asked
    if not open_runs:
        raise CommandError("nothing was applied here that is not undone already", exit_code=1)
    return open_runs[-1]


def _overlap(one: Told, other: Told) -> bool:
    mine = {step.target for step in one.plan.automatic}
    return bool(mine & {step.target for step in other.plan.automatic})


def rollback(told: Told, bench: Bench) -> RolledBack:
    """Undo every step that began. One that fails does not keep the others from being undone."""
    done = RolledBack(told.id, already=told.state == ROLLED_BACK)
    if done.already:
        return done
    with held(bench.state, f"rollback {told.id}", LIMIT_S):
        told = read_run(bench.state, told.id)  # as it is now that nobody else can write to it
        note(bench.state, "rollback_begin", run=told.id, plan=told.plan.hash)
        journal = Journal(bench.state, told.id)
        probes = Probes(bench.host, bench.rules)
        hands = Hands(
            bench.host,
            bench.writer,
            probes,
            lambda: "",
            bench.tell,
            lambda: LIMIT_S,
            same_boot=probes.read("boot_id") == told.plan.boot_id,
        )
        steps = {step.id: step for step in told.plan.steps}
        for record in told.undoable:
            step = steps.get(record.step)
            if step is None:
                done.failed.append((record.step, "the plan in its journal has no such step"))
                continue
            bench.tell(f"undoing {step.id}: {step.title}")
            journal.write("undoing", step=step.id)
            try:
                lines = remedy(step.remedy).undo(record.before, hands)
            except (CommandError, SourceError, KeyError, TypeError) as error:
                done.failed.append((step.id, printable(str(error))))
                continue
            journal.write("undone", step=step.id)
            done.lines += [(step.id, line) for line in lines or ["as it was: nothing to undo"]]
            if step.cannot_undo:
                done.cannot.append(step.cannot_undo)
        if not done.failed:
            journal.write("rolled_back")
        note(
            bench.state,
            "rollback_end",
            run=told.id,
            failed=[f"{step}: {why}" for step, why in done.failed],
        )
    return done

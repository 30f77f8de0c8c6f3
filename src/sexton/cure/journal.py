"""What one apply did, written before it was done.

One JSON object a line. A step's way through it::

    {"kind": "before", "step": "1-stop", "before": {…}}     on the disk BEFORE anything is touched
    {"kind": "done",   "step": "1-stop", "outcome": {…}}    after it, with what came of it

Killed anywhere, a journal says enough: a step with *before* and without *done* may have happened,
in whole or in part, and is undone like one that did; a step without *before* never began. A line
cut off by a crash is no line. The undo is journalled the same way (*undoing*, *undone*), so that it
can be killed as well, and run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sexton.cure.state import RUNS, State
from sexton.errors import CommandError
from sexton.model.plan import Plan, PlanError, as_json, from_json
from sexton.model.text import printable

SCHEMA = "sexton.fix_journal/1"
RUNNING, COMPLETE, STOPPED, ROLLED_BACK = "unfinished", "complete", "stopped", "rolled back"


@dataclass(slots=True)
class Record:
    """One step in the journal."""

    step: str
    before: Mapping[str, Any]
    outcome: Mapping[str, Any] | None = None
    undone: bool = False


@dataclass(slots=True)
class Told:
    """A journal read back. `ended` is empty where the apply never came to its end."""

    id: str
    plan: Plan
    began_unix: float
    records: list[Record] = field(default_factory=list)
    ended: str = ""
    ended_why: str = ""
    ended_unix: float = 0.0
    start: Mapping[str, Any] = field(default_factory=dict)
    rolled_back: bool = False
    torn: int = 0

    @property
    def state(self) -> str:
        if self.rolled_back:
            return ROLLED_BACK
        return self.ended or RUNNING

    @property
    def undoable(self) -> list[Record]:
        """What an undo has to look at, the last step first."""
        return [each for each in reversed(self.records) if not each.undone]

    def freed(self) -> list[Mapping[str, Any]]:
        """What the freeing steps told of themselves."""
        return [each.outcome for each in self.records if each.outcome and "freed" in each.outcome]


class Journal:
    """Where one apply writes; `open_run` begins a new one."""

    def __init__(self, state: State, run: str) -> None:
        self._state = state
        self.run = run

    def write(self, kind: str, **told: Any) -> None:
        """One line, on the disk when this returns."""
        line = json.dumps({"kind": kind, "unix": time.time(), **told}, separators=(",", ":"))
        self._state.append(f"{RUNS}/{self.run}.jsonl", line.encode("ascii"))


def open_run(state: State, plan: Plan, start: Mapping[str, Any]) -> Journal:
    """A new journal; `start` are the readings that verify will compare with."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    known = set(state.runs())
    name = f"{stamp}-{plan.hash[:8]}"
    number = 1
    while name in known:
        number += 1
        name = f"{stamp}-{plan.hash[:8]}-{number}"
    journal = Journal(state, name)
    journal.write("begin", schema=SCHEMA, run=name, plan=as_json(plan), start=dict(start))
    return journal


def read_run(state: State, run: str) -> Told:
    """The journal of one apply, however it ended."""
    if "/" in run or run.startswith("."):
        raise CommandError(f"{run!r} is no id of an apply; sexton fix status lists them")
    content = state.read(f"{RUNS}/{run}.jsonl")
    if content is None:
        raise CommandError(f"no apply {run!r}; sexton fix status lists them")
    lines, torn = [], 0
    for raw in content.split(b"\n"):
        if not raw:
            continue
        try:
            line = json.loads(raw)
        except ValueError:
            torn += 1
            continue
        if isinstance(line, dict):
            lines.append(line)
        else:
            torn += 1
    if not lines or lines[0].get("kind") != "begin":
        raise Unbegun(run)
    return _told(run, lines, torn)


class Unbegun(CommandError):
    """The very first line was cut off: nothing of that apply was ever done."""

    def __init__(self, run: str) -> None:
        super().__init__(f"apply {run} ended before it began: it changed nothing")


def _told(run: str, lines: list[dict[str, Any]], torn: int) -> Told:
    first = lines[0]
    if first.get("schema") != SCHEMA:
        raise CommandError(f"apply {run}: {printable(str(first.get('schema')))} is not {SCHEMA}")
    try:
        told = Told(run, from_json(first["plan"]), first["unix"], start=first["start"], torn=torn)
        by_step: dict[str, Record] = {}
        for line in lines[1:]:
            match line["kind"]:
                case "before":
                    record = by_step[line["step"]] = Record(line["step"], line["before"])
                    told.records.append(record)
                case "done":
                    by_step[line["step"]].outcome = line["outcome"]
                case "undone":
                    by_step[line["step"]].undone = True
                case "end":
                    told.ended, told.ended_why = line["how"], line["why"]
                    told.ended_unix = line["unix"]
                case "rolled_back":
                    told.rolled_back = True
                case _:
                    pass
    except (PlanError, KeyError, TypeError) as error:
        raise CommandError(f"apply {run}: not a journal of ours: {error}") from None
    return told


def latest(state: State) -> Told | None:
    """The newest apply that began; `None` where there never was one."""
    for run in reversed(state.runs()):
        try:
            return read_run(state, run)
        except Unbegun:
            continue
    return None


def unfinished(state: State) -> list[Told]:
    """Every apply that was cut off and not undone since."""
    return [told for told in every(state) if told.state == RUNNING]


def applied_as(state: State, plan_hash: str) -> list[Told]:
    """Every apply of this very plan that came to an end and was not undone."""
    states = (COMPLETE, STOPPED)
    return [told for told in every(state) if told.plan.hash == plan_hash and told.state in states]


def every(state: State) -> list[Told]:
    """Every apply that began, oldest first."""
    found = []
    for run in state.runs():
        try:
            found.append(read_run(state, run))
        except Unbegun:
            continue
    return found

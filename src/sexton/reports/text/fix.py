"""`sexton fix`: the plan before you confirm it, and the results of every subcommand, as text and
as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from sexton.cure.apply import DONE, FAILED, REFUSED, SKIPPED, Applied
from sexton.cure.journal import COMPLETE, ROLLED_BACK, RUNNING, Run
from sexton.cure.rollback import RolledBack
from sexton.cure.verify import Met, Verified, heading
from sexton.model.plan import Condition, Criterion, Plan, Step
from sexton.model.text import count, printable
from sexton.model.text import seconds as duration
from sexton.reports.text.blocks import block, clamp, cut, headline, labelled, picked, typed
from sexton.series.steps import rise

SHOWN_HASH = 16
_STATES = {ROLLED_BACK: "rolled back", COMPLETE: "applied", RUNNING: "INTERRUPTED"}
_TESTS = {"==": "is", "!=": "is not", ">=": "at least", "<=": "at most", "<": "below", "in": "in"}
_MARKS = {Met.YES: "met", Met.NO: "NOT MET", Met.UNKNOWN: "unknown"}


def plan_text(plan: Plan, width: int, colour: bool = False, file: str = "") -> str:
    """`file` is where the plan was saved, if it was."""
    width = clamp(width)
    automatic, printed = len(plan.automatic), len(plan.steps) - len(plan.automatic)
    tally = [count(automatic, "step") + " to apply"] if automatic else []
    tally += [f"{printed} only printed"] if printed else []
    tally += [f"{len(plan.refusals)} refused"] if plan.refusals else []
    word, shade = ("PLAN", "33") if automatic else ("NOTHING TO APPLY", "32")
    lines = headline(word, f"{plan.node}   {' · '.join(tally)}", width, shade if colour else "")
    lines += ["", *block(_sentence(plan.diagnosis_root), width, " "), ""]
    for step in plan.steps:
        lines += [*_step(step, width), ""]
    for number, refusal in enumerate(plan.refusals):
        option = f" (allow with {refusal.override})" if refusal.override else ""
        text = f"{refusal.target}: {refusal.reason}{option}"
        lines += labelled("" if number else "REFUSED", [text], width)
    lines += labelled("NOTES", plan.notes, width)
    if plan.refusals or plan.notes:
        lines.append("")
    lines += _next_commands(plan, width, file)
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _step(step: Step, width: int) -> Iterator[str]:
    risk = f"risk {step.risk}" if step.automatic else "only printed"
    title = f" {step.id}  {step.title}"
    yield f"{title}{risk:>{max(width - len(title), len(risk) + 2)}}"
    yield from _part("risk", step.risk_why, width)
    if not step.automatic:
        for command in step.commands:
            yield typed(command)
        return
    yield from _part("does", step.effect, width)
    if step.preconditions:
        yield from _part("only if", " · ".join(map(_condition, step.preconditions)), width)
    yield from _part("undo", step.undo, width)
    if step.cannot_undo:
        yield from _part("no undo", step.cannot_undo, width)
    if step.proof:
        yield from _part("proof", " · ".join(map(_criterion, step.proof)), width)


def _part(label: str, text: str, width: int) -> Iterator[str]:
    yield from block(text, width, " " * 14, first=f"    {label:<9} ")


def _condition(condition: Condition) -> str:
    test = "" if condition.test == "==" else f"{_TESTS.get(condition.test, condition.test)} "
    after = f", after {condition.after}" if condition.after else ""
    return f"{condition.what}: {test}{printable(condition.expected) or 'none'}{after}"


def _criterion(criterion: Criterion) -> str:
    unit = f" {criterion.unit}" if criterion.unit else ""
    if criterion.unit == "":
        answer = {("<=", 0): "no", (">=", 1): "yes"}.get((criterion.test, int(criterion.value)))
        if answer is not None:
            return f"{criterion.what}: {answer} ({criterion.read_from})"
    if criterion.test == "<" and not criterion.probe:
        now = f"{criterion.value:,.0f}"
        return f"fewer {criterion.what} than before (now {now}), {criterion.read_from}"
    test = _TESTS.get(criterion.test, criterion.test)
    return f"{criterion.what} {test} {criterion.value:,.0f}{unit}"


def _next_commands(plan: Plan, width: int, file: str) -> Iterator[str]:
    short = plan.hash[:SHOWN_HASH]
    if not plan.automatic:
        yield from block("Nothing was changed.", width, " ")
        return
    if file:
        yield from labelled(
            "APPLY", ["nothing was changed yet; if you agree with all steps"], width
        )
        yield typed(f"sudo sexton fix apply {file} --confirm {short} --dry-run")
        yield typed(f"sudo sexton fix apply {file} --confirm {short}")
    else:
        yield from labelled("APPLY", ["nothing was changed; save the plan to apply it"], width)
        yield typed("sudo sexton fix plan --out plan.json")
    yield from labelled("THEN", ["sudo sexton fix verify checks whether it helped"], width)


def plan_shell(plan: Plan) -> str:
    """The same as shell commands; steps that are only printed are comments here too."""
    lines = [
        "#!/bin/sh",
        f"# Commands equivalent to plan {plan.hash[:SHOWN_HASH]} on {plan.node}.",
        "# No checks, no journal, no undo, no watchdog: sexton fix apply has those.",
        "set -eu",
    ]
    for refusal in plan.refusals:
        lines.append(f"# refused: {refusal.target}: {refusal.reason}")
    for step in plan.steps:
        lines += ["", f"# {step.id}: {step.title} (risk {step.risk}: {step.risk_why})"]
        lines += [f"# undo: {step.undo}"] if step.automatic else []
        mark = "" if step.automatic else "# "
        lines += [f"{mark}{command}" for command in step.commands]
    return "\n".join(lines) + "\n"


def applied_text(plan: Plan, applied: Applied, width: int, colour: bool = False) -> str:
    width = clamp(width)
    dry = applied.run == "dry run"
    reached = sum(step.state not in (SKIPPED, REFUSED, FAILED) for step in applied.steps)
    word, shade = _outcome(applied, dry)
    tally = f"{reached} of {count(len(applied.steps), 'step')}"
    lines = headline(word, f"{plan.node}   {tally}", width, shade if colour else "")
    lines.append("")
    if applied.why:
        lines += [*block(_sentence(applied.why), width, " "), ""]
    elif applied.unproven:
        lines += [*block(_sentence(f"no effect: {'; '.join(applied.unproven)}"), width, " "), ""]
    elif applied.unread:
        unread = f"could not be checked: {'; '.join(applied.unread)}"
        lines += [*block(_sentence(unread), width, " "), ""]
    for done in applied.steps:
        title = f" {done.step.id}  {done.step.title}"
        lines.append(f"{title}{done.state:>{max(width - len(title), len(done.state) + 2)}}")
        if done.message and done.message != applied.why:
            lines += _part("", done.message, width)
        for line in done.details:
            lines += _part("", line, width)
        for what, holds, reading in done.proofs:
            mark = {True: "ok", False: "FAILED", None: "could not be read"}[holds]
            lines += _part("proof", f"{what}: {reading or '?'} ({mark})", width)
    lines += ["", *labelled("WATCHED", [applied.watched], width)]
    lines += _after(applied, dry, width)
    return "\n".join(lines) + "\n"


def _outcome(applied: Applied, dry: bool) -> tuple[str, str]:
    """The headline and its colour."""
    if applied.why:
        return ("DRY RUN" if dry else "STOPPED"), "31"
    if applied.unproven:
        return "DONE, NOT PROVEN", "31"
    if applied.unread:
        return "DONE, NOT CHECKED", "33"
    return ("DRY RUN" if dry else "DONE"), "32"


def _after(applied: Applied, dry: bool, width: int) -> Iterator[str]:
    if dry:
        text = "Nothing was changed; the dry run is recorded in sexton fix log."
        yield from block(text, width, " ")
        return
    if any(step.state == DONE for step in applied.steps):
        if not applied.why:
            yield from labelled("NEXT", ["check for ten minutes whether it helped"], width)
            yield typed("sudo sexton fix verify")
        yield from labelled("UNDO", ["restores everything that can be restored"], width)
        yield typed(f"sudo sexton fix rollback {applied.run}")
    elif applied.why:
        yield from _new_plan(width)


def _new_plan(width: int) -> Iterator[str]:
    yield from labelled("NEXT", ["make a new plan"], width)
    yield typed("sudo sexton fix plan --out plan.json")


def refused_text(plan: Plan, reasons: list[str], width: int, colour: bool = False) -> str:
    width = clamp(width)
    lines = headline("REFUSED", f"{plan.node}   nothing was changed", width, "31" if colour else "")
    lines.append("")
    for reason in reasons:
        lines += block(printable(reason), width, "   ", first=" - ")
    lines += ["", *_new_plan(width)]
    return "\n".join(lines) + "\n"


def rolled_back_text(done: RolledBack, width: int, colour: bool = False) -> str:
    width = clamp(width)
    word, shade = ("ROLLED BACK", "32") if not done.failed else ("ROLLBACK INCOMPLETE", "31")
    if done.already:
        return f"apply {done.run} was already rolled back: nothing was changed\n"
    if not done.lines and not done.failed:
        return f"apply {done.run} had changed nothing: nothing to undo\n"
    lines = [*headline(word, f"apply {done.run}", width, shade if colour else ""), ""]
    for step, what in done.lines:
        lines += block(printable(what), width, " " * 15, first=f" {step:<13} ")
    for step, why in done.failed:
        lines += block(f"FAILED: {printable(why)}", width, " " * 15, first=f" {step:<13} ")
    if done.cannot:
        lines.append("")
        lines += labelled("LOST", dict.fromkeys(done.cannot), width)
    if done.failed:
        lines += labelled("RETRY", ["undone steps stay undone; the rest is tried again"], width)
        lines.append(typed(f"sudo sexton fix rollback {done.run}"))
    return "\n".join(lines) + "\n"


def status_text(runs: list[Run], width: int, directory: str) -> str:
    width = clamp(width)
    if not runs:
        return f"nothing has been applied on this node (no journal in {directory})\n"
    lines = []
    for run in runs:
        word = _STATES.get(run.state, run.state)
        steps = count(len(run.records), "step")
        lines.append(f" {run.id}  {word}   {_clock(run.began_unix)}, {steps}")
        if run.ended_why:
            lines += block(run.ended_why, width, "     ", first="     ")
        for record in run.records:
            message = (record.outcome or {}).get("said", "may have been done in part")
            state = "undone" if record.undone else ("done" if record.outcome is not None else "?")
            lines += block(f"{state}: {message}", width, " " * 18, first=f"     {record.step:<12} ")
        if run.state == RUNNING:
            lines += labelled("", ["it did not finish; undo it before applying anything"], width)
            lines.append(typed(f"sudo sexton fix rollback {run.id}"))
    return "\n".join(lines) + "\n"


def _clock(unix: float) -> str:
    ago = time.time() - unix
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))
    return f"{local} ({duration(max(ago, 0))} ago)"


def verify_text(found: Verified, width: int, colour: bool = False) -> str:
    width = clamp(width)
    word, shade = _verdict(found)
    watched = f"apply {found.run}, watched for {duration(found.seconds)}"
    lines = [*headline(word, watched, width, shade if colour else ""), ""]
    text = heading(found)
    lines += [*block(text[:1].upper() + text[1:] + ".", width, " "), ""]
    rows = [("CRITERION", "BEFORE", "NOW", "", "READ FROM")]
    rows += [(r.what, r.before, r.now, _MARKS[r.met], r.read_from) for r in found.results]
    widths = [
        min(max(len(row[at]) for row in rows), most) for at, most in enumerate((34, 16, 16, 8))
    ]
    for number, row in enumerate(rows):
        cells = f" {cut(row[0], widths[0]):<{widths[0]}}  {row[1]:>{widths[1]}}"
        cells += f"  {row[2]:>{widths[2]}}  {row[3]:<{widths[3]}}  "
        lines.append((cells + cut(row[4], max(width - len(cells), 0))).rstrip())
        note = found.results[number - 1].note if number else ""
        if note:
            lines += block(note, width, "     ", first="   └ ")
    lines.append("")
    lines += labelled("ZOMBIES", [_zombies(found)], width)
    lines += labelled("FREED", found.freed or ["this apply freed nothing"], width)
    if found.exit == 1:
        lines += labelled("NEXT", ["diagnose again, or undo the apply"], width)
        lines += [typed("sudo sexton diagnose"), typed(f"sudo sexton fix rollback {found.run}")]
    lines += ["", f" exit {found.exit}: {text}"]
    return "\n".join(lines) + "\n"


def _verdict(found: Verified) -> tuple[str, str]:
    """The headline and its colour."""
    if found.exit == 1:
        return "FAILED", "31"
    if found.exit == 3:
        return "UNKNOWN", "33"
    remain = f"{found.dead_now:,}" if found.dead_now else "none"
    return f"NOT GROWING, {remain} remain", "32"


def _zombies(found: Verified) -> str:
    before, now = found.dead_before, found.dead_now
    if now is None:
        return "dying memory cgroups cannot be counted from here"
    if before is None:
        return f"{now:,} dying memory cgroups now; count before the apply unknown"
    change = rise(before, now)
    more = f"{change:,} more" if change > 0 else f"{-change:,} gone, {now:,} remain"
    return f"{before:,} before the apply, {now:,} now: {more}"


def applied_json(plan: Plan, applied: Applied) -> dict[str, Any]:
    return {
        "schema": "sexton.applied/1",
        "run": applied.run,
        "plan": plan.hash,
        "node": plan.node,
        **picked(applied, "how", "why", "exit", "watched"),
        "steps": [
            {
                "id": done.step.id,
                "title": done.step.title,
                "state": done.state,
                "said": done.message,
                "told": list(done.details),
                "outcome": {
                    name: value
                    for name, value in done.outcome.items()
                    if name not in ("said", "told")
                },
                "proofs": [
                    {"what": what, "holds": holds, "read": reading}
                    for what, holds, reading in done.proofs
                ],
            }
            for done in applied.steps
        ],
    }


def refused_json(plan: Plan, reasons: list[str]) -> dict[str, Any]:
    return {
        "schema": "sexton.applied/1",
        "run": None,
        "plan": plan.hash,
        "node": plan.node,
        "how": "refused",
        "why": "; ".join(reasons),
        "reasons": reasons,
        "steps": [],
    }


def rolled_back_json(done: RolledBack) -> dict[str, Any]:
    return {
        "schema": "sexton.rolled_back/1",
        "run": done.run,
        "done": [{"step": step, "what": what} for step, what in done.lines],
        "failed": [{"step": step, "why": why} for step, why in done.failed],
        "cannot_undo": done.cannot,
    }


def verified_json(found: Verified) -> dict[str, Any]:
    return {
        "schema": "sexton.verified/1",
        "run": found.run,
        "seconds": round(found.seconds, 1),
        "verdict": heading(found),
        "exit": found.exit,
        "zombies": {"before": found.dead_before, "now": found.dead_now},
        "freed": list(found.freed),
        "criteria": [
            {
                **picked(result, "what", "before", "now"),
                "met": result.met.value,
                "source": result.read_from,
                "note": result.note,
            }
            for result in found.results
        ],
    }


def status_json(runs: list[Run]) -> dict[str, Any]:
    return {
        "schema": "sexton.fix_status/1",
        "runs": [
            {
                "run": run.id,
                "state": run.state,
                "why": run.ended_why,
                "plan": run.plan.hash,
                "began_unix": run.began_unix,
                "ended_unix": run.ended_unix or None,
                "torn_lines": run.torn,
                "steps": [
                    {
                        "id": record.step,
                        "done": record.outcome is not None,
                        "undone": record.undone,
                        "said": (record.outcome or {}).get("said", ""),
                    }
                    for record in run.records
                ],
            }
            for run in runs
        ],
    }

"""A plan as a person reads it before saying yes, and what came of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sexton.cure.executor import DONE, FAILED, REFUSED, Applied
from sexton.cure.journal import COMPLETE, ROLLED_BACK, RUNNING, Told
from sexton.cure.rollback import RolledBack
from sexton.model.plan import Condition, Criterion, Plan, Step
from sexton.model.text import count, printable
from sexton.model.text import seconds as duration
from sexton.reports.text.blocks import block, labelled, typed

SHOWN_HASH = 16
_STATES = {ROLLED_BACK: "undone", COMPLETE: "applied", RUNNING: "CUT OFF"}
_TESTS = {"==": "is", "!=": "is not", ">=": "at least", "<=": "at most", "<": "below", "in": "in"}


def clamp(width: int) -> int:
    return min(max(width, 60), 110)


def headline(word: str, rest: str, width: int, colour: str = "") -> list[str]:
    """The verdict first, in the one colour there is."""
    lines = [*block(f"{word}  {rest}", width, "      ", first="")]
    if colour:
        lines[0] = f"\x1b[1;{colour}m{word}\x1b[0m" + lines[0].removeprefix(word)
    return lines


def plan_text(plan: Plan, width: int, colour: bool = False, file: str = "") -> str:
    """`file` is where it was written to, if it was."""
    width = clamp(width)
    automatic, printed = len(plan.automatic), len(plan.steps) - len(plan.automatic)
    told = [count(automatic, "step") + " to apply"]
    told += [f"{printed} only printed"] if printed else []
    told += [count(len(plan.refusals), "refusal")] if plan.refusals else []
    word, shade = ("PLAN", "33") if automatic else ("NOTHING TO APPLY", "32")
    lines = headline(word, f"{plan.node}   {' · '.join(told)}", width, shade if colour else "")
    lines += ["", *block(_sentence(plan.diagnosis_root), width, " "), ""]
    for step in plan.steps:
        lines += [*_step(step, width), ""]
    for number, refusal in enumerate(plan.refusals):
        lifted = f" ({refusal.override} lifts this)" if refusal.override else ""
        text = f"{refusal.target}: {refusal.reason}{lifted}"
        lines += labelled("" if number else "NOT DONE", [text], width)
    lines += labelled("NOTED", plan.notes, width)
    if plan.refusals or plan.notes:
        lines.append("")
    lines += _how_on(plan, width, file)
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _step(step: Step, width: int) -> Iterator[str]:
    risk = f"risk {step.risk}" if step.automatic else "only printed"
    title = f" {step.id}  {step.title}"
    yield f"{title}{risk:>{max(width - len(title), len(risk) + 2)}}"
    if step.automatic:
        yield from _part("risk", step.risk_why, width)
        yield from _part("does", step.effect, width)
        if step.preconditions:
            yield from _part("only if", " · ".join(map(_condition, step.preconditions)), width)
        yield from _part("undo", step.undo, width)
        if step.cannot_undo:
            yield from _part("lost", f"for good: {step.cannot_undo}", width)
        if step.proof:
            yield from _part("proof", " · ".join(map(_criterion, step.proof)), width)
        return
    yield from _part("risk", step.risk_why, width)
    for command in step.commands:
        yield typed(command)


def _part(label: str, text: str, width: int) -> Iterator[str]:
    yield from block(text, width, " " * 14, first=f"    {label:<9} ")


def _condition(each: Condition) -> str:
    test = "" if each.test == "==" else f"{_TESTS.get(each.test, each.test)} "
    after = f", after {each.after}" if each.after else ""
    return f"{each.what}: {test}{printable(each.expected) or 'nothing'}{after}"


def _criterion(each: Criterion) -> str:
    unit = f" {each.unit}" if each.unit else ""
    if each.unit == "":
        told = {("<=", 0): "no", (">=", 1): "yes"}.get((each.test, int(each.value)))
        if told is not None:
            return f"{each.what}: {told} ({each.read_from})"
    if each.test == "<" and not each.probe:
        return f"fewer {each.what} than before ({each.value:,.0f} now), {each.read_from}"
    return f"{each.what} {_TESTS.get(each.test, each.test)} {each.value:,.0f}{unit}"


def _how_on(plan: Plan, width: int, file: str) -> Iterator[str]:
    short = plan.hash[:SHOWN_HASH]
    if not plan.automatic:
        yield from block("Nothing was changed.", width, " ")
        return
    if file:
        agree = "nothing was changed so far; if you agree with every step"
        yield from labelled("APPLY", [agree], width)
        yield typed(f"sudo sexton fix apply {file} --confirm {short} --dry-run")
        yield typed(f"sudo sexton fix apply {file} --confirm {short}")
    else:
        yield from labelled("APPLY", ["nothing was changed; keep it in a file to apply it"], width)
        yield typed("sudo sexton fix plan --out plan.json")
    yield from labelled("THEN", ["sexton fix verify watches whether it helped"], width)


def plan_shell(plan: Plan) -> str:
    """The same by hand: what is only printed is a comment here as well."""
    lines = [
        "#!/bin/sh",
        f"# What plan {plan.hash[:SHOWN_HASH]} would do on {plan.node}, by hand.",
        "# No check, no journal, no undo, no watchdog: sexton fix apply has those.",
        "set -eu",
    ]
    for refusal in plan.refusals:
        lines.append(f"# not done: {refusal.target}: {refusal.reason}")
    for step in plan.steps:
        lines += ["", f"# {step.id}: {step.title} (risk {step.risk}: {step.risk_why})"]
        lines += [f"# undo: {step.undo}"] if step.automatic else []
        mark = "" if step.automatic else "# "
        lines += [f"{mark}{command}" for command in step.commands]
    return "\n".join(lines) + "\n"


def applied_text(plan: Plan, applied: Applied, width: int, colour: bool = False) -> str:
    width = clamp(width)
    dry = applied.run == "dry run"
    reached = sum(each.state not in ("not reached", REFUSED, FAILED) for each in applied.steps)
    word = "DRY RUN" if dry else ("DONE" if not applied.why else "STOPPED")
    shade = "31" if applied.why else "32"
    tally = f"{reached} of {count(len(applied.steps), 'step')}"
    lines = headline(word, f"{plan.node}   {tally}", width, shade if colour else "")
    lines.append("")
    if applied.why:
        lines += [*block(_sentence(applied.why), width, " "), ""]
    for done in applied.steps:
        title = f" {done.step.id}  {done.step.title}"
        lines.append(f"{title}{done.state:>{max(width - len(title), len(done.state) + 2)}}")
        if done.said and done.said != applied.why:
            lines += _part("", done.said, width)
        for line in done.told:
            lines += _part("", line, width)
        for what, held, read in done.proofs:
            mark = {True: "holds", False: "DOES NOT HOLD", None: "could not be read"}[held]
            lines += _part("proof", f"{what}: {read or '?'} ({mark})", width)
    lines += ["", *labelled("WATCHED", [applied.watched], width)]
    lines += _after(applied, dry, width)
    return "\n".join(lines) + "\n"


def _after(applied: Applied, dry: bool, width: int) -> Iterator[str]:
    if dry:
        yield from block("Nothing was changed; that it was tried is in sexton fix log.", width, " ")
        return
    if any(each.state == DONE for each in applied.steps):
        if not applied.why:
            yield from labelled("NEXT", ["did it help? ten minutes tell"], width)
            yield typed("sudo sexton fix verify")
        yield from labelled("UNDO", ["puts back everything that can be"], width)
        yield typed(f"sudo sexton fix rollback {applied.run}")
    elif applied.why:
        yield from labelled("NEXT", ["look again, and make a new plan"], width)
        yield typed("sudo sexton fix plan --out plan.json")


def refused_text(plan: Plan, reasons: list[str], width: int, colour: bool = False) -> str:
    width = clamp(width)
    lines = headline("REFUSED", f"{plan.node}   nothing was changed", width, "31" if colour else "")
    lines.append("")
    for reason in reasons:
        lines += block(printable(reason), width, "   ", first=" - ")
    lines += ["", *labelled("NEXT", ["look again, and make a new plan"], width)]
    lines.append(typed("sudo sexton fix plan --out plan.json"))
    return "\n".join(lines) + "\n"


def rolled_back_text(done: RolledBack, width: int, colour: bool = False) -> str:
    width = clamp(width)
    word, shade = ("UNDONE", "32") if not done.failed else ("NOT ALL UNDONE", "31")
    if done.already:
        return f"apply {done.run} is undone already: nothing was changed\n"
    if not done.lines and not done.failed:
        return f"apply {done.run} had changed nothing: there was nothing to undo\n"
    lines = [*headline(word, f"apply {done.run}", width, shade if colour else ""), ""]
    for step, what in done.lines:
        lines += block(printable(what), width, " " * 15, first=f" {step:<13} ")
    for step, why in done.failed:
        lines += block(f"FAILED: {printable(why)}", width, " " * 15, first=f" {step:<13} ")
    if done.cannot:
        lines.append("")
        lines += labelled("FOR GOOD", dict.fromkeys(done.cannot), width)
    if done.failed:
        lines += labelled("AGAIN", ["what was undone stays so; the rest is tried again"], width)
        lines.append(typed(f"sudo sexton fix rollback {done.run}"))
    return "\n".join(lines) + "\n"


def status_text(runs: list[Told], width: int, directory: str) -> str:
    width = clamp(width)
    if not runs:
        return f"nothing was ever applied on this node ({directory} holds no journal)\n"
    lines = []
    for told in runs:
        word = _STATES.get(told.state, told.state)
        lines.append(f" {told.id}  {word}   {_clock(told.began_unix)}, {len(told.records)} steps")
        if told.ended_why:
            lines += block(told.ended_why, width, "     ", first="     ")
        for each in told.records:
            said = (each.outcome or {}).get("said", "may have happened in part")
            state = "undone" if each.undone else ("done" if each.outcome is not None else "?")
            lines += block(f"{state}: {said}", width, " " * 18, first=f"     {each.step:<12} ")
        if told.state == RUNNING:
            lines += labelled("", ["it never came to its end; undo it before anything else"], width)
            lines.append(typed(f"sudo sexton fix rollback {told.id}"))
    return "\n".join(lines) + "\n"


def _clock(unix: float) -> str:
    ago = time.time() - unix
    told = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))
    return f"{told} ({duration(max(ago, 0))} ago)"

"""A gate's answer as text: what closed it first, then what was told, then what passed."""

from __future__ import annotations

from collections.abc import Iterator

from sexton.model.text import count, seconds, shorten
from sexton.prevent.gate.model import Gate, Outcome, Result, Violation
from sexton.reports.text.blocks import block

_WORDS = {
    Outcome.FAIL: "FAIL",
    Outcome.UNKNOWN: "UNKNOWN",
    Outcome.WARN: "WARN",
    Outcome.PASS: "PASS",
    Outcome.NOT_APPLICABLE: "N/A",
    Outcome.OFF: "OFF",
}
_LABEL = 8
_INDENT = " " * (_LABEL + 3)
_MOST_VIOLATIONS = 10
_MOST_FACTS = 3
_MOST_NOTES = 5


def gate_text(gate: Gate, width: int = 88, colour: bool = False) -> str:
    """The whole report; `width` is kept between 60 and 110 columns."""
    width = min(max(width, 60), 110)
    word = "PASSED" if gate.open else "FAILED"
    state = "booted" if gate.booted else "not booted"
    facts = " · ".join(part for part in (gate.kind, gate.os, state) if part)
    head = f"{word}  {shorten(gate.place, 40)}   {facts}"
    lines = [*block(head, width, "        ", first=""), ""]
    if colour:
        lines[0] = f"\x1b[1;{'32' if gate.open else '31'}m{word}\x1b[0m{lines[0][len(word) :]}"
    lines += [*block(_lead(gate), width, " "), ""]
    for result in sorted(gate.results, key=_weight):
        lines += _told(result, width)
    lines += _nothing_to_check(gate, width)
    for note in gate.notes:
        lines += block(note, width, _INDENT, first=f" {'NOTE':<{_LABEL}}  ")
    lines += ["", *_footer(gate, width)]
    return "\n".join(lines) + "\n"


def _policy(gate: Gate) -> str:
    return "the built-in policy" if gate.policy == "built-in" else shorten(gate.policy, 40)


def _lead(gate: Gate) -> str:
    closing = [result for result in gate.results if result.closes]
    failed = [each.rule for each in closing if each.outcome is Outcome.FAIL]
    unknown = [each.rule for each in closing if each.outcome is Outcome.UNKNOWN]
    said = []
    if failed:
        said.append(f"{count(len(failed), 'rule')} broken: {', '.join(failed)}.")
    if unknown:
        them = "it" if len(unknown) == 1 else "them"
        said.append(
            f"Could not be checked: {', '.join(unknown)}; not seen is no pass (the policy may say"
            f' on_unknown = "pass" for {them}).'
        )
    waived = sum(len(result.waived) for result in gate.results)
    passed = sum(result.outcome in (Outcome.PASS, Outcome.WARN) for result in gate.results)
    if not said:
        said.append(f"{count(passed, 'rule')} hold.")
    if waived:
        said.append(f"{count(waived, 'violation')} waived.")
    idle = sum(result.outcome is Outcome.NOT_APPLICABLE for result in gate.results)
    if idle:
        said.append(f"{idle} {'does' if idle == 1 else 'do'} not apply here.")
    told = sum(result.outcome is Outcome.WARN for result in gate.results)
    if told:
        said.append(f"{count(told, 'rule')} with warnings, which close nothing.")
    return " ".join(said)


def _weight(result: Result) -> tuple[bool, int]:
    return (not result.closes, list(Outcome).index(result.outcome))


def _told(result: Result, width: int) -> Iterator[str]:
    if result.outcome in (Outcome.NOT_APPLICABLE, Outcome.OFF):
        return
    head = f" {_WORDS[result.outcome]:<{_LABEL}}  "
    if not result.violations and not result.missing and not result.notes:
        yield from block(f"{result.rule}  {result.summary}", width, _INDENT, first=head)
        return
    yield from block(f"{result.rule}  {result.summary}", width, _INDENT, first=head)
    shown = result.broken[:_MOST_VIOLATIONS]
    for number, violation in enumerate(shown):
        yield from _violation(violation, width)
        later = {each.remedy for each in shown[number + 1 :]}
        if violation.remedy and violation.remedy not in later:  # the same one once is enough
            yield f"{_INDENT}    {shorten(violation.remedy, 300)}"
    hidden = len(result.broken) - _MOST_VIOLATIONS
    if hidden > 0:
        yield f"{_INDENT}  and {hidden:,} more: --format json has them all"
    for violation in result.waived[:_MOST_VIOLATIONS]:
        waiver = violation.waived_by
        assert waiver is not None
        text = (
            f"waived  {violation.subject}: {waiver.owner}, until {waiver.expires}"
            f" ({shorten(waiver.reason, 120)})"
        )
        yield from block(text, width, _INDENT + "    ", first=_INDENT + "  ")
    for lack in result.missing:
        yield from block(lack.what, width, _INDENT + "    ", first=_INDENT + "? ")
        if lack.grant:
            yield f"{_INDENT}    {shorten(lack.grant, 300)}"
    for note in result.notes[:_MOST_NOTES]:
        yield from block(note, width, _INDENT + "    ", first=_INDENT + "· ")


def _violation(violation: Violation, width: int) -> Iterator[str]:
    mark = "x" if violation.level == "error" else "!"
    place = f"{violation.path}:{violation.line}" if violation.line else violation.path
    place = shorten(place, width - len(_INDENT) - 4)
    told = violation.message
    facts: tuple[str, ...] = (place, *violation.facts[:_MOST_FACTS])
    if violation.line and not violation.facts:  # a file's many faults, a line each
        told, facts = f"{told} ({place})", ()
    yield from block(told, width, _INDENT + "  ", first=f"{_INDENT}{mark} ")
    for fact in facts:
        if fact:
            yield from block(fact, width, _INDENT + "    ", first=_INDENT + "  └ ")


def _nothing_to_check(gate: Gate, width: int) -> Iterator[str]:
    """Rules with one reason in one block."""
    for outcome in (Outcome.NOT_APPLICABLE, Outcome.OFF):
        reasons: dict[str, list[str]] = {}
        for result in gate.results:
            if result.outcome is outcome:
                reasons.setdefault(result.summary, []).append(result.rule)
        for reason, rules in reasons.items():
            head = f" {_WORDS[outcome]:<{_LABEL}}  "
            yield from block(f"{', '.join(rules)}: {reason}", width, _INDENT, first=head)


def _footer(gate: Gate, width: int) -> Iterator[str]:
    spent = sum(result.spent_s for result in gate.results)
    watched = f"{seconds(gate.watched_s)} watched · " if gate.watched_s else ""
    checked = sum(
        result.outcome not in (Outcome.NOT_APPLICABLE, Outcome.OFF) for result in gate.results
    )
    yield from block(
        f"{checked} of {len(gate.results)} rules checked, by {_policy(gate)} · {watched}"
        f"{seconds(spent)} judging · read-only",
        width,
        " ",
    )
    end = "the gate is open" if gate.open else "the gate is closed"
    yield f" exit {gate.exit}: {end}"

"""How detectors write findings: verdicts, what is missing, and names of entities."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.row import Row
from sexton.model.text import count, seconds
from sexton.model.window import SourceState, Window

#: The remedy for too few readings.
AGAIN = "sexton diagnose --seconds 10"


def absent(
    name: str, summary: str, evidence: Iterable[Evidence] = (), lacking: Iterable[Missing] = ()
) -> Finding:
    """The symptom is not there, by this evidence."""
    shown, gaps = tuple(evidence), tuple(lacking)
    return Finding(name, Verdict.ABSENT, Severity.INFO, summary, evidence=shown, missing=gaps)


def unknown(name: str, summary: str, lacking: Iterable[Missing]) -> Finding:
    """*Could not tell*, with what is missing and how to grant it."""
    return Finding(name, Verdict.UNKNOWN, Severity.INFO, summary, missing=tuple(lacking))


def too_few_readings(name: str, summary: str, what: str) -> Finding:
    """*Could not tell*: watching for longer gives the readings that are missing."""
    return unknown(name, summary, [Missing(what, AGAIN)])


def not_applicable(name: str, summary: str) -> Finding:
    """There is nothing here that the symptom could happen to."""
    return Finding(name, Verdict.NOT_APPLICABLE, Severity.INFO, summary)


def names(found: Iterable[str | None]) -> tuple[str, ...]:
    """Names for a finding's entities: each once, in order, without empty ones.

    >>> names(["eth1", None, "eth0", "eth1", ""])
    ('eth1', 'eth0')
    """
    return tuple(dict.fromkeys(name for name in found if name))


def and_more(found: Sized, noun: str = "") -> str:
    """How many there are beside the first, for a summary that names only that.

    >>> and_more([4, 7, 9], "core"), and_more([4, 7]), and_more([4])
    (' (and 2 more cores)', ' (and 1 more)', '')
    """
    others = len(found) - 1
    if others < 1:
        return ""
    return f" (and {count(others, f'more {noun}') if noun else f'{others:,} more'})"


def not_seen(what: str, hidden_s: float) -> tuple[Missing, ...]:
    """What a time without readings may hide, if it is not 0 s: its counters moved enough for it."""
    if not hidden_s:
        return ()
    return (Missing(f"{what} in {seconds(hidden_s)} without a reading", AGAIN),)


def unread(window: Window, *kinds: type[Row]) -> tuple[Missing, ...]:
    """What is missing because these row types were not read."""
    return tuple(missing(window.why_missing(kind)) for kind in kinds if not window.read(kind))


def reason(state: SourceState) -> str:
    """Why a source gave nothing."""
    words = {
        "absent": "not found",
        "denied": "permission denied",
        "malformed": "cannot be parsed",
        "timeout": "did not answer",
        "skipped": "skipped, reading it costs too much",
        "failed": "a bug in Sexton",
    }.get(state.state, state.state)
    path = state.path or state.id or "not recorded"
    if state.state == "absent" and state.detail:
        return f"{path}: {state.detail}"  # says more than "not found"
    detail = f" ({state.detail})" if state.detail else ""
    return f"{path}: {words}{detail}"


#: For sources without a remedy of their own: an unknown without a remedy is useless.
_REMEDIES = {
    "absent": "sudo sexton diagnose  # on the node itself, with access to its /proc and /sys",
    "denied": "sudo sexton diagnose",
    "malformed": "sexton sources  # shows the line; please report it",
    "failed": "sexton sources  # shows the error; please report it",
    "timeout": "sexton sources  # tries again; find out why the file blocks",
}


def missing(state: SourceState) -> Missing:
    """A source's state as something a finding lacks."""
    return Missing(reason(state), state.grant or _REMEDIES.get(state.state, ""))

"""The condition `SextonHealthy` of a verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from sexton.agent import CONDITION
from sexton.agent.verdict import NodeVerdict
from sexton.model.diagnosis import Exit
from sexton.model.text import printable

#: Bytes. An event of the newer API may have 1,024.
MOST_MESSAGE = 1000


def camel_case(name: str) -> str:
    """A finding's id as the reason of a condition or an event.

    >>> camel_case("a_symptom"), camel_case("log-pattern: own/17"), camel_case("→")
    ('ASymptom', 'LogPatternOwn17', 'Problem')
    """
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[:1].upper() + word[1:] for word in words)[:128]
    return joined if joined[:1].isalpha() else f"Problem{joined}"


def bounded(text: str, most_bytes: int) -> str:
    """Printable, and in UTF-8 at most this long.

    >>> bounded("ab\\nc", 99), bounded("ééé", 5)
    ('ab\\\\nc', 'é…')
    """
    safe = printable(text)
    if len(safe.encode()) <= most_bytes:
        return safe
    return safe.encode()[: most_bytes - 3].decode("utf-8", "ignore") + "…"


class State(NamedTuple):
    """What a condition says: "True" healthy, "False" a problem, "Unknown" cannot tell."""

    status: str
    reason: str
    message: str


def state_of(verdict: NodeVerdict) -> State:
    """The condition of a verdict."""
    if verdict.exit is Exit.HEALTHY:
        return State("True", verdict.exit.word.capitalize(), "no problem found")
    if verdict.exit is Exit.PROBLEM and verdict.causes:
        words = "; ".join(cause.words for cause in verdict.causes)
        reason = camel_case(verdict.causes[0].root)
        return State("False", reason, bounded(words, MOST_MESSAGE))
    missing = ", ".join(verdict.unknown) or "no detector could tell"
    return unknown("CannotTell", f"not known here: {missing}")


def unknown(reason: str, message: str) -> State:
    """Why nothing can be said."""
    return State("Unknown", reason, bounded(message, MOST_MESSAGE))


def condition(state: State, before: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    """The condition on a Node, where `before` is the one it has: the time of the transition is kept
    while the status is."""
    since = before.get("lastTransitionTime") if before else None
    same = before is not None and before.get("status") == state.status and isinstance(since, str)
    return {
        "type": CONDITION,
        **state._asdict(),
        "lastHeartbeatTime": now,
        "lastTransitionTime": since if same else now,
    }

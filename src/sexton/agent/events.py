"""Events of a node, one per cause chain: created once, and counted up while the chain goes on.

The API server forgets an event an hour after its last change, so one that goes on is counted up
each half hour. A chain that comes and goes is counted up at most every five minutes. What cannot be
written waits here, in memory: the latest of each chain, and only so many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sexton.agent.condition import MOST_MESSAGE, bounded, camel_case
from sexton.agent.verdict import Cause

#: Events of nodes are in this namespace: a Node is in none.
NAMESPACE = "default"
PATH = f"/api/v1/namespaces/{NAMESPACE}/events"
COMPONENT = "sexton"
REFRESH_S, AGAIN_S = 1800.0, 300.0
#: Chains that are remembered, and new ones in an hour. Anybody on the node may choose their names,
#: and each event is an object in the cluster's store.
MOST_KNOWN, MOST_AN_HOUR = 16, 10
_HOUR_S = 3600.0
_MOST_NAME = 253


class Subject(NamedTuple):
    """The Node that events are about; `uid` tells apart two that have had the same name."""

    name: str
    uid: str


@dataclass(slots=True)
class Entry:
    """One chain. Times are UNIX seconds, `written_s` is monotonic.

    `count`: how often the server has been told; 0: it has no such event.
    """

    cause: Cause
    first: float
    last: float
    seen_s: float
    present: bool = True
    due: bool = True
    count: int = 0
    written_s: float = 0.0


class EventBook:
    """Which events are to be written."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._begun_s: list[float] = []
        #: Chains without an event, because there were too many.
        self.dropped = 0

    def see(self, causes: tuple[Cause, ...], now_s: float, wall_s: float) -> None:
        """The causes of the last verdict; none for a healthy node."""
        seen = {cause.key: cause for cause in causes}
        for key, entry in self._entries.items():
            if key not in seen:
                entry.present = False
        for key, cause in seen.items():
            known = self._entries.get(key)
            if known is None:
                self._begin(key, cause, now_s, wall_s)
                continue
            returned, known.present = not known.present, True
            known.cause, known.last, known.seen_s = cause, wall_s, now_s
            since_s = now_s - known.written_s
            known.due |= since_s >= (AGAIN_S if returned else REFRESH_S)

    def _begin(self, key: str, cause: Cause, now_s: float, wall_s: float) -> None:
        self._begun_s = [at for at in self._begun_s if now_s - at < _HOUR_S]
        if len(self._begun_s) >= MOST_AN_HOUR:
            self.dropped += 1
            return
        self._begun_s.append(now_s)
        while len(self._entries) >= MOST_KNOWN:
            del self._entries[min(self._entries, key=lambda each: self._entries[each].seen_s)]
        self._entries[key] = Entry(cause, wall_s, wall_s, now_s)

    def due(self) -> list[Entry]:
        """To be written now, the oldest first."""
        return [entry for entry in self._entries.values() if entry.due]

    def forget_counts(self) -> None:
        """The Node is another one: its events are new."""
        for entry in self._entries.values():
            entry.count = 0
            entry.due |= entry.present


def written(entry: Entry, now_s: float, count: int) -> None:
    """The server has it."""
    entry.due, entry.written_s, entry.count = False, now_s, count


def name_of(subject: Subject, cause: Cause) -> str:
    """The event's name: the same after a restart of the agent, another for another Node."""
    digest = hashlib.sha256(f"{subject.uid}\0{cause.key}".encode("utf-8", "replace")).hexdigest()
    return f"{subject.name[: _MOST_NAME - 24].rstrip('.-')}.sexton-{digest[:16]}"


def body(subject: Subject, entry: Entry, times: tuple[str, str]) -> dict[str, Any]:
    """A new event, of core/v1; `kubectl describe node` finds it by the Node's uid."""
    first, last = times
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name_of(subject, entry.cause), "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", **subject._asdict()},
        "type": "Warning",
        "reason": camel_case(entry.cause.root),
        "message": bounded(entry.cause.words, MOST_MESSAGE),
        "source": {"component": COMPONENT, "host": subject.name},
        "reportingComponent": COMPONENT,
        "reportingInstance": subject.name,
        "firstTimestamp": first,
        "lastTimestamp": last,
        "count": entry.count + 1,
    }


def change(entry: Entry, last: str) -> Mapping[str, Any]:
    """It goes on, or is back."""
    message = bounded(entry.cause.words, MOST_MESSAGE)
    return {"count": entry.count + 1, "lastTimestamp": last, "message": message}

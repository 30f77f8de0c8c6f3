"""Writes the condition and the events of one Node, when they change, and when the server lets us.

Only the latest state is kept while the server cannot be reached. A report is: read the Node (its
uid, and the condition as it is), patch the condition, write the events that are due.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Protocol

from sexton.agent import CONDITION, events
from sexton.agent.condition import State, condition
from sexton.agent.events import Entry, EventBook, Subject, written
from sexton.agent.verdict import Cause
from sexton.cluster.client import Answer, Unreachable, node_path
from sexton.cluster.pacing import BackOff
from sexton.model.text import printable

#: A condition is patched this often though nothing changed; and after a change within so long: what
#: happens to a whole zone happens to all of its nodes at once.
HEARTBEAT_S, SPREAD_S = (240.0, 360.0), 10.0
_TOO_MANY, _UNAUTHORIZED, _CONFLICT, _NOT_FOUND = 429, 401, 409, 404
#: The server understood us and refuses: somebody has to change a right, a policy or a name.
_REFUSED = frozenset((400, 403, _NOT_FOUND, 405, 415, 422))
_BAD_EVENT = frozenset((400, 413, 422))
#: Heartbeats of ours that the server may have: a call that timed out may have been carried out.
_MOST_OWN = 8


class Server(Protocol):
    """`sexton.cluster.client.ApiServer`."""

    def __enter__(self) -> Server: ...
    def __exit__(self, *_: object) -> None: ...
    def get(self, path: str) -> Answer: ...
    def post(self, path: str, body: Mapping[str, Any]) -> Answer: ...
    def patch(self, path: str, body: Mapping[str, Any]) -> Answer: ...


class _Failed(Exception):
    """A call that the server did not carry out."""

    def __init__(self, what: str, answer: Answer) -> None:
        super().__init__(f"{what}: {answer.status} {answer.message}".rstrip())
        self.answer = answer


def say(words: str) -> None:
    """One line on standard error, which is the recorder's."""
    with contextlib.suppress(OSError):  # whatever read it has gone
        print(f"sexton: node-agent: {printable(words)}", file=sys.stderr, flush=True)


class Reporter:
    """Reports about the Node `node`; times of its caller are monotonic."""

    def __init__(
        self,
        node: str,
        connect: Callable[[], Server],
        say: Callable[[str], None] = say,
        chance: random.Random | None = None,
    ) -> None:
        self._node = node
        self._connect = connect
        self._say = say
        self._chance = chance or random.Random()
        self._back_off = BackOff(self._chance)
        self._book = EventBook()
        self._state: State | None = None
        self._reported: State | None = None
        self._patched_s = -inf
        self._due_s = inf
        self._uid = ""
        self._own: list[str] = []
        self._said = ""
        self._other_said = self._dropped_said = False

    @property
    def due_s(self) -> float:
        """When `report` has something to do."""
        return self._due_s

    def see(self, state: State, causes: tuple[Cause, ...], now_s: float) -> None:
        """The node's state from now on; `causes` of a problem, for events."""
        self._state = state
        self._book.see(causes, now_s, time.time())
        if self._book.dropped and not self._dropped_said:
            self._dropped_said = True
            self._say(f"over {events.MOST_AN_HOUR} new cause chains in an hour: not all are events")
        if (state != self._reported or self._book.due()) and not self._back_off.failures:
            self._due_s = min(self._due_s, now_s + self._chance.uniform(0.0, SPREAD_S))

    def report(self, now_s: float) -> None:
        """Write what is due; what fails is tried again later."""
        if self._state is None or now_s < self._due_s:
            return
        try:
            with self._connect() as server:
                self._report(server, self._state, now_s)
        except Unreachable as error:
            self._fail(str(error), now_s + self._back_off.failed())
        except _Failed as error:
            asked_s = error.answer.asked_s
            slow = error.answer.status in _REFUSED
            self._fail(str(error), now_s + self._back_off.failed(asked_s, slow=slow))
        else:
            if self._said:
                self._say("the API server is reached again")
            self._said = ""
            self._back_off.succeeded()
            self._due_s = now_s + self._chance.uniform(*HEARTBEAT_S)

    def _report(self, server: Server, state: State, now_s: float) -> None:
        path = node_path(self._node)
        found = _done(f"get nodes/{self._node}", server.get(path))
        before = _condition_of(found)
        self._identify(found, before)
        if self._is_to_patch(before, now_s):
            now = _timestamp(time.time())
            self._own = [*self._own[1 - _MOST_OWN :], now]
            patch = {"status": {"conditions": [condition(state, before, now)]}}
            what = f"patch nodes/{self._node}/status"
            _done(what, server.patch(node_path(self._node, "/status"), patch))
            self._reported, self._patched_s = state, now_s
        subject = Subject(self._node, self._uid)
        for entry in self._book.due():
            self._write(server, subject, entry, now_s)

    def _is_to_patch(self, before: Mapping[str, Any] | None, now_s: float) -> bool:
        """Not again, if it was only an event that failed the last time."""
        ours = before is not None and before.get("lastHeartbeatTime") in self._own[-1:]
        recent = now_s - self._patched_s < HEARTBEAT_S[0]
        return not (ours and recent and self._state == self._reported)

    def _identify(self, node: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        """Notice another Node of this name, and another agent on this one."""
        metadata = node.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        if not isinstance(uid, str) or not uid:  # of a proxy, perhaps
            raise Unreachable(f"nodes/{self._node}: the answer is not a Node")
        if self._uid and uid != self._uid:
            self._say(f"node {self._node} was created anew: its events are, too")
            self._book.forget_counts()
            self._own = []
        self._uid = uid
        beat = before.get("lastHeartbeatTime") if before is not None else None
        if beat is not None and self._own and beat not in self._own and not self._other_said:
            self._other_said = True
            self._say(
                f"somebody else writes {CONDITION} of node {self._node}, too;"
                " is there a second agent on this node?"
            )

    def _write(self, server: Server, subject: Subject, entry: Entry, now_s: float) -> None:
        times = _timestamp(entry.first), _timestamp(entry.last)
        path = f"{events.PATH}/{events.name_of(subject, entry.cause)}"
        if entry.count:
            answer = server.patch(path, events.change(entry, times[1]))
            if answer.status != _NOT_FOUND:
                _done("patch events", answer)
                written(entry, now_s, entry.count + 1)
                return
            entry.count = 0  # the server has forgotten it
        answer = server.post(events.PATH, events.body(subject, entry, times))
        if answer.status in _BAD_EVENT:  # the others are not to wait for it
            self._say(f"create events: {answer.status} {answer.message}")
            written(entry, now_s, 0)
            return
        if answer.status != _CONFLICT:
            _done("create events", answer)
            written(entry, now_s, 1)
            return
        # From before we were started: it goes on, but that is no news.
        known = _done("patch events", server.patch(path, {"lastTimestamp": times[1]}))
        count = known.get("count")
        written(entry, now_s, count if type(count) is int and count > 0 else 1)

    def _fail(self, words: str, due_s: float) -> None:
        self._due_s = due_s
        if words != self._said:
            self._said = words
            self._say(f"{words}; tried again")


def _done(what: str, answer: Answer) -> Mapping[str, Any]:
    if not 200 <= answer.status < 300:
        raise _Failed(what, answer)
    return answer.body


def _condition_of(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Our condition on a Node."""
    status = node.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and each.get("type") == CONDITION:
            return each
    return None


def _timestamp(wall_s: float) -> str:
    """As Kubernetes writes times. A clock outside of its years is the beginning of time.

    >>> _timestamp(1_740_000_002.4), _timestamp(1e30)
    ('2025-02-19T21:20:02Z', '1970-01-01T00:00:00Z')
    """
    try:
        found = time.gmtime(wall_s)
    except (OverflowError, OSError, ValueError):
        found = time.gmtime(0)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", found if found.tm_year <= 9999 else time.gmtime(0))

"""The recorder's child that seals and compacts (`sexton.store.sealer`), started when there is work.

It runs at nice 19 and dies with the recorder. Killed at any point it leaves a valid recording, and
the next run does the work again.
"""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path

from sexton.errors import SourceError
from sexton.host.runner import ChildOptions, Running, module_command, start
from sexton.model.text import printable
from sexton.store.layout import segments_in
from sexton.store.retention import Limits
from sexton.store.sealer import ALL, Outcome, needs_take_over

_CHILD = "sexton.store.sealer"
_OPTIONS = ChildOptions(nice=19, private=True, keep_stderr=True, dies_with_parent=True)
#: Long, because the lowest priority gets little CPU on a busy node.
_DEADLINE_S = 1200.0
#: At the start and at the end, when the recorder waits for it.
_PATIENCE_S = 60.0
#: Finished hours are compacted once an hour, by the child that seals then.
_COMPACT_S = 3600.0
#: Wait after a failed attempt: until the next flush, since the writer has just made room on a full
#: disk; then twice as long each time, since every attempt starts a process.
_RETRY_S, _LONGEST_RETRY_S = 5.0, 60.0


class ChildSealer:
    """Seals the writer's finished segments in a child, one at a time."""

    def __init__(self, directory: Path, limits: Limits, sign_key: str = "") -> None:
        self._directory = directory
        self._sign_key = sign_key
        self._limits = limits
        self._child: Running | None = None
        self._began_s = 0.0
        self._not_before_s = 0.0
        self._compact_s = time.monotonic()
        #: The segment up to which to seal; `None` if nothing is waiting.
        self._last: int | None = None
        self._tried = 0
        self._retry_s = _RETRY_S

    def take_over(self) -> list[str]:
        """Clean up after a killed recorder; one line for each thing found."""
        if not needs_take_over(self._directory):
            return []
        self._begin(ALL, "take-over")
        return [
            note
            for outcome in self._wait()
            for note in (*outcome.notes, *filter(None, [outcome.why]))
        ]

    def start(self, last: int) -> None:
        self._last = last
        self._start_if_due(time.monotonic())

    def done(self) -> list[Outcome]:
        now_s = time.monotonic()
        found = self._ended(now_s)
        if any(outcome.error for outcome in found):
            self._last = self._last or self._tried
            self._postpone(now_s)
        elif found:
            self._retry_s = _RETRY_S
        self._start_if_due(now_s)
        return found

    def finish(self) -> list[Outcome]:
        found = self._wait()
        if segments_in(self._directory / "open"):
            self._begin(ALL, "seal")
            found += self._wait()
        return found

    def _start_if_due(self, now_s: float) -> None:
        if self._child is not None or self._last is None or now_s < self._not_before_s:
            return
        last, self._last = self._last, None
        self._tried = last
        tasks = ["seal"]
        if now_s - self._compact_s >= _COMPACT_S:
            self._compact_s = now_s
            tasks.append("compact")
        self._begin(last, *tasks)

    def _begin(self, last: int, *tasks: str) -> None:
        limits = (str(self._limits.age_s), str(self._limits.most_bytes))
        arguments = (str(self._directory), str(last), *limits, self._sign_key, *tasks)
        self._began_s = time.monotonic()
        try:
            self._child = start(module_command(_CHILD, *arguments), _OPTIONS)
        except SourceError:
            self._child = None
            self._last = last
            self._postpone(self._began_s)

    def _postpone(self, now_s: float) -> None:
        self._not_before_s = now_s + self._retry_s
        self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)

    def _wait(self) -> list[Outcome]:
        end_s = time.monotonic() + _PATIENCE_S
        found: list[Outcome] = []
        while self._child is not None:
            found += self._ended(time.monotonic())
            if self._child is not None:
                if time.monotonic() >= end_s:
                    self._child.stop(patience_s=0.0)
                    self._child = None
                    return [*found, Outcome(error=errno.EIO, why="sealing took too long")]
                time.sleep(0.02)
        return found

    def _ended(self, now_s: float) -> list[Outcome]:
        child = self._child
        if child is None:
            return []
        status = child.status()
        if status is None and now_s - self._began_s < _DEADLINE_S:
            return []
        words = child.stderr().strip().rpartition("\n")[2]
        child.stop(patience_s=0.0)
        self._child = None
        try:
            return [Outcome(**json.loads(words))]
        except (ValueError, TypeError):
            why = "took too long" if status is None else f"exit status {status}"
            said = printable(f"sealing failed ({why}) {words[:200]}").strip()
            return [Outcome(error=errno.EIO, why=said)]

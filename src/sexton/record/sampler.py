"""The one sampling loop: a schedule, and for each source a guard and a deadline.

`diagnose`, `zombies --watch` and `top` run it in memory; the recorder puts its daemon around the
same loop. If a source fails, the reason is recorded and it is read again at its next turn. If it
misses its deadline, it is abandoned with the thread that waits for it, and the others continue.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sexton.errors import (
    SourceAbsent,
    SourceDenied,
    SourceError,
    SourceMalformed,
    SourceSkipped,
    SourceTimeout,
)
from sexton.host.host import ON_THE_NODE, ONLY_LIVE, Host
from sexton.host.reader import DEFAULT_LIMIT, Files, FileStatus
from sexton.model.row import Row
from sexton.model.text import printable
from sexton.model.window import Batch, SourceState, Window
from sexton.sources.registry import Reading, Source, enabled_sources

_STATES: tuple[tuple[type[SourceError], str], ...] = (
    (SourceAbsent, "absent"),
    (SourceDenied, "denied"),
    (SourceMalformed, "malformed"),
    (SourceTimeout, "timeout"),
    (SourceSkipped, "skipped"),
)
#: Sources due within this many seconds are read now.
_SLACK_S = 0.02
#: The first readings may lengthen a run by this share of its seconds.
_FIRST_SHARE = 0.3
_NEVER_S = 1e18
_MOST_EVENTS = 500
Keep = Callable[[type[Row], Batch[Any]], None]
#: How long closing waits for a call that was interrupted, and for all sources to close; each gets a
#: little time even after that.
_PATIENCE_S = 2.0
_LEAST_PATIENCE_S = 0.1
_IDLE = "sexton-sources"
#: A source that may take longer than this is not waited for while recording.
_PROMPT_S = 1.0
#: How long a recorder waits before it looks again for what was not there.
_LOOK_AGAIN_S = 60.0


@dataclass(slots=True)
class Answer:
    """The result of a call, and when it ended."""

    result: Any = None
    error: BaseException | None = None
    moment: tuple[float, float] = (0.0, 0.0)
    spent_s: float = 0.0
    cpu_s: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)


class Worker:
    """A thread that runs one call at a time, so that the caller can stop waiting for it."""

    def __init__(self) -> None:
        self._busy: tuple[Answer | None, float] = (None, 0.0)
        self._calls: queue.SimpleQueue[tuple[str, Callable[[], Any], Answer] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._loop, name=_IDLE, daemon=True)
        self._thread.start()

    def call(self, name: str, function: Callable[[], Any]) -> Answer:
        """Queue a call; while it runs the thread has its name, which says what hangs."""
        answer = Answer()
        self._calls.put((name, function, answer))
        return answer

    def busy_s(self, answer: Answer) -> float:
        """How long this call has been running; 0 if another one is."""
        busy_with, since_s = self._busy
        return time.monotonic() - since_s if busy_with is answer else 0.0

    def stop(self, patience_s: float = 0.0) -> None:
        """End after the current call; wait at most `patience_s` for that."""
        self._calls.put(None)
        self._thread.join(patience_s)

    def successor(self) -> Worker:
        """A new worker with the calls that are still queued; the hanging call stays here."""
        made = Worker()
        while True:
            try:
                made._calls.put(self._calls.get_nowait())
            except queue.Empty:
                break
        self._calls.put(None)
        return made

    def _loop(self) -> None:
        while (item := self._calls.get()) is not None:
            name, function, answer = item
            self._thread.name = f"sexton-source {name}"
            self._busy = (answer, time.monotonic())
            began, cpu_began = time.perf_counter(), time.thread_time()
            try:
                answer.result = function()
            except BaseException as error:  # noqa: BLE001 - the guard: counted and written down
                answer.error = error
            answer.spent_s = time.perf_counter() - began
            answer.cpu_s = time.thread_time() - cpu_began
            answer.moment = (time.monotonic(), time.time())
            self._thread.name = _IDLE
            answer.done.set()


@dataclass(slots=True, eq=False)
class _Slot:
    """One source in the schedule, with its results so far."""

    source: Source
    due_s: float
    reading: Reading | None = None
    answer: Answer | None = None
    taken: bool = True
    state: str = "absent"
    detail: str = "not read yet"
    grant: str | None = None
    reads: int = 0
    spent_s: float = 0.0
    cpu_s: float = 0.0
    rests: bool = False


#: Sources that were still being opened or read when their sampler was closed.
_abandoned: list[_Slot] = []


def close_abandoned() -> None:
    """Wait for sources that are stuck, however long, and close them: one may have made a trace
    instance meanwhile."""
    while _abandoned:
        slot = _abandoned.pop()
        if slot.answer is not None:
            slot.answer.done.wait()
        if slot.reading is not None:
            with contextlib.suppress(SourceError, OSError):
                slot.reading.close()


def _place(error: BaseException) -> str:
    """Function and line of an unexpected error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" ({trace.tb_frame.f_code.co_name}, line {trace.tb_lineno})"


class MovingFiles:
    """The snapshot being replayed: sources keep this object while the snapshot changes."""

    def __init__(self, now: Files) -> None:
        self.now = now

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        return self.now.read(path, limit)

    def names(self, path: str) -> list[str]:
        return self.now.names(path)

    def link(self, path: str) -> str:
        return self.now.link(path)

    def status(self, path: str) -> FileStatus:
        return self.now.status(path)


class Sampler:
    """Reads sources on their schedule into a window. Use as a context manager."""

    def __init__(
        self, host: Host, sources: Sequence[Source] | None = None, keep: Keep | None = None
    ) -> None:
        """`keep` gets every reading instead of the window in memory: for the recorder."""
        self.host = host
        self._batches: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
        self._give = keep or (lambda kind, batch: self._batches[kind].append(batch))
        chosen = enabled_sources() if sources is None else sources
        self._slots = [_Slot(source, due_s=0.0) for source in chosen]
        self._worker = Worker()
        #: In a recorder, a second thread for slow sources, which are not waited for.
        self._aside = Worker() if keep is not None else None

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every source that answered; a stuck one is left to `close_abandoned`.

        After an interrupt a source may still be opening something (a trace instance, a child): wait
        for that, so that it is closed.
        """
        self._worker.stop(_PATIENCE_S)
        if self._aside is not None:
            self._aside.stop(_PATIENCE_S)
        end_s = time.monotonic() + _PATIENCE_S
        worker = Worker()
        for slot in self._slots:
            if self._is_stuck(slot):
                _abandoned.append(slot)
                continue
            if slot.reading is None:
                continue
            # Removing a trace instance waits for all cores: closing may hang like reading.
            closed = worker.call(slot.source.id, slot.reading.close)
            slot.reading = None
            if not closed.done.wait(max(end_s - time.monotonic(), _LEAST_PATIENCE_S)):
                worker = worker.successor()
            elif closed.error is not None:
                raise closed.error
        worker.stop()

    def run(self, seconds: float, tick: Callable[[float], None] | None = None) -> Window:
        """Sample for `seconds`: read every source at the start, on its schedule, and at the end.

        They count from the end of the first readings, which take seconds where the node has no CPU
        time to spare: what must last ten seconds could not be seen in the rest of ten. A source
        that hangs delays it by `_FIRST_SHARE` at most. `tick` gets the seconds elapsed, for a
        progress line.
        """
        began = time.monotonic()
        self.read_due(began)
        began = min(time.monotonic(), began + _FIRST_SHARE * seconds)
        while (gone := time.monotonic() - began) < seconds - _SLACK_S:
            if tick is not None:
                tick(gone)
            next_due = min((slot.due_s for slot in self._slots), default=began + seconds)
            wake = min(max(next_due, time.monotonic()), began + seconds, time.monotonic() + 1.0)
            time.sleep(max(0.0, wake - time.monotonic()))
            if time.monotonic() - began < seconds - _SLACK_S:
                self.read_due(time.monotonic(), before_s=began + seconds)
        if seconds > 0:
            self.read_all()
        return self.window()

    def replay(self, snapshots: Iterable[tuple[Files, tuple[float, float]]]) -> Window:
        """Read every source once per snapshot, as if it had been watched at those moments. Nothing
        can hang in a snapshot, so none is given up: the command has a limit (`sexton.sandbox`)."""
        moving: MovingFiles | None = None
        for files, moment in snapshots:
            if moving is None:  # the one tree a source may keep hold of
                self.host.files = moving = MovingFiles(files)
            moving.now, self.host.moment = files, moment
            self._read(self._slots, patient=True)
        return self.window()

    def read_due(self, now: float, before_s: float = _NEVER_S) -> None:
        """Read what is due by `now`, except what is read at `before_s` anyway, if that is less than
        half a period away: a process table read twice within a second costs twice and shows less.
        """
        self._look_aside()
        due = []
        for slot in self._slots:
            if slot.due_s <= now + _SLACK_S:
                period = slot.source.period_s
                if before_s - now <= period / 2 + _SLACK_S:
                    slot.due_s = before_s
                    continue
                due.append(slot)
                # A late read does not make the next one come early: the schedule moves on.
                slot.due_s = max(slot.due_s or now, now - period) + period if period else _NEVER_S
        self._read(due)

    def read_all(self) -> None:
        """Read every periodic source once more, for the window's closing edge."""
        self._read([slot for slot in self._slots if slot.source.period_s])

    @property
    def next_due_s(self) -> float:
        """When the next source is due (monotonic seconds)."""
        return min((slot.due_s for slot in self._slots), default=_NEVER_S)

    def pace(self, source_id: str, period_s: float) -> None:
        """Change how often a source is read."""
        for slot in self._slots:
            if slot.source.id == source_id and slot.source.period_s != period_s:
                slot.source = replace(slot.source, period_s=period_s)
                slot.due_s = min(slot.due_s, time.monotonic() + period_s)

    def read_now(self, source_ids: Collection[str]) -> None:
        """Read these out of turn; their schedule stays."""
        wanted = (slot for slot in self._slots if slot.source.id in source_ids)
        self._read([slot for slot in wanted if not slot.rests])

    def rest(self, source_id: str, why: str) -> None:
        """Pause a source until `wake`, and say why."""
        for slot in self._slots:
            if slot.source.id == source_id and not slot.rests:
                slot.rests, slot.due_s = True, _NEVER_S
                slot.state, slot.detail, slot.grant = "skipped", why, ""

    def wake(self, source_id: str) -> None:
        """Read it again on its schedule."""
        for slot in self._slots:
            if slot.source.id == source_id and slot.rests:
                slot.rests, slot.due_s = False, time.monotonic()

    def forget(self, before_mono_s: float, events: Collection[type[Row]] = ()) -> None:
        """Drop batches older than that, except the newest of each; for screens that run for hours.

        Of `events`, which are read once each, the last `_MOST_EVENTS` non-empty batches stay.
        """
        for kind, batches in self._batches.items():
            if kind in events:
                kept = [batch for batch in batches[:-1] if batch.rows][-_MOST_EVENTS:]
            else:
                kept = [batch for batch in batches[:-1] if batch.mono_s >= before_mono_s]
            self._batches[kind] = [*kept, *batches[-1:]]

    def drop(self, kinds: Collection[type[Row]]) -> None:
        """Forget all readings of these kinds so far."""
        for kind in kinds:
            self._batches.pop(kind, None)

    def window(self) -> Window:
        """What has been read so far."""
        providers = {kind: slot.source.id for slot in self._slots for kind in slot.source.rows}
        return Window(self._batches, self.states(), providers)

    def states(self) -> tuple[SourceState, ...]:
        """The state of every source."""
        return tuple(
            SourceState(
                id=slot.source.id,
                path=slot.source.path,
                state=slot.state,
                detail=printable(slot.detail),
                grant=_grant(slot),
                reads=slot.reads,
                spent_s=slot.spent_s,
                requested=bool(slot.source.opt_in),
            )
            for slot in self._slots
        )

    def costs(self) -> dict[str, float]:
        """CPU seconds by source; waiting does not count."""
        return {slot.source.id: slot.cpu_s for slot in self._slots}

    def _is_stuck(self, slot: _Slot) -> bool:
        return slot.answer is not None and not slot.answer.done.is_set()

    def _read(self, slots: Sequence[_Slot], patient: bool = False) -> None:
        """Read them one after the other. `patient`: wait for each, however long it takes.

        They are queued together: waking the worker for each would cost more than most reads.
        """
        free = [slot for slot in slots if not self._is_stuck(slot)]
        for slot in free:
            if not slot.taken:  # answered, and an alarm already wants the next reading
                self._take(slot)
        slow = [slot for slot in free if self._aside and slot.source.deadline_s > _PROMPT_S]
        prompt = [slot for slot in free if slot not in slow]
        for slot in prompt:
            self._start(slot, self._worker)
        if patient:
            for slot in prompt:
                assert slot.answer is not None
                slot.answer.done.wait()
        self._await(prompt)
        for slot in slow:  # only now, so that the two threads do not keep waking each other
            assert self._aside is not None
            self._start(slot, self._aside)
        for slot in prompt:
            if not slot.taken and not self._is_stuck(slot):
                self._take(slot)

    def _await(self, prompt: Sequence[_Slot]) -> None:
        """Wait until each has finished or timed out."""
        end_s = time.monotonic() + sum(reader.source.deadline_s for reader in prompt) + _PROMPT_S
        while waiting := [reader for reader in prompt if self._is_waited_for(reader)]:
            slot = waiting[0]
            assert slot.answer is not None
            left_s = slot.source.deadline_s - self._worker.busy_s(slot.answer)
            if left_s <= 0 or time.monotonic() > end_s:
                self._give_up(slot)
                self._worker = self._worker.successor()
                continue
            last = prompt[-1].answer
            assert last is not None
            last.done.wait(left_s)

    def _is_waited_for(self, slot: _Slot) -> bool:
        return self._is_stuck(slot) and slot.state != "timeout"

    def _start(self, slot: _Slot, worker: Worker) -> None:
        def collect() -> list[Row]:
            if slot.reading is None:
                slot.reading = slot.source.open(self.host)
            return list(slot.reading.collect())

        if slot.state == "timeout":  # it answered since: try again
            slot.state = "absent"
        slot.answer, slot.taken = worker.call(slot.source.id, collect), False

    def _take(self, slot: _Slot) -> None:
        assert slot.answer is not None
        slot.taken = True
        slot.spent_s += slot.answer.spent_s
        slot.cpu_s += slot.answer.cpu_s
        if slot.answer.error is not None:
            self._failed(slot, slot.answer.error)
            if self._aside is not None and slot.state in ("absent", "denied"):
                # A recorder need not look for an absent file every second.
                slot.due_s = max(slot.due_s, time.monotonic() + _LOOK_AGAIN_S)
        elif not slot.rests:
            self._keep(slot, slot.answer)

    def _give_up(self, slot: _Slot) -> None:
        slot.state = "timeout"
        slot.detail = f"no answer in {slot.source.deadline_s:g} s; abandoned"

    def _look_aside(self) -> None:
        """Take the results of slow sources; abandon those that hang."""
        for slot in self._slots:
            if slot.answer is None or slot.taken:
                continue
            if slot.answer.done.is_set():
                self._take(slot)
            elif self._aside is None or slot.state == "timeout":
                continue
            # They are queued: only the one being read can hang.
            elif self._aside.busy_s(slot.answer) > slot.source.deadline_s:
                self._give_up(slot)
                self._aside = self._aside.successor()

    def _failed(self, slot: _Slot, error: BaseException) -> None:
        slot.grant = None
        if isinstance(error, SourceError):
            slot.grant = error.grant
            slot.state = next((name for kind, name in _STATES if isinstance(error, kind)), "failed")
            whole = error.path == slot.source.path or error.detail == ONLY_LIVE
            slot.detail = error.detail if whole else str(error)
            return
        slot.state = "failed"
        slot.detail = f"{type(error).__name__}: {error}{_place(error)}"

    def _keep(self, slot: _Slot, answer: Answer) -> None:
        slot.reads += 1
        slot.state, slot.detail = "ok", "" if slot.reading is None else slot.reading.note
        mono_s, wall_s = self.host.moment or answer.moment
        sorted_rows: dict[type[Row], list[Row]] = {kind: [] for kind in slot.source.rows}
        for row in answer.result:
            sorted_rows[type(row)].append(row)
        for kind, items in sorted_rows.items():
            self._give(kind, Batch(mono_s, wall_s, tuple(items)))


def _grant(slot: _Slot) -> str:
    """What would make the source readable: from its failure, else from the source itself."""
    if slot.state not in ("absent", "denied"):
        return ""
    if slot.state == "denied" and os.geteuid() == 0:  # a container's root: sudo would not help
        return ON_THE_NODE
    if slot.grant is not None:
        return slot.grant
    return slot.source.grant or ("sudo sexton diagnose" if slot.state == "denied" else "")

"""The one sampling loop: a schedule, and for each source a guard and a deadline.

`diagnose`, `zombies --watch` and `top` run it in memory; the recorder puts its daemon around the
same loop. If a source fails, the reason is recorded and it is read again at its next turn. If it
misses its deadline, it is abandoned with the thread that waits for it, and the others continue.
"""

from __future__ import annotations

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
class _Seat:
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
        self._seats = [_Seat(source, due_s=0.0) for source in chosen]
        self._worker = Worker()
        #: In a recorder, a second thread for slow sources, which are not waited for.
        self._aside = Worker() if keep is not None else None

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every source that answered; a stuck one is left to the exit of the process.

        After an interrupt a source may still be opening something (a trace instance, a child): wait
        for that, so that it is closed.
        """
        self._worker.stop(_PATIENCE_S)
        if self._aside is not None:
            self._aside.stop(_PATIENCE_S)
        end_s = time.monotonic() + _PATIENCE_S
        worker = Worker()
        for seat in self._seats:
            if seat.reading is None or self._is_stuck(seat):
                continue
            # Removing a trace instance waits for all cores: closing may hang like reading.
            closed = worker.call(seat.source.id, seat.reading.close)
            seat.reading = None
            if not closed.done.wait(max(end_s - time.monotonic(), _LEAST_PATIENCE_S)):
                worker = worker.successor()
            elif closed.error is not None:
                raise closed.error
        worker.stop()

    def run(self, seconds: float, tick: Callable[[float], None] | None = None) -> Window:
        """Sample for `seconds`: read every source at the start, on its schedule, and at the end.

        `tick` gets the seconds elapsed, for a progress line.
        """
        began = time.monotonic()
        self.read_due(began)
        while (gone := time.monotonic() - began) < seconds - _SLACK_S:
            if tick is not None:
                tick(gone)
            next_due = min((seat.due_s for seat in self._seats), default=began + seconds)
            wake = min(max(next_due, time.monotonic()), began + seconds, time.monotonic() + 1.0)
            time.sleep(max(0.0, wake - time.monotonic()))
            if time.monotonic() - began < seconds - _SLACK_S:
                self.read_due(time.monotonic(), before_s=began + seconds)
        if seconds > 0:
            self.read_all()
        return self.window()

    def replay(self, snapshots: Iterable[tuple[Files, tuple[float, float]]]) -> Window:
        """Read every source once per snapshot, as if it had been watched at those moments."""
        moving: MovingFiles | None = None
        for files, moment in snapshots:
            if moving is None:  # the one tree a source may keep hold of
                self.host.files = moving = MovingFiles(files)
            moving.now, self.host.moment = files, moment
            self._read(self._seats)
        return self.window()

    def read_due(self, now: float, before_s: float = _NEVER_S) -> None:
        """Read what is due by `now`, except what is read at `before_s` anyway, if that is less than
        half a period away: a process table read twice within a second costs twice and shows less.
        """
        self._look_aside()
        due = []
        for seat in self._seats:
            if seat.due_s <= now + _SLACK_S:
                period = seat.source.period_s
                if before_s - now <= period / 2 + _SLACK_S:
                    seat.due_s = before_s
                    continue
                due.append(seat)
                # A late read does not make the next one come early: the schedule moves on.
                seat.due_s = max(seat.due_s or now, now - period) + period if period else _NEVER_S
        self._read(due)

    def read_all(self) -> None:
        """Read every periodic source once more, for the window's closing edge."""
        self._read([seat for seat in self._seats if seat.source.period_s])

    @property
    def next_due_s(self) -> float:
        """When the next source is due (monotonic seconds)."""
        return min((seat.due_s for seat in self._seats), default=_NEVER_S)

    def pace(self, source_id: str, period_s: float) -> None:
        """Change how often a source is read."""
        for seat in self._seats:
            if seat.source.id == source_id and seat.source.period_s != period_s:
                seat.source = replace(seat.source, period_s=period_s)
                seat.due_s = min(seat.due_s, time.monotonic() + period_s)

    def read_now(self, source_ids: Collection[str]) -> None:
        """Read these out of turn; their schedule stays."""
        wanted = (seat for seat in self._seats if seat.source.id in source_ids)
        self._read([seat for seat in wanted if not seat.rests])

    def rest(self, source_id: str, why: str) -> None:
        """Pause a source until `wake`, and say why."""
        for seat in self._seats:
            if seat.source.id == source_id and not seat.rests:
                seat.rests, seat.due_s = True, _NEVER_S
                seat.state, seat.detail, seat.grant = "skipped", why, ""

    def wake(self, source_id: str) -> None:
        """Read it again on its schedule."""
        for seat in self._seats:
            if seat.source.id == source_id and seat.rests:
                seat.rests, seat.due_s = False, time.monotonic()

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
        providers = {kind: seat.source.id for seat in self._seats for kind in seat.source.rows}
        return Window(self._batches, self.states(), providers)

    def states(self) -> tuple[SourceState, ...]:
        """The state of every source."""
        return tuple(
            SourceState(
                id=seat.source.id,
                path=seat.source.path,
                state=seat.state,
                detail=printable(seat.detail),
                grant=_grant(seat),
                reads=seat.reads,
                spent_s=seat.spent_s,
                requested=bool(seat.source.opt_in),
            )
            for seat in self._seats
        )

    def costs(self) -> dict[str, float]:
        """CPU seconds by source; waiting does not count."""
        return {seat.source.id: seat.cpu_s for seat in self._seats}

    def _is_stuck(self, seat: _Seat) -> bool:
        return seat.answer is not None and not seat.answer.done.is_set()

    def _read(self, seats: Sequence[_Seat]) -> None:
        """Read them one after the other.

        They are queued together: waking the worker for each would cost more than most reads.
        """
        free = [seat for seat in seats if not self._is_stuck(seat)]
        for seat in free:
            if not seat.taken:  # answered, and an alarm already wants the next reading
                self._take(seat)
        slow = [seat for seat in free if self._aside and seat.source.deadline_s > _PROMPT_S]
        prompt = [seat for seat in free if seat not in slow]
        for seat in prompt:
            self._ask(seat, self._worker)
        self._await(prompt)
        for seat in slow:  # only now, so that the two threads do not keep waking each other
            assert self._aside is not None
            self._ask(seat, self._aside)
        for seat in prompt:
            if not seat.taken and not self._is_stuck(seat):
                self._take(seat)

    def _await(self, prompt: Sequence[_Seat]) -> None:
        """Wait until each has finished or timed out."""
        end_s = time.monotonic() + sum(reader.source.deadline_s for reader in prompt) + _PROMPT_S
        while waiting := [reader for reader in prompt if self._is_waited_for(reader)]:
            seat = waiting[0]
            assert seat.answer is not None
            left_s = seat.source.deadline_s - self._worker.busy_s(seat.answer)
            if left_s <= 0 or time.monotonic() > end_s:
                self._give_up(seat)
                self._worker = self._worker.successor()
                continue
            last = prompt[-1].answer
            assert last is not None
            last.done.wait(left_s)

    def _is_waited_for(self, seat: _Seat) -> bool:
        return self._is_stuck(seat) and seat.state != "timeout"

    def _ask(self, seat: _Seat, worker: Worker) -> None:
        def collect() -> list[Row]:
            if seat.reading is None:
                seat.reading = seat.source.open(self.host)
            return list(seat.reading.collect())

        if seat.state == "timeout":  # it answered since: try again
            seat.state = "absent"
        seat.answer, seat.taken = worker.call(seat.source.id, collect), False

    def _take(self, seat: _Seat) -> None:
        assert seat.answer is not None
        seat.taken = True
        seat.spent_s += seat.answer.spent_s
        seat.cpu_s += seat.answer.cpu_s
        if seat.answer.error is not None:
            self._failed(seat, seat.answer.error)
            if self._aside is not None and seat.state in ("absent", "denied"):
                # A recorder need not look for an absent file every second.
                seat.due_s = max(seat.due_s, time.monotonic() + _LOOK_AGAIN_S)
        elif not seat.rests:
            self._keep(seat, seat.answer)

    def _give_up(self, seat: _Seat) -> None:
        seat.state = "timeout"
        seat.detail = f"no answer in {seat.source.deadline_s:g} s; abandoned"

    def _look_aside(self) -> None:
        """Take the results of slow sources; abandon those that hang."""
        for seat in self._seats:
            if seat.answer is None or seat.taken:
                continue
            if seat.answer.done.is_set():
                self._take(seat)
            elif self._aside is None or seat.state == "timeout":
                continue
            # They are queued: only the one being read can hang.
            elif self._aside.busy_s(seat.answer) > seat.source.deadline_s:
                self._give_up(seat)
                self._aside = self._aside.successor()

    def _failed(self, seat: _Seat, error: BaseException) -> None:
        seat.grant = None
        if isinstance(error, SourceError):
            seat.grant = error.grant
            seat.state = next((name for kind, name in _STATES if isinstance(error, kind)), "failed")
            whole = error.path == seat.source.path or error.detail == ONLY_LIVE
            seat.detail = error.detail if whole else str(error)
            return
        seat.state = "failed"
        seat.detail = f"{type(error).__name__}: {error}{_place(error)}"

    def _keep(self, seat: _Seat, answer: Answer) -> None:
        seat.reads += 1
        seat.state, seat.detail = "ok", ""
        mono_s, wall_s = self.host.moment or answer.moment
        sorted_rows: dict[type[Row], list[Row]] = {kind: [] for kind in seat.source.rows}
        for row in answer.result:
            sorted_rows[type(row)].append(row)
        for kind, items in sorted_rows.items():
            self._give(kind, Batch(mono_s, wall_s, tuple(items)))


def _grant(seat: _Seat) -> str:
    """What would make the source readable: from its failure, else from the source itself."""
    if seat.state not in ("absent", "denied"):
        return ""
    if seat.state == "denied" and os.geteuid() == 0:  # a container's root: sudo would not help
        return ON_THE_NODE
    if seat.grant is not None:
        return seat.grant
    return seat.source.grant or ("sudo sexton diagnose" if seat.state == "denied" else "")

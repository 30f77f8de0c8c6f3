"""Companions: what runs beside the sampling loop. Rolling stacks and their decoder, the event ring,
shipping.

Each is created once the recording's lock is held, called once a second, and closed before the last
flush. If one is unavailable the recorder notes that and continues without it. Companions must not
raise: `Guarded` catches one that does (a disk that turned read-only under perf's files, a trace
instance that was removed). The failure is recorded the first time and at each doubling, and the
companion is called again at the next beat.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from sexton.errors import SourceError, SourceTimeout
from sexton.host.host import Host
from sexton.model.row import Row
from sexton.model.rows.recorder import RecorderNote
from sexton.model.rows.trace import RingState
from sexton.model.text import printable
from sexton.record.decoding import Decoding
from sexton.record.ring_dump import DumpEnd, Dumping
from sexton.record.sampler import Answer, Worker
from sexton.record.ship import Shipper
from sexton.record.stacks import RollingStacks, Rotation, snapshot_kallsyms
from sexton.sources.tracefs.ring import EventRing
from sexton.store.pins import Pin

T = TypeVar("T")
#: A write to tracefs takes milliseconds, or tens of them on a loaded node.
_MOST_S = 2.0
#: How often the ring's state is recorded. It is checked every second, since a packet flood makes
#: it expensive at once; on big machines less often, because a check reads a file per core.
_NOTE_S = 10.0
_CORES_A_SECOND = 16
_POLL_S = 5.0
#: What a dump goes back at least. How long after one the next may begin: alarms until then wait for
#: it, and it goes back to the end of the last one.
_DUMP_S = 10.0
_DUMP_AGAIN_S = 20.0
#: A ring that was whole again for less than this has not recovered.
_SETTLED_S = 60.0
_MOST_PINNED = 50


class Place(NamedTuple):
    """What a companion needs to know about its recorder."""

    host: Host
    directory: Path
    node: str
    boot_id: str
    most_bytes: int
    sign_key: str = ""


class Companion(Protocol):
    """Something that runs beside the loop. None of its methods may block or raise.

    One that `outlasts` the recording is closed after the last segment was sealed. One that
    `may_hang` in the kernel is called in a thread that can be abandoned.
    """

    name: str
    outlasts: bool
    may_hang: bool

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        """Once a second; rows to record. `alarm`: one is active."""

    def alarmed(self, pin: Pin) -> None:
        """An alarm was raised or continues."""

    def cost(self) -> tuple[float, int]:
        """CPU seconds of its children so far, and their resident bytes."""

    def rest(self) -> None:
        """Pause: it costs too much."""

    def wake(self) -> None:
        """Resume."""

    def close(self) -> None:
        """Release everything."""

    def status(self) -> dict[str, Any]:
        """For status.json."""


class Guarded:
    """A companion whose exceptions are caught and counted, and that cannot hang the loop."""

    def __init__(self, companion: Companion) -> None:
        self.name = companion.name
        self.outlasts = companion.outlasts
        self.may_hang = companion.may_hang
        self._thread = Worker() if companion.may_hang else None
        self._hung: Answer | None = None
        self.within = companion
        self.failures = 0
        self._noted = 0
        self._last = ""
        self._cost = (0.0, 0)

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        nothing: Sequence[Row] = ()
        found = list(self._call(lambda: self.within.beat(now_s, alarm), nothing))
        if self.failures >= max(1, 2 * self._noted):
            self._noted = self.failures
            words = f"{self.name} failed {self.failures:,} times, now with {self._last}"
            found.append(RecorderNote("source", words))
        return found

    def alarmed(self, pin: Pin) -> None:
        self._call(lambda: self.within.alarmed(pin), None)

    def cost(self) -> tuple[float, int]:
        self._cost = self._call(self.within.cost, self._cost)
        return self._cost

    def rest(self) -> None:
        self._call(self.within.rest, None)

    def wake(self) -> None:
        self._call(self.within.wake, None)

    def close(self) -> None:
        """Close it; behind a call that hangs, as soon as that ends."""
        self._hung = None
        self._call(self.within.close, None)
        if self._thread is not None:
            self._thread.stop()

    def status(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {}
        status = self._call(self.within.status, nothing)
        return {**status, "failures": self.failures} if self.failures else status

    def _call(self, function: Callable[[], T], otherwise: T) -> T:
        try:
            return function() if self._thread is None else self._in_time(function, otherwise)
        except Exception as error:  # noqa: BLE001 - the guard: counted and recorded
            self.failures += 1
            self._last = printable(f"{type(error).__name__}: {error}".split("\n")[0])
            return otherwise

    def _in_time(self, function: Callable[[], T], otherwise: T) -> T:
        """Call it in the thread; while that hangs, nothing more is called."""
        assert self._thread is not None
        if self._hung is not None and not self._hung.done.is_set():
            return otherwise
        self._hung = self._thread.call(self.name, function)
        if not self._hung.done.wait(_MOST_S):
            raise TimeoutError(f"no answer in {_MOST_S:g} s")
        if self._hung.error is not None:
            raise self._hung.error
        return cast("T", self._hung.result)


def make_in_time(make: Callable[[Place], Companion], place: Place) -> Companion:
    """Create a companion that may hang in the kernel; one that comes too late is closed again."""
    worker = Worker()
    late = threading.Event()

    def build() -> Companion:
        made = make(place)
        if late.is_set():
            made.close()
        return made

    answer = worker.call("companion", build)
    if not answer.done.wait(_MOST_S):
        late.set()
        worker.stop()
        raise SourceTimeout("tracefs", f"the kernel did not answer in {_MOST_S:g} s")
    worker.stop()
    if answer.error is not None:
        raise answer.error
    return cast("Companion", answer.result)


Made = Callable[[Place], Companion]


def chosen(*, stacks: bool, ring: bool, ship: str | None) -> list[Made]:
    """The companions that the options enable."""
    made: list[Made] = []
    if stacks:
        made += [Stacks, Decoding]
    if ring:
        made.append(Ring)
    if ship:
        made.append(lambda place: Shipper(ship, place.node, place.directory, place.boot_id))
    return made


class Stacks:
    """perf, rotated; its files wait in ``stacks/`` for `sexton.record.decoding`."""

    name = "perf.stacks"
    outlasts = False
    may_hang = False

    def __init__(self, place: Place) -> None:
        rotation = Rotation.for_cores(os.cpu_count() or 1)
        self._rotation = rotation._replace(keep_bytes=place.most_bytes // 2)
        self._stacks = RollingStacks(place.host, str(place.directory), self._rotation)
        self._stacks.start()
        self._resting = False
        self._perf_state = self._stacks.state()
        self._polled_s = 0.0
        self._pinned: list[Pin] = []
        with contextlib.suppress(SourceError, OSError):  # without it names are missing, not stacks
            snapshot_kallsyms(place.host, str(place.directory), place.boot_id)

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:  # noqa: ARG002 - a companion's
        if self._resting or now_s - self._polled_s < _POLL_S:
            return ()
        self._polled_s = now_s
        self._stacks.poll(spare=self._spared())
        before, self._perf_state = self._perf_state, self._stacks.state()
        if self._perf_state.deaths > before.deaths:
            return (RecorderNote("source", f"perf exited: {self._perf_state.reason}; restarted"),)
        return ()

    def alarmed(self, pin: Pin) -> None:
        others = [other for other in self._pinned if other.id != pin.id]
        self._pinned = [*others[-_MOST_PINNED:], pin]

    def _spared(self) -> set[str]:
        """Files of pinned minutes: retention, which knows the pins, deletes them."""
        return {
            os.path.basename(file.path)
            for file in self._stacks.closed()
            for pin in self._pinned
            if file.mono_end_s is not None
            and pin.start_s <= file.mono_end_s <= pin.end_s + self._rotation.segment_s
        }

    def cost(self) -> tuple[float, int]:
        spent = self._stacks.cost()
        return spent.cpu_s, spent.rss_bytes

    def rest(self) -> None:
        self._resting = True
        self._stacks.stop()

    def wake(self) -> None:
        if self._resting:
            self._resting = False
            with contextlib.suppress(SourceError):
                self._stacks.start()

    def close(self) -> None:
        self._stacks.stop()

    def status(self) -> dict[str, Any]:
        return {**self._stacks.state()._asdict(), "resting": self._resting}


class Ring:
    """The last seconds event by event, dumped when an alarm is raised.

    Alarms that come while a dump is written or soon after it share the next one. One that goes on
    keeps its first: that holds the beginning.
    """

    name = "tracefs.ring"
    outlasts = False
    may_hang = True

    def __init__(self, place: Place) -> None:
        self._folder = place.directory / "rings"
        self._ring = EventRing(place.host)
        self._state: RingState = self._ring.arm()
        self._tended_s = self._noted_s = 0.0
        self._tend_s = max(1.0, (os.cpu_count() or 1) / _CORES_A_SECOND)
        self._dumping: Dumping | None = None
        self._released_s = -_DUMP_AGAIN_S
        self._dumps = 0
        self._paused = False
        self._known: deque[str] = deque(maxlen=_MOST_PINNED)
        #: Pins that wait for a dump, and those of the current one.
        self._waiting: list[str] = []
        self._served: list[str] = []
        #: Whether a note said that the ring is reduced or paused, and since when it is whole.
        self._reduced = False
        self._whole_since: float | None = None
        self._notes: list[RecorderNote] = []

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        if self._dumping is not None and (end := self._dumping.poll()) is not None:
            self._dumping = None
            self._released_s = now_s
            self._end(end)
        rows: list[Row] = []
        if now_s - self._tended_s >= self._tend_s:
            self._tended_s = now_s
            before, self._state = self._state.mode, self._ring.tend()
            if self._state.mode != before or now_s - self._noted_s >= _NOTE_S:
                self._noted_s = now_s
                rows.append(self._state)
        elif alarm and self._state.mode == "paused" and not self._paused:
            self._resume("an alarm is active")
        self._look(now_s)
        self._dump(now_s)
        notes, self._notes = self._notes, []
        return [*rows, *notes]

    def alarmed(self, pin: Pin) -> None:
        if pin.id in self._known:
            return
        self._known.append(pin.id)
        self._waiting.append(pin.id)
        self._dump(time.monotonic())

    def _dump(self, now_s: float) -> None:
        """Start a dump for the pins that wait for one."""
        if not self._waiting or self._dumping is not None:
            return
        if self._state.mode != "on":
            self._notes.append(
                RecorderNote("lost", f"event ring not captured (paused: {self._state.reason})")
            )
            self._waiting = []
        elif now_s - self._released_s >= _DUMP_AGAIN_S:
            self._dumps += 1
            self._served, self._waiting = self._waiting, []
            since_s = now_s - self._released_s
            seconds = since_s if _DUMP_S < since_s < 2 * _DUMP_AGAIN_S else _DUMP_S
            out = self._out(self._served[0])  # a failure is recorded by `Guarded`
            self._dumping = Dumping(self._ring, str(out), seconds)

    def _end(self, end: DumpEnd) -> None:
        if end.reason:
            self._notes.append(RecorderNote("lost", f"event ring not captured: {end.reason}"))
            return
        for pin in self._served[1:]:
            os.link(end.path, self._out(pin))
        names = ", ".join(self._out(pin).name for pin in self._served)
        words = f"event ring captured in {end.seconds:.1f} s: {names}"
        self._notes.append(RecorderNote("detail", words))

    def _look(self, now_s: float) -> None:
        """Note once that the ring is reduced or paused, and once that it has recovered: under load
        it is reduced again seconds after each attempt."""
        whole = self._state.mode == "on" and not self._ring.is_thin
        if not whole:
            self._whole_since = None
            if not self._reduced:
                self._reduced = True
                how = "reduced" if self._state.mode == "on" else "paused"
                words = f"event ring {how}: {self._state.reason}"
                self._notes.append(RecorderNote("shed", words))
        elif self._reduced:
            self._whole_since = now_s if self._whole_since is None else self._whole_since
            if now_s - self._whole_since >= _SETTLED_S:
                self._reduced = False
                self._notes.append(RecorderNote("restored", "event ring complete again"))

    def _out(self, pin: str) -> Path:
        return self._folder / f"{pin}.parquet"

    def cost(self) -> tuple[float, int]:
        return 0.0, 0  # its cost is in the kernel, estimated and bounded by the ring itself

    def rest(self) -> None:
        self._paused = True
        self._ring.pause("the recorder is over its budget")

    def wake(self) -> None:
        self._paused = False
        self._resume("back within budget")

    def close(self) -> None:
        if self._dumping is not None:
            self._dumping.close()
        self._ring.close()

    def status(self) -> dict[str, Any]:
        return {
            "mode": self._state.mode,
            "reason": self._state.reason,
            "events_per_s": self._state.events_per_s,
            "dumps": self._dumps,
        }

    def _resume(self, why: str) -> None:
        with contextlib.suppress(SourceError, OSError):
            self._ring.resume(why)
            self._state = self._ring.state(None)

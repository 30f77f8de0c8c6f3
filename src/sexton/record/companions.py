"""What lives beside the sampling loop: rolling stacks and their decoder, the event ring, shipping.

Each is created once the recording's lock is held, called once a second, and closed before the last
flush. If one is unavailable the recorder notes that and continues without it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sexton.errors import SourceError
from sexton.model.row import Row
from sexton.model.rows.recorder import RecorderNote
from sexton.model.rows.trace import RingState
from sexton.record.companion import Companion, Place
from sexton.record.decoding import Decoding
from sexton.record.ring_dump import Dumping
from sexton.record.ship import Shipper
from sexton.record.stacks import RollingStacks, Rotation, snapshot_kallsyms
from sexton.sources.tracefs.ring import EventRing
from sexton.store.pins import Pin

#: How often the ring's state is recorded. It is checked every second, since a packet flood makes
#: it expensive at once; on big machines less often, because a check reads a file per core.
_NOTE_S = 10.0
_CORES_A_SECOND = 16
_POLL_S = 5.0
#: One dump for alarms that come close together: the ring holds ten seconds.
_DUMP_AGAIN_S = 30.0
_MOST_PINNED = 50

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
        """Files of pinned minutes: retention decides about them, which knows pins."""
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
    """The last seconds event by event, dumped when an alarm is raised."""

    name = "tracefs.ring"
    outlasts = False
    may_hang = True

    def __init__(self, place: Place) -> None:
        self._place = place
        self._ring = EventRing(place.host)
        self._state: RingState = self._ring.arm()
        self._tended_s = self._noted_s = 0.0
        self._tend_s = max(1.0, (os.cpu_count() or 1) / _CORES_A_SECOND)
        self._dumping: Dumping | None = None
        self._dumped_s = -_DUMP_AGAIN_S
        self._dumps = 0
        self._paused = False
        self._notes: list[str] = []

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        rows: list[Row] = [RecorderNote("detail", words) for words in self._notes]
        self._notes = []
        if self._dumping is not None and (end := self._dumping.poll()) is not None:
            self._dumping = None
            words = (
                end.reason or f"event ring captured in {end.seconds:.1f} s: {Path(end.path).name}"
            )
            rows.append(RecorderNote("detail", words))
        if now_s - self._tended_s >= self._tend_s:
            self._tended_s = now_s
            before, self._state = self._state.mode, self._ring.tend()
            if self._state.mode != before or now_s - self._noted_s >= _NOTE_S:
                self._noted_s = now_s
                rows.append(self._state)
        elif alarm and self._state.mode == "paused" and not self._paused:
            self._resume("an alarm is on")
        return rows

    def alarmed(self, pin: Pin) -> None:
        now = time.monotonic()
        if self._dumping is not None or now - self._dumped_s < _DUMP_AGAIN_S or self._paused:
            return
        self._dumped_s = now
        if self._state.mode != "on":
            self._notes.append(f"event ring not captured (paused: {self._state.reason})")
            return
        self._dumps += 1
        out = self._place.directory / "rings" / f"{pin.id}.parquet"
        self._dumping = Dumping(self._ring, str(out))  # a failure is recorded by `Guarded`

    def cost(self) -> tuple[float, int]:
        return 0.0, 0  # its cost is in the kernel, estimated and bounded by the ring itself

    def rest(self) -> None:
        self._paused = True
        self._ring.pause("the recorder is over its budget")

    def wake(self) -> None:
        self._paused = False
        self._resume("back in the budget")

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

"""Retention: how far back a recording reaches, and how much disk space it may take.

Directories are deleted, oldest first: those older than `age_s`, and past `most_bytes` the oldest
ones. Pinned segments are kept until the pins alone take more than their share; then the oldest pin
is dropped, with a note. So the directory is always bounded: a flapping NIC cannot fill the disk
with pins.

Age is measured on the monotonic clock for segments of this boot, else on the wall clock. Files
beside the segments (stacks, rings) have wall times only: they are deleted when a segment of their
time would be, and a pin holds those written near its moment. Anything that is not a regular file or
directory of ours is neither followed nor deleted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sexton.errors import StoreError
from sexton.store.annex import LONGEST_RAW_S, Reach, annex_names, own_reach, reach_of
from sexton.store.layout import (
    SegmentName,
    read_manifest,
    remove,
    replaced_in,
    segments_in,
    sync_directory,
)
from sexton.store.pins import Pin, drop_pin, pins_in

#: Of all bytes, what pinned segments may take.
PINNED_SHARE = 0.5
#: Replaced segments stay this long for readers that have them open. A slower reader reads its rows
#: from the compacted segment (`Segment.table`).
GRACE_S = 300.0
_LOOSE = ("stacks", "rings", "symbols")
#: perf still writes to it: deleting it would free nothing.
_UNFINISHED = "perf.data"
_SYMBOLS = "kallsyms-"
#: Not a valid boot id: no pin holds a damaged segment.
_NO_BOOT = "\0"


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be kept."""

    age_s: float
    most_bytes: int


@dataclass(slots=True)
class _Kept:
    """One sealed segment. Of a damaged one only the directory's modification time is known."""

    path: Path
    sequence: int
    bytes: int
    own: Reach
    #: With the time of its annexes, which come later and change the directory (`changed_ns`).
    reach: Reach
    pins: list[Pin]
    changed_ns: int = 0


@dataclass(slots=True)
class _Loose:
    """A ring or perf file, dated by the wall clock."""

    path: Path
    moment_s: float
    bytes: int
    pinned: bool
    #: Counted but not deleted.
    in_use: bool


class Retention:
    """Deletes what is over the limits; remembers segments, so that each is read only once."""

    def __init__(self, directory: Path, limits: Limits) -> None:
        self.directory = directory
        self.limits = limits
        self._kept: dict[str, _Kept] = {}
        #: Replaced segments that still exist, and since when (monotonic seconds).
        self._replaced: dict[str, float] = {}

    @property
    def bytes(self) -> int:
        """Bytes of sealed segments, as last counted; read by the recorder's thread."""
        return sum(segment.bytes for segment in tuple(self._kept.values()))

    def tidy(self, now: tuple[float, float], boot_id: str, other_bytes: int = 0) -> list[str]:
        """Delete what is too old or too much; returns a line for each pin that was dropped.

        `now` is (monotonic, wall) seconds; `other_bytes` are bytes outside ``segments/``.
        """
        self._drop_replaced(now[0])
        pins = self._look()
        self._age_out(now, boot_id)
        given_up = self._bound_pins(pins, other_bytes, boot_id)
        left, _ = pins_in(self.directory)
        loose = self._loose(left, boot_id)
        self._age_out_loose(loose, now)
        self._bound(loose, other_bytes)
        for pin in left:
            if not self._is_of_use(pin, now, boot_id):
                drop_pin(self.directory, pin)
        return given_up

    def _order(self) -> list[_Kept]:
        return sorted(self._kept.values(), key=lambda segment: segment.sequence)

    def _age_out(self, now: tuple[float, float], boot_id: str) -> None:
        younger_s = float("inf")
        for segment in reversed(self._order()):
            age_s = _age(segment, now, boot_id)
            if segment.own.boot_id == _NO_BOOT:  # the wall may have jumped: not before the next one
                age_s = min(age_s, younger_s)
            younger_s = age_s
            if not segment.pins and age_s > self.limits.age_s:
                self._delete(segment)

    def _age_out_loose(self, loose: list[_Loose], now: tuple[float, float]) -> None:
        # By the monotonic clock these are young enough, and so is every file younger than they.
        kept = [
            segment.own.start[1]
            for segment in self._kept.values()
            if not segment.pins and segment.own.boot_id != _NO_BOOT
        ]
        oldest = min(kept, default=float("inf"))
        for file in list(loose):
            old = now[1] - file.moment_s > self.limits.age_s and file.moment_s < oldest
            if old and not file.pinned and not file.in_use:
                self._unlink(file, loose)

    def _bound(self, loose: list[_Loose], other_bytes: int) -> None:
        """Delete the oldest first; loose files before the segment of the same age."""
        waiting = [file for file in loose if not file.pinned and not file.in_use]
        for segment in [*self._order(), None]:
            until = float("inf") if segment is None else segment.own.end[1]
            while waiting and waiting[0].moment_s < until and self._over(loose, other_bytes):
                self._unlink(waiting.pop(0), loose)
            if not self._over(loose, other_bytes):
                return
            if segment is not None and not segment.pins:
                self._delete(segment)

    def _over(self, loose: list[_Loose], other_bytes: int) -> bool:
        beside = sum(file.bytes for file in loose)
        return self.bytes + other_bytes + beside > self.limits.most_bytes

    @staticmethod
    def _unlink(file: _Loose, loose: list[_Loose]) -> None:
        loose.remove(file)
        with contextlib.suppress(OSError):  # a read-only disk: tried again later
            file.path.unlink()

    def _is_of_use(self, pin: Pin, now: tuple[float, float], boot_id: str) -> bool:
        """Whether it holds a segment, or may hold one that is still being recorded."""
        if any(pin.holds(segment.reach) for segment in self._kept.values()):
            return True
        return pin.boot_id == boot_id and now[0] - pin.end_s <= self.limits.age_s

    def _drop_replaced(self, now_s: float) -> None:
        """Delete replaced segments after a grace period for readers."""
        there = replaced_in(self.directory / "segments")
        self._replaced = {name: self._replaced.get(name, now_s) for name in there}
        old = [name for name, since_s in self._replaced.items() if now_s - since_s >= GRACE_S]
        drop_replaced(self.directory / "segments", old)

    def drop_oldest(self) -> str:
        """Delete the oldest unpinned segment to make room; its name, or "" if there is none."""
        drop_replaced(self.directory / "segments")
        self._look()
        loose = [segment for segment in self._kept.values() if not segment.pins]
        oldest = min(loose, key=lambda file: file.sequence, default=None)
        if oldest is None:
            return ""
        self._delete(oldest)
        return oldest.path.name

    def _bound_pins(self, pins: list[Pin], other_bytes: int, boot_id: str) -> list[str]:
        given_up = []
        room = self.limits.most_bytes - other_bytes
        most = min(self.limits.most_bytes * PINNED_SHARE, max(room, 0))
        left = list(pins)
        for pin in pins:  # the oldest first
            beside = [file for file in self._loose(left, boot_id) if file.pinned]
            held = sum(segment.bytes for segment in self._kept.values() if segment.pins)
            if held + sum(file.bytes for file in beside) <= most:
                break
            left.remove(pin)
            holds = any(pin in segment.pins for segment in self._kept.values())
            if not holds and not any(_is_near(pin, file.moment_s) for file in beside):
                continue  # holds nothing yet: its minutes are still being recorded
            if not drop_pin(self.directory, pin):
                continue
            given_up.append(f"{pin.kind} {pin.about}: pinned minutes take more than their share")
            for segment in self._kept.values():
                segment.pins = [other for other in segment.pins if other.id != pin.id]
        return given_up

    def _look(self) -> list[Pin]:
        """Update the list of segments; returns every pin, oldest first."""
        place = self.directory / "segments"
        names = {segment.text: segment for segment in segments_in(place)}
        for gone in self._kept.keys() - names.keys():
            del self._kept[gone]
        for text in names.keys() - self._kept.keys():
            self._kept[text] = _kept(place / text, names[text])
        pins, _ = pins_in(self.directory)
        for segment in self._kept.values():
            if (changed_ns := _changed(segment.path)) != segment.changed_ns:
                segment.bytes, segment.changed_ns = size_of(segment.path), changed_ns
                segment.reach = reach_of(segment.path, segment.own)
            segment.pins = [pin for pin in pins if pin.holds(segment.reach)]
        return pins

    def _delete(self, kept: _Kept) -> None:
        remove(kept.path)
        self._kept.pop(kept.path.name, None)

    def _loose(self, pins: list[Pin], boot_id: str) -> list[_Loose]:
        """Files outside of segments, oldest first."""
        found = []
        for place in _LOOSE:
            try:
                entries = list(os.scandir(self.directory / place))
            except OSError:
                continue
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if not stat.S_ISREG(status.st_mode):
                    continue
                pinned = any(_is_near(pin, status.st_mtime) for pin in pins)
                symbols = entry.name.startswith(_SYMBOLS) and boot_id in entry.name
                # The symbol cache is bounded separately.
                in_use = entry.name == _UNFINISHED or symbols or place == "symbols"
                path, room = Path(entry.path), _room(status)
                found.append(_Loose(path, status.st_mtime, room, pinned and not in_use, in_use))
        return sorted(found, key=lambda file: (file.moment_s, file.path))


def drop_replaced(segments: Path, names: Iterable[str] | None = None) -> int:
    """Delete replaced segments, all or these; returns how many.

    An annex that was sealed into one of them after the merge is moved to its successor.
    """
    dropped = 0
    replaced = replaced_in(segments)
    for text in replaced if names is None else names:
        successor = replaced.get(text)
        if successor is None:
            continue
        for annex in annex_names(segments / text):
            if not os.path.lexists(segments / successor / annex):
                with contextlib.suppress(OSError):
                    (segments / text / annex).rename(segments / successor / annex)
                    sync_directory(segments / successor)
        remove(segments / text)
        dropped += not os.path.lexists(segments / text)
    return dropped


def _is_near(pin: Pin, moment_s: float) -> bool:
    """Whether a file closed at `moment_s` was written within the pin's span, by the wall clock."""
    reach_s = pin.end_s - pin.start_s
    return pin.wall_s - reach_s <= moment_s <= pin.wall_s + reach_s + LONGEST_RAW_S


def _kept(path: Path, name: SegmentName) -> _Kept:
    try:
        own = own_reach(read_manifest(path))
    except (StoreError, TypeError):  # `sexton recording verify` reports it; it ages like the others
        own = Reach(_NO_BOOT, (0.0, 0.0), (0.0, _changed(path) / 1e9))
    return _Kept(path, name.sequence, size_of(path), own, own, [])


def size_of(segment: Path) -> int:
    """Disk space of a segment and its annexes: a small file takes a whole block."""
    return sum(_size(place) for place in (segment, *(segment / n for n in annex_names(segment))))


def _size(place: Path) -> int:
    try:
        with os.scandir(place) as entries:
            return sum(_room(entry.stat(follow_symlinks=False)) for entry in entries)
    except OSError:
        return 0


def _changed(segment: Path) -> int:
    try:
        return segment.stat().st_mtime_ns
    except OSError:
        return 0


def _room(status: os.stat_result) -> int:
    return max(status.st_size, status.st_blocks * 512)


def _age(kept: _Kept, now: tuple[float, float], boot_id: str) -> float:
    if kept.own.boot_id == boot_id:
        return now[0] - kept.own.end[0]
    return now[1] - kept.own.end[1]

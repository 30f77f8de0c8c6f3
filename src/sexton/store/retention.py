"""How long a recording reaches back, and how much room it may take.

Retention is deleting directories, the oldest first: those older than `age_s`, and past `most_bytes`
whatever is oldest. Segments that a pin holds are spared until the pins alone take more than their
share; then the oldest pin gives way, and that is said. So the directory is bounded, whatever
happens: a flapping NIC cannot pin the disk full.

Age is counted on the recording's own clock where the segment is of this boot, else by the wall.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from sexton.errors import StoreError
from sexton.store.layout import ASIDE, SegmentName, segments_in
from sexton.store.pins import Pin, drop_pin, pins_in
from sexton.store.recording import Segment

#: Of all bytes, what pinned segments may take.
PINNED_SHARE = 0.5
_LOOSE = ("stacks", "rings")


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be kept."""

    age_s: float
    most_bytes: int


@dataclass(slots=True)
class _Kept:
    """One sealed segment. Of a damaged one only the directory's own time is known."""

    path: Path
    sequence: int
    bytes: int
    boot_id: str
    start: tuple[float, float]
    end: tuple[float, float]
    pins: list[Pin]


class Keeper:
    """Knows what lies in a recording without reading it anew each time."""

    def __init__(self, directory: Path, limits: Limits) -> None:
        self.directory = directory
        self.limits = limits
        self._kept: dict[str, _Kept] = {}

    @property
    def bytes(self) -> int:
        """Sealed segments, as last looked at."""
        return sum(each.bytes for each in self._kept.values())

    def tidy(self, now: tuple[float, float], boot_id: str, elsewhere: int = 0) -> list[str]:
        """Delete what is too old or too much; what was given up though pinned, in words.

        `now` is (monotonic, wall) seconds; `elsewhere` are bytes outside ``segments/`` that count.
        """
        pins = self._look()
        order = sorted(self._kept.values(), key=lambda each: each.sequence)
        for each in order:
            if not each.pins and _age(each, now, boot_id) > self.limits.age_s:
                self._delete(each)
        given_up = self._bound_pins(pins)
        loose = self._loose()
        for each in order:
            total = self.bytes + elsewhere + sum(size for _, _, size in loose)
            if total <= self.limits.most_bytes:
                break
            if loose and loose[0][0] < each.end[1]:
                loose.pop(0)[1].unlink(missing_ok=True)
            elif each.path.name in self._kept and not each.pins:
                self._delete(each)
        while loose and self.bytes + elsewhere + sum(s for *_, s in loose) > self.limits.most_bytes:
            loose.pop(0)[1].unlink(missing_ok=True)
        for moment, path, _ in loose:
            if now[1] - moment > self.limits.age_s:
                path.unlink(missing_ok=True)
        return given_up

    def drop_oldest(self) -> str:
        """Give up the oldest segment that nothing pins, to make room; its name, or nothing."""
        self._look()
        loose = [each for each in self._kept.values() if not each.pins]
        oldest = min(loose, key=lambda each: each.sequence, default=None)
        if oldest is None:
            return ""
        self._delete(oldest)
        return oldest.path.name

    def _bound_pins(self, pins: list[Pin]) -> list[str]:
        given_up = []
        most = self.limits.most_bytes * PINNED_SHARE
        for pin in pins:  # the oldest first
            held = sum(each.bytes for each in self._kept.values() if each.pins)
            if held <= most:
                break
            drop_pin(self.directory, pin)
            given_up.append(f"{pin.kind} {pin.about}: pinned minutes take more than their share")
            for each in self._kept.values():
                each.pins = [other for other in each.pins if other.id != pin.id]
        return given_up

    def _look(self) -> list[Pin]:
        """Take in segments that are new, forget those that are gone; every pin, oldest first."""
        place = self.directory / "segments"
        names = {each.text: each for each in segments_in(place)}
        for gone in self._kept.keys() - names.keys():
            del self._kept[gone]
        for text in names.keys() - self._kept.keys():
            self._kept[text] = _kept(place / text, names[text])
        pins, _ = pins_in(self.directory)
        for each in self._kept.values():
            each.pins = [pin for pin in pins if pin.holds(each)]
        return pins

    def _delete(self, kept: _Kept) -> None:
        path = kept.path
        aside = path.with_name(f"{ASIDE}{path.name}")
        try:
            path.rename(aside)  # so that no reader meets half a segment
        except OSError:
            aside = path
        shutil.rmtree(aside, ignore_errors=True)
        self._kept.pop(path.name, None)

    def _loose(self) -> list[tuple[float, Path, int]]:
        """Files that belong to no segment, oldest first: (UNIX time, path, bytes)."""
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
                found.append((status.st_mtime, Path(entry.path), status.st_size))
        return sorted(found)


def _kept(path: Path, name: SegmentName) -> _Kept:
    try:
        found = Segment(path, name, [])
        boot_id, start, end = found.boot_id, found.start, found.end
    except StoreError:  # `sexton recording verify` names it; it ages like the others
        boot_id, start = "", (0.0, 0.0)
        try:
            end = (0.0, path.stat().st_mtime)
        except OSError:
            end = start
    return _Kept(path, name.sequence, size_of(path), boot_id, start, end, [])


def size_of(directory: Path) -> int:
    """Bytes of the files right in a directory."""
    try:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(directory))
    except OSError:
        return 0


def _age(kept: _Kept, now: tuple[float, float], boot_id: str) -> float:
    if kept.boot_id == boot_id:
        return now[0] - kept.end[0]
    return now[1] - kept.end[1]

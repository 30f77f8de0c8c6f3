"""A recording that may grow while it is looked at.

Sealed segments never change, so they are opened once; the open one is read again as long as its
journal grows. What retention took away meanwhile is forgotten, and what was drawn of it stays.
"""

from __future__ import annotations

import os
from pathlib import Path

from sexton.errors import StoreError
from sexton.model.text import printable
from sexton.store.journal import JOURNAL, EmptySegment
from sexton.store.layout import current, is_locked, parse_name
from sexton.store.recording import Recording, Segment


class GrowingRecording:
    """`recording` is replaced when something changed; readers keep the one they have."""

    def __init__(self, path: Path) -> None:
        self.recording = Recording(path)
        self.live = is_locked(path)
        self._sizes: dict[str, int] = {}

    def refresh(self) -> bool:
        """Look again; has anything changed?"""
        path = self.recording.path
        known = {segment.name: segment for segment in self.recording.segments}
        self.live = is_locked(path)
        found: dict[str, Segment] = {}
        problems = list(self.recording.problems)
        if known and not path.is_dir():  # unmounted, or moved: what was drawn of it stays
            self._report(f"{printable(str(path))}: no longer exists")
            return False
        changed = False
        for place in ("open", "segments"):
            for name in _names(path / place):
                old = known.get(name)
                if old is not None and self._is_same(old, place):
                    found[name] = old
                    continue
                new = _opened(path / place / name, problems)
                if new is not None:
                    found[name] = new
                    changed = True
        if not changed and found.keys() == known.keys():
            return False
        retired = tuple(known.keys() - found.keys())
        made = Recording.__new__(Recording)
        made.path = path
        made.problems = problems = [
            problem for problem in problems if not problem.startswith(retired)
        ]
        made.segments = sorted(found.values(), key=lambda segment: segment.sequence)
        for segment in made.segments:
            segment.report_to(problems)
        self.recording = made
        return changed

    def _report(self, problem: str) -> None:
        if problem not in self.recording.problems:
            self.recording.problems.append(problem)

    def _is_same(self, segment: Segment, place: str) -> bool:
        if segment.sealed:
            return place == "segments"
        if place != "open":
            return False  # it was sealed
        try:
            size = os.stat(segment.path / JOURNAL).st_size
        except OSError:
            return True
        before = self._sizes.get(segment.name)
        self._sizes = {segment.name: size}
        return before == size


def _names(place: Path) -> list[str]:
    try:
        names = [parse_name(name) for name in os.listdir(place)]
    except OSError:
        return []
    return [name.text for name in current(filter(None, names))]


def _opened(path: Path, problems: list[str]) -> Segment | None:
    name = parse_name(path.name)
    if name is None or path.is_symlink() or not path.is_dir():
        return None
    lines: list[str] = []
    try:
        return Segment(path, name, lines)
    except EmptySegment:
        return None
    except StoreError as error:
        problem = printable(str(error))
        if os.path.lexists(path) and problem not in problems:  # else sealed or retired just now
            problems.append(problem)
        return None

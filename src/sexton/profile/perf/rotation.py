"""The files of ``perf record --switch-output``, as one set in time order.

The name of a rotated file contains the *local* time of its end: ``perf.data.2026111511473148`` for
15 November, 11:47:31.48. When a clock change repeats an hour, names are out of order, so files are
sorted by the time of their samples if that is known, else by name. Each file is complete: perf
repeats the maps and task names at the start of each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from sexton.errors import SourceError
from sexton.host.reader import failure
from sexton.profile.perf.header import MAGIC
from sexton.profile.perf.perfdata import read_features
from sexton.profile.perf.pieces import Capture, no_since, open_regular, read_piece
from sexton.profile.perf.walk import BadRecord, walker

_STAMP = re.compile(r"(.*)\.(\d{14,19})")
#: The first sample follows the task and map records: usually within the first of these sizes.
_GLANCES = (256 << 10, 8 << 20)


class RotatedSet(NamedTuple):
    """`name` is the output file given to perf, without the times it added."""

    name: str
    paths: tuple[str, ...]


def rotated(paths: Iterable[str | os.PathLike[str]]) -> RotatedSet:
    """The files of a set in time order."""
    found = [os.fspath(path) for path in paths]
    begun = {path: first_sample_ns(path) for path in found}
    if all(time is not None for time in begun.values()):
        found.sort(key=lambda path: (begun[path], _stamp(path)))
    else:
        found.sort(key=_stamp)
    stems = {_STAMP.sub(r"\1", path) for path in found}
    name = stems.pop() if len(stems) == 1 else os.path.dirname(min(stems))
    return RotatedSet(name or "perf.data", tuple(found))


def members(directory: str | os.PathLike[str]) -> list[str]:
    """The perf.data files of a directory, unsorted."""
    folder = os.fspath(directory)
    try:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.is_file()]
    except OSError as error:
        raise failure(folder, error) from None
    return [path for path in names if _begins_as_perf_data(path)]


def is_perf_directory(directory: str | os.PathLike[str]) -> bool:
    """Is this directory a single capture (``--threads``, ``--kcore``)?"""
    return _begins_as_perf_data(os.path.join(os.fspath(directory), "data"))


def first_sample_ns(path: str) -> int | None:
    """The time of the first sample, on the clock of the capture; `None` if not found quickly."""
    try:
        with Capture(path) as capture:
            features = read_features(capture)
            if features.span_ns is not None:
                return features.span_ns[0]
            if capture.head.pipe:
                return None
            for size in _GLANCES:
                first = _glance(capture, size)
                if first is not None:
                    return first
    except (SourceError, BadRecord):  # reported when the whole file is read
        return None
    return None


def _glance(capture: Capture, size: int) -> int | None:
    walk = walker([attr.layout() for attr in capture.head.attrs], no_since(), no_since())
    part = capture.parts[0]
    buffer = memoryview(bytearray(max(0, min(size, part.end - part.start))))
    walk.samples(read_piece(part, part.start, buffer))
    times = walk.finish().time_ns
    return int(times.min()) if len(times) else None


def _begins_as_perf_data(path: str) -> bool:
    try:
        descriptor = open_regular(path)
    except SourceError:
        return False
    try:
        return os.pread(descriptor, 8, 0) == MAGIC
    finally:
        os.close(descriptor)


def _stamp(path: str) -> tuple[str, str]:
    """Sort key: by stamp; the file without one is the last, still being written."""
    found = _STAMP.fullmatch(path)
    return (found[2].ljust(19, "0"), path) if found else ("9" * 20, path)

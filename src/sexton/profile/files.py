"""A file of samples as a piece of a timeline, decoded on first use; rotated files of perf.

The format is detected from the content, never from the name: perf.data, perf script text, folded
stacks and pprof, plain or gzipped. "-" is standard input; input from a pipe is copied to an
unlinked file first, because the format is detected before it is read.

``perf record --switch-output`` adds the *local* time of its end to the name of each file:
``perf.data.2026111511473148`` for 15 November, 11:47:31.48. When a clock change repeats an hour,
names are out of order, so files are sorted by the time of their samples if that is known, else by
name. Each file is complete: perf repeats the maps and task names at the start of each.

>>> sniff(b"swapper     0 [000] 16783.432569:   10309278 cpu-clock: \\n")
'script'
>>> sniff(b"java;start_thread;vfs_read 7\\n")
'folded'
>>> sniff(b"#!/bin/sh\\n") is None
True
"""

from __future__ import annotations

import os
import re
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sexton.errors import CommandError, SourceError, SourceMalformed
from sexton.host.reader import failure
from sexton.host.spool import STDIN, descriptor_of, room, spool, temporary_file, write_all
from sexton.model.profile import Clock, Event, Facts, Heat, Profile
from sexton.profile.decode import decode
from sexton.profile.heat import heat_of
from sexton.profile.idle import unnamed_idle
from sexton.profile.perf import folded, pprof, script_text
from sexton.profile.perf.header import MAGIC
from sexton.profile.perf.named_samples import NamedSamples, profile_of
from sexton.profile.perf.perfdata import is_perf_data, read_features, read_raw
from sexton.profile.perf.pieces import Capture, no_since, open_regular, read_piece
from sexton.profile.perf.raw import Raw
from sexton.profile.perf.stream import opening, pieces
from sexton.profile.perf.walk import BadRecord, walker
from sexton.profile.symbols.symbols import Symbols

KNOWN = "perf.data, perf script text, folded stacks or pprof"
#: Decoded files kept in memory: the next query is often for the neighbouring range.
MOST_DECODED = 2
#: Unnamed samples of the idle task are reported above this share of all samples.
_UNNAMED_SHARE = 0.01
#: What perf adds to the name of a rotated file.
_STAMP = re.compile(r"\.([0-9]{14,19})$")
#: The first sample follows the task and map records: usually within the first of these sizes.
_GLANCES = (256 << 10, 8 << 20)


class Summary(NamedTuple):
    """What is kept of a file after it was decoded."""

    start_ns: int
    end_ns: int
    timed: bool
    samples: int
    events: tuple[Event, ...]
    heat: Heat
    facts: Facts


class DecodedCache:
    """The most recently decoded files."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, Profile] = OrderedDict()

    def get(self, key: int) -> Profile | None:
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def make_room(self) -> None:
        """Drop the oldest before another file is decoded, so that the limit always holds."""
        while len(self._held) >= MOST_DECODED:
            self._held.popitem(last=False)

    def put(self, key: int, profile: Profile) -> None:
        self._held[key] = profile


class FilePiece:
    """A file, read on first use.

    `start_ns` and `end_ns` are the times of the first and last sample, 0 without timestamps.
    """

    def __init__(
        self,
        found: ProfileFile,
        symbols: Symbols,
        recent: DecodedCache,
        begun_ns: int | None = None,
    ) -> None:
        #: The approximate time of its first sample, if known without decoding the file.
        self.begun_ns = begun_ns
        self._found = found
        self._symbols = symbols
        self._recent = recent
        self._summary: Summary | None = None

    @property
    def start_ns(self) -> int:
        return self.summary.start_ns

    @property
    def end_ns(self) -> int:
        return self.summary.end_ns

    @property
    def clock(self) -> Clock:
        return self.summary.facts.clock

    @property
    def events(self) -> tuple[Event, ...]:
        return self.summary.events

    @property
    def samples(self) -> int:
        return self.summary.samples

    @property
    def facts(self) -> Facts:
        return self.summary.facts

    @property
    def decoded(self) -> bool:
        """Has it been decoded before?"""
        return self._summary is not None

    @property
    def summary(self) -> Summary:
        """What is known without decoding the file again."""
        if self._summary is None:
            self.profile()
        assert self._summary is not None
        return self._summary

    def heat(self) -> Heat:
        return self.summary.heat

    def profile(self, start_ns: int | None = None, end_ns: int | None = None) -> Profile:  # noqa: ARG002
        """The whole file: it cannot be read in part."""
        profile = self._recent.get(id(self))
        if profile is None:
            self._recent.make_room()
            profile = self._found.read(self._symbols)
            profile.facts.path = self._found.name
            self._recent.put(id(self), profile)
        if self._summary is None:
            self._summary = summary_of(profile)
        return profile


def summary_of(profile: Profile) -> Summary:
    """What is kept; missing kernel names are added to the problems."""
    samples = len(profile) if profile.weight is None else int(profile.weight.sum())
    unnamed = unnamed_idle(profile)
    if unnamed > _UNNAMED_SHARE * samples:
        profile.facts.problems.append(
            f"{unnamed:,} samples of the idle task have no kernel symbols: idle time and interrupt"
            " work look the same there (record as root, or use --kallsyms)"
        )
    span = profile.span_ns or (0, 0)
    heat = heat_of(profile)
    timed = profile.timed
    return Summary(*span, timed, samples, profile.events, heat, profile.facts)


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A file of known format. `held` keeps an unlinked file open."""

    path: str
    name: str
    format: str
    held: BinaryIO | None = None

    def read(self, symbols: Symbols) -> Profile:
        if self.format == PERF_DATA:
            profile = decode(self._raw(), symbols)
        else:
            with os.fdopen(open_regular(self.path), "rb") as stream:
                profile = profile_of(READERS[self.format](stream, self.name))
        if not len(profile):
            raise SourceMalformed(self.name, 0, "no samples")
        return profile

    def _raw(self) -> Raw:
        try:
            return read_raw(self.path)
        except SourceMalformed as error:  # with the name that the user knows
            raise SourceMalformed(self.name, 0, error.detail) from None


PERF_DATA = "perf.data"


def recognise(path: Path) -> ProfileFile:
    """Detect the format of a file; a one-line `SextonError` if it is unknown."""
    spool(str(path))
    if descriptor_of(str(path)) == 0:
        return _standard_input()
    if is_perf_directory(path):
        return ProfileFile(str(path), str(path), PERF_DATA)
    return _recognised(str(path), str(path), None)


def _recognised(path: str, name: str, held: BinaryIO | None) -> ProfileFile:
    with os.fdopen(open_regular(path), "rb") as stream:
        try:
            head = stream.read(HEAD)
        except OSError as error:
            raise failure(name, error) from None
    if not head:
        raise SourceMalformed(name, 0, "empty file")
    if is_perf_data(head):
        return ProfileFile(path, name, PERF_DATA, held)
    if is_perf_data(opening(head)):
        return _unpacked(path, name)
    found = sniff(head)
    if found is None:
        raise SourceMalformed(name, 0, f"unknown format; expected {KNOWN} (plain or gzipped)")
    return ProfileFile(path, name, found, held)


def _standard_input() -> ProfileFile:
    try:
        status = os.fstat(0)
    except OSError as error:
        raise failure(STDIN, error) from None
    if stat.S_ISREG(status.st_mode):
        return _recognised("/proc/self/fd/0", STDIN, None)
    if stat.S_ISDIR(status.st_mode):
        raise SourceMalformed(STDIN, 0, "is a directory")
    if os.isatty(0):
        raise CommandError("standard input is a terminal: pass a file or a pipe")
    raise SourceMalformed(STDIN, 0, "not a file or a pipe")


def _unpacked(path: str, name: str) -> ProfileFile:
    with os.fdopen(open_regular(path), "rb") as stream:
        return _spooled(name, pieces(stream, Facts(path=name)))


def _spooled(name: str, content: Iterable[bytes]) -> ProfileFile:
    """Copy the bytes to an unlinked file that lives as long as the result."""
    held = temporary_file()
    size, most = 0, room()
    try:
        for piece in content:
            size += len(piece)
            if size > most:
                raise SourceMalformed(name, 0, f"more than {most:,} bytes: not enough disk space")
            write_all(held.fileno(), piece)
    except OSError as error:
        raise failure(name, error) from None
    return _recognised(f"/proc/self/fd/{held.fileno()}", name, held)


#: How many bytes of a file `sniff` needs, gzipped or not.
HEAD = 1 << 16

#: The reader of each format that `sniff` returns: takes a stream and the name of the file.
READERS: dict[str, Callable[[BinaryIO, str], NamedSamples]] = {
    "script": script_text.read,
    "folded": folded.read,
    "pprof": pprof.read,
}


def sniff(head: bytes) -> str | None:
    """Detect "script", "folded" or "pprof" from the first `HEAD` bytes; `None`: none of them.

    `perf script --header` and some profilers start with long comments: samples are searched behind
    them as far as the head reaches, and comments alone are taken for perf script.
    """
    if is_perf_data(head):
        return None
    start = opening(head, HEAD)
    if script_text.looks_like(start):
        return "script"
    if folded.looks_like(start, whole=len(head) < HEAD):
        return "folded"
    if start.startswith(b"# ========\n"):
        return "script"
    return "pprof" if pprof.looks_like(start) else None


def rotated(paths: Iterable[str]) -> dict[str, int | None]:
    """Rotated files in time order, with the time of the first sample of each, if known."""
    begun = {path: first_sample_ns(path) for path in paths}
    known = all(time is not None for time in begun.values())
    return dict(sorted(begun.items(), key=lambda item: (item[1] if known else 0, *_stamp(item[0]))))


def without_stamp(path: str) -> str:
    """The name given to perf, without the time it added."""
    return _STAMP.sub("", path)


def _stamp(path: str) -> tuple[str, str]:
    """Sort key: by stamp; the file without one is the last, still being written."""
    found = _STAMP.search(path)
    return (found[1].ljust(19, "0"), path) if found else ("9" * 20, path)


def members(directory: Path) -> list[str]:
    """The perf.data files of a directory, unsorted."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.path for entry in entries if entry.is_file()]
    except OSError as error:
        raise failure(str(directory), error) from None
    return [path for path in names if _begins_as_perf_data(path)]


def is_perf_directory(directory: Path) -> bool:
    """Is this directory a single capture (``--threads``, ``--kcore``)?"""
    return _begins_as_perf_data(str(directory / "data"))


def first_sample_ns(path: str) -> int | None:
    """The time of the first sample, on the clock of the capture; `None` if not found quickly."""
    try:
        with Capture(path) as capture:
            features = read_features(capture)
            if features.span_ns is not None:
                return features.span_ns[0]
            if capture.head.pipe:
                return None
            found = (_glance(capture, size) for size in _GLANCES)
            return next((first for first in found if first is not None), None)
    except (SourceError, BadRecord):  # reported when the whole file is read
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
        with os.fdopen(open_regular(path), "rb") as stream:
            return stream.read(8) == MAGIC
    except SourceError:
        return False

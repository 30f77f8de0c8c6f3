"""A file of samples as a piece of a timeline: which format it is in, and its samples when asked.

The format is told by content, never by name: perf.data, perf script text, folded stacks and pprof,
each of them gzipped or not. "-" is standard input; what comes through a pipe is copied to an
unlinked file first, since it is looked at before it is read.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sexton.errors import CommandError, SourceMalformed
from sexton.host.reader import failure
from sexton.model.heat import Heat
from sexton.model.profile import Clock, Event, Facts, Profile
from sexton.profile.decode import decode
from sexton.profile.heat import heat_of
from sexton.profile.idle import unnamed_idle
from sexton.profile.named import profile_of
from sexton.profile.perf.perfdata import is_perf_data, read_raw
from sexton.profile.perf.pieces import open_regular, room, write_all
from sexton.profile.perf.raw import Raw
from sexton.profile.perf.rotation import is_perf_directory
from sexton.profile.perf.sniff import HEAD, READERS, sniff
from sexton.profile.perf.stream import opening, pieces
from sexton.profile.symbols.symbols import Symbols

KNOWN = "perf.data, perf script text, folded stacks, pprof"
STDIN = "standard input"
#: Decoded files that stay in memory: who looks at one range looks at its neighbour next.
MOST_DECODED = 2
#: From this share of all samples on, unnamed ones of the idle task are worth a word.
_UNNAMED_SHARE = 0.01
_SHELLS_PIPE = re.compile(r"/(?:dev|proc/self)/fd/[0-9]{1,9}", re.ASCII)


class Summary(NamedTuple):
    """What is remembered of a file once it was decoded."""

    start_ns: int
    end_ns: int
    timed: bool
    samples: int
    events: tuple[Event, ...]
    heat: Heat
    facts: Facts


class Recent:
    """The files decoded last; the older ones are let go."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, Profile] = OrderedDict()

    def get(self, key: int) -> Profile | None:
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def make_room(self) -> None:
        """Before one is decoded, so that there are never more than the most, not even then."""
        while len(self._held) >= MOST_DECODED:
            self._held.popitem(last=False)

    def put(self, key: int, profile: Profile) -> None:
        self._held[key] = profile


class FilePiece:
    """A file. Nothing of it is read until something is asked.

    `end_ns` is the last sample's time; both are 0 where the format tells none.
    """

    def __init__(
        self, found: Found, symbols: Symbols, recent: Recent, begun_ns: int | None = None
    ) -> None:
        #: About when its first sample was taken, where that was seen without decoding it.
        self.begun_ns = begun_ns
        self._found = found
        self._symbols = symbols
        self._recent = recent
        self._summary: Summary | None = None

    @property
    def name(self) -> str:
        return self._found.name

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
        """Is what it would tell known already?"""
        return self._summary is not None

    @property
    def summary(self) -> Summary:
        """What is told without decoding the file again."""
        if self._summary is None:
            self.profile()
        assert self._summary is not None
        return self._summary

    def heat(self) -> Heat:
        return self.summary.heat

    def profile(self, start_ns: int | None = None, end_ns: int | None = None) -> Profile:  # noqa: ARG002
        """All of it: a file cannot be read in part."""
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
    """What is remembered; a word on names that are missing goes to the problems."""
    samples = len(profile) if profile.weight is None else int(profile.weight.sum())
    unnamed = unnamed_idle(profile)
    if unnamed > _UNNAMED_SHARE * samples:
        profile.facts.problems.append(
            f"{unnamed:,} samples of the idle task have no kernel names: sleep cannot be told from"
            " work there (record as root, or give --kallsyms)"
        )
    span = profile.span_ns or (0, 0)
    heat = heat_of(profile)
    timed = profile.timed
    return Summary(*span, timed, samples, profile.events, heat, profile.facts)


@dataclass(frozen=True, slots=True)
class Found:
    """A file whose format is known. `held` is what keeps it alive where it has no name."""

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
            raise SourceMalformed(self.name, 0, "holds no samples")
        return profile

    def _raw(self) -> Raw:
        try:
            return read_raw(self.path)
        except SourceMalformed as error:  # of a file without a name it would tell a descriptor's
            raise SourceMalformed(self.name, 0, error.detail) from None


PERF_DATA = "perf.data"


def recognise(path: Path) -> Found:
    """Which format a file is in; `SextonError` in one line where it is none we know."""
    if str(path) in ("-", "/dev/stdin"):
        return _standard_input()
    if is_perf_directory(path):
        return Found(str(path), str(path), PERF_DATA)
    return _piped(str(path)) or _recognised(str(path), str(path), None)


def _piped(path: str) -> Found | None:
    """What a shell's ``<(…)`` gives; a pipe with a name of its own may never get a writer."""
    if _SHELLS_PIPE.fullmatch(path) is None:
        return None
    try:
        with open(path, "rb", buffering=0) as stream:
            if not stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
                return None
            return _spooled(path, iter(lambda: stream.read(1 << 20), b""))
    except OSError as error:
        raise failure(path, error) from None


def _recognised(path: str, name: str, held: BinaryIO | None) -> Found:
    with os.fdopen(open_regular(path), "rb") as stream:
        try:
            head = stream.read(HEAD)
        except OSError as error:
            raise failure(name, error) from None
    if not head:
        raise SourceMalformed(name, 0, "is empty")
    if is_perf_data(head):
        return Found(path, name, PERF_DATA, held)
    if is_perf_data(opening(head)):
        return _unpacked(path, name)
    found = sniff(head)
    if found is None:
        raise SourceMalformed(name, 0, f"is of no known format ({KNOWN}, each also gzipped)")
    return Found(path, name, found, held)


def _standard_input() -> Found:
    try:
        status = os.fstat(0)
    except OSError as error:
        raise failure(STDIN, error) from None
    if stat.S_ISREG(status.st_mode):
        return _recognised("/proc/self/fd/0", STDIN, None)
    if stat.S_ISDIR(status.st_mode):
        raise SourceMalformed(STDIN, 0, "is a directory")
    if os.isatty(0):
        raise CommandError("standard input is a terminal: give a file, or a pipe")
    return _spooled(STDIN, iter(lambda: os.read(0, 1 << 20), b""))


def _unpacked(path: str, name: str) -> Found:
    with os.fdopen(open_regular(path), "rb") as stream:
        return _spooled(name, pieces(stream, Facts(path=name)))


def _spooled(name: str, content: Iterable[bytes]) -> Found:
    """The same bytes in an unlinked file, which lives as long as what is returned."""
    try:
        held = tempfile.TemporaryFile(buffering=0, prefix="sexton-")  # noqa: SIM115 - held
    except OSError as error:
        raise failure(tempfile.gettempdir(), error) from None
    size, most = 0, room()
    try:
        for piece in content:
            size += len(piece)
            if size > most:
                raise SourceMalformed(name, 0, f"more than {most:,} bytes: no room to unpack it")
            write_all(held.fileno(), piece)
    except OSError as error:
        raise failure(name, error) from None
    return _recognised(f"/proc/self/fd/{held.fileno()}", name, held)

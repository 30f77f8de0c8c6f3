"""Open any capture: one file, a rotated set, or a recording, as one timeline.

A timeline consists of pieces. Each can give its heat without keeping its stacks, only queried
ranges are decoded, and at most two decoded files stay in memory: hours can be opened where only
minutes fit. The flame graph of many pieces is added up piece by piece.

A piece that cannot be read is skipped and named in `facts.problems`; if none can be read, that is
an error.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from sexton.errors import CommandError, SourceError, StoreError
from sexton.model.profile import NO_CLOCK, Clock, Event, Facts, Flame, Heat, Profile
from sexton.model.text import printable
from sexton.profile.files import (
    PERF_DATA,
    DecodedCache,
    FilePiece,
    is_perf_directory,
    members,
    recognise,
    rotated,
    without_stamp,
)
from sexton.profile.flame import FlameSum, flame_of
from sexton.profile.heat import add_heat, within
from sexton.profile.select import Selection
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols.symbols import Symbols

T = TypeVar("T")

#: The first sample of an undecoded file may be a little earlier than the one seen in its head.
_SLACK_NS = 2_000_000_000


class Piece(Protocol):
    """A part of a timeline. `end_ns` is the time of its last sample."""

    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def events(self) -> tuple[Event, ...]: ...
    @property
    def samples(self) -> int: ...
    def heat(self) -> Heat: ...
    def profile(self, start_ns: int | None = None, end_ns: int | None = None) -> Profile:
        """The samples; those outside the range may be included or not."""


class Opened:
    """Pieces as one timeline. Times are on the clock of the capture; ranges exclude their end."""

    def __init__(
        self, pieces: Sequence[Piece], facts: Facts | None = None, ordered: bool = False
    ) -> None:
        self._pieces: list[Piece] = list(pieces)
        self._ordered = ordered or len(self._pieces) < 2
        self._facts = facts
        self._problems: list[str] = []

    @property
    def pieces(self) -> list[Piece]:
        """In time order. A piece that turns out to be unreadable is removed."""
        if not self._ordered:
            starts = {
                id(piece): self._attempt(piece, lambda piece: piece.start_ns)
                for piece in list(self._pieces)
            }
            self._pieces.sort(key=lambda piece: starts[id(piece)] or 0)
            self._ordered = True
        return self._pieces

    @property
    def facts(self) -> Facts:
        """Facts about all pieces together."""
        facts = self._facts if self._facts is not None else self._summed_up()
        facts.problems += [problem for problem in self._problems if problem not in facts.problems]
        return facts

    def add_problem(self, problem: str) -> None:
        """Add a line to `facts.problems`."""
        if problem not in self._problems:
            self._problems.append(problem)

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """The times of the first and last sample; `None` without timestamps."""
        while self.pieces:
            # Only the first and last piece are read, unless pieces may overlap: the others of a
            # rotated set need not be decoded for this.
            in_turn = all(_begun(piece) is not None for piece in self.pieces)
            ends = [self.pieces[0], self.pieces[-1]] if in_turn else self.pieces
            spans = [
                self._attempt(end, lambda piece: (piece.start_ns, piece.end_ns)) for end in ends
            ]
            known = [span for span in spans if span is not None]
            if len(known) == len(spans):  # else one was removed: try its neighbour
                timed = [span for span in known if span != (0, 0)]
                return (min(timed)[0], max(end for _, end in timed)) if timed else None
        return None

    @property
    def events(self) -> tuple[Event, ...]:
        """Every sampled event."""
        found: dict[str, Event] = {}
        for piece in list(self.pieces):
            for event in self._attempt(piece, lambda part: part.events) or ():
                found.setdefault(event.name, event)
        return tuple(found.values())

    @property
    def samples(self) -> int:
        """The number of samples, idle ones included."""
        return sum(
            self._attempt(piece, lambda piece: piece.samples) or 0 for piece in list(self.pieces)
        )

    @property
    def hertz(self) -> int | None:
        """The sampling rate of a busy core; `None` if unknown or not the same for all events."""
        rates = [event.hertz for event in self.events]
        return rates[0] if len(rates) == 1 else None

    @property
    def clock(self) -> Clock:
        """The clock of the first piece; over hours use `wall_s`, because clocks drift and jump."""
        while self.pieces:
            clock = self._attempt(self.pieces[0], lambda piece: piece.clock)
            if clock is not None:
                return clock
        return NO_CLOCK

    def wall_s(self, time_ns: int) -> float | None:
        """UNIX time, by the clock of the piece that contains the time."""
        clock = self.clock
        for piece, reach in self._reaches():
            if reach[0] > time_ns:
                break
            if not _undecoded(piece):
                clock = piece.clock
        return clock.wall_s(time_ns)

    def time_ns(self, wall_s: float) -> int | None:
        """The time on the capture's clock at a UNIX time, by the clock of the nearest piece."""
        nearest: tuple[int, int] | None = None
        for piece, (start, end) in self._reaches():
            clock = self.clock if _undecoded(piece) else piece.clock
            moment = clock.time_ns(wall_s)
            if moment is None:
                continue
            away = max(start - moment, moment - end, 0)
            if nearest is None or away < nearest[0]:
                nearest = away, moment
        return None if nearest is None else nearest[1]

    def heats(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[Heat]:
        """Heat, piece by piece in time order."""
        for piece in self._touching(start_ns, end_ns):
            heat = self._attempt(piece, lambda part: part.heat())
            if heat is not None:
                yield within(heat, start_ns, end_ns)

    def heat(self, start_ns: int | None = None, end_ns: int | None = None) -> Heat:
        """The heat of the range as one."""
        return add_heat(self.heats(start_ns, end_ns))

    def profiles(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[Profile]:
        """The profiles that overlap the range; they may contain samples outside it."""
        for piece in self._touching(start_ns, end_ns):
            profile = self._attempt(piece, lambda part: part.profile(start_ns, end_ns))
            if profile is not None:
                yield profile
            del profile  # free it before the next one is decoded

    def flame(self, selection: Selection) -> Flame:
        """The flame graph of a selection, pruned."""
        total = FlameSum()
        for profile in self.profiles(selection.start_ns, selection.end_ns):
            total.add(flame_of(profile, selection))
            del profile
        return total.merged()

    def _touching(self, start_ns: int | None, end_ns: int | None) -> list[Piece]:
        if start_ns is None and end_ns is None:
            return list(self.pieces)
        found = []
        for piece, (first, last) in self._reaches():
            untimed = first == last == 0  # `select.window` reports that no range can be chosen
            later = end_ns is not None and first >= end_ns
            earlier = start_ns is not None and last < start_ns
            if untimed or not (later or earlier):
                found.append(piece)
        return found

    def _reaches(self) -> Iterator[tuple[Piece, tuple[int, int]]]:
        """The time range of each piece: its own, or up to the start of the next rotated file."""
        pieces: list[Piece | None] = [*self.pieces, None]
        for piece, following in itertools.pairwise(pieces):
            assert piece is not None
            begun, ends = _begun(piece), None if following is None else _begun(following)
            if _undecoded(piece) and begun is not None and ends is not None:
                yield piece, (begun - _SLACK_NS, ends + _SLACK_NS)
                continue
            span = self._attempt(piece, lambda part: (part.start_ns, part.end_ns))
            if span is not None:
                yield piece, span

    def _attempt(self, piece: Piece, query: Callable[[Piece], T]) -> T | None:
        """Query a piece; `None` if it cannot be read, and then it is removed."""
        try:
            return query(piece)
        except (StoreError, SourceError) as error:
            left = [part for part in self._pieces if part is not piece]
            if not left or len(left) == len(self._pieces):
                raise
            self._pieces = left
            self._problems.append(f"skipped: {printable(str(error))}")
            return None

    def _summed_up(self) -> Facts:
        every = [self._attempt(piece, facts_of) for piece in list(self.pieces)]
        known = [facts for facts in every if facts is not None]
        if len(known) == 1:
            return known[0]
        stems = dict.fromkeys(without_stamp(facts.path) for facts in known)
        whole = dataclasses.replace(known[0], path=", ".join(stems))
        for name in ("lost", "throttled"):
            numbers = [getattr(facts, name) for facts in known if getattr(facts, name) is not None]
            setattr(whole, name, sum(numbers) if numbers else None)
        whole.problems = [
            f"{os.path.basename(facts.path)}: {problem}"
            for facts in known
            for problem in facts.problems
        ]
        return whole


def open_profile(paths: Sequence[Path], options: SymbolOptions | None = None) -> Opened:
    """Open one file, several files of one timeline, the directory of a rotated set, a recording,
    or standard input ("-").

    Errors are one-line `SextonError`s. A single file is read at once, so that its errors are
    raised here.
    """
    if not paths:
        raise CommandError("no capture given")
    if len(paths) == 1 and _is_recording(paths[0]):
        return _recording(paths[0])
    files: list[Path] = []
    for path in paths:
        files += _files_of(path)
    symbols, recent = Symbols(options or SymbolOptions()), DecodedCache()
    if len(files) == 1:
        piece = FilePiece(recognise(files[0]), symbols, recent)
        piece.profile()
        return Opened([piece])
    found = [recognise(path) for path in files]
    if not all(file.format == PERF_DATA for file in found):
        return Opened([FilePiece(file, symbols, recent) for file in found])
    by_path = {file.path: file for file in found}
    turns = len(set(map(without_stamp, by_path))) == 1
    return Opened(
        [
            FilePiece(by_path[path], symbols, recent, begun_ns if turns else None)
            for path, begun_ns in rotated(by_path).items()
        ],
        ordered=turns,
    )


def facts_of(piece: Piece) -> Facts:
    """Facts about the capture of a piece."""
    return piece.facts if isinstance(piece, FilePiece) else Facts(clock=piece.clock)


def _undecoded(piece: Piece) -> bool:
    return isinstance(piece, FilePiece) and not piece.decoded


def _begun(piece: Piece) -> int | None:
    return piece.begun_ns if isinstance(piece, FilePiece) else piece.start_ns


def _is_recording(path: Path) -> bool:
    return (path / "segments").is_dir()


def _recording(path: Path) -> Opened:
    from sexton.profile.recorded import pieces_of_recording

    facts = Facts()
    pieces = pieces_of_recording(path, facts)
    if not pieces:
        raise StoreError(f"{printable(str(path))}: no stacks in this recording")
    return Opened(pieces, facts, ordered=True)


def _files_of(path: Path) -> list[Path]:
    if str(path) == "-" or not path.is_dir():
        return [path]
    if _is_recording(path):
        raise CommandError(
            f"{printable(str(path))}: a recording cannot be combined with other files"
        )
    if is_perf_directory(path):
        return [path]
    found = [Path(member) for member in members(path) if not member.endswith(".old")]
    if not found:
        raise CommandError(f"{printable(str(path))}: not a recording, and no perf.data in it")
    return found

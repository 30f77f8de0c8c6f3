"""Any capture, opened: one file, a rotated set, or a recording, as one timeline.

A timeline is made of pieces, each of which can tell its heat without its stacks being kept. Only
what is looked at is decoded, and of files at most two stay in memory: so hours can be opened where
minutes fit. The flame graph of many pieces is joined piece by piece.

A piece that cannot be read is left out and named in `facts.problems`; when none can, that is the
error.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from sexton.errors import CommandError, SourceError, StoreError
from sexton.model.flame import Flame
from sexton.model.heat import Heat
from sexton.model.profile import NO_CLOCK, Clock, Event, Facts, Profile
from sexton.model.text import printable
from sexton.profile.files import PERF_DATA, FilePiece, Recent, recognise
from sexton.profile.flame import Gathering, flame_of
from sexton.profile.heat import add_heat, within
from sexton.profile.perf.rotation import first_sample_ns, is_perf_directory, members, rotated
from sexton.profile.select import Selection
from sexton.profile.symbols.options import SymbolOptions
from sexton.profile.symbols.symbols import Symbols

T = TypeVar("T")

#: What perf adds to the name of a rotated file.
_STAMP = re.compile(r"\.[0-9]{14,19}$", re.ASCII)
#: Where a file was only glanced at, its first sample may be a little earlier than what was seen.
_SLACK_NS = 2_000_000_000


class Piece(Protocol):
    """A part of a timeline. `end_ns` is its last sample's time."""

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
        """The samples; where a range is given, those outside may be left out or not."""


class Opened:
    """Pieces as one timeline. Times are the capture's own clock, ranges exclude their end."""

    def __init__(
        self, pieces: Sequence[Piece], facts: Facts | None = None, ordered: bool = False
    ) -> None:
        self._pieces: list[Piece] = list(pieces)
        self._ordered = ordered or len(self._pieces) < 2
        self._told = facts
        self._problems: list[str] = []

    @property
    def pieces(self) -> list[Piece]:
        """In the order of time. Those that cannot be read vanish from here when that is found."""
        if not self._ordered:
            starts = {
                id(piece): self._asked(piece, lambda each: each.start_ns)
                for piece in list(self._pieces)
            }
            self._pieces.sort(key=lambda piece: starts[id(piece)] or 0)
            self._ordered = True
        return self._pieces

    @property
    def facts(self) -> Facts:
        """What is known of all pieces together."""
        facts = self._told if self._told is not None else self._summed_up()
        facts.problems += [each for each in self._problems if each not in facts.problems]
        return facts

    def tell(self, problem: str) -> None:
        """Something whoever looks at it should know."""
        if problem not in self._problems:
            self._problems.append(problem)

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """The first and the last sample's time; `None` where no piece tells times."""
        while self.pieces:
            # Only the first and the last are asked, unless they may overlap: in a rotated set of
            # hours the others need not be decoded for this.
            asked = self.pieces if not self._in_turn() else [self.pieces[0], self.pieces[-1]]
            spans = [
                self._asked(each, lambda piece: (piece.start_ns, piece.end_ns)) for each in asked
            ]
            known = [span for span in spans if span is not None]
            if len(known) == len(spans):  # otherwise one was left out, and its neighbour counts
                timed = [span for span in known if span != (0, 0)]
                return (min(timed)[0], max(end for _, end in timed)) if timed else None
        return None

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event that was counted, once."""
        found: dict[str, Event] = {}
        for piece in list(self.pieces):
            for event in self._asked(piece, lambda each: each.events) or ():
                found.setdefault(event.name, event)
        return tuple(found.values())

    @property
    def samples(self) -> int:
        """How many there are, idle ones too."""
        return sum(
            self._asked(piece, lambda each: each.samples) or 0 for piece in list(self.pieces)
        )

    @property
    def hertz(self) -> int | None:
        """How often a busy core was sampled; `None` where that is not told or not one number."""
        told = [event.hertz for event in self.events]
        return told[0] if len(told) == 1 else None

    @property
    def clock(self) -> Clock:
        """The first piece's clock; over hours `wall_s` is better, clocks drift and jump."""
        while self.pieces:
            clock = self._asked(self.pieces[0], lambda each: each.clock)
            if clock is not None:
                return clock
        return NO_CLOCK

    def wall_s(self, time_ns: int) -> float | None:
        """UNIX time, by the clock of the piece that holds the moment."""
        clock = self.clock
        for piece, reach in self._reaches():
            if reach[0] > time_ns:
                break
            if not _undecoded(piece):
                clock = piece.clock
        return clock.wall_s(time_ns)

    def time_ns(self, wall_s: float) -> int | None:
        """The capture's time at a UNIX time, by the clock of the piece that is nearest to it."""
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
        """Heat, piece by piece in the order of time: what `heatmap` draws without holding all."""
        for piece in self._touching(start_ns, end_ns):
            heat = self._asked(piece, lambda each: each.heat())
            if heat is not None:
                yield within(heat, start_ns, end_ns)

    def heat(self, start_ns: int | None = None, end_ns: int | None = None) -> Heat:
        """All of it as one."""
        return add_heat(self.heats(start_ns, end_ns))

    def profiles(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[Profile]:
        """The profiles that touch the range; samples outside of it may be in them."""
        for piece in self._touching(start_ns, end_ns):
            profile = self._asked(piece, lambda each: each.profile(start_ns, end_ns))
            if profile is not None:
                yield profile
            del profile  # not held while the next one is decoded

    def flame(self, selection: Selection) -> Flame:
        """One flame graph of the choice, without what nobody was in."""
        gathering = Gathering()
        for profile in self.profiles(selection.start_ns, selection.end_ns):
            gathering.add(flame_of(profile, selection))
            del profile
        return gathering.whole()

    def _touching(self, start_ns: int | None, end_ns: int | None) -> list[Piece]:
        if start_ns is None and end_ns is None:
            return list(self.pieces)
        found = []
        for piece, (first, last) in self._reaches():
            untimed = first == last == 0  # who chooses a range of what has no times is told so
            later = end_ns is not None and first >= end_ns
            earlier = start_ns is not None and last < start_ns
            if untimed or not (later or earlier):
                found.append(piece)
        return found

    def _reaches(self) -> Iterator[tuple[Piece, tuple[int, int]]]:
        """The times each piece may hold: its own, or by where the next of a rotated set begins."""
        pieces: list[Piece | None] = [*self.pieces, None]
        for piece, following in itertools.pairwise(pieces):
            assert piece is not None
            begun, ends = _begun(piece), None if following is None else _begun(following)
            if _undecoded(piece) and begun is not None and ends is not None:
                yield piece, (begun - _SLACK_NS, ends + _SLACK_NS)
                continue
            span = self._asked(piece, lambda each: (each.start_ns, each.end_ns))
            if span is not None:
                yield piece, span

    def _in_turn(self) -> bool:
        return all(_begun(piece) is not None for piece in self.pieces)

    def _asked(self, piece: Piece, question: Callable[[Piece], T]) -> T | None:
        """The answer; `None` of a piece that cannot be read, which is left out from then on."""
        try:
            return question(piece)
        except (StoreError, SourceError) as error:
            left = [each for each in self._pieces if each is not piece]
            if not left or len(left) == len(self._pieces):
                raise
            self._pieces = left
            self._problems.append(f"left out: {printable(str(error))}")
            return None

    def _summed_up(self) -> Facts:
        told = [self._asked(piece, facts_of) for piece in list(self.pieces)]
        known = [facts for facts in told if facts is not None]
        if len(known) == 1:
            return known[0]
        stems = dict.fromkeys(_STAMP.sub("", facts.path) for facts in known)
        whole = dataclasses.replace(known[0], path=", ".join(stems))
        for name in ("lost", "throttled"):
            numbers = [getattr(facts, name) for facts in known if getattr(facts, name) is not None]
            setattr(whole, name, sum(numbers) if numbers else None)
        whole.problems = [
            f"{os.path.basename(facts.path)}: {each}" for facts in known for each in facts.problems
        ]
        return whole


def open_profile(paths: Sequence[Path], options: SymbolOptions | None = None) -> Opened:
    """Whatever was captured there: one file, several of one timeline, a rotated set's directory,
    a recording's, or standard input ("-").

    Errors are `SextonError`s of one line. A single file is read at once, so that what is wrong
    with it is told here.
    """
    if not paths:
        raise CommandError("no capture given")
    if len(paths) == 1 and _is_recording(paths[0]):
        return _recording(paths[0])
    files: list[Path] = []
    for path in paths:
        files += _files_of(path)
    symbols, recent = Symbols(options or SymbolOptions()), Recent()
    if len(files) == 1:
        piece = FilePiece(recognise(files[0]), symbols, recent)
        piece.profile()
        return Opened([piece])
    found = [recognise(path) for path in files]
    if not all(each.format == PERF_DATA for each in found):
        return Opened([FilePiece(each, symbols, recent) for each in found])
    by_path = {each.path: each for each in found}
    ordered = rotated(by_path)
    turns = len({_STAMP.sub("", path) for path in ordered.paths}) == 1
    return Opened(
        [
            FilePiece(by_path[path], symbols, recent, first_sample_ns(path) if turns else None)
            for path in ordered.paths
        ],
        ordered=turns,
    )


def facts_of(piece: Piece) -> Facts:
    """What a piece knows of its capture."""
    return piece.facts if isinstance(piece, FilePiece) else Facts(clock=piece.clock)


def _undecoded(piece: Piece) -> bool:
    return isinstance(piece, FilePiece) and not piece.decoded


def _begun(piece: Piece) -> int | None:
    return piece.begun_ns if isinstance(piece, FilePiece) else piece.start_ns


def _is_recording(path: Path) -> bool:
    return (path / "segments").is_dir()


def _recording(path: Path) -> Opened:
    from sexton.profile.waiting import pieces_of_recording

    facts = Facts()
    pieces = pieces_of_recording(path, facts)
    if not pieces:
        raise StoreError(f"{printable(str(path))}: this recording holds no stacks")
    return Opened(pieces, facts, ordered=True)


def _files_of(path: Path) -> list[Path]:
    if str(path) == "-" or not path.is_dir():
        return [path]
    if _is_recording(path):
        raise CommandError(f"{printable(str(path))}: a recording is opened alone")
    if is_perf_directory(path):
        return [path]
    found = [Path(each) for each in members(path) if not each.endswith(".old")]
    if not found:
        raise CommandError(
            f"{printable(str(path))}: a directory that is neither a recording nor holds any"
            " perf.data"
        )
    return found

"""A recording for readers: its segments in order, and what had to be skipped.

Nothing in the directory is trusted by its name. A segment whose manifest or journal cannot be read
is left out, a file that differs from what was sealed is left out of its segment, and each is listed
once in `problems`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sexton.errors import NotRead, StoreError
from sexton.model.row import Row, table
from sexton.model.settings import Settings, settings_from
from sexton.model.text import printable
from sexton.model.window import GAP_S, Batch, SourceState, longest_step
from sexton.store.annex import Annex, Reach, annex_names, annexes_of, own_reach, reach_of
from sexton.store.arrays import coded as codes_of
from sexton.store.arrays import numbers
from sexton.store.journal import JOURNAL, READING, EmptySegment, Recovered, recover
from sexton.store.layout import (
    ASIDE,
    MANIFEST,
    SegmentName,
    check_manifest,
    current,
    is_locked,
    parse_name,
    read_manifest,
    require_recording,
    segments_in,
)
from sexton.store.schema import (
    MONO,
    READINGS,
    WALL,
    grouped,
    rows_of,
    schema_of,
    tables,
    texts_of,
    with_unlisted,
)
from sexton.store.sealed import OpenFiles, TableFile, read_table, spans_of
from sexton.store.signing import Signed

#: A recorder changes the list of segments every few minutes; opening them all takes less.
_MOST_LOOKS = 5
#: Clocks are slewed by less than this between two readings; more is a jump.
JUMP_S = 1.0
#: (monotonic, UNIX) seconds.
Moment = tuple[float, float]
#: More are not useful, and each new one is compared with all.
_MOST_PROBLEMS = 1000


class Segment:
    """Some minutes of a node, or a compacted hour. `start` and `end` are (monotonic, UNIX) seconds
    of its first and last readings; `sequence` and `last_sequence` number the segments in it."""

    #: A subclass reads only these tables of a segment that is still open; `NotRead` for others.
    only: ClassVar[Collection[str] | None] = None

    def __init__(
        self,
        path: Path,
        name: SegmentName,
        problems: list[str],
        files: OpenFiles | None = None,
        before: Segment | None = None,
    ) -> None:
        """`before` is the same segment as it was read earlier: only what is new in it is read."""
        self.path = path
        self._files = files or OpenFiles()
        self.name = name.text
        self.sequence = name.sequence
        self.last_sequence = name.last
        self._problems = problems
        self._recovered: Recovered | None = None
        self._readings: pa.Table | None = None
        self._stretches: list[tuple[Moment, Moment]] | None = None
        self.sealed = os.path.lexists(path / MANIFEST) or not os.path.lexists(path / JOURNAL)
        if self.sealed:
            self.manifest = read_manifest(path)
        else:
            earlier = before._recovered if before is not None else None
            self._recovered = recover(path, earlier, self.only)
            for problem in self._recovered.problems:
                self.report(problem)
            if not (self._recovered.torn and _being_written(path)):
                self.report(self._recovered.cut)
            self.manifest = self._as_manifest(self._recovered)
            try:
                check_manifest(self.manifest)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise StoreError(f"{self.name}: its journal's header is not valid") from None
        for unknown in self.manifest["tables"].keys() - {READING, *tables()}:
            self.report(f"{unknown}: a table this version does not know, skipped")
        if self.manifest.get("start") is None:
            damaged = self.sealed or problems
            raise (StoreError if damaged else EmptySegment)(f"{self.name}: holds no reading")
        own = own_reach(self.manifest)
        self.start, self.end, self.boot_id = own.start, own.end, own.boot_id

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readings": None}  # another process reads its own

    def has(self, kind: type[Row]) -> bool:
        """Whether this row type was read, with or without rows."""
        return "batches" in self.manifest["tables"].get(table(kind), {})

    def rows(self, kind: type[Row]) -> int:
        """The number of rows of this type."""
        return int(self.manifest["tables"].get(table(kind), {}).get("rows", 0))

    @property
    def bytes(self) -> int:
        """Its size on disk, annexes included."""
        places = [self.path, *(self.path / name for name in annex_names(self.path))]
        return sum(map(_bytes_in, places))

    @property
    def reach(self) -> Reach:
        """Its time with that of its annexes."""
        return reach_of(self.path, self)

    @property
    def annexes(self) -> list[Annex]:
        """What was sealed into it later; listed again at each call."""
        problems: list[str] = []
        found = annexes_of(self.path, problems) if self.sealed else []
        for problem in problems:
            self.report(problem)
        return found

    @property
    def states(self) -> tuple[SourceState, ...]:
        """The state of every source at its last flush."""
        return states_from(self.manifest.get("states", ()))

    @property
    def covered(self) -> tuple[int, Mapping[str, int]] | None:
        """How far an open segment was read, for `journal.flushes_since`; `None` if it is sealed or
        anything in it is damaged."""
        found = self._recovered
        if found is None or found.problems or (found.cut and not found.torn):
            return None
        return found.length, found.ends

    @property
    def providers(self) -> dict[type[Row], str]:
        """Which source provides which row."""
        kinds = tables()
        providers = self.manifest.get("providers", {})
        return {kinds[name]: str(source) for name, source in providers.items() if name in kinds}

    @property
    def settings(self) -> Settings | None:
        """The configuration of its recorder; `None` if an older version did not store it."""
        return settings_from(self.manifest["config"]) if "config" in self.manifest else None

    def table(
        self, kind: type[Row], columns: Sequence[str] | None = None, coded: Sequence[str] = ()
    ) -> pa.Table | None:
        """One table as stored; `None` if it is missing or damaged. Text columns in `coded` may stay
        dictionary codes."""
        return self._table(table(kind), columns, texts_of(kind) if coded else ())

    def file(self, kind: type[Row]) -> TableFile | None:
        """A sealed table's file, with text as codes; returns and raises as `sealed.open_table`."""
        return self._files.open(self.path, table(kind), self.manifest, texts_of(kind))

    def opens(self, kind: type[Row]) -> bool:
        """Whether a table's file exists and is the one that was sealed; true if it has no rows."""
        if not self.rows(kind):
            return True
        if self._recovered is not None:
            return self._is_left_out(table(kind)) or table(kind) in self._recovered.tables
        try:
            return self.file(kind) is not None
        except StoreError as error:
            if not os.path.lexists(self.path):  # compacted meanwhile: readers use its successor
                return True
            self.report(str(error))
            return False

    def readings(self, coded: Sequence[str] = ()) -> pa.Table | None:
        """Every reading of every table, empty ones included (see `schema.READINGS`)."""
        if not coded or self._recovered is not None:
            return self._table(READING, None, coded)
        if self._readings is None:
            self._readings = self._table(READING, None, coded)
        return self._readings

    def stretches(self) -> list[tuple[Moment, Moment]]:
        """Its time from first to last reading, split at gaps and jumps of the wall clock."""
        if self._stretches is None:
            self._stretches = self._parts()
        return self._stretches

    def _parts(self) -> list[tuple[Moment, Moment]]:
        """Found in the readings of all tables together: the recorder was stopped, or the machine
        slept."""
        jumped = abs(_ahead(self.end) - _ahead(self.start)) > JUMP_S
        found = self._table(READING, (MONO,) if not jumped else (MONO, WALL))
        if found is None or not found.num_rows:
            return [(self.start, self.end)]
        # Tables are listed one after the other: an entry that comes late can only fill a gap.
        reached = np.maximum.accumulate(numbers(found.column(MONO)))
        if not jumped and np.diff(reached).max(initial=0.0) <= GAP_S:
            return [(self.start, self.end)]
        found = found if jumped else self._table(READING, (MONO, WALL))
        if found is None:
            return [(self.start, self.end)]
        mono, first = np.unique(numbers(found.column(MONO)), return_index=True)
        wall = numbers(found.column(WALL))[first]
        long = np.diff(mono) > longest_step(mono)
        places = np.flatnonzero(long | (np.abs(np.diff(wall - mono)) > JUMP_S)).tolist()
        moments = list(zip(mono.tolist(), wall.tolist(), strict=True))
        starts = [self.start, *(moments[place + 1] for place in places)]
        ends = [*(moments[place] for place in places), self.end]
        return list(zip(starts, ends, strict=True))

    def batches(self, kind: type[Row]) -> list[Batch[Any]]:
        """Every reading of one row type, oldest first, each in its own order.

        A reading whose rows cannot be read is left out, because it was not empty. Readings of the
        same moment become one: their rows cannot be told apart.
        """
        if not self.has(kind):
            return []
        found = self._table(table(kind), None, texts_of(kind)) if self.rows(kind) else None
        if found is not None:
            for extra in set(found.column_names) - set(schema_of(kind).names):
                self.report(f"{table(kind)}.{extra}: a column this version does not know, skipped")
        readings = self.readings(coded=("table",))
        if readings is None:  # damaged: the rows still show every reading that had some
            known = {} if found is None else {table(kind): found}
            readings = with_unlisted(READINGS.empty_table(), known)
        codes, words = codes_of(readings.column("table"))
        listed = codes == (words.index(table(kind)) if table(kind) in words else -2)
        places, fields = ({}, []) if found is None else grouped(kind, found)
        rows = rows_of(kind, fields)
        columns = (numbers(readings.column(name))[listed] for name in (MONO, WALL, "rows"))
        times = zip(*(column.tolist() for column in columns), strict=True)
        moments = {mono: (wall, number) for mono, wall, number in sorted(times)}
        return [
            Batch(mono, wall, tuple(rows[slice(*places.get(mono, (0, 0)))]))
            for mono, (wall, number) in moments.items()
            if mono in places or not number
        ]

    def _table(
        self, name: str, columns: Sequence[str] | None, coded: Sequence[str] = ()
    ) -> pa.Table | None:
        if self._recovered is not None:
            if self._is_left_out(name):
                raise NotRead(f"{self.name}: {name} was left out")
            found = self._recovered.tables.get(name)
            return None if found is None else _select(found, columns)
        try:
            source = self._files.open(self.path, name, self.manifest, coded)
            return None if source is None else source.read(columns)
        except StoreError as error:
            if not os.path.lexists(self.path) and name in self.manifest["tables"]:
                return self._from_successor(name, columns, coded)
            self.report(str(error))
            return None

    def _is_left_out(self, name: str) -> bool:
        return self.only is not None and name not in self.only and name in self.manifest["tables"]

    def _from_successor(
        self, name: str, columns: Sequence[str] | None, coded: Sequence[str]
    ) -> pa.Table | None:
        """This segment's rows of a table, after it was compacted while a reader had it open."""
        own = SegmentName(self.sequence, self.name, self.last_sequence)
        for other in segments_in(self.path.parent):
            if other.replaces(own):
                break
        else:  # deleted by retention
            self.report(f"{self.name}: deleted while it was being read")
            return None
        wanted = None if columns is None else [*dict.fromkeys((MONO, *columns))]
        try:
            successor = self.path.parent / other.text
            found = read_table(successor, name, read_manifest(successor), wanted, coded)
        except StoreError as error:
            self.report(str(error))
            return None
        if found is None:
            return None
        mono = found.column(MONO).to_numpy()
        if name == READING:
            first, last = self.start[0], self.end[0]
        else:
            span = self.manifest["tables"][name]
            first, last = span["first"][0], span["last"][0]
        return _select(found.filter(pa.array((mono >= first) & (mono <= last))), columns)

    def report_to(self, problems: list[str]) -> None:
        """Collect further problems in this list."""
        self._problems = problems

    def report(self, problem: str) -> None:
        """Add a problem, once."""
        shown = printable(problem)
        if shown and len(self._problems) < _MOST_PROBLEMS and shown not in self._problems:
            self._problems.append(shown)

    def _as_manifest(self, found: Recovered) -> dict[str, Any]:
        readings = found.tables.get(READING)
        spans = {} if readings is None else spans_of(readings)
        described: dict[str, Any] = {name: dict(span) for name, span in spans.items()}
        if readings is not None and self.only is not None:  # how many rows the others have
            codes, names = codes_of(readings.column("table"))
            rows = np.bincount(codes, numbers(readings.column("rows")), len(names))
            for name, number in zip(names, rows.tolist(), strict=True):
                described[name]["rows"] = int(number)
        for name, content in found.tables.items():
            described.setdefault(name, {})["rows"] = content.num_rows
        every = list(spans.values())
        return {
            **found.header,
            "start": min((part["first"] for part in every), default=None),
            "end": max((part["last"] for part in every), default=None),
            "tables": described,
            "states": found.states,
        }


class Recording:
    """A directory written by `sexton record`, perhaps still being written."""

    def __init__(
        self, path: Path, kind: type[Segment] = Segment, signed: Signed | None = None
    ) -> None:
        """With `signed`, only the segments in it are read; the others are listed in `problems`."""
        self.path = path
        self.problems: list[str] = []
        self.segments: list[Segment] = []
        self._kind = kind
        self._signed = signed
        self._files = OpenFiles()
        self._changed = False
        require_recording(path)
        for _ in range(_MOST_LOOKS):
            self.problems.clear()
            found: dict[str, Segment] = {}
            for place in ("open", "segments"):  # if it was just sealed, the sealed one wins
                for segment in self._in(place):
                    found[segment.name] = segment
            if not self._changed:
                break
        self.segments = sorted(found.values(), key=lambda segment: segment.sequence)
        if signed is not None:
            self.problems += signed.left_out[:_MOST_PROBLEMS]

    def _in(self, place: str) -> Iterator[Segment]:
        self._changed = False
        if self._signed is not None and place == "open":
            return
        try:
            entries = sorted(os.scandir(self.path / place), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self.path / place}: {error.strerror}") from None
        names: list[SegmentName] = []
        for entry in entries:
            name = parse_name(entry.name)
            if name is not None and entry.is_dir(follow_symlinks=False):
                names.append(name)
            elif len(self.problems) < _MOST_PROBLEMS and not entry.name.startswith(ASIDE):
                # A temporary name is being written, or was left by a killed recorder.
                self.problems.append(printable(f"{place}/{entry.name}: not a segment, skipped"))
        for name in current(names):
            path = self.path / place / name.text
            if self._signed is not None and name.text not in self._signed.segments:
                continue
            problems: list[str] = []
            try:
                segment = self._kind(path, name, problems, self._files)
            except EmptySegment:
                continue
            except StoreError as error:
                segment = None
                problems.append(printable(str(error)))
            if not os.path.lexists(path):
                self._changed = True  # sealed, compacted or deleted meanwhile
                continue
            room = _MOST_PROBLEMS - len(self.problems)
            fresh = [problem for problem in problems[:room] if problem not in self.problems]
            self.problems += fresh
            if segment is not None:
                segment.report_to(self.problems)
                yield segment


def states_from(listed: Iterable[Sequence[Any]]) -> tuple[SourceState, ...]:
    """States of sources as a journal or a manifest lists them."""
    return tuple(
        SourceState(name, path, state, detail, grant, requested=bool(wanted))
        for name, path, state, detail, grant, wanted, *_ in listed
    )


def _select(found: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """These columns, as far as the table has them, or all."""
    if columns is None:
        return found
    return found.select([column for column in columns if column in found.column_names])


def _being_written(opened: Path) -> bool:
    """Whether a recorder may be in the middle of a flush to this segment."""
    return opened.parent.name == "open" and is_locked(opened.parent.parent)


def _bytes_in(place: Path) -> int:
    try:
        with os.scandir(place) as entries:
            return sum(
                entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if not entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return 0


def _ahead(moment: Moment) -> float:
    return moment[1] - moment[0]

"""Verifies a recording: reads every byte and reports what differs from what was written.

A valid checksum is not enough: every table is decoded and checked as its readers would, so that a
file with a checksum and invalid content is reported too.

Three kinds of problem. *Damaged*: a file is not what was sealed or flushed, or is missing.
*Foreign*: something that no recorder wrote; readers skip it. *Torn*: a recorder was killed while it
wrote; at most its last flush is lost. That is how a recording is expected to end, so it is reported
but not an error. Counters that go backwards are not an error either: they are raw, and kernels
reset them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from sexton.errors import StoreError
from sexton.model.settings import settings_from
from sexton.model.text import count, printable, seconds
from sexton.store.annex import Annex, is_annex
from sexton.store.arrays import numbers
from sexton.store.journal import (
    ARROWS,
    JOURNAL,
    MOST_JOURNAL,
    READING,
    ROWS,
    flushes_after,
    no_recorders_line,
    recover,
    whole_lines,
)
from sexton.store.layout import (
    ASIDE,
    DIRECTORIES,
    MANIFEST,
    SIGNATURE,
    TABLES,
    current,
    is_locked,
    parse_name,
    read_manifest,
    read_plain,
    require_recording,
)
from sexton.store.loose_files import check_mark, check_ring, check_shipped, check_status
from sexton.store.pins import pins_in
from sexton.store.repeats import NO_ROWS, Counted, Repeats, listed_rows
from sexton.store.runs import described as described_runs
from sexton.store.schema import tables, texts_of
from sexton.store.sealed import open_table, read_table, table_place, whole_file
from sexton.store.signing import check_form

DAMAGED, FOREIGN, TORN = "damaged", "foreign", "torn"
FLUSH_S = 5.0
_FILES = ("LOCK", "status.json", "shipped.json")
_STACKS = re.compile(r"perf\.data(\.[0-9]{14,20}(-torn)?(\.[0-9]+)?)?|kallsyms-[0-9a-f-]+\.gz")
_SYMBOLS = re.compile(r"[0-9a-z-]{4,140}\.names(\.[0-9]+)?", re.ASCII)
_JSON, _PARQUET = re.compile(r".+\.json", re.DOTALL), re.compile(r".+\.parquet", re.DOTALL)

Tick = Callable[[int, int], None]


class Checks(NamedTuple):
    """Checks of files whose readers are elsewhere; each raises `StoreError` if they could not use
    one."""

    annex: Callable[[Annex], None] | None = None
    perf: Callable[[Path], None] | None = None
    symbols: Callable[[Path], None] | None = None


class Trouble(NamedTuple):
    """A problem with one file or directory: `kind` is "damaged", "foreign" or "torn"."""

    kind: str
    place: str
    detail: str


@dataclass(slots=True)
class Verified:
    """What was read, and the problems. `whole` is false if anything is damaged or foreign."""

    segments: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    recording_now: bool = False
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return all(trouble.kind == TORN for trouble in self.troubles)

    def add(self, kind: str, place: str, detail: str) -> None:
        self.troubles.append(Trouble(kind, printable(place), printable(detail)))


def verify(directory: Path, tick: Tick | None = None, checks: Checks = Checks()) -> Verified:  # noqa: B008 - immutable
    """Read all of it; `StoreError` if it is not a recording."""
    require_recording(directory)
    found = Verified(recording_now=is_locked(directory))
    for entry in _entries(directory, found):
        expected = (
            entry.is_dir(follow_symlinks=False)
            if entry.name in DIRECTORIES
            else (entry.name in _FILES and entry.is_file(follow_symlinks=False))
        )
        if not expected:
            _unexpected(found, entry.name, entry.name)
    sealed = _segments(directory, "segments", found)
    segments = [*sealed, *_segments(directory, "open", found)]
    for number, path in enumerate(segments):
        if tick is not None:
            tick(number, len(segments))
        if number < len(sealed):
            _sealed(path, found, checks.annex)
        else:
            _opened(path, found)
    _beside(directory, found, checks)
    return found


def _entries(place: Path, found: Verified) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(place), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        found.add(DAMAGED, place.name, error.strerror or "cannot be read")
        return []


def _unexpected(found: Verified, name: str, place: str) -> None:
    if not name.startswith(ASIDE):
        found.add(FOREIGN, place, "not written by a recorder; ignored")
    elif not found.recording_now:
        found.add(TORN, place, "incomplete when the recorder stopped; ignored")


def _segments(directory: Path, place: str, found: Verified) -> list[Path]:
    names = []
    for entry in _entries(directory / place, found):
        name = parse_name(entry.name)
        if name is None or not entry.is_dir(follow_symlinks=False):
            _unexpected(found, entry.name, f"{place}/{entry.name}")
        else:
            names.append(name)
    return [directory / place / name.text for name in current(names)]


def _sealed(path: Path, found: Verified, check_annex: Callable[[Annex], None] | None) -> None:
    found.segments += 1
    for entry in _check_sealed(path, f"segments/{path.name}", "segment", found):
        place = f"segments/{path.name}/{entry.name}"
        if not is_annex(entry.name) or not entry.is_dir(follow_symlinks=False):
            _unexpected(found, entry.name, place)
            continue
        known = len(found.troubles)
        for foreign in _check_sealed(Path(entry.path), place, "annex", found):
            _unexpected(found, foreign.name, f"{place}/{foreign.name}")
        if check_annex is not None and len(found.troubles) == known:
            try:
                check_annex(Annex(Path(entry.path)))
            except StoreError as error:
                found.add(DAMAGED, place, _without(str(error), entry.name))


def _check_sealed(path: Path, place: str, kind: str, found: Verified) -> list[os.DirEntry[str]]:
    """Check what a manifest covers; returns the other entries of its directory."""
    listing = {entry.name: entry for entry in _entries(path, found)}
    plain = listing.pop(MANIFEST, None)
    if plain is None or not plain.is_file(follow_symlinks=False):
        if path.exists():  # else retention has just deleted it
            found.add(DAMAGED, place, f"{MANIFEST} is missing")
        return []
    try:
        manifest = read_manifest(path)
    except StoreError as error:
        found.add(DAMAGED, place, _without(str(error), path.name))
        return []
    found.bytes += plain.stat().st_size
    if manifest.get(kind) != path.name:
        found.add(DAMAGED, place, f"its manifest belongs to {manifest.get(kind)}")
    _check_signature(path, place, listing.pop(SIGNATURE, None), found)
    _check_config(manifest, f"{place}/{MANIFEST}", found)
    sealed = {name: it for name, it in manifest["tables"].items() if "crc32" in it}
    files = {name: TABLES if "offset" in it else f"{name}.parquet" for name, it in sealed.items()}
    missing = set()
    for file in dict.fromkeys(files.values()):
        entry = listing.pop(file, None)
        if entry is not None and entry.is_file(follow_symlinks=False):
            found.files += 1
            found.bytes += entry.stat().st_size
            continue
        missing.add(file)
        if path.exists():
            found.add(DAMAGED, f"{place}/{file}", "is missing" if entry is None else "no file")
    sound = not missing
    listed = _listed_rows(path, manifest)
    for name, it in sealed.items():
        if files[name] in missing:
            continue
        try:
            rows = _read_through(path, name, manifest, listed)
        except StoreError as error:
            sound = False
            detail = _without(str(error), table_place(path.name, name, it))
            found.add(DAMAGED, table_place(place, name, it), detail)
            continue
        found.rows += rows if name != READING else 0
    if sound and TABLES in files.values() and not _as_sealed(path, manifest) and path.exists():
        found.add(DAMAGED, f"{place}/{TABLES}", "bytes between its tables differ from those sealed")
    return list(listing.values())


def _check_config(header: Mapping[str, Any], place: str, found: Verified) -> None:
    """Readers take one that is none for not recorded, so it costs no reading."""
    if "config" in header and settings_from(header["config"]) is None:
        found.add(DAMAGED, place, "the recorder's configuration in it is not valid")


def _check_signature(
    path: Path, place: str, entry: os.DirEntry[str] | None, found: Verified
) -> None:
    """Whether it is one at all; whose it is, and of what, is known only with a key."""
    if entry is None:
        return
    found.files += 1
    found.bytes += entry.stat(follow_symlinks=False).st_size
    try:
        check_form(path)
    except StoreError as error:
        found.add(DAMAGED, place, _without(str(error), path.name))


def _as_sealed(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether the file of all tables is the one that was sealed, between the tables too."""
    sealed = manifest.get("file", {})
    try:
        return whole_file(path / TABLES) == (sealed.get("bytes"), sealed.get("crc32"))
    except OSError:
        return False


def _listed_rows(path: Path, manifest: Mapping[str, Any]) -> dict[str, Counted] | None:
    """The rows of every reading; `None` without a list of them (an annex), or with a damaged one,
    which is reported where it is read through."""
    try:
        readings = read_table(path, READING, manifest, coded=("table",))
    except StoreError:
        return None
    return None if readings is None else listed_rows(readings)


def _read_through(
    path: Path, name: str, manifest: Mapping[str, Any], readings: Mapping[str, Counted] | None
) -> int:
    """Decode a whole table, one row group at a time; returns the number of rows."""
    kind = tables().get(name)
    source = open_table(path, name, manifest, () if kind is None else texts_of(kind))
    if source is None:
        return 0
    keys = () if kind is None else kind.entity
    runs = source.runs(keys)
    times: dict[bytes, int] = {}
    repeats = _repeats_of(name, readings)
    for group in range(source.num_row_groups):
        content = source.read(groups=[group])
        _check_statistics(source.metadata.row_group(group), content)
        repeats.add(content)
        if runs is None:
            continue
        if not runs[group].agrees(described_runs(content, keys, group, times)):
            raise StoreError("its list of runs differs from its columns")
    repeats.finish()
    return source.rows


def _repeats_of(name: str, readings: Mapping[str, Counted] | None) -> Repeats:
    kind = tables().get(name)
    if kind is None or readings is None:
        return Repeats((), None)
    return Repeats(kind.entity, readings.get(name, NO_ROWS))


def _check_statistics(group: Any, content: pa.Table) -> None:
    """`StoreError` if a row group does not hold what its statistics say: readers choose by them."""
    types = dict(zip(content.schema.names, content.schema.types, strict=True))
    for place in range(group.num_columns):
        column = group.column(place)
        name, limits = column.path_in_schema, column.statistics
        found = types.get(name)
        if found is None or limits is None or not limits.has_min_max:
            continue
        if pa.types.is_integer(found) or pa.types.is_floating(found):  # Python has not every time
            values = numbers(content.column(name), absent=limits.min)
            if len(values) and (values.min(), values.max()) != (limits.min, limits.max):
                raise StoreError("its statistics differ from its columns")


def _opened(path: Path, found: Verified) -> None:
    place = f"open/{path.name}"
    found.segments += 1
    listing = {entry.name: entry for entry in _entries(path, found)}
    for name, entry in list(listing.items()):
        known = name == JOURNAL or _table_of(name) in {READING, *tables()}
        if not known or not entry.is_file(follow_symlinks=False):
            del listing[name]
            _unexpected(found, name, f"{place}/{name}")
    if JOURNAL not in listing:
        if path.exists():  # else it has just been sealed
            found.add(DAMAGED, place, f"{JOURNAL} is missing: readers skip this segment")
        return
    try:
        content = read_plain(path / JOURNAL, MOST_JOURNAL)
        recovered = recover(path)
    except (OSError, StoreError) as error:
        if path.exists():
            kind = TORN if _has_no_header(path) else DAMAGED
            found.add(kind, place, _without(str(error), path.name))
        return
    lines, length = whole_lines(content)
    _check_config(recovered.header, f"{place}/{JOURNAL}", found)
    for problem in recovered.problems:
        where, _, detail = problem.partition(": ")
        found.add(DAMAGED, f"open/{where}", detail)
    _check_rows(recovered.tables, place, found)
    found.files += len(recovered.tables)
    found.rows += sum(table.num_rows for name, table in recovered.tables.items() if name != READING)
    ends = {name: end for line in lines for name, (end, _) in line.get("ends", {}).items()}
    found.bytes += length + sum(_covered(listing, ends))
    _tail(found, place, content[length:], _behind(listing, ends))


def _check_rows(found_tables: Mapping[str, pa.Table], place: str, found: Verified) -> None:
    readings = found_tables.get(READING)
    listed = None if readings is None else listed_rows(readings)
    for name, content in found_tables.items():
        try:
            repeats = _repeats_of(name, listed)
            repeats.add(content)
            repeats.finish()
        except StoreError as error:
            found.add(DAMAGED, f"{place}/{name}{ROWS}", str(error))


def _covered(listing: Mapping[str, os.DirEntry[str]], ends: Mapping[str, int]) -> Iterator[int]:
    """How many bytes of each file the journal covers; it may claim any number."""
    for name, entry in listing.items():
        if name != JOURNAL:
            with contextlib.suppress(OSError):
                size = entry.stat(follow_symlinks=False).st_size
                yield min(size, ends.get(_table_of(name), 0))


def _behind(listing: dict[str, os.DirEntry[str]], ends: dict[str, int]) -> int:
    """Bytes of the tables' files that the journal does not cover."""
    behind = 0
    for name, entry in listing.items():
        if name != JOURNAL:
            try:
                size = entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue
            behind += max(size - ends.get(_table_of(name), 0), 0)
    return behind


def _table_of(file: str) -> str:
    return file.removesuffix(ROWS).removesuffix(ARROWS)


def _tail(found: Verified, place: str, left: bytes, behind: int) -> None:
    """Report what follows the journal's last valid line."""
    if no_recorders_line(left):
        detail = "holds a line that no recorder writes; it and what follows is lost"
        found.add(DAMAGED, f"{place}/{JOURNAL}", detail)
    elif lost := flushes_after(left):
        span = seconds(lost * FLUSH_S)
        detail = f"a line is damaged; {count(lost, 'flush', 'flushes')} after it lost (some {span})"
        found.add(DAMAGED, f"{place}/{JOURNAL}", detail)
    elif (left or behind) and not found.recording_now:
        detail = f"the last flush was not finished: at most {FLUSH_S:.0f} s lost"
        found.add(TORN, place, detail)


def _has_no_header(path: Path) -> bool:
    """Whether the recorder ended before it had written the journal's first line."""
    try:
        return b"\n" not in read_plain(path / JOURNAL, MOST_JOURNAL)
    except OSError:
        return True


def _beside(directory: Path, found: Verified, checks: Checks) -> None:
    """Pins, marks, rings, stacks, symbols and the status."""
    for problem in pins_in(directory)[1]:
        found.add(FOREIGN, *problem.split(": ", 1))
    for place, known, check in (
        ("marks", _JSON, check_mark),
        ("rings", _PARQUET, check_ring),
        ("stacks", _STACKS, partial(_stacks, check_perf=checks.perf)),
        ("symbols", _SYMBOLS, checks.symbols),
    ):
        for entry in _entries(directory / place, found):
            if entry.name.startswith("."):
                continue
            if not entry.is_file(follow_symlinks=False):
                _unexpected(found, entry.name, f"{place}/{entry.name}")
                continue
            found.files += 1
            found.bytes += entry.stat(follow_symlinks=False).st_size
            if known.fullmatch(entry.name) is None:
                found.add(FOREIGN, f"{place}/{entry.name}", "readers skip it")
            elif check is not None:
                _check_loose(Path(entry.path), f"{place}/{entry.name}", check, found)
    for name, read in (("status.json", check_status), ("shipped.json", check_shipped)):
        if (directory / name).is_file() and not (directory / name).is_symlink():
            _check_loose(directory / name, name, read, found)


def _check_loose(path: Path, place: str, check: Callable[[Path], object], found: Verified) -> None:
    try:
        check(path)
    except StoreError as error:
        if os.path.lexists(path):  # else it was read, decoded or deleted meanwhile
            found.add(DAMAGED, place, str(error))


def _stacks(path: Path, check_perf: Callable[[Path], None] | None) -> None:
    if re.search(r"\.[0-9]{14,20}(\.[0-9]+)?$", path.name) and check_perf is not None:
        check_perf(path)  # others are still open, torn, or the symbols


def _without(text: str, prefix: str) -> str:
    """The detail without its place, which is printed before it."""
    return text.removeprefix(f"{prefix}: ")

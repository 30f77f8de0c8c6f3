"""Compaction: the sealed segments of an hour become one segment.

The recorder seals a segment every few minutes. Twelve hours of that are hundreds of files with tens
of tables each, and opening those takes longer than reading them. So when an hour is over and
settled (shipped, stacks decoded), its segments are merged into one with the same layout. See ADR
0021.

Crash safety. The new segment is written under a temporary name, synced and renamed. Its name holds
the sequence numbers it replaces, so every reader ignores the new one before the rename and the old
ones after it. The old segments are deleted some minutes later. A kill at any point leaves one of
the two states, and the next recorder removes the rest.

Segments are merged only if nothing happened between them: same boot, same recorder, no gap, no
jump of the wall clock, consecutive numbers. Damaged segments are left alone, and so are signed ones
where this recorder cannot sign: their signatures would be lost.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sexton.errors import StoreError, first_line
from sexton.model.row import Row
from sexton.model.window import GAP_S
from sexton.store.annex import annex_names
from sexton.store.arrays import Array, whole
from sexton.store.journal import READING
from sexton.store.layout import (
    ASIDE,
    MANIFEST,
    SCHEMA,
    SIGNATURE,
    SegmentName,
    read_manifest,
    segment_name,
    segments_in,
    sync_directory,
    table_bytes,
    with_checksum,
)
from sexton.store.recording import JUMP_S
from sexton.store.retention import Limits
from sexton.store.runs import changes, key_codes
from sexton.store.schema import tables, texts_of
from sexton.store.sealed import TablesFile, column_options, new_directory, open_table, store_file

if TYPE_CHECKING:
    from sexton.store.signing import Signer

HOUR_S = 3600.0
#: An hour is compacted when its end is this old: by then its pins are shipped and perf's last file
#: is decoded into it.
SETTLED_S = 900.0
#: Retention deletes whole segments, so a compacted one is at most 1/24 of what may be kept.
_SHARE = 24
#: Rows of one table in memory at a time. The systemd unit has 300 MB; a row takes some 40 bytes.
_MOST_ROWS = 600_000
#: Large tables are cut by time, so that a question about some seconds decodes minutes and not the
#: hour: after a quarter of an hour with so many rows, and after so many numbers in lists (an
#: interrupt has one per core).
_CUT_S, _CUT_ROWS = 900.0, 25_000
_MOST_LISTED = 500_000
#: Most rows in a row group. Readers decode row groups one by one or in parallel.
_GROUP_ROWS = 1 << 18


@dataclass(slots=True)
class Compacted:
    """Segments written, segments they replace, bytes written, and problems."""

    segments: int = 0
    replaced: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Sealed:
    name: SegmentName
    path: Path
    manifest: dict[str, Any]

    @property
    def ahead_s(self) -> float:
        mono, wall = self.manifest["start"]
        return float(wall - mono)

    def header(self) -> dict[str, Any]:
        own = ("sequence", "segment", "start", "end", "tables", "file", "states")
        return {key: value for key, value in self.manifest.items() if key not in own}

    @property
    def signed(self) -> bool:
        return os.path.lexists(self.path / SIGNATURE)


class _Damaged(Exception):
    """This segment cannot be merged."""

    def __init__(self, segment: _Sealed, why: str) -> None:
        super().__init__(why)
        self.segment = segment


def compact(
    directory: Path,
    limits: Limits,
    settled_s: float | None = SETTLED_S,
    signer: Signer | None = None,
) -> Compacted:
    """Compact every finished hour; if `settled_s` is `None`, the last one too.

    Only for the process that holds the recording's lock, or its child.
    """
    done = Compacted()
    waiting = list(groups(directory, limits, settled_s))
    while waiting:
        group = waiting.pop(0)
        if group[0].signed and signer is None:
            continue
        try:
            done.bytes += _merge(directory / "segments", group, signer)
        except _Damaged as error:
            done.problems.append(f"{error.segment.name.text}: not compacted: {error}")
            waiting[:0] = _split(group, error.segment)
            continue
        except (OSError, StoreError, pa.ArrowException, MemoryError) as error:
            done.problems.append(f"{group[0].name.text}: not compacted: {first_line(error)}")
            continue
        done.segments += 1
        done.replaced += len(group)
    return done


def groups(directory: Path, limits: Limits, settled_s: float | None) -> Iterator[list[_Sealed]]:
    """The segments of each finished hour that is not compacted yet."""
    span_s = min(HOUR_S, limits.age_s / 8)
    most_bytes = limits.most_bytes // _SHARE
    every = list(_plain(directory / "segments"))
    group: list[_Sealed] = []
    found: list[list[_Sealed]] = []
    for part in every:
        if group and not _belongs(part, group, span_s, most_bytes):
            found.append(group)
            group = []
        group.append(part)
    if settled_s is None:
        found.append(group)
    newest = every[-1].manifest if every else {}
    for group in found:
        if len(group) < 2:
            continue
        last = group[-1].manifest
        same_boot = newest["boot_id"] == last["boot_id"]
        if settled_s and same_boot and newest["end"][0] - last["end"][0] < settled_s:
            continue
        yield group


def _plain(segments: Path) -> Iterator[_Sealed]:
    """Segments with a readable manifest that are not compacted yet."""
    for name in segments_in(segments):
        if name.last > name.sequence:
            continue
        try:
            manifest = read_manifest(segments / name.text)
        except StoreError:
            continue
        if manifest["start"] is not None and manifest["end"] is not None:
            manifest.setdefault("boot_id", "")
            yield _Sealed(name, segments / name.text, manifest)


def _belongs(segment: _Sealed, group: Sequence[_Sealed], span_s: float, most_bytes: int) -> bool:
    """Whether a segment continues the group, within the same hour and limits."""
    first, last = group[0], group[-1]
    if segment.name.sequence != last.name.last + 1 or segment.header() != first.header():
        return False
    if segment.signed != first.signed:
        return False
    gap_s = segment.manifest["start"][0] - last.manifest["end"][0]
    if not -GAP_S <= gap_s <= GAP_S or abs(segment.ahead_s - first.ahead_s) > JUMP_S:
        return False
    if segment.manifest["start"][1] // span_s != first.manifest["start"][1] // span_s:
        return False
    if sum(table_bytes(one.manifest) for one in (*group, segment)) > most_bytes:
        return False
    annexes = [set(annex_names(one.path)) for one in group]
    # The same name twice: the wall clock showed the same time twice.
    return not set(annex_names(segment.path)) & set().union(*annexes)


def _split(group: list[_Sealed], at: _Sealed) -> list[list[_Sealed]]:
    """What is left of a group without one of its segments."""
    place = next(index for index, segment in enumerate(group) if segment is at)
    return [part for part in (group[:place], group[place + 1 :]) if len(part) > 1]


def _merge(segments: Path, group: Sequence[_Sealed], signer: Signer | None) -> int:
    """Write the segment that replaces a group; returns its bytes. It is signed if they are."""
    first, last = group[0], group[-1]
    if not first.signed:
        signer = None
    if signer is not None:
        for segment in group:
            _check_signed(segment, signer)
    name = segment_name(first.name.sequence, first.manifest["start"][1], last.name.last).text
    with new_directory(segments / f"{ASIDE}{name}", segments / name) as aside:
        with TablesFile(aside) as file:
            described = _merge_tables(file, group)
        states = [state for segment in group for state in segment.manifest.get("states", ())]
        counted = Counter((str(state[0]), str(state[2])) for state in states)
        manifest = {
            **first.header(),
            "sequence": first.name.sequence,
            "schema": SCHEMA,
            "segment": name,
            "start": min(segment.manifest["start"] for segment in group),
            "end": max(segment.manifest["end"] for segment in group),
            "tables": described,
            "file": file.whole(),
            "states": last.manifest.get("states", []),
            "compacted": {
                "segments": len(group),
                "states": [[*key, number] for key, number in sorted(counted.items())],
            },
        }
        store_file(aside / MANIFEST, with_checksum(manifest))
        if signer is not None:
            replaced = [segment.path for segment in group]
            store_file(aside / SIGNATURE, signer.segment(aside, name, replaced))
        for segment in group:
            for annex in annex_names(segment.path):
                _link(segment.path / annex, aside / annex)
    return table_bytes(manifest)


def _check_signed(segment: _Sealed, signer: Signer) -> None:
    """`_Damaged` if it is not what was signed: its successor would vouch for it."""
    try:
        signer.check(segment.path)
    except StoreError as error:
        raise _Damaged(segment, str(error).removeprefix(f"{segment.name.text}: ")) from None


def _merge_tables(file: TablesFile, group: Sequence[_Sealed]) -> dict[str, dict[str, Any]]:
    described: dict[str, dict[str, Any]] = {}
    names = dict.fromkeys(name for segment in group for name in segment.manifest["tables"])
    for name in names:
        spans = [segment.manifest["tables"].get(name, {}) for segment in group]
        entry: dict[str, Any] = {"rows": 0}
        if any("crc32" in span for span in spans):
            entry = _merge_table(file, name, group)
        if batches := sum(span.get("batches", 0) for span in spans):
            entry["batches"] = batches
            entry["first"] = min(span["first"] for span in spans if "first" in span)
            entry["last"] = max(span["last"] for span in spans if "last" in span)
        described[name] = entry
    return described


def _merge_table(file: TablesFile, name: str, group: Sequence[_Sealed]) -> dict[str, Any]:
    first = next(_parts(name, group))[0].schema
    options = column_options(name, first, hours=True)
    kind = tables().get(name)
    keys = () if kind is None else kind.entity
    return file.add(name, _row_groups(name, group), options, keys)


def _row_groups(name: str, group: Sequence[_Sealed]) -> Iterator[pa.Table]:
    """The rows of a table in row groups, the rows of each thing together (within each part, if the
    table is too large for one)."""
    kind = tables().get(name)
    for parts in _parts(name, group):
        content = _in_one_piece(parts)
        order = None if kind is None else merged_order(kind, content)
        if kind is None or order is None:
            for at in range(0, max(content.num_rows, 1), _GROUP_ROWS):
                yield content.slice(at, _GROUP_ROWS)
        else:
            starts = changes([key[order] for key in _keys(kind, content)], len(order))
            for start, end in pairwise(_cuts(starts, len(order))):
                yield content.take(pa.array(order[start:end]))


def _cuts(starts: Array, rows: int) -> list[int]:
    """Where row groups begin and end: where the rows of a thing do, if these are not too many. So
    a row group mostly holds the same readings of each of its things."""
    cuts = [0]
    while rows - cuts[-1] > _GROUP_ROWS:
        whole_runs = int(starts[np.searchsorted(starts, cuts[-1] + _GROUP_ROWS, "right") - 1])
        cuts.append(whole_runs if whole_runs > cuts[-1] else cuts[-1] + _GROUP_ROWS)
    return [*cuts, rows]


def _parts(name: str, group: Sequence[_Sealed]) -> Iterator[list[pa.Table]]:
    """A table of each segment, in lists that are cut by time and are not too large for memory."""
    kind = tables().get(name)
    coded = ("table",) if name == READING else () if kind is None else texts_of(kind)
    parts: list[pa.Table] = []
    since_s = group[0].manifest["start"][0]
    for segment in group:
        try:
            source = open_table(segment.path, name, segment.manifest, coded)
            if source is not None:
                parts.append(source.read())
        except (OSError, StoreError, pa.ArrowException) as error:
            raise _Damaged(segment, first_line(error)) from None
        rows, listed = sum(part.num_rows for part in parts), sum(map(_listed, parts))
        until_s = segment.manifest["end"][0]
        is_long = until_s - since_s >= 0.95 * _CUT_S and rows >= _CUT_ROWS
        if is_long or rows >= _MOST_ROWS or listed >= _MOST_LISTED:
            yield parts
            parts, since_s = [], until_s
    if parts:
        yield parts


def _listed(part: pa.Table) -> int:
    """Numbers in a table's lists."""
    lists = [column for column in part.columns if pa.types.is_list(column.type)]
    return sum(len(chunk.values) for column in lists for chunk in column.chunks)


def _in_one_piece(parts: list[pa.Table]) -> pa.Table:
    """The parts as one table, column by column, so that only one column is in memory twice."""
    rest = pa.concat_tables(parts, promote_options="default")
    parts.clear()
    fields, columns = list(rest.schema), []
    for _ in fields:
        columns.append(whole(rest.column(0)))
        rest = rest.remove_column(0)
    kept = [
        pa.field(field.name, column.type, field.nullable)
        for field, column in zip(fields, columns, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(kept))


def merged_order(kind: type[Row], content: pa.Table) -> Array | None:
    """The order that puts the rows of each thing together, by time.

    `content` consists of segments, oldest first, in each of which the rows of a thing are already
    together. So whole runs are moved, which are few, and no rows are compared.
    """
    keys = _keys(kind, content)
    if not keys or content.num_rows < 2:
        return None
    begins = changes(keys, content.num_rows)
    lengths = np.diff(begins, append=content.num_rows)
    runs = np.lexsort([begins, *(key[begins] for key in reversed(keys))])
    lengths = lengths[runs]
    # The rows of each run in turn: as many as it has, from its first one on.
    offsets = np.repeat(begins[runs] - np.cumsum(lengths) + lengths, lengths)
    return np.asarray(offsets + np.arange(content.num_rows))


def _keys(kind: type[Row], content: pa.Table) -> list[Array]:
    there = {*content.column_names}
    return [key_codes(content.column(name)) for name in kind.entity if name in there]


def _link(annex: Path, target: Path) -> None:
    """Hard-link an annex into another directory, or copy it where links are not supported."""
    target.mkdir(mode=0o700)
    for entry in os.scandir(annex):
        if entry.is_file(follow_symlinks=False):
            try:
                os.link(entry.path, target / entry.name, follow_symlinks=False)
            except OSError:
                store_file(target / entry.name, Path(entry.path).read_bytes())
    sync_directory(target)

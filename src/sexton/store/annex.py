"""An annex: tables that belong to a segment but are ready later, such as decoded stacks.

A sealed segment never changes. Tables that are ready later are sealed into a subdirectory,
``segments/SEGMENT/profile-<stamp>/``, in the same way: tables and a manifest with their
checksums, written under ``stacks/``, synced and renamed. So an annex is complete or absent;
retention, pins and copies include it with its segment, and readers that do not know annexes see the
segment unchanged.

Each is made from one perf file, which its manifest names, so a leftover perf file can be deleted.
The recorder's sampling process imports this module, so Arrow is imported only where an annex is
read or written.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.errors import StoreError
from sexton.model.text import printable
from sexton.store.layout import (
    ASIDE,
    MANIFEST,
    SCHEMA,
    SIGNATURE,
    read_manifest,
    segments_in,
    table_bytes,
    unused,
    with_checksum,
)
from sexton.store.pins import Spanned

if TYPE_CHECKING:
    import pyarrow as pa

    from sexton.store.sealed import TableFile
    from sexton.store.signing import Signer

_NAME = re.compile(r"profile-[0-9]{14,20}(-torn)?(\.[0-9]+)*", re.ASCII)
_RAW = "perf.data."
#: A perf file is at most this long (see `sexton.record.stacks`); a ring dump is shorter.
LONGEST_RAW_S = 330.0
#: Segments searched at most for the one a file belongs to.
_MOST_LOOKED_AT = 2000


class Origin(NamedTuple):
    """The file an annex was made from."""

    name: str
    bytes: int
    mtime_ns: int


def is_annex(name: str) -> bool:
    """Whether this is the name of an annex.

    >>> is_annex("profile-2026111513300407"), is_annex("profile-2026111513300407-torn.1")
    (True, True)
    >>> is_annex("profile-"), is_annex("profile-2026111513300407/..")
    (False, False)
    """
    return _NAME.fullmatch(name) is not None


def annex_name(raw: str) -> str:
    """The name of the annex of a perf file.

    >>> annex_name("perf.data.2026111513300407")
    'profile-2026111513300407'
    """
    return f"profile-{raw.removeprefix(_RAW)}"


def annex_names(segment: Path) -> list[str]:
    """The names of a segment's annexes, without reading them; links are ignored."""
    try:
        with os.scandir(segment) as entries:
            return sorted(
                entry.name
                for entry in entries
                if is_annex(entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


@dataclass(slots=True)
class Reach:
    """A span of one boot with (monotonic, wall) edges."""

    boot_id: str
    start: tuple[float, float]
    end: tuple[float, float]


def own_reach(manifest: Mapping[str, Any]) -> Reach:
    """The span of a segment or annex from its manifest; `TypeError` if it has no readings."""
    (start, at), (end, until) = manifest["start"], manifest["end"]
    edges = (float(start), float(at)), (float(end), float(until))
    return Reach(str(manifest.get("boot_id", "")), *edges)


def reach_of(segment: Path, own: Spanned) -> Reach:
    """A segment's time extended by that of its annexes: perf's files do not end where segments do,
    so an annex may begin before its segment or end after it."""
    spans = [own]
    for name in annex_names(segment):
        try:
            annex = own_reach(read_manifest(segment / name))
        except (StoreError, TypeError):  # `recording verify` reports it
            continue
        if annex.boot_id == own.boot_id:
            spans.append(annex)
    return Reach(own.boot_id, min(span.start for span in spans), max(span.end for span in spans))


def free_name(segment: Path, raw: str) -> str:
    """A name for the annex of a perf file. It may be taken: the wall clock may be set back."""
    return os.path.basename(unused(f"{segment}/{annex_name(raw)}"))


def sealed_from(directory: Path, origin: Origin) -> Path | None:
    """The annex that was already made from this file, if any."""
    name = annex_name(origin.name)
    for segment in segments_in(directory / "segments"):
        path = directory / "segments" / segment.text / name
        if os.path.lexists(path):
            try:
                made_from = read_manifest(path).get("origin")
            except StoreError:
                continue
            if made_from == list(origin):
                return path
    return None


class Home(NamedTuple):
    """The sealed segment an annex belongs to, and how far the wall clock is ahead of the monotonic.

    `waits`: a segment that is still open holds more of its time; `path` is then the best so far, or
    `None`.
    """

    path: Path | None
    ahead_s: float
    waits: bool


def home_of(directory: Path, boot_id: str, span: tuple[float, float]) -> Home:
    """The segment that holds most of a span (monotonic seconds) of one boot; else the nearest."""
    start, end = span
    best: tuple[float, Path, float] | None = None
    newest: float | None = None
    for segment, manifest in _sealed(directory):
        if manifest.get("boot_id") != boot_id:
            continue
        first, last = manifest["start"], manifest["end"]
        newest = last[0] if newest is None else newest
        shared = min(last[0], end) - max(first[0], start)  # below zero: how far away it is
        if best is None or shared > best[0]:
            best = (shared, segment, first[1] - first[0])
        if last[0] < start:
            break  # older ones are farther away
    growing = bool(segments_in(directory / "open"))
    coming = end - max(start, start if newest is None else newest)
    waits = growing and (best is None or coming > max(best[0], 0.0))
    return Home(None, 0.0, waits) if best is None else Home(best[1], best[2], waits)


def boot_at(directory: Path, wall_s: float) -> str:
    """The boot that was recorded nearest to a wall time; empty if nothing is recorded."""
    nearest: tuple[float, str] | None = None
    for _, manifest in _sealed(directory):
        edges = sorted((manifest["start"][1], manifest["end"][1]))
        away = max(edges[0] - wall_s, wall_s - edges[1], 0.0)
        if nearest is None or away < nearest[0]:
            nearest = (away, str(manifest.get("boot_id", "")))
        if not away:
            break
    return "" if nearest is None else nearest[1]


def _sealed(directory: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Sealed segments with their manifests, newest first, without damaged ones."""
    place = directory / "segments"
    for name in segments_in(place)[: -_MOST_LOOKED_AT - 1 : -1]:
        try:
            manifest = read_manifest(place / name.text)
        except StoreError:
            continue
        if manifest["start"] is not None and manifest["end"] is not None:
            yield place / name.text, manifest


class Stored(NamedTuple):
    """A table to store: its row groups, and options of the Parquet writer."""

    groups: Iterable[pa.Table]
    how: Mapping[str, Any]


class Annex:
    """A sealed annex. `start` and `end` are the (monotonic, UNIX) seconds of its content."""

    def __init__(self, path: Path) -> None:
        """Raises `StoreError` if it is damaged."""
        self.path = path
        self.name = path.name
        self.manifest = read_manifest(path)
        if self.manifest.get("annex") != self.name or self.manifest["start"] is None:
            raise StoreError(f"{self.name}: its manifest belongs to another annex")
        own = own_reach(self.manifest)
        self.start, self.end, self.boot_id = own.start, own.end, own.boot_id

    @property
    def bytes(self) -> int:
        """Its size on disk, from its manifest."""
        return table_bytes(self.manifest)

    def fact(self, name: str) -> int | None:
        """A total from its manifest, such as "samples" or "lost"."""
        found = self.manifest.get("profile", {}).get(name)
        return found if isinstance(found, int) else None

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One of its tables; `StoreError` if it is damaged or missing."""
        return self.opened(name).read(columns)

    def opened(self, name: str) -> TableFile:
        """One of its tables, to be read in part; raises as `table` does."""
        from sexton.store.sealed import open_table

        found = open_table(self.path, name, self.manifest)
        if found is None:
            raise StoreError(f"{self.name}: has no {name}")
        return found


def annexes_of(segment: Path, problems: list[str] | None = None) -> list[Annex]:
    """A segment's annexes in time order; unreadable ones are added to `problems`."""
    found = []
    for name in annex_names(segment):
        try:
            found.append(Annex(segment / name))
        except StoreError as error:
            if problems is not None and os.path.lexists(segment / name):
                problems.append(printable(f"{segment.name}/{error}"))
    return found


def write_annex(
    segment: Path,
    name: str,
    header: Mapping[str, Any],
    tables: Mapping[str, Stored],
    signer: Signer | None = None,
) -> Path:
    """Seal an annex into a sealed segment; returns its path. A failure leaves nothing behind.

    `header` has at least "boot_id", "start" and "end" (each (monotonic, UNIX) seconds). Raises
    `FileNotFoundError` if the segment was deleted meanwhile.
    """
    from sexton.store.sealed import TablesFile, new_directory, store_file

    if not is_annex(name):
        raise ValueError(f"not an annex: {name!r}")
    aside = segment.parent.parent / "stacks" / f"{ASIDE}{name}"
    with new_directory(aside, segment / name):
        with TablesFile(aside) as file:
            described = {
                key: file.add(key, stored.groups, stored.how) for key, stored in tables.items()
            }
        manifest = {
            **header,
            "schema": SCHEMA,
            "annex": name,
            "segment": segment.name,
            "tables": described,
            "file": file.whole(),
        }
        store_file(aside / MANIFEST, with_checksum(manifest))
        if signer is not None:
            with contextlib.suppress(StoreError):  # of a segment that is not signed either
                store_file(aside / SIGNATURE, signer.annex(aside, name, segment))
    return segment / name

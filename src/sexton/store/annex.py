"""An annex: tables that belong to a segment but are ready later, such as decoded stacks.

A sealed segment never changes. What takes longer is sealed into a subdirectory,
``segments/SEGMENT/profile-<stamp>/``, in the same way: Parquet files and a manifest with their
checksums, written under ``stacks/``, synced and renamed. So an annex is complete or absent;
retention, pins and copies include it with its segment, and readers that do not know annexes see the
segment unchanged.

Each comes from one perf file, and its manifest says which: a perf file that is still there can then
be deleted. The recorder's sampling process imports this module, so Arrow is imported only where an
annex is read or written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.errors import StoreError
from sexton.model.text import printable
from sexton.store.layout import ASIDE, MANIFEST, SCHEMA, read_manifest, segments_in, signed
from sexton.store.pins import Spanned

if TYPE_CHECKING:
    import pyarrow as pa

    from sexton.store.sealed import TableFile

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
    """Is this the name of an annex?

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
    """The names of a segment's annexes, unread; a link is none."""
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


def reach_of(segment: Path, own: Spanned) -> Reach:
    """A segment's time extended by that of its annexes: perf's files do not end where segments do,
    so an annex may begin before its segment or end after it."""
    edges = [(own.start, own.end)]
    for name in annex_names(segment):
        try:
            manifest = read_manifest(segment / name)
            start, end = (tuple(map(float, manifest[edge])) for edge in ("start", "end"))
        except (StoreError, TypeError, ValueError, KeyError):  # `recording verify` names it
            continue
        if manifest.get("boot_id") == own.boot_id and len(start) == len(end) == 2:
            edges.append((start, end))
    return Reach(own.boot_id, min(edge[0] for edge in edges), max(edge[1] for edge in edges))


def free_name(segment: Path, raw: str) -> str:
    """A name for the annex of a perf file that is not used in the segment yet."""
    wanted = free = annex_name(raw)
    number = 0
    while os.path.lexists(segment / free):  # the wall clock came by twice
        number += 1
        free = f"{wanted}.{number}"
    return free


def sealed_from(directory: Path, origin: Origin) -> Path | None:
    """The annex that was made from this very file earlier, if there is one."""
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
    """The sealed segment an annex belongs to, and how far its wall clock is ahead of its monotonic.

    `waits` if a segment that is still open holds more of its time; `path` is then the best so far,
    or `None`.
    """

    path: Path | None
    boot_id: str
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
    if best is None:
        return Home(None, boot_id, 0.0, waits)
    return Home(best[1], boot_id, best[2], waits)


def boot_at(directory: Path, wall_s: float) -> str:
    """The boot that was recorded nearest to a moment of the wall clock; empty where none was."""
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
    """Sealed segments with their manifests, newest first; damaged ones are left out."""
    place = directory / "segments"
    for name in segments_in(place)[: -_MOST_LOOKED_AT - 1 : -1]:
        try:
            manifest = read_manifest(place / name.text)
        except StoreError:
            continue
        if manifest["start"] is not None and manifest["end"] is not None:
            yield place / name.text, manifest


class Stored(NamedTuple):
    """One table to store: its row groups, and options of the Parquet writer."""

    groups: Iterable[pa.Table]
    how: Mapping[str, Any]


class Annex:
    """A sealed annex. `start` and `end` are (monotonic, UNIX) seconds of what is in it."""

    def __init__(self, path: Path) -> None:
        """Raises `StoreError` where it is damaged."""
        self.path = path
        self.name = path.name
        self.manifest = read_manifest(path)
        start, end = self.manifest["start"], self.manifest["end"]
        if self.manifest.get("annex") != self.name or start is None or end is None:
            raise StoreError(f"{self.name}: its manifest belongs to another annex")
        self.start = (float(start[0]), float(start[1]))
        self.end = (float(end[0]), float(end[1]))
        self.boot_id = str(self.manifest.get("boot_id", ""))

    @property
    def bytes(self) -> int:
        """Its size on disk, from its manifest."""
        return sum(int(entry.get("bytes", 0)) for entry in self.manifest["tables"].values())

    def fact(self, name: str) -> int | None:
        """A total from its manifest, such as "samples" or "lost"."""
        found = self.manifest.get("profile", {}).get(name)
        return found if isinstance(found, int) else None

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One of its tables; `StoreError` where it is damaged or has none."""
        from sexton.store.sealed import read_table

        found = read_table(self.path, name, self.manifest, columns)
        if found is None:
            raise StoreError(f"{self.name}: has no {name}")
        return found

    def opened(self, name: str) -> TableFile:
        """One of its tables to be read in part; raises as `table` does."""
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
    segment: Path, name: str, header: Mapping[str, Any], tables: Mapping[str, Stored]
) -> Path:
    """Seal an annex into a sealed segment; its path. Nothing is left behind if it fails.

    `header` has at least "boot_id", "start" and "end" (each (monotonic, UNIX) seconds). Raises
    `FileNotFoundError` where the segment is gone meanwhile.
    """
    from sexton.store.sealed import new_directory, store_file, store_table

    if not is_annex(name):
        raise ValueError(f"not an annex: {name!r}")
    aside = segment.parent.parent / "stacks" / f"{ASIDE}{name}"
    with new_directory(aside, segment / name):
        described = {
            key: store_table(aside, key, stored.groups, stored.how)
            for key, stored in tables.items()
        }
        manifest = {
            **header,
            "schema": SCHEMA,
            "annex": name,
            "segment": segment.name,
            "tables": described,
        }
        store_file(aside / MANIFEST, signed(manifest))
    return segment / name

"""An annex: tables that belong to a segment and are ready later than it, such as decoded stacks.

A segment never changes once it is sealed. What takes longer to make is sealed in a directory of
its own within the segment's, ``segments/SEGMENT/profile-<stamp>/``, in the same way: Parquet files
and a manifest that vouches for them, written aside (under ``stacks/``), synced, and renamed in. So
it is there whole or not at all; retention, pins and copies take it with its segment, and a reader
that knows nothing of it finds the segment as it was.

Each comes from one file of perf's, and its manifest says which: whoever finds that file still there
can delete it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sexton.errors import StoreError
from sexton.model.text import printable
from sexton.store.homes import annex_names, is_annex
from sexton.store.layout import ASIDE, MANIFEST, SCHEMA, read_manifest, signed, sync_directory
from sexton.store.sealed import open_table, read_table, store_file, store_table


class Stored(NamedTuple):
    """One table as it is to be kept: its row groups, and how Parquet is to encode them."""

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
            raise StoreError(f"{self.name}: its manifest is that of another one")
        self.start = (float(start[0]), float(start[1]))
        self.end = (float(end[0]), float(end[1]))
        self.boot_id = str(self.manifest.get("boot_id", ""))

    @property
    def bytes(self) -> int:
        """What it takes on disk, by its manifest."""
        return sum(int(told.get("bytes", 0)) for told in self.manifest["tables"].values())

    def fact(self, name: str) -> int | None:
        """A number that its manifest tells of the whole, such as "samples" and "lost"."""
        found = self.manifest.get("profile", {}).get(name)
        return found if isinstance(found, int) else None

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One of its tables; `StoreError` where it is damaged or has none."""
        found = read_table(self.path, name, self.manifest, columns)
        if found is None:
            raise StoreError(f"{self.name}: has no {name}")
        return found

    def opened(self, name: str) -> pq.ParquetFile:
        """One of its tables to be read in part; raises as `table` does."""
        found = open_table(self.path, name, self.manifest)
        if found is None:
            raise StoreError(f"{self.name}: has no {name}")
        return found


def annexes_of(segment: Path, problems: list[str] | None = None) -> list[Annex]:
    """A segment's annexes, by name, which is by time; what cannot be read is told and left out."""
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
    """Seal an annex into a sealed segment; where it is. Nothing is left behind where it fails.

    `header` has at least "boot_id", "start" and "end" (each (monotonic, UNIX) seconds). Raises
    `FileNotFoundError` where the segment is gone meanwhile.
    """
    if not is_annex(name):
        raise ValueError(f"not an annex: {name!r}")
    aside = segment.parent.parent / "stacks" / f"{ASIDE}{name}"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(mode=0o700, parents=True)
        described = {
            each: store_table(aside, each, stored.groups, stored.how)
            for each, stored in tables.items()
        }
        told = {
            **header,
            "schema": SCHEMA,
            "annex": name,
            "segment": segment.name,
            "tables": described,
        }
        store_file(aside / MANIFEST, signed(told))
        sync_directory(aside)
        whole = segment / name
        aside.rename(whole)
        sync_directory(segment)
    except (OSError, pa.ArrowException, MemoryError):
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return whole

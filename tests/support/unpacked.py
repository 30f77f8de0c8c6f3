"""A collected node as a directory tree, for everything that goes through ``--root``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from sexton.errors import SourceError
from sexton.host.archive import read_archive
from sexton.host.reader import Files

NODES = Path(__file__).parents[1] / "fixtures" / "nodes"
NODE = "6.1-v2-crash"


def unpack(root: Path, node: str = NODE) -> list[str]:
    """Write the node's last snapshot under `root`; the host's own paths of its files."""
    with (NODES / f"{node}.tar.gz").open("rb") as stream:
        files = read_archive(stream)[-1].files
    written: list[str] = []
    _below(files, "", root, written)
    return sorted(written)


def _below(files: Files, path: str, root: Path, written: list[str]) -> None:
    for name in files.names(path or "/"):
        here = f"{path}/{name}"
        place = root / os.fsencode(here.lstrip("/")).decode("utf-8", "surrogateescape")
        try:
            target = files.link(here)
        except SourceError:
            target = None
        if target is not None:
            place.symlink_to(target)
            continue
        if files.status(here).is_dir:
            place.mkdir()
            _below(files, here, root, written)
            continue
        with contextlib.suppress(SourceError):
            place.write_bytes(files.read(here))
            written.append(here)

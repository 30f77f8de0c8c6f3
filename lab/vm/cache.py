"""Where built parts are kept between runs: each under a name made of what went into it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.vm.tools import log

VARIABLE = "SEXTON_LAB_CACHE"


def cache_folder() -> Path:
    folder_name = os.environ.get(VARIABLE)
    folder = Path(folder_name) if folder_name else Path.home() / ".cache" / "sexton-lab"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def key(*parts: str | bytes) -> str:
    """Twelve hex digits of all parts; where one ends and the next begins matters.

    >>> key("ab", "c") == key("a", "bc")
    False
    """
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(b"%d:" % len(raw))
        total.update(raw)
    return total.hexdigest()[:12]


def files_key(root: Path, paths: Iterator[Path]) -> str:
    """The key of some files' names and contents, in the order of their names."""
    parts: list[str | bytes] = []
    for path in sorted(paths):
        parts += [str(path.relative_to(root)), path.read_bytes()]
    return key(*parts)


@contextmanager
def making(final: Path) -> Iterator[Path]:
    """An empty folder to build in, which goes away; move what is done to `final` before."""
    folder = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One build at a time: a second waits. The kernel lets go of it if the builder dies."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"waiting for another build in {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(folder)
        yield


def sweep(folder: Path) -> None:
    """Removes what a killed build left behind. Only while `alone`."""
    for left in folder.glob(".*-*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)

"""Cache of built parts between runs, each named by a hash of its inputs."""

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
    """A hash of all parts, twelve hex digits; the boundaries between parts matter.

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
    """The key of the names and contents of files, in order of names."""
    parts: list[str | bytes] = []
    for path in sorted(paths):
        parts += [str(path.relative_to(root)), path.read_bytes()]
    return key(*parts)


@contextmanager
def build_folder(final: Path) -> Iterator[Path]:
    """A temporary folder to build in; rename the result to `final` before it is deleted."""
    folder = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lock_cache(folder: Path) -> Iterator[None]:
    """One build at a time: a second one waits. The kernel releases the lock if the builder dies."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"waiting for another build in {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(folder)
        yield


def sweep(folder: Path) -> None:
    """Remove leftovers of killed builds. Call only while holding `lock_cache`."""
    for left in folder.glob(".*-*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)

"""Results of a machine: one tar per scene, each in its slot of a raw disk."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.vm.tools import LabError

MEGABYTE = 1024**2
#: Prefix of experiments that are not scenes.
CHECK = "check_"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one scene."""

    scene: str
    kernel: str
    hierarchy: str
    #: "played", or what went wrong.
    status: str
    seconds: int | None = None
    folder: Path | None = None
    #: The scene cannot be played on this machine: not a failure, but no recording either.
    unfit: bool = False
    #: Top cause of the recording and of the live diagnosis; "-" if not diagnosed.
    top: str = "-"
    live: str = "-"
    #: Differences from the scene's expectation; `None`: not compared.
    wrong: tuple[str, ...] | None = None

    @property
    def right(self) -> str:
        return "-" if self.wrong is None else "no" if self.wrong else "yes"

    @property
    def good(self) -> bool:
        return self.status == "played"


def make_disk(path: Path, slots: int, slot_mb: int) -> None:
    """An empty sparse disk: an unwritten slot takes no space and is not a valid tar."""
    with path.open("wb") as file:
        file.truncate(slots * slot_mb * MEGABYTE)


def unpack(disk: Path, slot: int, slot_mb: int, target: Path) -> int:
    """Unpack a slot into a new folder, replacing an older one; returns its size in bytes.

    The guest is not trusted: only files and folders are unpacked, and only below `target`.
    """
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    total, members = 0, 0
    try:
        fresh.mkdir(parents=True)
        for name, content in _members(disk, slot * slot_mb * MEGABYTE, slot_mb * MEGABYTE):
            path = fresh.joinpath(*name.parts)
            members += 1
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            total += len(content)
        if not members:
            raise LabError("the scene's slot on the results disk is empty")
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return total


def _members(disk: Path, start: int, size: int) -> Iterator[tuple[PurePosixPath, bytes | None]]:
    with disk.open("rb") as file:
        file.seek(start)
        try:
            with tarfile.open(fileobj=file, mode="r|") as tar:
                for member in tar:
                    # In a stream, offsets count from its start.
                    if member.offset_data + member.size > size:
                        raise LabError(f"the scene's results exceed {size // MEGABYTE} MB")
                    name = safe_name(member.name)
                    if name is None or not (member.isfile() or member.isdir()):
                        continue
                    opened = tar.extractfile(member) if member.isfile() else None
                    yield name, opened.read() if opened else None
        except tarfile.ReadError as error:
            raise LabError(f"no complete tar on the results disk: {error}") from error


def safe_name(name: str) -> PurePosixPath | None:
    """The path if it stays below its target, else None.

    >>> safe_name("./a/b"), safe_name("../a"), safe_name("/etc/passwd")
    (PurePosixPath('a/b'), None, None)
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return None
    return path


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a text table."""
    rows = [("scene", "kernel", "hierarchy", "seconds", "top cause", "live", "right", "outcome")]
    for one in outcomes:
        seconds = "-" if one.seconds is None else str(one.seconds)
        cells = (one.top, one.live, one.right, one.status)
        rows.append((one.scene, one.kernel, one.hierarchy, seconds, *cells))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def mistakes(outcomes: list[Outcome]) -> Iterator[str]:
    """What Sexton got wrong, one line each."""
    for one in outcomes:
        for words in one.wrong or ():
            yield f"{one.scene} on {one.kernel} {one.hierarchy}: {words}"

"""What a machine brought back: one tar a scene, each in its slot of a raw disk."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.vm.tools import LabError

MEGABYTE = 1024**2
#: How the names of experiments begin that are no scenes.
CHECK = "check_"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one scene went."""

    scene: str
    kernel: str
    hierarchy: str
    #: "played", or in a few words what went wrong.
    status: str
    seconds: int | None = None
    folder: Path | None = None
    #: The machine is not one for that scene: no failure, but no recording either.
    unfit: bool = False
    #: What Sexton says of the recording, and what it said live; "-" where nobody asked.
    top: str = "-"
    live: str = "-"
    #: What of that is not as the scene expects it; `None`: not judged.
    wrong: tuple[str, ...] | None = None

    @property
    def right(self) -> str:
        return "-" if self.wrong is None else "no" if self.wrong else "yes"

    @property
    def good(self) -> bool:
        return self.status == "played"


def make_disk(path: Path, slots: int, slot_mb: int) -> None:
    """A disk of nothing: a slot that was never written takes no space and reads as no tar."""
    with path.open("wb") as file:
        file.truncate(slots * slot_mb * MEGABYTE)


def unpack(disk: Path, slot: int, slot_mb: int, target: Path) -> int:
    """Unpacks a slot into a new folder, replacing an older one; returns the bytes in it.

    The guest is not trusted: only files and folders come out, and only below `target`.
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
                    # In a stream offsets count from where it began.
                    if member.offset_data + member.size > size:
                        raise LabError(f"a scene left more than {size // MEGABYTE} MB behind")
                    name = safe_name(member.name)
                    if name is None or not (member.isfile() or member.isdir()):
                        continue
                    opened = tar.extractfile(member) if member.isfile() else None
                    yield name, opened.read() if opened else None
        except tarfile.ReadError as error:
            raise LabError(f"the results disk holds no whole tar here: {error}") from error


def safe_name(name: str) -> PurePosixPath | None:
    """A name that stays where it is put, or None.

    >>> safe_name("./a/b"), safe_name("../a"), safe_name("/etc/passwd")
    (PurePosixPath('a/b'), None, None)
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return None
    return path


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as text, one a line."""
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
    """What Sexton got wrong, a line each."""
    for one in outcomes:
        for words in one.wrong or ():
            yield f"{one.scene} on {one.kernel} {one.hierarchy}: {words}"

"""Fuzz target: what `sexton collect` collected, diagnosed. The tar itself is the target `tar`'s.

Parts: `F` a file and `L` a link, a path and a line's end before its content; `D` directories;
`N` a path that could not be read. Each is in both snapshots.
"""

from __future__ import annotations

import io
import tarfile
from functools import cache

from sexton.errors import SextonError
from sexton.explain.diagnosis import diagnose
from sexton.host.archive import read_archive
from sexton.host.host import Host
from sexton.record.sampler import Sampler
from sexton.reports.text.verdict import verdict_text
from tests.fuzz.parts import joined, parts
from tests.support.fixtures import FIXTURES

_MARK = b"0123456789 "
_KINDS = {b"F": b"file ", b"L": b"link ", b"D": b"dir ", b"N": b"denied "}


def one(data: bytes) -> None:
    body = b"".join(
        b"\n" + _MARK + _KINDS[kind] + content for kind, content in parts(data) if kind in _KINDS
    )
    members = [("manifest", b"sexton.collect/1\nsnapshots 2\nseconds 1\n")]
    for number in (1, 2):
        clock = b"\n" + _MARK + b"file /commands/clock\n%d.5 17900000%02d" % (1000 + number, number)
        bundle = b"sexton.bundle/1 " + _MARK.strip() + b"\n" + body + clock
        members.append((f"{number}/bundle", bundle + b"\n" + _MARK + b"end\n"))
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    raw.seek(0)
    snapshots = read_archive(raw)
    with Sampler(Host(snapshots[0].files, live=False)) as sampler:
        window = sampler.replay((snapshot.files, snapshot.moment) for snapshot in snapshots)
    shown = verdict_text(diagnose(window), 100)
    assert not any(letter in shown for letter in "\x1b\x9b\r\u202e"), "reaches the terminal"


@cache
def _collected() -> list[tuple[str, bytes]]:
    """Small files of collected nodes."""
    found: dict[str, bytes] = {}
    for path in sorted((FIXTURES / "nodes").glob("*crash.tar.gz")):
        with path.open("rb") as stream:
            files = read_archive(stream)[-1].files
        pending = ["/"]
        while pending:
            place = pending.pop()
            for name in files.names(place)[:40]:
                inside = f"{place.rstrip('/')}/{name}"
                try:
                    content = files.read(inside)
                except SextonError:
                    if files.status(inside).is_dir:
                        pending.append(inside)
                    continue
                if inside not in ("/commands/clock",):
                    found.setdefault(inside, content[:1500])
    return sorted(found.items())


def seeds() -> list[bytes]:
    """Ten files of a node at a time, and one with every other kind of entry."""
    every = [(b"F", name.encode() + b"\n" + content) for name, content in _collected()]
    made = [joined(every[at : at + 10]) for at in range(0, min(len(every), 400), 10)]
    odd = [(b"L", b"/proc/self\n1"), (b"D", b"\n7 3 /sys/fs/cgroup/a"), (b"N", b"/dev/kmsg\n")]
    return [*made, joined(odd)]

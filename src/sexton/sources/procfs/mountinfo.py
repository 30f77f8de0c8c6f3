r"""`/proc/self/mountinfo`: mounts of cgroup hierarchies, tracefs and debugfs.

Documented in the kernel's Documentation/filesystems/proc.rst, "/proc/<pid>/mountinfo". An excerpt::

    31 23 0:26 / /sys/fs/cgroup ro,nosuid shared:8 - tmpfs tmpfs ro,size=4096k
    40 31 0:35 / /sys/fs/cgroup/memory rw,nosuid shared:19 - cgroup cgroup rw,memory

Fields: mount id, parent, device, **root** of the mount within its file system, mount point,
options, any number of optional fields up to a lone ``-``, then type, source and super options.

Quirks: space, tab, newline and backslash (and ``#`` in newer kernels) come as octal escapes,
``\040``, and are decoded here. A later mount on the same point hides an earlier one; rows keep the
file's order, so the last one wins. In a cgroup namespace the root still reads ``/``.
A node with many containers has thousands of mounts, so only those we use are kept: `cgroup`,
`cgroup2`, `tracefs`, `debugfs`, and a `tmpfs` that holds cgroup hierarchies (its mount point ends
in ``/cgroup``), which is what tells hybrid and v1 from v2.

>>> line = r"40 31 0:35 / /mnt/my\040cgroups rw shared:19 - cgroup cgroup rw,memory"
>>> [(row.mount_point, row.fstype, row.super_options) for row in parse(line)]
[('/mnt/my cgroups', 'cgroup', ('rw', 'memory'))]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sexton.errors import SourceMalformed
from sexton.model.rows.cgroup import Mount
from sexton.sources.registry import file_source

PATH = "/proc/self/mountinfo"
_KEPT = frozenset({"cgroup", "cgroup2", "tracefs", "debugfs"})
_ESCAPE = re.compile(r"\\([01][0-7]{2})")


class MountLine(NamedTuple):
    """One line; `device` is ``major:minor``, `root` and the last two are not decoded."""

    number: int
    mount_id: str
    device: str
    root: str
    mount_point: str
    options: tuple[str, ...]
    fstype: str
    source: str
    super_options: str


def lines(text: str) -> Iterator[MountLine]:
    """Every mount, in the order they were made."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        tail = after.split(" ")
        if not dash or len(fields) < 6 or len(tail) < 3:
            raise SourceMalformed(PATH, number, "not a mount's fields")
        mount_id, _, device, root, point, options = fields[:6]
        yield MountLine(
            number, mount_id, device, root, _decoded(point), tuple(options.split(",")), *tail[:3]
        )


@file_source("{self}/mountinfo", rows=(Mount,), period_s=0.0)
def parse(text: str) -> Iterator[Mount]:
    """The mounts we use, in the order they were made."""
    for line in lines(text):
        fstype, mount_point = line.fstype, line.mount_point
        hierarchies = fstype == "tmpfs" and mount_point.endswith("/cgroup")
        if fstype not in _KEPT and not hierarchies:
            continue
        try:
            mount_id = int(line.mount_id)
        except ValueError:
            raise SourceMalformed(PATH, line.number, "a mount id that is not a number") from None
        super_options = tuple(_decoded(option) for option in line.super_options.split(","))
        root = _decoded(line.root)
        yield Mount(mount_id, root, mount_point, fstype, _decoded(line.source), super_options)


def _decoded(field: str) -> str:
    if "\\" not in field:
        return field
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)

"""Trees of other hosts, built under a test's own directory."""

from __future__ import annotations

import os
from pathlib import Path

from sexton.host.host import Host, open_host
from tests.support.fixtures import FIXTURES, kernel_text

INITIAL = "cgroup:[4026531835]"


class Tree:
    """Files by their path on the host."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, content: str = "") -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode("utf-8", "surrogateescape"))

    def make(self, path: str) -> None:
        os.makedirs(self.root / path.lstrip("/"), exist_ok=True)

    def namespace(self, link: str = INITIAL) -> None:
        self.make("/proc/1/ns")
        os.symlink(link, self.root / "proc/1/ns/cgroup")

    def host(self) -> Host:
        return open_host(str(self.root))


def recorded(root: Path, kernel: str, directories: str) -> Tree:
    """A real kernel's mounts, controllers and cgroup directories (and no file in them)."""
    tree = Tree(root)
    tree.write("/proc/1/mountinfo", kernel_text("procfs.mountinfo", kernel))
    tree.write("/proc/cgroups", kernel_text("procfs.cgroups", kernel))
    listed = (FIXTURES / "cgroupfs/directories" / f"{directories}.txt").read_text()
    for line in listed.splitlines():
        tree.make(line.partition(" ")[2])
    return tree


def mounts(*lines: str) -> str:
    """A mountinfo of (root, mount point, type, options) lines."""
    made = []
    for number, line in enumerate(lines, 30):
        root, point, fstype, options = line.split(" ")
        made.append(f"{number} 23 0:{number} {root} {point} rw - {fstype} {fstype} {options}\n")
    return "".join(made)

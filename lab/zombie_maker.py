"""Makes real zombies: dying memory cgroups on the running kernel.

A memory cgroup without processes whose directory was removed stays in the kernel while a page is
charged to it. A page on tmpfs stays until its file is deleted; a page of a file on disk may be
reclaimed at any time. Everything is removed at the end, also after an exception or Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sexton.host.host import open_host
from sexton.sources.cgroupfs.layout import Layout, read_layout

_numbers = count(1)
#: A thousand take two seconds, but minutes under software emulation.
_DEADLINE_S = 300

#: Run in a separate interpreter, because forking is cheap only from a small process. Each round is
#: one restart: make a cgroup, let a process in it write one page and exit, remove the cgroup.
MAKE_ZOMBIES = r"""
import errno, os, sys, time
parent, pins, name, first, last, pause = *sys.argv[1:4], *map(int, sys.argv[4:6]), sys.argv[6]
page = b"x" * os.sysconf("SC_PAGE_SIZE")
for number in range(first, last):
    time.sleep(float(pause))
    cgroup = os.fsencode(f"{parent}/{name}".replace("%d", str(number)))
    os.mkdir(cgroup)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            procs = os.open(cgroup + b"/cgroup.procs", os.O_WRONLY)
            os.write(procs, b"0")
            pin = os.open(f"{pins}/p{number}", os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(pin, page)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        sys.exit("a child could not write its page")
    for attempt in range(2000):
        try:
            os.rmdir(cgroup)
            break
        except OSError as error:
            if error.errno != errno.EBUSY:  # for some milliseconds after the exit
                raise
            time.sleep(0.001)
    else:
        sys.exit("EBUSY for two seconds")
"""


class CannotMakeZombies(Exception):
    """Memory cgroups cannot be made on this machine; the text says why."""


@dataclass
class ZombieMaker:
    """`parent` is a live cgroup directory; files in `pins` pin its zombies."""

    layout: Layout
    parent: Path
    pins: Path
    made: int = 0

    @property
    def path(self) -> str:
        """The parent's path from the hierarchy's root."""
        return f"/{self.parent.name}"

    def make(self, number: int, name: str = "z%d") -> None:
        """Make `number` more zombies and wait."""
        process = self.start(number, name)
        try:
            if process.wait(timeout=_DEADLINE_S):
                raise CannotMakeZombies("making zombies failed; see the lines above")
        except subprocess.TimeoutExpired:
            raise CannotMakeZombies(f"{number} zombies took more than {_DEADLINE_S} s") from None
        finally:
            process.kill()
            process.wait()

    def start(self, number: int, name: str = "z%d", pause_s: float = 0) -> subprocess.Popen[bytes]:
        """Make `number` more zombies in the background; ``%d`` in `name` is the round."""
        argv = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            MAKE_ZOMBIES,
            str(self.parent),
            str(self.pins),
            name,
        ]
        argv += [str(self.made), str(self.made + number), str(pause_s)]
        self.made += number
        return subprocess.Popen(argv)

    def free(self) -> None:
        """Delete the pinning files and reclaim the parent's remaining pages. Of page-cache zombies
        one call may leave a few (1 to 12 of 200 were seen): call again."""
        for pin in self.pins.iterdir():
            pin.unlink()
        file, order = (
            ("memory.force_empty", "0") if self.layout.version == 1 else ("memory.reclaim", "1G")
        )
        with contextlib.suppress(OSError):  # absent before 5.19, EAGAIN when nothing is left
            (self.parent / file).write_text(order)


@contextlib.contextmanager
def scratch_cgroup(prefix: str) -> Iterator[tuple[Layout, Path]]:
    """An empty memory cgroup `<prefix>-<pid>-<n>`, removed with its children at the end."""
    layout = read_layout(open_host())
    if os.geteuid() != 0:
        raise CannotMakeZombies("needs root")
    if layout.mount_point is None:
        raise CannotMakeZombies(layout.reason or "no memory hierarchy is mounted")
    top = Path(layout.mount_point)
    if layout.version == 2 and "memory" not in (top / "cgroup.subtree_control").read_text():
        raise CannotMakeZombies("the root cgroup does not delegate the memory controller")
    made = top / f"{prefix}-{os.getpid()}-{next(_numbers)}"
    made.mkdir()
    try:
        if layout.version == 2:
            (made / "cgroup.subtree_control").write_text("+memory")
        yield layout, made
    finally:
        remove(made)


def remove(directory: Path) -> None:
    """Remove a cgroup and its children, waiting for processes that are exiting."""
    for inside, _, _ in os.walk(os.fsencode(directory), topdown=False):
        for _ in range(2000):
            try:
                os.rmdir(inside)
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.001)


@contextlib.contextmanager
def zombie_maker(prefix: str, pin: str = "tmpfs") -> Iterator[ZombieMaker]:
    """Makes zombies pinned on "tmpfs" or by "page cache"; frees them at the end."""
    with scratch_cgroup(prefix) as (layout, parent):
        place = "/var/tmp" if pin == "page cache" else None
        pins = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=place))
        mounted = False
        maker = ZombieMaker(layout, parent, pins)
        try:
            if pin == "tmpfs":
                argv = ["mount", "-t", "tmpfs", "-o", "mode=700", prefix, str(pins)]
                subprocess.run(argv, check=True)
                mounted = True
            yield maker
        finally:
            maker.free()
            if mounted:
                subprocess.run(["umount", str(pins)], check=True)
            shutil.rmtree(pins)

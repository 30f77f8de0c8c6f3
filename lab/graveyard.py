"""Real dying memory cgroups on the running kernel, under a cgroup of our own.

A memory cgroup whose last process exited and whose directory was removed lives on while a page is
charged to it. A page on tmpfs stays until its file is deleted; a page of a file on disk may be
reclaimed at any time. Everything made here is removed again, also after an exception or Ctrl-C.
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
#: A thousand take two seconds, and minutes under software emulation.
_PATIENCE_S = 300

#: Run by an interpreter of its own, because forking is cheap only from a small process. Each round
#: is one restart: a cgroup is made, a process in it writes one page and exits, the cgroup goes.
DIGGER = r"""
import errno, os, sys, time
parent, pins, name, first, last, pause = *sys.argv[1:4], *map(int, sys.argv[4:6]), sys.argv[6]
page = b"x" * os.sysconf("SC_PAGE_SIZE")
for number in range(first, last):
    time.sleep(float(pause))
    grave = os.fsencode(f"{parent}/{name}".replace("%d", str(number)))
    os.mkdir(grave)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            procs = os.open(grave + b"/cgroup.procs", os.O_WRONLY)
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
            os.rmdir(grave)
            break
        except OSError as error:
            if error.errno != errno.EBUSY:  # for some milliseconds after the exit
                raise
            time.sleep(0.001)
    else:
        sys.exit("EBUSY for two seconds")
"""


class CannotDig(Exception):
    """This machine has no place where we could make memory cgroups; the text says why."""


@dataclass
class Graveyard:
    """`parent` is a live cgroup directory whose dead children are pinned by files in `pins`."""

    layout: Layout
    parent: Path
    pins: Path
    dug: int = 0

    @property
    def path(self) -> str:
        """The parent as the kernel's own path, from the hierarchy's root."""
        return f"/{self.parent.name}"

    def dig(self, number: int, name: str = "z%d") -> None:
        """Leave so many more zombies, and wait for it."""
        digger = self.start_digging(number, name)
        try:
            if digger.wait(timeout=_PATIENCE_S):
                raise CannotDig("making dead cgroups failed; the lines above say where")
        except subprocess.TimeoutExpired:
            raise CannotDig(f"{number} dead cgroups took more than {_PATIENCE_S} s") from None
        finally:
            digger.kill()
            digger.wait()

    def start_digging(
        self, number: int, name: str = "z%d", pause_s: float = 0
    ) -> subprocess.Popen[bytes]:
        """Leave so many more zombies meanwhile; ``%d`` in `name` is the round."""
        argv = [sys.executable, "-I", "-S", "-c", DIGGER, str(self.parent), str(self.pins), name]
        argv += [str(self.dug), str(self.dug + number), str(pause_s)]
        self.dug += number
        return subprocess.Popen(argv)

    def lay_to_rest(self) -> None:
        """Delete the pinning files and have the parent give up the rest. Of page-cache zombies one
        round may leave a few (1 to 12 of 200 were seen): ask again."""
        for pin in self.pins.iterdir():
            pin.unlink()
        file, order = (
            ("memory.force_empty", "0") if self.layout.version == 1 else ("memory.reclaim", "1G")
        )
        with contextlib.suppress(OSError):  # absent before 5.19, EAGAIN when nothing is left
            (self.parent / file).write_text(order)


@contextlib.contextmanager
def own_cgroup(prefix: str) -> Iterator[tuple[Layout, Path]]:
    """An empty memory cgroup `<prefix>-<pid>-<n>`, removed at the end with all below it."""
    layout = read_layout(open_host())
    if os.geteuid() != 0:
        raise CannotDig("needs root")
    if layout.mount_point is None:
        raise CannotDig(layout.reason or "no memory hierarchy is mounted")
    top = Path(layout.mount_point)
    if layout.version == 2 and "memory" not in (top / "cgroup.subtree_control").read_text():
        raise CannotDig("the root cgroup does not hand the memory controller down")
    made = top / f"{prefix}-{os.getpid()}-{next(_numbers)}"
    made.mkdir()
    try:
        if layout.version == 2:
            (made / "cgroup.subtree_control").write_text("+memory")
        yield layout, made
    finally:
        remove(made)


def remove(directory: Path) -> None:
    """Remove a cgroup and all below it, waiting for processes that are just leaving."""
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
def graveyard(prefix: str, pin: str = "tmpfs") -> Iterator[Graveyard]:
    """A parent for zombies pinned on "tmpfs" or by "page cache"; laid to rest at the end."""
    with own_cgroup(prefix) as (layout, parent):
        place = "/var/tmp" if pin == "page cache" else None
        pins = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=place))
        mounted = False
        yard = Graveyard(layout, parent, pins)
        try:
            if pin == "tmpfs":
                argv = ["mount", "-t", "tmpfs", "-o", "mode=700", prefix, str(pins)]
                subprocess.run(argv, check=True)
                mounted = True
            yield yard
        finally:
            yard.lay_to_rest()
            if mounted:
                subprocess.run(["umount", str(pins)], check=True)
            shutil.rmtree(pins)

"""A capture as perf wrote it: samples with addresses, and what is needed to name them.

An address belongs to a *space*: 0 is the kernel, every other one is a process between two
``exec``s, with its maps; -1 is an unknown process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I32, Event, Facts
from sexton.profile.perf.walk import Columns

U64 = npt.NDArray[np.uint64]

#: The wall clock reaches this in the year 2116: a later time is damage.
LATEST_NS = 1 << 62
#: `Space.pid` of the kernel.
KERNEL_PID = -1


class MappedFile(NamedTuple):
    """A mapped file: its path as seen by the process, or a name such as ``[vdso]``.

    `build_id` is hexadecimal, `None` if unknown, like device and inode.
    """

    path: str
    build_id: str | None = None
    major: int | None = None
    minor: int | None = None
    inode: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """The maps of one space, sorted by `start`, without overlaps: the latest wins.

    An address `a` of row `i` is at `a - start[i] + pgoff[i]` in file number `file[i]`.
    """

    start: U64
    end: U64
    pgoff: U64
    file: I32

    def __len__(self) -> int:
        return len(self.start)


def no_maps() -> Maps:
    """No maps."""
    none = np.zeros(0, np.uint64)
    return Maps(none, none, none, np.zeros(0, np.int32))


class Space(NamedTuple):
    """One address space: a process between two execs, or (number 0) the kernel."""

    pid: int
    maps: Maps


class KernelSymbol(NamedTuple):
    """Kernel text that was loaded during the capture: BPF programs, trampolines."""

    start: int
    end: int
    name: str


@dataclass(slots=True, kw_only=True)
class KernelFacts:
    """`text_symbol` is ``_text`` or ``_stext``, `text_address` its address when recorded: kallsyms
    of another boot is off by the difference. `end` is that of its map. `None` is unknown."""

    text_symbol: str | None = None
    text_address: int | None = None
    end: int | None = None
    build_id: str | None = None
    ksymbols: list[KernelSymbol] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Raw:
    """`columns` are sorted by time (equal times stay in file order). Their indices refer to the
    lists here: `comm` and `stack_comm` to `comms`, `cgroup` to `cgroups` (-1: none), `event` to
    `events`, `space` to `spaces` (-1: unknown process)."""

    columns: Columns
    comms: list[str]
    cgroups: list[str]
    spaces: list[Space]
    files: list[MappedFile]
    kernel: KernelFacts
    events: tuple[Event, ...]
    facts: Facts
    #: The samples have timestamps.
    timed: bool = True

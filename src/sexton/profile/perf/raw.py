"""A capture as perf wrote it: samples with addresses, and what is needed to name them.

Nothing here is symbolised. Addresses are told apart by *space*: 0 is the kernel's, every other
is one process between two of its ``exec``s, with what was mapped there; -1 is a process nobody
told us about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I32, Event, Facts
from sexton.profile.perf.walk import Columns

U64 = npt.NDArray[np.uint64]

#: No clock shows more, the wall's not before the year 2116: a later time is damage.
LATEST_NS = 1 << 62
#: `Space.pid` of the kernel's own space.
KERNEL_PID = -1


class MappedFile(NamedTuple):
    """What was mapped: a file's path as the process saw it, or a name such as ``[vdso]``.

    `build_id` is hexadecimal, `None` where perf did not tell; so are device and inode.
    """

    path: str
    build_id: str | None = None
    major: int | None = None
    minor: int | None = None
    inode: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """What lay where in one space: sorted by `start`, nothing overlaps, the latest has won.

    An address `a` of row `i` is at `a - start[i] + pgoff[i]` in file number `file[i]`.
    """

    start: U64
    end: U64
    pgoff: U64
    file: I32

    def __len__(self) -> int:
        return len(self.start)

    def find(self, addresses: U64) -> I32:
        """The row each address lies in, -1 where nothing was mapped.

        >>> u64 = lambda *numbers: np.array(numbers, np.uint64)
        >>> maps = Maps(u64(100, 200), u64(150, 300), u64(0, 0), np.array([0, 1], np.int32))
        >>> maps.find(u64(99, 100, 149, 150, 299)).tolist()
        [-1, 0, 0, -1, 1]
        """
        if not len(self):
            return np.full(len(addresses), -1, np.int32)
        row = np.searchsorted(self.start, addresses, side="right") - 1
        missed = (row < 0) | (addresses >= self.end[np.maximum(row, 0)])
        return np.where(missed, -1, row).astype(np.int32)


def no_maps() -> Maps:
    """Maps of nothing."""
    none = np.zeros(0, np.uint64)
    return Maps(none, none, none, np.zeros(0, np.int32))


class Space(NamedTuple):
    """One address space: a process between two of its execs, or (number 0) the kernel."""

    pid: int
    maps: Maps


class Module(NamedTuple):
    """Kernel text as perf saw it mapped: ``[kernel.kallsyms]`` or a module."""

    start: int
    end: int
    path: str
    build_id: str | None


class KernelSymbol(NamedTuple):
    """Kernel text that came while perf looked on: BPF programs, trampolines."""

    start: int
    end: int
    name: str


@dataclass(slots=True, kw_only=True)
class KernelFacts:
    """`text_symbol` is ``_text`` or ``_stext``, `text_address` where it was when recorded: another
    boot's kallsyms is off by the difference. `None` is "not told"."""

    text_symbol: str | None = None
    text_address: int | None = None
    start: int | None = None
    end: int | None = None
    build_id: str | None = None
    modules: list[Module] = field(default_factory=list)
    ksymbols: list[KernelSymbol] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Raw:
    """`columns` are sorted by time (equal times stay in file order); every index in them points
    into a list here: `comm` and `stack_comm` into `comms`, `cgroup` into `cgroups` (-1: the sample
    has none), `event` into `events`, `space` into `spaces` (-1: of an unknown process)."""

    columns: Columns
    comms: list[str]
    cgroups: list[str]
    spaces: list[Space]
    files: list[MappedFile]
    kernel: KernelFacts
    events: tuple[Event, ...]
    facts: Facts
    #: The samples have times at all.
    timed: bool = True

"""A profile: samples with their stacks; and what is counted from it: flame graphs and heat.

A profile is a table of numpy columns, one row per sample, in time order. Repeated values are stored
once and referred to by index: threads, cgroups, events, and stacks, which are nodes of one `Tree`.

The first level of the tree are tasks (thread names), below them functions from the outermost to
the innermost. Nodes are in *pre-order*: everything below a node follows it directly, up to its
`end`. So the total of a node is a difference of two running sums, and a flame graph of any
selection is one count and one sum, however deep the stacks are.

Heat counts how busy each core was in each second, and in each 1/50 of it. It is small enough to be
kept for every core and drawn for twelve hours at once, where stacks are read only for the queried
seconds. Idle samples count as `samples`, not as `busy`, so that an idle core and an unsampled core
look different: *absent is not zero*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

I64: TypeAlias = npt.NDArray[np.int64]
I32: TypeAlias = npt.NDArray[np.int32]
I16: TypeAlias = npt.NDArray[np.int16]
U8: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]

#: The name of a function without a symbol.
UNKNOWN = "[unknown]"


class Kind(IntEnum):
    """What a frame is."""

    ROOT = 0
    TASK = 1
    KERNEL = 2
    USER = 3
    #: Unknown: the format does not distinguish kernel from user.
    UNTOLD = 4


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Every function (and task) once. Names are hostile text: escape what is printed.

    Frame 0 is the root. The same name in two modules is two frames.
    """

    names: tuple[str, ...]
    modules: tuple[str, ...]
    kinds: U8

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Stacks as nodes in pre-order; node 0 is the root, its children are tasks.

    `depth` is 0 for the root; `end` is one past the last node below.
    """

    frame: I32
    depth: I32
    end: I32
    frames: Frames

    def __len__(self) -> int:
        return len(self.frame)

    def totals(self, own: I64) -> I64:
        """The total of each node with everything below it; `own` is per node."""
        running = np.zeros(len(own) + 1, np.int64)
        np.cumsum(own, out=running[1:])
        return running[self.end] - running[np.arange(len(own))]

    def parents(self) -> I32:
        """The parent of each node; -1 for the root."""
        parents = np.full(len(self), -1, np.int32)
        levels = int(self.depth.max(initial=0)) + 1
        # Sorted by level once: testing every node at every level is a hundred times the work.
        narrow = self.depth.astype(np.uint16) if levels <= 1 << 16 else self.depth
        order = np.argsort(narrow, kind="stable").astype(np.int32)
        bounds = np.zeros(levels + 1, np.int64)
        np.cumsum(np.bincount(self.depth, minlength=levels), out=bounds[1:])
        for level in range(1, levels):
            above = order[bounds[level - 1] : bounds[level]]
            here = order[bounds[level] : bounds[level + 1]]
            # In pre-order the parent is the nearest earlier node one level up.
            parents[here] = above[np.searchsorted(above, here) - 1]
        return parents

    def path(self, node: int) -> tuple[int, ...]:
        """Frames from the task to the node itself."""
        above = np.flatnonzero(self.end[: node + 1] > node)  # nodes that have not ended contain it
        return tuple(self.frame[above[1:]].tolist())


class Thread(NamedTuple):
    """A thread. `tid` is -1 if unknown; a renamed thread is two of these."""

    pid: int
    tid: int
    comm: str


class Event(NamedTuple):
    """A sampled event. `hertz` and `period` are `None` if unknown."""

    name: str
    hertz: int | None = None
    period: int | None = None


class Clock(NamedTuple):
    """Converts sample times to UNIX time; `None` if that is unknown.

    `kind` is the clock's name: "monotonic", "perf" (perf's own, since boot), "none".
    """

    kind: str
    wall_minus_ns: int | None

    def wall_s(self, time_ns: int) -> float | None:
        return None if self.wall_minus_ns is None else (time_ns + self.wall_minus_ns) / 1e9

    def time_ns(self, wall_s: float) -> int | None:
        if self.wall_minus_ns is None:
            return None
        return round(wall_s * 1e9) - self.wall_minus_ns


NO_CLOCK = Clock("none", None)


@dataclass(slots=True, kw_only=True)
class Facts:
    """Facts about a capture as a whole. `None` is unknown, never zero."""

    path: str = ""
    format: str = ""
    host: str | None = None
    release: str | None = None
    command: str | None = None
    cores: int | None = None
    clock: Clock = NO_CLOCK
    #: Samples the kernel dropped (LOST and LOST_SAMPLES), and times it throttled the event.
    lost: int | None = None
    throttled: int | None = None
    #: Problems with the input that were skipped; one line each, shown to users.
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Samples in time order. -1 in `cpu` and `cgroup` is unknown.

    `weight` is `None` if each row is one sample; folded stacks and pprof have weighted rows.
    A profile without timestamps (`timed` false) has zeros in `time_ns`.
    """

    time_ns: I64
    cpu: I32
    thread: I32
    cgroup: I32
    event: I16
    node: I32
    weight: I64 | None
    threads: tuple[Thread, ...]
    cgroups: tuple[str, ...]
    events: tuple[Event, ...]
    tree: Tree
    facts: Facts
    timed: bool = True

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """The times of the first and last sample."""
        if not self.timed or not len(self):
            return None
        return int(self.time_ns[0]), int(self.time_ns[-1])


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Flame:
    """A flame graph: a tree and the samples that ended in each node (`own`).

    `core_seconds` is the covered core time (sampled seconds times cores), `None` without
    timestamps. `start_ns` and `end_ns` are the chosen range.
    """

    tree: Tree
    own: I64
    event: str
    core_seconds: float | None = None
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def samples(self) -> int:
        return int(self.own.sum())


@dataclass(frozen=True, slots=True, eq=False)
class FlameDifference:
    """Two flame graphs over one tree: `before` and `after` are own counts, as `Flame.own` is.

    Shares are of each side's samples, subtree totals (see `sexton.profile.difference.shares`).
    `q` is the significance of a node's change (false discovery rate), `NaN` if not tested (too few
    samples, or no timestamps). `blocks` is how many blocks of time each side was tested over;
    `None` where samples have no timestamps.
    """

    tree: Tree
    before: I64
    after: I64
    q: Floats
    blocks: tuple[int, int] | None = None

    @property
    def tested(self) -> int:
        """How many nodes were tested."""
        return int(np.count_nonzero(~np.isnan(self.q)))


class FunctionCount(NamedTuple):
    """One function over all stacks: self samples, and total with everything it called."""

    name: str
    module: str
    kind: int
    own: int
    total: int


#: 50 cells of 20 ms, as in FlameScope.
CELLS = 50
CELL_NS = 1_000_000_000 // CELLS


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """A row per core and second in which that core was sampled, by (second, cpu).

    `second` is in whole seconds of the capture's clock; `cpu` is -1 if unknown; `kernel` counts
    busy samples whose innermost frame is in the kernel; `cells` counts busy samples per 20 ms,
    shape (rows, 50).
    """

    second: I64
    cpu: I32
    samples: I32
    busy: I32
    kernel: I32
    cells: npt.NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.second)


def empty_heat() -> Heat:
    """Heat without rows."""
    none = np.zeros(0, np.int32)
    return Heat(np.zeros(0, np.int64), none, none, none, none, np.zeros((0, CELLS), np.uint16))

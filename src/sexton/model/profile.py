"""A profile: samples of what ran, with their stacks, whatever format they came in.

One table of columns (numpy), one row per sample, in the order of time. What repeats is kept once
and pointed to: threads, cgroups, events, and above all stacks, which are the nodes of one `Tree`.

The tree's first level are tasks (the thread's name), below them functions from the outermost to
the innermost. Nodes stand in *pre-order*: everything below a node follows it directly, up to its
`end`. So a node's total is a difference of two running sums, and a flame graph of any choice of
samples is one count and one sum, however deep the stacks are.
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

#: What has no name. Its module says where it was.
UNKNOWN = "[unknown]"


class Kind(IntEnum):
    """What a frame is."""

    ROOT = 0
    TASK = 1
    KERNEL = 2
    USER = 3
    #: A format that does not tell kernel from user.
    UNTOLD = 4


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Every function (and task) once. Names are hostile text: escape what is printed.

    Frame 0 is the root's. The same name in two modules is two frames.
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
        """What each node and everything below it was counted: `own` is per node."""
        running = np.zeros(len(own) + 1, np.int64)
        np.cumsum(own, out=running[1:])
        return running[self.end] - running[np.arange(len(own))]

    def parents(self) -> I32:
        """Each node's parent; the root's is -1."""
        parents = np.full(len(self), -1, np.int32)
        levels = int(self.depth.max(initial=0)) + 1
        # Sorted by level once: asking every node at every level would be a hundred times the work.
        narrow = self.depth.astype(np.uint16) if levels <= 1 << 16 else self.depth
        order = np.argsort(narrow, kind="stable").astype(np.int32)
        bounds = np.zeros(levels + 1, np.int64)
        np.cumsum(np.bincount(self.depth, minlength=levels), out=bounds[1:])
        for level in range(1, levels):
            above = order[bounds[level - 1] : bounds[level]]
            here = order[bounds[level] : bounds[level + 1]]
            # In pre-order the parent is the nearest node one level up that stands before.
            parents[here] = above[np.searchsorted(above, here) - 1]
        return parents

    def path(self, node: int) -> tuple[int, ...]:
        """Frames from the task to the node itself."""
        above = np.flatnonzero(self.end[: node + 1] > node)  # what has not ended contains it
        return tuple(self.frame[above[1:]].tolist())


class Thread(NamedTuple):
    """Who ran. `tid` is -1 where the format does not tell; a renamed thread is two of these."""

    pid: int
    tid: int
    comm: str


class Event(NamedTuple):
    """What was counted. `hertz` and `period` are `None` where the capture does not say."""

    name: str
    hertz: int | None = None
    period: int | None = None


class Clock(NamedTuple):
    """How a sample's time becomes UNIX time; `None` where nothing tells.

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
    """What is known of a capture as a whole. `None` is "not told", never zero."""

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
    #: What was wrong with the input and could be left out; one line each, shown to people.
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Samples, in the order of time. `-1` in `cpu` and `cgroup` is "not told".

    `weight` is `None` where each row is one sample; folded stacks and pprof give many at once.
    A profile without times (`timed` false) has zeros in `time_ns`.
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
        """The first and the last sample's time."""
        if not self.timed or not len(self):
            return None
        return int(self.time_ns[0]), int(self.time_ns[-1])

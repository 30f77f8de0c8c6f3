"""Samples with function names, as read from perf script text, folded stacks and pprof.

perf.data gives `Raw` samples with addresses instead. Both become a `Profile`: these by
`profile_of`. Each stack is stored once; its frames are innermost first.

>>> frames = FrameTable()
>>> frames.id("vfs_read", "[ext4]", Kind.KERNEL), frames.id("main", "/bin/app", Kind.USER)
(0, 1)
>>> frames.id("vfs_read", "[ext4]", Kind.KERNEL), len(frames)
(0, 2)
>>> stacks = StackTable("a.folded")
>>> stacks.id(array("i", [0, 1])), stacks.id(array("i", [1])), stacks.id(array("i", [0, 1]))
(0, 1, 0)
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from sexton.errors import SourceMalformed
from sexton.model.profile import I16, I32, I64, Event, Facts, Frames, Kind, Profile, Thread
from sexton.model.text import count
from sexton.profile.stack_tree import grow

#: Frames of one stack. The kernel's limit is `perf_event_max_stack`, 127 unless raised.
MOST_FRAMES = 2048
#: Frames of all distinct stacks together: some 500 MB while they are expanded. Formats with
#: references can expand to far more than the size of the file.
MOST_STACKED = 1 << 25
#: A sum of weights must fit into 64 bits.
MOST_WEIGHT = 1 << 62
#: Start of the kernel's address space on 64-bit machines.
_KERNEL_FROM = 0xFFFF_0000_0000_0000
#: Bracketed like a kernel module, but user space.
_USER_BRACKETS = ("[vdso", "[vsyscall", "[heap", "[stack", "[anon", "[uprobes", "[unknown")
_KERNEL_SUFFIXES = (".ko", ".ko.gz", ".ko.xz", ".ko.zst")


@dataclass(frozen=True, slots=True, eq=False)
class Stacks:
    """A stack `s` is a task and the frames `frame[start[s]:start[s + 1]]`, innermost first."""

    task: I32
    start: I64
    frame: I32


@dataclass(frozen=True, slots=True, eq=False)
class NamedSamples:
    """One row per sample (or per counted stack), in file order, not sorted by time.

    `thread` is an index into `threads`, `stack` into `stacks`, whose tasks (names of threads) are
    in `tasks`. `cpu` and `cgroup` are -1 if unknown. `weight` is as in `Profile`.
    """

    time_ns: I64
    cpu: I32
    thread: I32
    cgroup: I32
    event: I16
    stack: I32
    weight: I64 | None
    threads: tuple[Thread, ...]
    cgroups: tuple[str, ...]
    events: tuple[Event, ...]
    tasks: tuple[str, ...]
    stacks: Stacks
    frames: Frames
    facts: Facts
    timed: bool = True

    def __len__(self) -> int:
        return len(self.time_ns)


class FrameTable:
    """Every (name, module, kind) once."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str, int], int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, name: str, module: str, kind: Kind) -> int:
        return self._ids.setdefault((name, module, int(kind)), len(self._ids))

    def frames(self) -> Frames:
        """The frames by id."""
        return Frames(
            tuple([name for name, _, _ in self._ids]),
            tuple([module for _, module, _ in self._ids]),
            np.array([kind for _, _, kind in self._ids], np.uint8),
        )


class StackTable:
    """Every distinct list of frames once, independent of the task."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ids: dict[bytes, int] = {}
        self._starts = array("q", [0])
        self._frames = array("i")
        self.cut = 0

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, frames: array[int]) -> int:
        """The id of a stack, innermost frame first; cut at `MOST_FRAMES`."""
        if len(frames) > MOST_FRAMES:
            frames = frames[:MOST_FRAMES]
            self.cut += 1
        key = frames.tobytes()
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._ids)
            self._frames.extend(frames)
            self._starts.append(len(self._frames))
            if len(self._frames) > MOST_STACKED:
                raise SourceMalformed(
                    self._path, 0, f"distinct stacks have more than {MOST_STACKED:,} frames"
                )
        return found

    def problems(self) -> list[str]:
        if not self.cut:
            return []
        deep = f"{count(self.cut, 'stack')} deeper than {MOST_FRAMES:,} frames"
        return [f"{deep}: outermost frames dropped"]

    def by_task(self, task: I32, stack: I32) -> tuple[I32, Stacks]:
        """The (task, frames) id of each row, and those pairs as stacks."""
        pairs = task.astype(np.int64) * max(len(self), 1) + stack
        distinct, row = np.unique(pairs, return_inverse=True)
        tasks = (distinct // max(len(self), 1)).astype(np.int32)
        chosen = distinct % max(len(self), 1)
        starts = np.frombuffer(self._starts, np.int64)
        lengths = np.diff(starts)[chosen]
        ends = np.cumsum(lengths)  # 64 bits until it is known to be small
        if len(ends) and ends[-1] > MOST_STACKED:
            raise SourceMalformed(
                self._path, 0, f"distinct stacks have more than {MOST_STACKED:,} frames"
            )
        # The source of each frame: the start of its stack, plus its position in the stack.
        shift = (starts[:-1][chosen] - (ends - lengths)).astype(np.int32)
        source = np.repeat(shift, lengths) + np.arange(int(lengths.sum()), dtype=np.int32)
        frames = np.frombuffer(self._frames, np.int32)[source] if len(source) else source
        start = np.concatenate(([0], ends)).astype(np.int64)
        return row.astype(np.int32).reshape(-1), Stacks(tasks, start, frames)


def kind_of(module: str, address: int | None = None) -> Kind:
    """Kernel or user, by perf's name of the module, else by the address.

    >>> kind_of("[kernel.kallsyms]").name, kind_of("[nf_conntrack]").name, kind_of("[vdso]").name
    ('KERNEL', 'KERNEL', 'USER')
    >>> kind_of("/lib/modules/6.1.0/kernel/net/foo.ko.xz").name, kind_of("bpf_prog_57825_x").name
    ('KERNEL', 'KERNEL')
    >>> kind_of("[unknown]", 0xffffffff81000130).name, kind_of("", 0x7f00).name, kind_of("").name
    ('KERNEL', 'USER', 'UNTOLD')
    """
    if not module or module == "[unknown]":
        if address is None:
            return Kind.UNTOLD
        return Kind.KERNEL if address >= _KERNEL_FROM else Kind.USER
    if module.startswith("["):
        return Kind.USER if module.startswith(_USER_BRACKETS) else Kind.KERNEL
    if module.startswith("bpf_prog_") or module.endswith(_KERNEL_SUFFIXES):
        return Kind.KERNEL
    if module.rpartition("/")[2].startswith("vmlinux"):
        return Kind.KERNEL
    return Kind.USER


def text_of(raw: bytes) -> str:
    """Decode; bytes that are not UTF-8 become surrogates (see `sexton.model.text`)."""
    return raw.decode("utf-8", "surrogateescape")


ROOT = "all"


def profile_of(named: NamedSamples) -> Profile:
    """The same samples in time order, with their stacks as a tree."""
    tasks = len(named.tasks)
    table = Frames(
        names=(ROOT, *named.tasks, *named.frames.names),
        modules=("", *("" for _ in named.tasks), *named.frames.modules),
        kinds=np.array([Kind.ROOT, *[Kind.TASK] * tasks, *named.frames.kinds.tolist()], np.uint8),
    )
    tree, leaf = grow(
        _shifted(named.stacks.task, 1),
        named.stacks.start,
        _shifted(named.stacks.frame, 1 + tasks),
        table,
    )
    node = leaf[named.stack]
    time = named.time_ns
    if not named.timed or len(time) < 2 or bool((time[1:] >= time[:-1]).all()):
        order: slice | np.ndarray[tuple[int], np.dtype[np.int64]] = slice(None)
    else:  # several files joined, or perf's order of arrival
        order = np.argsort(time, kind="stable")
    return Profile(
        time_ns=time[order],
        cpu=named.cpu[order],
        thread=named.thread[order],
        cgroup=named.cgroup[order],
        event=named.event[order],
        node=node[order],
        weight=None if named.weight is None else named.weight[order],
        threads=named.threads,
        cgroups=named.cgroups,
        events=named.events,
        tree=tree,
        facts=named.facts,
        timed=named.timed,
    )


def _shifted(ids: I32, by: int) -> I32:
    return (ids + np.int32(by)).astype(np.int32, copy=False)

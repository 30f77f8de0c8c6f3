"""Profiles made by hand, sample by sample, without any of the code that makes them from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sexton.model.profile import NO_CLOCK, Clock, Event, Facts, Frames, Kind, Profile, Thread, Tree

#: "main" is the program's, "k:do_idle" the kernel's, "?:x" nobody says whose.
KERNEL, UNTOLD = "k:", "?:"
SECOND = 1_000_000_000


class Sample(NamedTuple):
    """`stack` is outermost first, without the task."""

    time_ns: int
    cpu: int = 0
    stack: tuple[str, ...] = ()
    comm: str = "app"
    pid: int = 1
    cgroup: str = ""
    event: str = "cpu-clock"
    weight: int = 1


def function(text: str) -> tuple[str, str, Kind]:
    """The frame a written name stands for."""
    if text.startswith(KERNEL):
        return text.removeprefix(KERNEL), "[kernel.kallsyms]", Kind.KERNEL
    if text.startswith(UNTOLD):
        return text.removeprefix(UNTOLD), "", Kind.UNTOLD
    return text, "/bin/app", Kind.USER


def path_of(sample: Sample) -> tuple[tuple[str, str, Kind], ...]:
    """A sample's stack as the tree has it: the task, then functions."""
    return ((sample.comm, "", Kind.TASK), *map(function, sample.stack))


def tree_of(paths: Iterable[tuple[tuple[str, str, Kind], ...]]) -> tuple[Tree, dict[object, int]]:
    """A tree of those stacks, and each one's node."""
    every = sorted({path[:length] for path in paths for length in range(1, len(path) + 1)})
    frames: dict[tuple[str, str, Kind], int] = {("", "", Kind.ROOT): 0}
    for path in every:
        frames.setdefault(path[-1], len(frames))
    place: dict[object, int] = {path: at for at, path in enumerate(every, start=1)}
    place[()] = 0
    ends = [1 + len(every)] + [
        1 + at + sum(other[: len(path)] == path for other in every) for at, path in enumerate(every)
    ]
    tree = Tree(
        np.array([0, *(frames[path[-1]] for path in every)], np.int32),
        np.array([0, *map(len, every)], np.int32),
        np.array(ends, np.int32),
        Frames(
            tuple(name for name, _, _ in frames),
            tuple(module for _, module, _ in frames),
            np.array([kind for _, _, kind in frames], np.uint8),
        ),
    )
    return tree, place


def profile_of(
    samples: Sequence[Sample],
    *,
    weighted: bool = False,
    timed: bool = True,
    clock: Clock = NO_CLOCK,
) -> Profile:
    """A profile of samples, which are put into the order of time."""
    ordered = sorted(samples, key=lambda sample: sample.time_ns)
    tree, place = tree_of(map(path_of, ordered))
    threads = list(dict.fromkeys(Thread(sample.pid, sample.pid, sample.comm) for sample in ordered))
    cgroups = list(dict.fromkeys(sample.cgroup for sample in ordered if sample.cgroup))
    events = list(dict.fromkeys(sample.event for sample in ordered)) or ["cpu-clock"]
    return Profile(
        np.array([sample.time_ns if timed else 0 for sample in ordered], np.int64),
        np.array([sample.cpu for sample in ordered], np.int32),
        np.array([threads.index(Thread(e.pid, e.pid, e.comm)) for e in ordered], np.int32),
        np.array([cgroups.index(e.cgroup) if e.cgroup else -1 for e in ordered], np.int32),
        np.array([events.index(sample.event) for sample in ordered], np.int16),
        np.array([place[path_of(sample)] for sample in ordered], np.int32),
        np.array([sample.weight for sample in ordered], np.int64) if weighted else None,
        tuple(threads),
        tuple(cgroups),
        tuple(Event(name) for name in events),
        tree,
        Facts(path="made", format="made", clock=clock),
        timed,
    )

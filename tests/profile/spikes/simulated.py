"""Captures made of probabilities: what each core does in each 20 ms, and at which stacks.

A `Load` says per core and cell which share of the time it is busy, and with which stacks. Samples
are drawn at a timer's ticks (97 a second on each core, each core with its own phase), so counts are
binomial as in a real capture. Idle ticks are samples of the idle task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sexton.model.profile import CELLS, Event, Facts, Frames, Heat, Kind, Profile, Thread, Tree
from sexton.profile.heat import heat_of, within

HERTZ = 97
SECOND = 1_000_000_000
#: The capture begins at this second.
FIRST = 1000
IDLE = ("swapper", "cpu_startup_entry", "do_idle", "intel_idle")
KERNEL_NAMES = {
    *IDLE[1:],
    "entry_SYSCALL_64",
    "do_syscall_64",
    "vfs_read",
    "seq_read",
    "memcg_stat_show",
    "mem_cgroup_iter",
    "css_next_descendant_pre",
    "sock_sendmsg",
    "tcp_sendmsg",
    "run_ksoftirqd",
    "net_rx_action",
    "napi_poll",
    "copy_to_user",
}
#: Ordinary work: user code mostly, some system calls.
USUAL: dict[tuple[str, ...], float] = {
    ("web", "main", "serve", "parse"): 0.4,
    ("web", "main", "serve", "render"): 0.35,
    ("web", "main", "entry_SYSCALL_64", "do_syscall_64", "sock_sendmsg", "tcp_sendmsg"): 0.15,
    ("kubelet", "housekeep", "entry_SYSCALL_64", "do_syscall_64", "vfs_read", "copy_to_user"): 0.1,
}
SYSCALL = ("kubelet", "housekeep", "entry_SYSCALL_64", "do_syscall_64", "vfs_read", "seq_read")
STALL: dict[tuple[str, ...], float] = {
    (*SYSCALL, "memcg_stat_show", "mem_cgroup_iter"): 0.65,
    (*SYSCALL, "memcg_stat_show", "mem_cgroup_iter", "css_next_descendant_pre"): 0.25,
    (*SYSCALL, "memcg_stat_show"): 0.1,
}


@dataclass
class Stall:
    """`extra` of the core's time from `start_s` for `seconds`, in `stacks`.

    With `instead` it takes the place of the usual work, not of idle time.
    """

    core: int
    start_s: float
    seconds: float
    extra: float = 0.9
    stacks: dict[tuple[str, ...], float] = field(default_factory=lambda: dict(STALL))
    instead: bool = False


@dataclass
class Simulated:
    """An opened capture, as `find` sees one."""

    profile: Profile
    _heat: Heat

    @classmethod
    def of(cls, profile: Profile) -> Simulated:
        return cls(profile, heat_of(profile))

    @property
    def hertz(self) -> int | None:
        return self.profile.events[0].hertz

    def heats(self, start_ns: int | None, end_ns: int | None) -> Iterator[Heat]:
        yield within(self._heat, start_ns, end_ns)

    def profiles(self, start_ns: int | None, end_ns: int | None) -> Iterator[Profile]:
        yield self.profile


def tree_of(stacks: list[tuple[str, ...]]) -> tuple[Tree, dict[tuple[str, ...], int]]:
    """Pre-order over stacks, and each stack's node. The first name is the task's."""
    paths = sorted({stack[:depth] for stack in stacks for depth in range(1, len(stack) + 1)})
    names = sorted({(path[-1], len(path) == 1) for path in paths})
    frames = {name: at + 1 for at, name in enumerate(names)}
    kinds = [Kind.ROOT]
    for name, task in names:
        kernel = Kind.KERNEL if name in KERNEL_NAMES else Kind.USER
        kinds.append(Kind.TASK if task else kernel)
    place = {path: at + 1 for at, path in enumerate(paths)}
    end = [len(paths) + 1]
    for path in paths:
        end.append(1 + sum(other[: len(path)] == path or other < path for other in paths))
    table = Frames(
        ("all", *(name for name, _ in names)), ("",) * (len(names) + 1), np.array(kinds, np.uint8)
    )
    tree = Tree(
        np.array([0] + [frames[path[-1], len(path) == 1] for path in paths], np.int32),
        np.array([0] + [len(path) for path in paths], np.int32),
        np.array(end, np.int32),
        table,
    )
    return tree, place


def simulate(
    random: np.random.Generator,
    busy: np.ndarray,
    stalls: tuple[Stall, ...] = (),
    *,
    hertz: int = HERTZ,
    lost: tuple[tuple[int, int], ...] = (),
) -> Simulated:
    """`busy` is cores by seconds (by fiftieths of them, too), shares from 0 to 1."""
    cores, seconds = busy.shape[:2]
    finest = busy.ndim == 3
    if finest:
        busy = busy.reshape(cores, -1)
    stacks = [IDLE, *USUAL, *{stack for stall in stalls for stack in stall.stacks}]
    tree, place = tree_of(stacks)
    tasks = sorted({stack[0] for stack in stacks})
    threads = tuple(
        Thread(0 if task == "swapper" else 100 + at, at, task) for at, task in enumerate(tasks)
    )
    usual_nodes = np.array([place[stack] for stack in USUAL])
    usual_odds = np.array(list(USUAL.values()))
    rows = []
    for core in range(cores):
        ticks = np.arange(int(seconds * hertz))
        time = (ticks + random.uniform(0, 1) + random.normal(0, 0.02, len(ticks))) / hertz
        time = np.sort(np.clip(time, 0, seconds - 1e-6))
        cell = (time * CELLS).astype(np.int64) if finest else time.astype(np.int64)
        node = np.full(len(ticks), place[IDLE])
        work = random.uniform(size=len(ticks)) < busy[core][cell]
        node[work] = random.choice(usual_nodes, work.sum(), p=usual_odds)
        for stall in stalls:
            if stall.core != core:
                continue
            inside = (time >= stall.start_s) & (time < stall.start_s + stall.seconds)
            hit = inside & (random.uniform(size=len(ticks)) < stall.extra)
            if not stall.instead:
                hit &= ~work
            chosen = [place[stack] for stack in stall.stacks]
            node[hit] = random.choice(chosen, hit.sum(), p=list(stall.stacks.values()))
        kept = np.ones(len(ticks), bool)
        for lost_core, second in lost:
            kept &= ~((time.astype(np.int64) == second) & (lost_core == core))
        rows.append(
            (
                ((time + FIRST) * SECOND).astype(np.int64)[kept],
                node[kept],
                np.full(kept.sum(), core),
            )
        )
    time_ns = np.concatenate([row[0] for row in rows])
    order = np.argsort(time_ns, kind="stable")
    node = np.concatenate([row[1] for row in rows])[order]
    task_of = {place[stack]: tasks.index(stack[0]) for stack in stacks}
    lookup = np.zeros(len(tree), np.int32)
    for at, task in task_of.items():
        lookup[at] = task
    profile = Profile(
        time_ns=time_ns[order],
        cpu=np.concatenate([row[2] for row in rows])[order].astype(np.int32),
        thread=lookup[node],
        cgroup=np.full(len(node), -1, np.int32),
        event=np.zeros(len(node), np.int16),
        node=node.astype(np.int32),
        weight=None,
        threads=threads,
        cgroups=(),
        events=(Event("cpu-clock", hertz),),
        tree=tree,
        facts=Facts(),
    )
    return Simulated.of(profile)


def steady(cores: int, seconds: int, share: float) -> np.ndarray:
    return np.full((cores, seconds), share)


class Wander(NamedTuple):
    """How a load wanders: its memory from second to second, its middle and spread in logits."""

    rho: float = 0.8
    middle: float = -1.0
    wide: float = 1.0


def bursty(random: np.random.Generator, cores: int, seconds: int, how: Wander) -> np.ndarray:
    """An AR(1) process per core."""
    level = np.zeros((cores, seconds))
    step = how.wide * np.sqrt(1 - how.rho**2)
    level[:, 0] = random.normal(0, how.wide, cores)
    for at in range(1, seconds):
        level[:, at] = how.rho * level[:, at - 1] + random.normal(0, step, cores)
    return 1 / (1 + np.exp(-(how.middle + level)))


def periodic(
    random: np.random.Generator, cores: int, seconds: int, every: float, length: float
) -> np.ndarray:
    """10 % busy, and 60 % more for `length` seconds `every` so many, a fifth of a second late."""
    busy = np.full((cores, seconds * CELLS), 0.1)
    for core in range(cores):
        for due in np.arange(random.uniform(0, every), seconds, every):
            start = max(0, int((due + random.normal(0, 0.2)) * CELLS))
            busy[core, start : start + int(length * CELLS)] += 0.6
    return busy.clip(0, 1).reshape(cores, seconds, CELLS)

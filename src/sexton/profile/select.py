"""Select samples by time, cores, processes, tasks, cgroups, functions and event.

A pattern is matched once per name (thread, cgroup, frame), never per sample: a million samples have
some thousand names. The samples of a function are found in the tree: everything below a matching
node lies between the node and its `end`.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import numpy as np

from sexton.errors import CommandError
from sexton.model.profile import Bools, Kind, Profile, Tree
from sexton.model.text import printable
from sexton.profile.idle import idle_nodes


class Selection(NamedTuple):
    """All conditions must hold; `None` is no condition. `end_ns` is exclusive.

    Patterns may match anywhere: `task` in the name of the thread, `cgroup` in its path, `stack` in
    the name of any function. Without `event` all events count: a processor with two kinds of cores
    has two events for the same thing.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    cpus: frozenset[int] | None = None
    pids: frozenset[int] | None = None
    task: re.Pattern[str] | None = None
    cgroup: re.Pattern[str] | None = None
    stack: re.Pattern[str] | None = None
    event: str | None = None
    #: Include idle samples.
    idle: bool = False

    def all_samples(self) -> Selection:
        """All samples of the same time, cores and event, including idle ones."""
        return Selection(self.start_ns, self.end_ns, self.cpus, event=self.event, idle=True)

    def within(self, span_ns: tuple[int, int]) -> tuple[int, int]:
        """Start and end (exclusive) of the selected part of a capture, given the times of its
        first and last sample."""
        start, end = span_ns[0], span_ns[1] + 1
        return (
            start if self.start_ns is None else max(start, self.start_ns),
            end if self.end_ns is None else min(end, self.end_ns),
        )


ALL = Selection()


def window(profile: Profile, selection: Selection) -> slice:
    """The rows of the time range; samples are in time order, so these are contiguous."""
    if selection.start_ns is None and selection.end_ns is None:
        return slice(0, len(profile))
    if not profile.timed:
        name = printable(profile.facts.path or profile.facts.format or "this profile")
        raise CommandError(f"{name}: no timestamps, so a time range cannot be selected")
    first, last = 0, len(profile)
    if selection.start_ns is not None:
        first = int(np.searchsorted(profile.time_ns, selection.start_ns))
    if selection.end_ns is not None:
        last = int(np.searchsorted(profile.time_ns, selection.end_ns))
    return slice(first, max(first, last))


def mask(profile: Profile, selection: Selection) -> Bools:
    """Per sample: is it selected?"""
    rows = window(profile, selection)
    chosen = np.zeros(len(profile), np.bool_)
    chosen[rows] = chosen_in(profile, selection, rows)
    return chosen


def chosen_in(profile: Profile, selection: Selection, rows: slice) -> Bools:
    """Per sample of `rows` (see `window`): do all conditions except the time range hold?"""
    chosen = np.ones(rows.stop - rows.start, np.bool_)
    if selection.event is not None:
        chosen &= _lookup(known.name == selection.event for known in profile.events)[
            profile.event[rows]
        ]
    if selection.cpus is not None:
        chosen &= np.isin(profile.cpu[rows], np.array(sorted(selection.cpus), np.int64))
    if selection.pids is not None or selection.task is not None:
        pids, task = selection.pids, selection.task
        named = None if task is None else _having(task, {thread.comm for thread in profile.threads})
        wanted = _lookup(
            (pids is None or thread.pid in pids) and (named is None or thread.comm in named)
            for thread in profile.threads
        )
        chosen &= wanted[profile.thread[rows]]
    if selection.cgroup is not None:
        paths = _having(selection.cgroup, profile.cgroups)
        wanted = _lookup(path in paths for path in profile.cgroups)
        chosen &= wanted[profile.cgroup[rows]]
    nodes = wanted_nodes(profile.tree, selection)
    if nodes is not None:
        chosen &= nodes[profile.node[rows]]
    return chosen


def wanted_nodes(tree: Tree, selection: Selection) -> Bools | None:
    """Per node: can a sample that ends there be selected? `None`: all can."""
    nodes: Bools | None = None
    if selection.stack is not None:
        nodes = below(tree, matching_frames(tree, selection.stack))
    if not selection.idle:
        awake = ~idle_nodes(tree)
        nodes = awake if nodes is None else nodes & awake
    return nodes


def matching_frames(tree: Tree, pattern: re.Pattern[str]) -> Bools:
    """Per frame: is it a function with a matching name?"""
    names = _having(pattern, set(tree.frames.names))
    found = np.fromiter((name in names for name in tree.frames.names), np.bool_, len(tree.frames))
    found[(tree.frames.kinds == Kind.ROOT) | (tree.frames.kinds == Kind.TASK)] = False
    return found


def below(tree: Tree, frames: Bools) -> Bools:
    """Per node: is it or one of its callers in `frames`?"""
    hits = np.flatnonzero(frames[tree.frame])
    edges = np.zeros(len(tree) + 1, np.int64)
    edges[hits] = 1
    edges -= np.bincount(tree.end[hits], minlength=len(tree) + 1)
    inside: Bools = np.cumsum(edges[:-1]) > 0
    return inside


def _having(pattern: re.Pattern[str], names: Iterable[str]) -> set[str]:
    """The names that match."""
    with time_limit(pattern):
        return {name for name in names if pattern.search(name) is not None}


def _lookup(wanted: Iterable[bool]) -> Bools:
    """A flag per item, and `False` at the end for "unknown", whose index is -1."""
    return np.array([*wanted, False], np.bool_)


#: Reasonable expressions match a million names in a few seconds. Python's `re` has no limit of
#: its own, but it checks for signals, so a timer of CPU time can interrupt it (``(.*.*)*x`` would
#: run for years). Signals work only in the main thread: other threads have no limit.
MOST_SECONDS = 20.0


@contextmanager
def time_limit(pattern: re.Pattern[str], seconds: float = MOST_SECONDS) -> Iterator[None]:
    """`CommandError` if matching in the block takes more CPU time than this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise CommandError(f"{pattern.pattern!r} takes too long to match: avoid nested repetition")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)

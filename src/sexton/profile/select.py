"""A choice of samples: a range, cores, processes, tasks, cgroups, functions, an event.

Whatever is asked of a name is asked once per thing that has it (thread, cgroup, frame), never per
sample: a capture of a million samples has some thousand names. A function's samples are found in
the tree: everything below a node that matches stands between the node and its `end`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sexton.errors import CommandError
from sexton.model.profile import Bools, Kind, Profile, Tree
from sexton.model.text import printable
from sexton.profile.idle import idle_nodes
from sexton.profile.patience import patience


class Selection(NamedTuple):
    """Every condition must hold; `None` asks nothing. `end_ns` is exclusive.

    Patterns are searched, not matched from the start: `task` in the thread's name, `cgroup` in its
    path, `stack` in the name of any function (of any but the task itself, which has `task`).
    Without `event` every event counts: a processor with two kinds of cores has two for one thing.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    cpus: frozenset[int] | None = None
    pids: frozenset[int] | None = None
    task: re.Pattern[str] | None = None
    cgroup: re.Pattern[str] | None = None
    stack: re.Pattern[str] | None = None
    event: str | None = None
    #: Keep the samples of idle cores too.
    idle: bool = False


ALL = Selection()


def window(profile: Profile, selection: Selection) -> slice:
    """The rows within the range: samples are in the order of time, so they stand together."""
    if selection.start_ns is None and selection.end_ns is None:
        return slice(0, len(profile))
    if not profile.timed:
        name = printable(profile.facts.path or profile.facts.format or "this profile")
        raise CommandError(f"{name}: tells no times, so no range of it can be chosen")
    first, last = 0, len(profile)
    if selection.start_ns is not None:
        first = int(np.searchsorted(profile.time_ns, selection.start_ns))
    if selection.end_ns is not None:
        last = int(np.searchsorted(profile.time_ns, selection.end_ns))
    return slice(first, max(first, last))


def mask(profile: Profile, selection: Selection) -> Bools:
    """Per sample: is it chosen?"""
    rows = window(profile, selection)
    chosen = np.zeros(len(profile), np.bool_)
    chosen[rows] = chosen_in(profile, selection, rows)
    return chosen


def chosen_in(profile: Profile, selection: Selection, rows: slice) -> Bools:
    """Per sample of `rows` (see `window`): do all conditions but the range hold?"""
    chosen = np.ones(rows.stop - rows.start, np.bool_)
    if selection.event is not None:
        chosen &= _lookup(each.name == selection.event for each in profile.events)[
            profile.event[rows]
        ]
    if selection.cpus is not None:
        chosen &= np.isin(profile.cpu[rows], np.array(sorted(selection.cpus), np.int64))
    if selection.pids is not None or selection.task is not None:
        pids, task = selection.pids, selection.task
        named = None if task is None else _having(task, {each.comm for each in profile.threads})
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
    """Per node: may a sample that ended there be chosen? `None`: every one may."""
    nodes: Bools | None = None
    if selection.stack is not None:
        nodes = below(tree, matching_frames(tree, selection.stack))
    if not selection.idle:
        awake = ~idle_nodes(tree)
        nodes = awake if nodes is None else nodes & awake
    return nodes


def matching_frames(tree: Tree, pattern: re.Pattern[str]) -> Bools:
    """Per frame: is it a function whose name matches?"""
    names = _having(pattern, set(tree.frames.names))
    found = np.fromiter((name in names for name in tree.frames.names), np.bool_, len(tree.frames))
    found[(tree.frames.kinds == Kind.ROOT) | (tree.frames.kinds == Kind.TASK)] = False
    return found


def below(tree: Tree, frames: Bools) -> Bools:
    """Per node: is it, or anything above it, one of `frames`?"""
    hits = np.flatnonzero(frames[tree.frame])
    edges = np.zeros(len(tree) + 1, np.int64)
    edges[hits] = 1
    edges -= np.bincount(tree.end[hits], minlength=len(tree) + 1)
    inside: Bools = np.cumsum(edges[:-1]) > 0
    return inside


def _having(pattern: re.Pattern[str], names: Iterable[str]) -> set[str]:
    """Those in which the pattern is found."""
    with patience(pattern):
        return {name for name in names if pattern.search(name) is not None}


def _lookup(wanted: Iterable[bool]) -> Bools:
    """An answer per thing, and a last one, `False`, for "not told", whose index is -1."""
    return np.array([*wanted, False], np.bool_)

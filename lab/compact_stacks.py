"""Reduces decoded stacks to what a diagnosis needs: kernel functions.

A user-space sample becomes the single frame ``[user]``; user frames below kernel frames are
dropped. Heat is recounted from the result and stays the same, because kernel and idle samples stay
what they are. Times are truncated to the millisecond, so each sample stays in its second and its 20
ms bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from lab.scrub import HOST, Scrub
from sexton.model.profile import I32, I64, Facts, Frames, Kind, Profile, Thread, Tree
from sexton.profile.recorded import ends_of

USER = "[user]"
_MS = 1_000_000
_Path = tuple[tuple[str, str, int], ...]
T = TypeVar("T")


def slimmed(profile: Profile, scrub: Scrub) -> Profile:
    """The same samples with fewer frames and scrubbed names."""
    used, place = np.unique(profile.node, return_inverse=True)
    paths = [_path(profile.tree, node, scrub) for node in used.tolist()]
    tree, node_of = _grown(paths)
    threads, thread_of = _once([_thread(task, scrub) for task in profile.threads])
    threads, thread = _used(threads, _mapped(thread_of, profile.thread))
    cgroups, cgroup_of = _once([scrub(cgroup) for cgroup in profile.cgroups])
    return replace(
        profile,
        time_ns=profile.time_ns // _MS * _MS,
        thread=thread,
        cgroup=_mapped(cgroup_of, profile.cgroup),
        node=np.array([node_of[path] for path in paths], np.int32)[place].astype(np.int32),
        threads=tuple(threads),
        cgroups=tuple(cgroups),
        tree=tree,
        facts=_facts(profile.facts, scrub),
    )


def within(profile: Profile, start_ns: int, end_ns: int) -> Profile:
    """Its samples from `start_ns` up to, not including, `end_ns`."""
    first, last = np.searchsorted(profile.time_ns, (start_ns, end_ns)).tolist()
    rows = slice(first, max(first, last))
    return replace(
        profile,
        time_ns=profile.time_ns[rows],
        cpu=profile.cpu[rows],
        thread=profile.thread[rows],
        cgroup=profile.cgroup[rows],
        event=profile.event[rows],
        node=profile.node[rows],
        weight=None if profile.weight is None else profile.weight[rows],
    )


def _thread(thread: Thread, scrub: Scrub) -> Thread:
    return thread._replace(comm=scrub.name(thread.comm))


def _facts(facts: Facts, scrub: Scrub) -> Facts:
    return replace(
        facts,
        path="",
        host=HOST if facts.host else None,
        release=scrub(facts.release) if facts.release else None,
        command=scrub(facts.command) if facts.command else None,
        problems=[scrub(problem) for problem in facts.problems],
    )


def _path(tree: Tree, node: int, scrub: Scrub) -> _Path:
    """Frames from the task inwards: (name, module, kind)."""
    frames = tree.frames
    found = [
        (frames.names[frame], frames.modules[frame], int(frames.kinds[frame]))
        for frame in tree.path(node)
    ]
    if not found:
        return ()
    task = (scrub.name(found[0][0]), "", int(Kind.TASK))
    kernel = [frame for frame in found[1:] if frame[2] in (Kind.KERNEL, Kind.UNTOLD)]
    if found[-1][2] == Kind.USER:
        kernel = [(USER, "", int(Kind.USER))]
    return (task, *kernel)


def _grown(paths: Sequence[_Path]) -> tuple[Tree, dict[_Path, int]]:
    """A tree of the paths in pre-order, and each path's node."""
    every = sorted({path[:length] for path in paths for length in range(len(path) + 1)})
    kinds = sorted({frame for path in every for frame in path})
    number = {frame: place for place, frame in enumerate(kinds, 1)}
    frames = Frames(
        ("", *(name for name, _, _ in kinds)),
        ("", *(module for _, module, _ in kinds)),
        np.array([Kind.ROOT, *(kind for _, _, kind in kinds)], np.uint8),
    )
    depth = np.array([len(path) for path in every], np.int32)
    frame = np.array([number[path[-1]] if path else 0 for path in every], np.int32)
    tree = Tree(frame, depth, ends_of(depth), frames)
    return tree, {path: place for place, path in enumerate(every)}


def _once(items: Sequence[T]) -> tuple[list[T], list[int]]:
    """Distinct items, and the index of each item among them."""
    known: dict[T, int] = {}
    return [*dict.fromkeys(items)], [known.setdefault(item, len(known)) for item in items]


def _mapped(new: Sequence[int], old: I32) -> I32:
    """Map old indices to new ones; -1 stays -1."""
    table = np.array([*new, -1], np.int32)
    return table[old]


def _used(items: list[T], which: I32) -> tuple[list[T], I32]:
    """Drop unused items and renumber."""
    there: I64 = np.unique(which[which >= 0]).astype(np.int64)
    renumbered = np.full(len(items) + 1, -1, np.int32)
    renumbered[there] = np.arange(len(there), dtype=np.int32)
    return [items[place] for place in there.tolist()], renumbered[which]

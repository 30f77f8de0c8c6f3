"""What an export says besides the samples, and how all of them walk a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from sexton.errors import CommandError
from sexton.model.profile import I64, UNKNOWN, Bools, Frames, Profile, Tree
from sexton.model.text import printable

#: Pieces of a capture, each with the rows that were chosen; `None`: all of them.
Parts: TypeAlias = Iterable[tuple[Profile, Bools | None]]


@dataclass(frozen=True, slots=True)
class About:
    """What is known of the whole; whatever is `None` is left out of the export.

    `hertz` is the sampling rate: with it samples are given as time too. `wall_ns` is when the
    chosen range began (UNIX time), `build_ids` are per module.
    """

    name: str = "sexton"
    hertz: int | None = None
    wall_ns: int | None = None
    duration_ns: int | None = None
    build_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def shown(name: str) -> str:
    """A name for another program's eyes: never empty, nothing in it that moves a cursor."""
    return printable(name) or UNKNOWN


def shown_names(frames: Frames) -> list[str]:
    """Every frame's name for another program's eyes; the root has one too."""
    names = [shown(name) for name in frames.names]
    names[0] = printable(frames.names[0]) or "all"
    return names


def paths(tree: Tree, wanted: Bools) -> Iterator[tuple[int, list[int]]]:
    """Each wanted node with its frames, the task first; the list is the walk's own, not to keep."""
    path: list[int] = []
    frame, depth = tree.frame.tolist(), tree.depth.tolist()
    chosen = wanted.tolist()
    for node in range(len(frame)):
        # The root is no frame of a path: a node of depth d is its d-th element.
        del path[max(depth[node] - 1, 0) :]
        if depth[node]:
            path.append(frame[node])
        if chosen[node]:
            yield node, path


def weights_of(profile: Profile, rows: Bools | None) -> I64:
    """What each chosen row counts."""
    if profile.weight is None:
        return np.ones(len(profile) if rows is None else int(rows.sum()), np.int64)
    return profile.weight if rows is None else profile.weight[rows]


def require_times(profile: Profile, what: str) -> None:
    if not profile.timed:
        name = printable(profile.facts.path or profile.facts.format or "this profile")
        raise CommandError(f"{name}: tells no times, and {what} needs them")

"""Export profiles for other tools: one module per format, each yielding bytes piece by piece.

Names are hostile text (a thread may be called ``\\x1b[2J`` or ``a;b 5``): each module says how it
escapes them, so that no reader takes a name for anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from sexton.errors import CommandError
from sexton.model.profile import I64, UNKNOWN, Bools, Frames, Profile, Tree
from sexton.model.text import printable

#: Pieces of a capture, each with a mask of the chosen rows; `None`: all of them.
Parts: TypeAlias = Iterable[tuple[Profile, Bools | None]]


@dataclass(frozen=True, slots=True)
class About:
    """Metadata of the capture; what is `None` is left out of the export.

    `hertz` is the sampling rate: with it, samples are also given as time. `wall_ns` is the start of
    the range (UNIX time), `build_ids` are per module.
    """

    name: str = "sexton"
    hertz: int | None = None
    wall_ns: int | None = None
    duration_ns: int | None = None
    build_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def shown(name: str) -> str:
    """A printable name: never empty, no control characters."""
    return printable(name) or UNKNOWN


def shown_names(frames: Frames) -> list[str]:
    """The printable name of every frame, including the root."""
    names = [shown(name) for name in frames.names]
    names[0] = printable(frames.names[0]) or "all"
    return names


def paths(tree: Tree, wanted: Bools) -> Iterator[tuple[int, list[int]]]:
    """Each wanted node with its frames, the task first; the list is reused."""
    path: list[int] = []
    frame, depth = tree.frame.tolist(), tree.depth.tolist()
    chosen = wanted.tolist()
    for node in range(len(frame)):
        # Paths do not include the root: a node of depth d is the d-th element.
        del path[max(depth[node] - 1, 0) :]
        if depth[node]:
            path.append(frame[node])
        if chosen[node]:
            yield node, path


def weights_of(profile: Profile, rows: Bools | None) -> I64:
    """The weight of each chosen row."""
    if profile.weight is None:
        return np.ones(len(profile) if rows is None else int(rows.sum()), np.int64)
    return profile.weight if rows is None else profile.weight[rows]


def require_times(profile: Profile, what: str) -> None:
    if not profile.timed:
        name = printable(profile.facts.path or profile.facts.format or "this profile")
        raise CommandError(f"{name}: no timestamps; {what} needs them")

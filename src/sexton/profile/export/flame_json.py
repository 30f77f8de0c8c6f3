"""A flame graph as nested JSON, for pages and scripts (d3-flame-graph reads `root` as it is).

Schema ``sexton.flame/1``::

    {"schema": "sexton.flame/1", "event": "cpu-clock", "samples": 812, "core_seconds": 9.7 | null,
     "start_ns": 16783425353000 | null, "end_ns": … | null,
     "root": {"name": "all", "value": 812, "children": [
        {"name": "ksoftirqd/12", "kind": "task", "value": 42, "children": [
           {"name": "net_rx_action", "module": "[kernel.kallsyms]", "kind": "kernel", "value": 42,
            "own": 3, "children": […]}]}]}}

`value` is the samples in a node and below it, `own` those in itself (left out where none), `kind`
one of task, kernel, user, untold; `module` is left out where it is not known, `children` where
there are none. Nodes without samples are left out. Written piece by piece, so that a stack of any
depth neither recurses nor takes memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sexton.model.flame import Flame
from sexton.model.profile import Frames, Kind
from sexton.model.text import printable
from sexton.profile.export.about import shown_names

SCHEMA = "sexton.flame/1"
_PIECE = 1 << 12


def from_flame(flame: Flame) -> Iterator[bytes]:
    """One JSON document, and a newline."""
    head = {
        "schema": SCHEMA,
        "event": printable(flame.event),
        "samples": flame.samples,
        "core_seconds": flame.core_seconds,
        "start_ns": flame.start_ns,
        "end_ns": flame.end_ns,
    }
    pieces = [json.dumps(head)[:-1], ', "root": ']
    totals = flame.tree.totals(flame.own).tolist()
    own, depth, frame = flame.own.tolist(), flame.tree.depth.tolist(), flame.tree.frame.tolist()
    frames = flame.tree.frames
    names = shown_names(frames)
    opening = [_opening(frames, at, names[at]) for at in range(len(frames))]
    open_depth = -1  # of the node written last; its children may follow
    for node, total in enumerate(totals):
        if not total and node:
            continue
        level = depth[node]
        if level > open_depth:
            pieces.append(', "children": [' if node else "")
        else:
            pieces.append("}" + "]}" * (open_depth - level) + ", ")
        mine = f', "own": {own[node]}' if own[node] else ""
        pieces.append(f'{opening[frame[node]]}, "value": {total}{mine}')
        open_depth = level
        if len(pieces) > _PIECE:
            yield "".join(pieces).encode()
            pieces.clear()
    pieces.append("}" + "]}" * open_depth + "}\n")
    yield "".join(pieces).encode()


def _opening(frames: Frames, at: int, name: str) -> str:
    told = {"name": name}
    if frames.modules[at]:
        told["module"] = printable(frames.modules[at])
    if frames.kinds[at] != Kind.ROOT:
        told["kind"] = Kind(int(frames.kinds[at])).name.lower()
    return json.dumps(told)[:-1]

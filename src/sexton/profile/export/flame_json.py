"""A flame graph as nested JSON (d3-flame-graph can read `root` directly).

Schema ``sexton.flame/1``::

    {"schema": "sexton.flame/1", "event": "cpu-clock", "samples": 812, "core_seconds": 9.7 | null,
     "start_ns": 16783425353000 | null, "end_ns": … | null,
     "root": {"name": "all", "value": 812, "children": [
        {"name": "ksoftirqd/12", "kind": "task", "value": 42, "children": [
           {"name": "net_rx_action", "module": "[kernel.kallsyms]", "kind": "kernel", "value": 42,
            "own": 3, "children": […]}]}]}}

`value` counts the samples in a node and below it, `own` those in the node itself (omitted if none),
`kind` is task, kernel, user or untold (unknown); `module` is omitted if unknown, `children` if
there are none. Nodes without samples are omitted. Written piece by piece, without recursion.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sexton.model.profile import Flame, Frames, Kind
from sexton.model.text import printable
from sexton.profile.export import shown_names

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
    open_depth = -1  # of the last node; its children may follow
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
    fields = {"name": name}
    if frames.modules[at]:
        fields["module"] = printable(frames.modules[at])
    if frames.kinds[at] != Kind.ROOT:
        fields["kind"] = Kind(int(frames.kinds[at])).name.lower()
    return json.dumps(fields)[:-1]

"""What the lanes hold, as JSON documents: for the page over HTTP, and for a report that holds them.

Pure functions of what `sexton.explorer.tiles` gives. Arrays go as base64 of little-endian bytes in
the order [channel][row][column], which a browser maps without parsing.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sexton.model.lane import COLUMNS, MOST_TILES, Strip
from sexton.model.profile import Kind
from sexton.model.text import printable, shorten
from sexton.reports.svg.flame_picture import MOST_BOXES, Box, boxes_of, difference_boxes

if TYPE_CHECKING:
    from sexton.model.lane import Marked, Table
    from sexton.model.profile import Flame, FlameDifference, FunctionCount

STRIP, MARKS, TABLE = "sexton.strip/1", "sexton.marks/1", "sexton.table/1"
FLAME, FUNCTIONS, NEXT = "sexton.flame/1", "sexton.functions/1", "sexton.next/1"

#: Bytes of arrays in one answer, so that with names and base64 it stays below a megabyte.
_MOST_ARRAYS = 690_000
#: Letters of a name or a text that are sent.
_MOST_TEXT = 400
#: Bytes of one box of a flame graph besides its name.
_BOX_BYTES = 60
#: Bytes of a cell, channels and planes included, by kind of lane.
_CELL_BYTES = {"heat": 8, "lines": 8, "stacks": 4}
_KINDS = {Kind.ROOT: "root", Kind.TASK: "task", Kind.KERNEL: "kernel", Kind.USER: "user"}


def recording_document(about: Mapping[str, Any], of: str, tour: bool) -> dict[str, Any]:
    """`about` is the view's own; `of` tells one server's tiles from another's."""
    lanes = [{**lane, "most_tiles": _most_tiles(lane, about)} for lane in about["lanes"]]
    return {**about, "lanes": lanes, "id": of, "tour": tour}


def strip_document(strip: Strip) -> dict[str, Any]:
    """As many of its tiles, from the first on, as one answer holds; never none."""
    fits = fitting(strip)
    count = min(strip.count, fits[0])
    rows = len(strip.names) if fits[1] is None else fits[1]
    planes = {
        name: array[:, :rows, : count * COLUMNS] for name, array in sorted(strip.planes.items())
    }
    return {
        "schema": STRIP,
        "lane": strip.lane,
        "level": strip.level,
        "first": strip.first,
        "count": count,
        "columns": count * COLUMNS,
        "names": list(strip.names[:rows]),
        "rows_left_out": len(strip.names) - rows,
        "dtype": strip.dtype,
        "channels": list(strip.channels),
        "planes": {
            name: base64.b64encode(
                array.astype(array.dtype.newbyteorder("<"), order="C", copy=False).tobytes()
            ).decode("ascii")
            for name, array in planes.items()
        },
    }


def fitting(strip: Strip) -> tuple[int, int | None]:
    """How many tiles fit into one answer, and rows where not even one tile does."""
    whole = sum(array.nbytes for array in strip.planes.values())
    tile = whole // max(strip.count, 1)
    if tile <= _MOST_ARRAYS:
        return max(_MOST_ARRAYS // max(tile, 1), 1), None
    return 1, max(len(strip.names) * _MOST_ARRAYS // tile, 1)


def marks_document(marks: Sequence[Marked], left_out: int) -> dict[str, Any]:
    return {
        "schema": MARKS,
        "marks": mark_documents(marks),
        "left_out": left_out,
    }


def mark_documents(marks: Iterable[Marked]) -> list[dict[str, Any]]:
    return [{**each._asdict(), "text": _text(each.text)} for each in marks]


def table_document(table: Table) -> dict[str, Any]:
    return {
        "schema": TABLE,
        "headings": list(table.headings),
        "rows": [list(row) for row in table.rows],
        "left_out": table.left_out,
    }


def flame_document(
    flame: Flame, difference: FlameDifference | None, most: int = MOST_BOXES
) -> dict[str, Any]:
    """The widest boxes, siblings by name; with a baseline what each held `before`."""
    boxes = _boxes(flame, difference, most)
    if difference is None:
        total, before = flame.samples, None
        there = int((flame.tree.totals(flame.own) > 0).sum())
    else:
        total, before = int(difference.after.sum()), int(difference.before.sum())
        both = difference.tree.totals(difference.before + difference.after)
        there = int((both > 0).sum())
    names: dict[str, int] = {}
    nodes: dict[str, list[Any]] = {
        "parent": _parents(boxes),
        "name": [names.setdefault(box.name, len(names)) for box in boxes],
        "samples": [box.counts[-1] for box in boxes],
        "own": [box.own for box in boxes],
        "kind": _kinds(flame if difference is None else difference, boxes),
    }
    if difference is not None:
        nodes["before"] = [box.counts[0] for box in boxes]
        nodes["q"] = [box.q for box in boxes]
    return {
        "schema": FLAME,
        "event": flame.event,
        "names": [shorten(name, _MOST_TEXT) for name in names],
        "nodes": nodes,
        "total": total,
        "before": before,
        "core_seconds": flame.core_seconds,
        "pruned": max(there - len(boxes), 0),
    }


def functions_document(
    functions: Iterable[FunctionCount], samples: int, left_out: int = 0
) -> dict[str, Any]:
    rows = [
        {
            "name": each.name,
            "module": each.module,
            "kind": _KINDS.get(Kind(each.kind), "other"),
            "self": each.own,
            "total": each.total,
            "share": each.own / samples if samples else None,
        }
        for each in functions
    ]
    return {"schema": FUNCTIONS, "rows": rows, "samples": samples, "left_out": left_out}


def next_document(found: Marked | None) -> dict[str, Any]:
    return {
        "schema": NEXT,
        "time": None if found is None else found.time,
        "mark": None if found is None else mark_documents([found])[0],
        "text": "" if found is None else _text(found.text),
    }


def _text(text: str) -> str:
    """Cut before it is escaped, letter by letter."""
    return shorten(printable(shorten(text, _MOST_TEXT)), _MOST_TEXT)


def _most_tiles(lane: Mapping[str, Any], about: Mapping[str, Any]) -> int:
    """A page asks for no more of this lane at once."""
    cores = (about.get("node") or {}).get("cores") or 0
    least = {"heat": cores, "stacks": 50}.get(lane["kind"], 8)
    rows = max(len(lane.get("series") or ()), least, 1)
    tile = rows * COLUMNS * _CELL_BYTES.get(lane["kind"], 8)
    return max(1, min(MOST_TILES, _MOST_ARRAYS // tile))


def _boxes(flame: Flame, difference: FlameDifference | None, most: int) -> list[Box]:
    """The widest ones, as many as one answer holds."""
    while True:
        boxes = boxes_of(flame, most) if difference is None else difference_boxes(difference, most)
        names = sum(min(len(name.encode()), 2 * _MOST_TEXT) for name in {b.name for b in boxes})
        if most == 1 or names + _BOX_BYTES * len(boxes) <= _MOST_ARRAYS:
            return boxes
        most //= 2


def _parents(boxes: Sequence[Box]) -> list[int]:
    """Each box's parent by its place in the list; the first has none."""
    above: list[int] = []
    parents = []
    for number, box in enumerate(boxes):
        del above[box.depth :]
        parents.append(above[-1] if above else -1)
        above.append(number)
    return parents


def _kinds(flame: Flame | FlameDifference, boxes: Sequence[Box]) -> list[str]:
    tree = flame.tree
    kinds = tree.frames.kinds
    return [_KINDS.get(Kind(int(kinds[tree.frame[box.node]])), "other") for box in boxes]

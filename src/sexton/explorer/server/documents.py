"""JSON documents of lanes, marks, tables and flame graphs, and their bytes on the wire.

The server sends them over HTTP; HTML files embed them. Arrays are base64 of little-endian bytes in
the order [channel][row][column], which a browser maps without parsing. Bytes are escaped, finite,
bounded, compressed and tagged for caching.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sexton.model.lane import COLUMNS, MOST_TILES, Strip
from sexton.model.profile import Kind
from sexton.model.text import printable, shorten
from sexton.profile.flame import functions
from sexton.profile.select import below
from sexton.reports.svg.flame_picture import MOST_BOXES, Box, boxes_of, difference_boxes, shown_name

if TYPE_CHECKING:
    from sexton.explorer.tiles.time_order import Ordered
    from sexton.model.diagnosis import Diagnosis
    from sexton.model.lane import Marked, Table
    from sexton.model.profile import Bools, Flame, FlameDifference, Tree

STRIP, MARKS, TABLE = "sexton.strip/1", "sexton.marks/1", "sexton.table/1"
FLAME, FUNCTIONS, NEXT = "sexton.flame/1", "sexton.functions/1", "sexton.next/1"

#: Bytes of arrays per response: with names and base64 it stays below a megabyte.
_MOST_ARRAYS = 690_000
#: Names and texts are cut to this many characters.
_MOST_TEXT = 400
#: Bytes per box of a flame graph, without its name.
_BOX_BYTES = 60
#: Bytes of a cell, channels and planes included, by kind of lane.
_CELL_BYTES = {"heat": 8, "lines": 8, "stacks": 4}
_KINDS = {Kind.ROOT: "root", Kind.TASK: "task", Kind.KERNEL: "kernel", Kind.USER: "user"}
#: The largest response, before compression.
MOST_BYTES = 1_000_000
#: Smaller responses are sent uncompressed.
_WORTH_BYTES = 1000
#: On loopback, better compression costs more time than it saves.
_LEVEL = 1
#: Lists and texts of an oversized document are cut at these lengths until it fits.
_CUTS = (5000, 2000, 1000, 500, 200, 100, 50, 20, 10, 5)
#: The lists that a document's ``left_out`` counts.
_COUNTED = ("marks", "rows")
#: Immutable, but private: other users may lack the token.
FOREVER = "private, max-age=31536000, immutable"
AGAIN = "private, no-cache"


def recording_document(about: Mapping[str, Any], of: str, tour: bool) -> dict[str, Any]:
    """`of` identifies the server process whose tiles these are."""
    lanes = [{**lane, "most_tiles": _most_tiles(lane, about)} for lane in about["lanes"]]
    return {**about, "lanes": lanes, "id": of, "tour": tour}


def strip_document(strip: Strip) -> dict[str, Any]:
    """As many tiles as fit into one response, at least one."""
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
    """How many tiles fit into one response; the number of rows where a single tile is too large."""
    whole = sum(array.nbytes for array in strip.planes.values())
    tile = whole // max(strip.count, 1)
    if tile <= _MOST_ARRAYS:
        return max(_MOST_ARRAYS // max(tile, 1), 1), None
    return 1, max(len(strip.names) * _MOST_ARRAYS // tile, 1)


def marks_document(marks: Sequence[Marked], left_out: int) -> dict[str, Any]:
    return {"schema": MARKS, "marks": mark_documents(marks), "left_out": left_out}


def mark_documents(marks: Iterable[Marked]) -> list[dict[str, Any]]:
    return [{**mark._asdict(), "text": _text(mark.text)} for mark in marks]


def explain_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis, and its verdict in a word."""
    from sexton.reports.json.diagnosis import diagnosis_json

    return {**diagnosis_json(diagnosis), "word": diagnosis.exit.word}


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
    """The widest boxes, siblings by name; with a baseline, their samples `before`."""
    boxes = _boxes(flame, difference, most)
    document = _flame_document(flame.tree if difference is None else difference.tree, boxes)
    if difference is None:
        total, before = flame.samples, None
        there = int((flame.tree.totals(flame.own) > 0).sum())
    else:
        total, before = int(difference.after.sum()), int(difference.before.sum())
        both = difference.tree.totals(difference.before + difference.after)
        there = int((both > 0).sum())
        document["nodes"]["before"] = [box.counts[0] for box in boxes]
        document["nodes"]["q"] = [box.q for box in boxes]
    return {
        "schema": FLAME,
        "event": flame.event,
        **document,
        "total": total,
        "before": before,
        "core_seconds": flame.core_seconds,
        "pruned": max(there - len(boxes), 0),
    }


def sandwich_document(
    flame: Flame, difference: FlameDifference | None, function: str
) -> dict[str, Any]:
    """The same for stacks with this function in them; `all` counts all stacks."""
    if difference is None:
        inside = _inside(flame.tree, function)
        some = replace(flame, own=np.where(inside, flame.own, 0))
        return {**flame_document(some, None), "all": flame.samples, "all_before": None}
    inside = _inside(difference.tree, function)
    before, after = (
        np.where(inside, counts, 0) for counts in (difference.before, difference.after)
    )
    return {
        **flame_document(flame, replace(difference, before=before, after=after)),
        "all": int(difference.after.sum()),
        "all_before": int(difference.before.sum()),
    }


def ordered_document(found: Ordered, most: int = MOST_BOXES) -> dict[str, Any]:
    """The widest boxes in the order of time, with the time at which each begins."""
    boxes = sorted(_boxes(found.flame, None, most), key=lambda box: box.node)
    document = _flame_document(found.flame.tree, boxes)
    document["nodes"]["start"] = [round(float(found.start[box.node]), 3) for box in boxes]
    return {
        "schema": FLAME,
        "event": found.flame.event,
        **document,
        "total": found.flame.samples,
        "before": None,
        "core_seconds": found.flame.core_seconds,
        "pruned": len(found.flame.tree) - len(boxes),
        "note": found.note,
        "settled": True,
    }


def _flame_document(tree: Tree, boxes: Sequence[Box]) -> dict[str, Any]:
    """Boxes by column, each name once."""
    columns = named_columns(tree, boxes)
    names, modules = columns.pop("names"), columns.pop("modules")
    return {
        "names": [shorten(name, _MOST_TEXT) for name in names],
        "modules": [shorten(module, _MOST_TEXT) for module in modules],
        "nodes": {
            **columns,
            "parent": _parents(boxes),
            "samples": [box.counts[-1] for box in boxes],
            "own": [box.own for box in boxes],
        },
    }


def named_columns(tree: Tree, boxes: Sequence[Box]) -> dict[str, list[Any]]:
    """Names, modules and kinds of boxes; `name` and `module` are indexes into the lists."""
    names: dict[str, int] = {}
    modules: dict[str, int] = {}
    kinds = tree.frames.kinds
    return {
        "name": [names.setdefault(box.name, len(names)) for box in boxes],
        "module": [modules.setdefault(box.module, len(modules)) for box in boxes],
        "kind": [_KINDS.get(Kind(int(kinds[tree.frame[box.node]])), "other") for box in boxes],
        "names": list(names),
        "modules": list(modules),
    }


def _inside(tree: Tree, function: str) -> Bools:
    """Per node: is it the function with this name in documents, or called by it?"""
    frames = tree.frames
    named = (
        shorten(shown_name(*frame), _MOST_TEXT) == function
        for frame in zip(frames.names, frames.modules, strict=True)
    )
    found = np.fromiter(named, np.bool_, len(frames))
    found[0] = False
    return below(tree, found)


def functions_document(flame: Flame, most: int) -> dict[str, Any]:
    """The functions with the most samples."""
    found, samples = functions(flame), flame.samples
    rows = [
        {
            "name": shorten(shown_name(function.name, function.module), _MOST_TEXT),
            "module": function.module,
            "kind": _KINDS.get(Kind(function.kind), "other"),
            "self": function.own,
            "total": function.total,
            "share": function.own / samples if samples else None,
        }
        for function in found[:most]
    ]
    left_out = len(found) - len(rows)
    return {"schema": FUNCTIONS, "rows": rows, "samples": samples, "left_out": left_out}


def next_document(found: Marked | None) -> dict[str, Any]:
    return {
        "schema": NEXT,
        "time": None if found is None else found.time,
        "mark": None if found is None else mark_documents([found])[0],
        "text": "" if found is None else _text(found.text),
    }


def _text(text: str) -> str:
    """Shorten, escape, and shorten again: escapes are longer."""
    return shorten(printable(shorten(text, _MOST_TEXT)), _MOST_TEXT)


def _most_tiles(lane: Mapping[str, Any], about: Mapping[str, Any]) -> int:
    """How many tiles of this lane a page may request at once."""
    cores = (about.get("node") or {}).get("cores") or 0
    least = {"heat": cores, "stacks": 50}.get(lane["kind"], 8)
    rows = max(len(lane.get("series") or ()), least, 1)
    tile = rows * COLUMNS * _CELL_BYTES.get(lane["kind"], 8)
    return max(1, min(MOST_TILES, _MOST_ARRAYS // tile))


def _boxes(flame: Flame, difference: FlameDifference | None, most: int) -> list[Box]:
    """The widest boxes, as many as fit into one response."""
    while True:
        boxes = boxes_of(flame, most) if difference is None else difference_boxes(difference, most)
        names = sum(min(len(name.encode()), 2 * _MOST_TEXT) for name in {b.name for b in boxes})
        if most == 1 or names + _BOX_BYTES * len(boxes) <= _MOST_ARRAYS:
            return boxes
        most //= 2


def _parents(boxes: Sequence[Box]) -> list[int]:
    """The index of each box's parent; -1 for the root."""
    above: list[int] = []
    parents = []
    for number, box in enumerate(boxes):
        del above[box.depth :]
        parents.append(above[-1] if above else -1)
        above.append(number)
    return parents


@dataclass(frozen=True, slots=True)
class Body:
    """A response body and its headers."""

    content: bytes
    headers: Mapping[str, str]


def safe(value: Any) -> Any:
    r"""A value without NaN, infinities, lone surrogates and control characters.

    >>> safe({"name": "a\udcff\x1b[2J<script>", "at": [1.5, float("nan"), None, True]})
    {'name': 'a\\xff\\x1b[2J<script>', 'at': [1.5, None, None, True]}
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {printable(str(key)): safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [safe(element) for element in value]
    return value


def json_bytes(document: Mapping[str, Any], most: int = MOST_BYTES) -> bytes:
    """At most `most` bytes of JSON.

    An oversized document has its lists and texts cut: ``"cut_at"`` is the length, and
    ``"left_out"`` includes what was cut.
    """
    clean = safe(document)
    content = _dumped(clean)
    for length in _CUTS:
        if len(content) <= most:
            break
        less = {**_cut(clean, length), "cut_at": length}
        if "left_out" in clean:
            less["left_out"] += sum(len(clean.get(name, ())[length:]) for name in _COUNTED)
        content = _dumped(less)
    return content


def body_of(content: bytes, kind: str, cache: str, gzipped: bool) -> Body:
    """The content, compressed where allowed, with its headers."""
    headers = {
        "content-type": kind,
        "cache-control": cache,
        "etag": f'"{hashlib.sha256(content).hexdigest()[:24]}"',
        "vary": "accept-encoding",
    }
    if gzipped and len(content) > _WORTH_BYTES:
        headers["content-encoding"] = "gzip"
        content = gzip.compress(content, _LEVEL, mtime=0)
    return Body(content, headers)


def takes_gzip(accepted: str) -> bool:
    """Whether an ``Accept-Encoding`` header allows gzip.

    >>> [takes_gzip(each) for each in ("gzip, br", "br", "", "gzip;q=0", "*", "GZIP; q=0.5")]
    [True, False, False, False, False, True]
    """
    for part in accepted.split(","):
        name, _, quality = part.partition(";")
        if name.strip().lower() == "gzip":
            return quality.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def etag_matches(etag: str, header: str) -> bool:
    """Whether an ``If-None-Match`` header names the ETag.

    >>> etag_matches('"a"', 'W/"b", "a"'), etag_matches('"a"', '"b"'), etag_matches('"a"', "*")
    (True, False, True)
    """
    names = {part.strip().removeprefix("W/") for part in header.split(",")}
    return etag in names or "*" in names


def _dumped(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length * 4 else value[: length * 4] + "…"
    if isinstance(value, dict):
        return {key: _cut(item, length) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(element, length) for element in value[:length]]
    return value

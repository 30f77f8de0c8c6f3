"""One HTML file that holds the explorer's page, its numbers and the text around it.

The file needs no server and no network. Its content security policy allows only the one script and
the one style sheet in it, by hash, so a hostile name that got past the escaping still could not
run. Tiles are packed from the coarsest level down until the space is used up; fine columns are
kept around the event in any case.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from sexton import __version__
from sexton.explorer.bundle import explorer_body, explorer_script, explorer_style, page_file
from sexton.explorer.server.documents import safe
from sexton.model.lane import COLUMNS, MOST_TILES, TOP, Strip, column_s
from sexton.reports.svg.flame_svg import escaped

SCHEMA = "sexton.page/1"
#: The element that holds the data; `report_boot.js` looks it up.
DATA = "sexton-data"
#: Most bytes of data in a file: what a ticket accepts, less the script and the text around it.
DATA_BYTES = 2_600_000
_FOOTER = f"<p>sexton {__version__}. This file loads nothing from the network.</p>"
#: Bytes of a tile besides its numbers: key, names, punctuation.
_TILE_BYTES = 48
#: zlib level 6 takes a quarter of level 9's time for 1 % more bytes.
_EFFORT = 6

#: Base64 by plane.
_Planes = Mapping[str, str]


def page_html(title: str, above: str, below: str, data: Mapping[str, Any] | None) -> str:
    """The whole file; `above` and `below` are escaped HTML. Without `data` it is text only."""
    style, script, explorer = page_file("colours.css"), "", ""
    if data is not None:
        style = explorer_style()
        script = explorer_script()
        explorer = f'<div id="explorer" hidden>{explorer_body()}</div>'
    style += "\n" + page_file("report.css")
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; "
        f"style-src 'sha256-{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escaped(title)}</title>",
            f"<style>{style}</style></head>",
            f'<body><article id="report">{above}</article>',
            explorer,
            f'<article id="verdict">{below}{_FOOTER}</article>',
            f'<script type="application/json" id="{DATA}">{embedded(data or {})}</script>',
            f"<script>{script}</script></body></html>",
            "",
        )
    )


def embedded(data: Mapping[str, Any]) -> str:
    r"""JSON that cannot close the script element around it.

    >>> embedded({"name": "</script><!--"})
    '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def escaped_lines(text: str) -> str:
    r"""Escaped line by line: line breaks stay.

    >>> escaped_lines("a<b\x1b\n c")
    'a&lt;b\\x1b\n c'
    """
    return "\n".join(escaped(line) for line in text.split("\n"))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class LaneSource(Protocol):
    """Draws strips of lanes: a recording's view, or a capture."""

    def strip(self, lane: str, level: int, first: int, count: int) -> Strip: ...


class Part(NamedTuple):
    """A span in seconds on the page's clock."""

    start: float
    end: float


class Wanted(NamedTuple):
    """The span of the page, the part kept at every level, and the available bytes."""

    span: Part
    near: Part
    room: int


def top_of(span: Part) -> int:
    """The coarsest level the page requests: the whole span in one tile."""
    columns = max(span.end - span.start, 1.0) / COLUMNS
    return min(max(math.ceil(math.log2(columns)), 0) + 1, TOP)


def tiles(
    view: LaneSource, lanes: Sequence[Mapping[str, Any]], wanted: Wanted
) -> tuple[dict[str, Any], int]:
    """Names and tiles per lane, and the finest level that is complete."""
    top = top_of(wanted.span)
    near = Part(max(wanted.near.start, wanted.span.start), min(wanted.near.end, wanted.span.end))
    kept = {lane["id"]: _empty() for lane in lanes}
    spent = 0
    for level in range(top + 1):
        for lane, tile in _level(view, lanes, level, near, wanted.span):
            spent += tile.into(kept[lane])
    finest = top + 1
    for level in range(top, -1, -1):
        left = wanted.room - spent if level < top else math.inf  # the coarsest level always goes in
        more = _fitting(view, lanes, (level, left), wanted.span, kept)
        if more is None:
            break
        spent += sum(tile.into(kept[lane]) for lane, tile in more)
        finest = level
    return kept, finest


def _empty() -> dict[str, Any]:
    return {"names": [], "channels": [], "dtype": "float32", "tiles": {}}


class _Tile(NamedTuple):
    key: str
    strip: Strip
    planes: _Planes

    @property
    def bytes(self) -> int:
        return sum(map(len, self.planes.values())) + _TILE_BYTES

    def into(self, lane: dict[str, Any]) -> int:
        """Add the tile to its lane; returns the bytes it takes."""
        strip = self.strip
        lane["names"], lane["channels"] = list(safe(strip.names)), list(strip.channels)
        lane["dtype"] = strip.dtype
        lane["tiles"][self.key] = dict(self.planes)
        return self.bytes


def _fitting(
    view: LaneSource,
    lanes: Sequence[Mapping[str, Any]],
    bound: tuple[int, float],
    span: Part,
    kept: Mapping[str, Any],
) -> list[tuple[str, _Tile]] | None:
    """The missing tiles of a level; None if they do not fit."""
    level, left = bound
    found: list[tuple[str, _Tile]] = []
    for lane, tile in _level(view, lanes, level, span, span):
        if tile.key in kept[lane]["tiles"]:
            continue
        left -= tile.bytes
        if left < 0:
            return None
        found.append((lane, tile))
    return found


def _level(
    view: LaneSource, lanes: Sequence[Mapping[str, Any]], level: int, part: Part, span: Part
) -> Iterator[tuple[str, _Tile]]:
    """Every non-empty tile of a level that overlaps the part.

    Columns of 20 ms are not packed: the page derives them from the rows of each second.
    """
    tile_s = COLUMNS * column_s(level)
    first, last = (math.floor(edge / tile_s) for edge in part)
    for lane in lanes:
        if level < max(lane["levels"][0], 0):
            continue
        for at in range(first, last + 1, MOST_TILES):
            strip = view.strip(lane["id"], level, at, min(MOST_TILES, last + 1 - at))
            for tile in _tiles(strip, span):
                yield lane["id"], tile


def _tiles(strip: Strip, span: Part) -> Iterator[_Tile]:
    """One by one, with everything outside the span marked absent, which compresses to nothing."""
    first, last = (math.floor(edge / column_s(strip.level)) for edge in span)
    for number in range(strip.count):
        at = strip.first + number
        inside = slice(max(first - at * COLUMNS, 0), max(last + 1 - at * COLUMNS, 0))
        mean, peak = (
            _within(strip.planes[name][:, :, number * COLUMNS : (number + 1) * COLUMNS], inside)
            for name in ("mean", "peak")
        )
        if _is_absent(mean):
            continue
        planes = {"mean": _text(mean)}
        if peak.tobytes() != mean.tobytes():
            planes["peak"] = _text(peak)
        yield _Tile(f"{strip.level}/{at}", strip, planes)


def _within(values: np.ndarray[Any, Any], inside: slice) -> np.ndarray[Any, Any]:
    none = np.nan if values.dtype.kind == "f" else np.iinfo(values.dtype).max
    kept = np.full_like(values, none)
    kept[:, :, inside] = values[:, :, inside]
    return kept


def _is_absent(values: np.ndarray[Any, Any]) -> bool:
    if values.dtype.kind == "f":
        return bool(np.isnan(values).all())
    return bool((values == np.iinfo(values.dtype).max).all())


def _text(values: np.ndarray[Any, Any]) -> str:
    plain = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False).tobytes()
    return base64.b64encode(zlib.compress(plain, _EFFORT)).decode("ascii")

"""The tiles of a report: every level around the event, elsewhere as fine as there is room for.

They are packed from the coarsest level down, and packing ends where the room does: of half a day
of a large node most tiles would never be used.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.explorer.server.answers import safe
from sexton.model.lane import COLUMNS, MOST_TILES, TOP, Strip, column_s

if TYPE_CHECKING:
    import numpy as np

    from sexton.explorer.tiles.view import View

#: What a tile takes besides its numbers: its key, names and signs.
_AROUND_BYTES = 48
#: A quarter of the time of the best, for a hundredth more.
_EFFORT = 6

#: A tile's planes as text.
_Planes = Mapping[str, str]


class Part(NamedTuple):
    """Wall seconds."""

    start: float
    end: float


class Wanted(NamedTuple):
    """All of the report, the part of it that is kept in every column, and the bytes there are."""

    span: Part
    near: Part
    room: int


def top_of(span: Part) -> int:
    """The coarsest level that a page of this length asks for: all of it in one tile's columns."""
    columns = max(span.end - span.start, 1.0) / COLUMNS
    return min(max(math.ceil(math.log2(columns)), 0) + 1, TOP)


def tiles(
    view: View, lanes: Sequence[Mapping[str, Any]], wanted: Wanted
) -> tuple[dict[str, Any], int]:
    """By lane its names and tiles, and the finest level of which all are there."""
    top = top_of(wanted.span)
    near = Part(max(wanted.near.start, wanted.span.start), min(wanted.near.end, wanted.span.end))
    kept = {lane["id"]: _empty() for lane in lanes}
    spent = 0
    for level in range(top + 1):
        for lane, tile in _level(view, lanes, level, near, wanted.span):
            spent += tile.into(kept[lane])
    finest = top + 1
    for level in range(top, -1, -1):
        left = wanted.room - spent if level < top else math.inf  # something is there in any case
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
        return sum(map(len, self.planes.values())) + _AROUND_BYTES

    def into(self, lane: dict[str, Any]) -> int:
        """Puts it where it belongs; so many bytes more that is."""
        strip = self.strip
        lane["names"], lane["channels"] = list(safe(strip.names)), list(strip.channels)
        lane["dtype"] = strip.dtype
        lane["tiles"][self.key] = dict(self.planes)
        return self.bytes


def _fitting(
    view: View,
    lanes: Sequence[Mapping[str, Any]],
    bound: tuple[int, float],
    span: Part,
    kept: Mapping[str, Any],
) -> list[tuple[str, _Tile]] | None:
    """The tiles of a level that are not there yet; `None` where they are too many bytes."""
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
    view: View, lanes: Sequence[Mapping[str, Any]], level: int, part: Part, span: Part
) -> Iterator[tuple[str, _Tile]]:
    """Every tile of a level that meets the part and in which something was recorded.

    Columns of 20 ms are the seconds' own rows: the page lays them side by side.
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
    """Each on its own; what lies outside the span is absent, and takes no room."""
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
    import numpy as np

    none = np.nan if values.dtype.kind == "f" else np.iinfo(values.dtype).max
    kept = np.full_like(values, none)
    kept[:, :, inside] = values[:, :, inside]
    return kept


def _is_absent(values: np.ndarray[Any, Any]) -> bool:
    import numpy as np

    if values.dtype.kind == "f":
        return bool(np.isnan(values).all())
    return bool((values == np.iinfo(values.dtype).max).all())


def _text(values: np.ndarray[Any, Any]) -> str:
    plain = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False).tobytes()
    return base64.b64encode(zlib.compress(plain, _EFFORT)).decode("ascii")

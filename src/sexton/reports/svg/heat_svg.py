"""A heatmap as one SVG file: the cells as a small PNG, with time and core labels."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sexton.profile.heatmap import Heatmap
from sexton.reports.svg.colours import LEVELS, Scheme, palette
from sexton.reports.svg.flame_svg import escaped, part
from sexton.reports.text.profile_head import Capture, identity

WIDTH, LEFT, TOP, BOTTOM = 1200, 64, 56, 56
TITLES = {
    "cores": "Cores over time",
    "peaks": "Cores over time, the busiest second of each column",
    "subsecond": "Seconds across, 20 ms up",
}


def heat_svg(drawn: Heatmap, capture: Capture) -> str:
    """The whole file."""
    rows, columns = drawn.values.shape
    tall = _height(rows)
    values = drawn.values[::-1] if drawn.kind == "subsecond" else drawn.values
    cells = levels(values, drawn.most)
    height = TOP + tall + BOTTOM
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" class="heat" width="100%" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="xMidYMin meet" '
        f'role="img" aria-label="{escaped(capture.name)}">',
        f"<style>{part('heat.css')}</style>",
        f'<text class="title" x="10" y="22">{escaped(TITLES[drawn.kind])}</text>',
        f'<text class="note" x="10" y="42">{escaped(identity(capture))}</text>',
        f'<rect class="none" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - 10}" height="{tall}"/>',
        *(_image(cells, scheme, tall) for scheme in ("light", "dark")),
        *_rows(drawn, tall),
        *_clock(drawn, capture, columns, TOP + tall + 16),
        *_scale(drawn, TOP + tall + 32),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _image(cells: npt.NDArray[np.uint8], scheme: Scheme, tall: int) -> str:
    """The cells in one colour scheme; CSS shows the one that applies."""
    picture = base64.b64encode(png(cells, scheme)).decode()
    return (
        f'<image class="{scheme}" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - 10}" '
        f'height="{tall}" preserveAspectRatio="none" image-rendering="pixelated" '
        f'href="data:image/png;base64,{picture}"/>'
    )


def levels(values: npt.NDArray[np.float64], most: float) -> npt.NDArray[np.uint8]:
    """Each cell's level in the palette.

    >>> levels(np.array([[-1.0, 0.0, 5.0, 10.0]]), 10.0).tolist()
    [[0, 1, 32, 63]]
    """
    part_of = np.clip(values / most, 0, 1) if most > 0 else np.zeros(values.shape)
    found = 2 + np.floor(part_of * (LEVELS - 3)).astype(np.int64)
    found[values == 0] = 1
    found[values < 0] = 0
    return found.astype(np.uint8)


def png(cells: npt.NDArray[np.uint8], scheme: Scheme) -> bytes:
    """A palette PNG whose first colour is transparent."""
    rows, columns = cells.shape
    lines = np.zeros((rows, columns + 1), np.uint8)
    lines[:, 1:] = cells
    head = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    colours = b"".join(bytes(colour) for colour in palette(scheme))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", head),
            _chunk(b"PLTE", colours),
            _chunk(b"tRNS", b"\0"),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _height(rows: int) -> int:
    return int(min(max(rows * 14, 120), 720)) if rows < 120 else 720


def _rows(drawn: Heatmap, tall: int) -> Iterator[str]:
    number = max(len(drawn.rows), 1)
    every = max(-(-number * 14 // tall), 1)
    for place in range(0, number, 5 if drawn.kind == "subsecond" else every):
        row = drawn.rows[place] if drawn.rows else 0
        at = number - 1 - place if drawn.kind == "subsecond" else place
        y = TOP + (at + 0.5) * tall / number + 4
        text = f"{row} ms" if drawn.kind == "subsecond" else f"core {row}" if row >= 0 else "?"
        yield f'<text class="note end" x="{LEFT - 6}" y="{y:.1f}">{text}</text>'


def _clock(drawn: Heatmap, capture: Capture, columns: int, y: int) -> Iterator[str]:
    room = WIDTH - LEFT - 10
    for place in ticks(columns, 10):
        x = LEFT + place * room / columns
        text = capture.times.clock(drawn.column_ns(place)[0])
        yield f'<path class="tick" d="M{x:.1f} {y - 15}v4"/>'
        yield f'<text class="note" x="{x:.1f}" y="{y}">{escaped(text)}</text>'


def ticks(columns: int, most: int) -> Sequence[int]:
    """Columns that get a time label."""
    for step in (1, 2, 5, 10, 15, 20, 30, 60, 120, 300):
        if columns / step <= most:
            return range(0, columns, step)
    return range(0, columns, -(-columns // most))


def _scale(drawn: Heatmap, y: int) -> Iterator[str]:
    steps = np.arange(1, LEVELS, dtype=np.uint8)[None, :]
    for scheme in ("light", "dark"):
        picture = base64.b64encode(png(steps, scheme)).decode()
        yield (
            f'<image class="{scheme}" x="{LEFT}" y="{y}" width="190" height="10" '
            f'preserveAspectRatio="none" href="data:image/png;base64,{picture}"/>'
        )
    words = f"0 to {drawn.most:,.0f} busy samples per second; blank: not sampled"
    yield f'<text class="note" x="{LEFT + 198}" y="{y + 9}">{words}</text>'

"""A flame graph as one SVG file: a picture for a ticket, with counts as tooltips.

It has no scripts and loads nothing; the explorer's page can zoom and search. Names are hostile
text and escaped twice: control characters and bidi marks (`printable`), then XML.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import NamedTuple

from sexton.model.text import printable
from sexton.reports.svg.colours import flame_rules, legend, svg_style
from sexton.reports.svg.flame_picture import SIGNIFICANT, Box
from sexton.reports.text.profile_head import percent, significance

WIDTH, ROW, PAD = 1200, 17, 10
HEAD = 52
#: The widest monospaced letter, in pixels at the font size of the boxes.
_LETTER = 7.2
_LEAST = 0.4


class Words(NamedTuple):
    """The title and the note above the picture."""

    title: str
    note: str = ""
    #: The names of the two sides of a difference.
    before: str = "before"
    after: str = "after"


def flame_svg(boxes: Sequence[Box], words: Words, icicle: bool = False) -> str:
    """The whole file; `boxes` in pre-order, as `flame_picture` gives them."""
    deepest = max((box.depth for box in boxes), default=0)
    height = HEAD + (deepest + 1) * ROW + PAD
    difference = bool(boxes) and len(boxes[0].counts) == 2
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flame" width="100%" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="xMidYMin meet" role="img" '
        f'aria-label="{escaped(words.title)}">',
        f"<title>{escaped(words.title)}</title>",
        f"<style>{part('flame.css')}{flame_rules()}</style>",
        f'<text class="title" x="{PAD}" y="22">{escaped(words.title)}</text>',
        f'<text class="note" x="{PAD}" y="40">{escaped(words.note)}</text>',
        '<g class="legend">',
        *_legend(difference),
        "</g>",
        '<g class="boxes">',
        *_boxes(boxes, words, deepest, icicle),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def part(name: str) -> str:
    """A style sheet that goes into the SVG."""
    return svg_style((files("sexton.reports.svg") / name).read_text("utf-8"))


def escaped(text: str) -> str:
    """For an element or an attribute of XML or HTML.

    >>> escaped('</script><b a="1">]]>&')
    '&lt;/script&gt;&lt;b a=&quot;1&quot;&gt;]]&gt;&amp;'
    """
    plain = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace('"', "&quot;").replace("'", "&#39;")


def _legend(difference: bool) -> Iterator[str]:
    entries = legend(difference)
    x = WIDTH + 4 - sum(30 + 6.3 * len(words) for _, words in entries)
    for shade, words in entries:
        yield (
            f'<g class="{shade}"><rect x="{x:.0f}" y="30" width="12" height="12" rx="2"/>'
            f'<text class="note" x="{x + 16:.0f}" y="40">{escaped(words)}</text></g>'
        )
        x += 30 + 6.3 * len(words)


def _boxes(boxes: Sequence[Box], words: Words, deepest: int, icicle: bool) -> Iterator[str]:
    room = WIDTH - 2 * PAD
    sides = [max(count, 1) for count in boxes[0].counts] if boxes else [1]
    nexts: list[float] = [0.0]
    for box in boxes:
        share = box.counts[-1] / sides[-1] if box.depth else 1.0
        del nexts[box.depth + 1 :]
        x = nexts[box.depth]
        nexts[box.depth] = x + share
        nexts.append(x)
        width = share * room
        y = HEAD + (box.depth if icicle else deepest - box.depth) * ROW
        if width >= _LEAST:
            yield _drawn(box, (PAD + x * room, y, width), _title(box, sides, words))


def _drawn(box: Box, at: tuple[float, int, float], title: str) -> str:
    x, y, width = at
    drawn = max(width - (0.6 if width > 3 else 0), 0.3)
    return (
        f'<g class="{box.shade}">'
        f"<title>{escaped(box.name)}\n{escaped(title)}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{drawn:.2f}" height="{ROW - 1}" rx="1.5"/>'
        f'<text x="{x + 3:.2f}" y="{y + 12}">{escaped(fitted(box.name, width - 5))}</text></g>'
    )


def _title(box: Box, sides: Sequence[int], words: Words) -> str:
    module = f"{box.module} · " if box.module else ""
    if len(sides) == 1:
        total = box.counts[0]
        own = f" · self {percent(box.own / sides[0])}" if box.own else ""
        return f"{module}{total:,} samples · {percent(total / sides[0])}{own}"
    before, after = (count / side for count, side in zip(box.counts, sides, strict=True))
    change = _change(box)
    return (
        f"{module}{words.before} {percent(before)} ({box.counts[0]:,}) → "
        f"{words.after} {percent(after)} ({box.counts[1]:,}) · {change}"
    )


def _change(box: Box) -> str:
    if box.q != box.q:
        return "not tested"
    sure = "" if box.q <= SIGNIFICANT else " (may be chance)"
    return f"q {significance(box.q)}{sure}"


def fitted(name: str, room: float) -> str:
    """As much of a name as fits.

    >>> fitted("do_syscall_64", 200), fitted("do_syscall_64", 60), fitted("do_syscall_64", 10)
    ('do_syscall_64', 'do_sysc…', '')
    """
    free = int(room / _LETTER)
    if free < 3:
        return ""
    kept = ""
    for letter in name:
        free -= 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if free < 0:
            return kept[:-1] + "…"
        kept += letter
    return kept

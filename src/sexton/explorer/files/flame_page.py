"""Pages with one picture: a flame graph, a difference, or a heatmap."""

from __future__ import annotations

from collections.abc import Sequence

from sexton.explorer.files.page_data import Numbers
from sexton.explorer.files.page_shell import shell
from sexton.model.profile import NO_CLOCK, Facts
from sexton.profile.heatmap import Heatmap
from sexton.reports.svg.flame_colours import legend
from sexton.reports.svg.flame_picture import Box
from sexton.reports.svg.flame_svg import Words, escaped
from sexton.reports.svg.heat_svg import TITLES
from sexton.reports.text.profile_head import Capture, identity, times_of

TIP = '<div id="tip" hidden role="status"></div>'
NO_SCRIPT = "<noscript><p>Drawing needs scripts; none of them fetches anything.</p></noscript>"


def flame_html(boxes: Sequence[Box], words: Words, icicle: bool = False) -> str:
    """The same as `flame_svg`, as a page."""
    difference = bool(boxes) and len(boxes[0].counts) == 2
    numbers = Numbers(Capture(Facts(), times_of(NO_CLOCK, 0), None, lambda: 0))
    sides = (words.before, words.after) if difference else ()
    numbers.add_flame(boxes, "flame graph", "", sides)
    numbers.data["pictures"][0]["icicle"] = icicle
    body = (
        f"<h1>{escaped(words.title)}</h1><p class='soft'>{escaped(words.note)}</p>"
        f"{keys(difference)}{FLAME_PLACE.replace('<div id=tabs', '<div id=tabs hidden')}{TIP}"
    )
    return shell(words.title, body, numbers.finished())


def heat_html(drawn: Heatmap, capture: Capture) -> str:
    """One heatmap to point at."""
    numbers = Numbers(capture)
    numbers.add_heat(drawn, capture, None)
    body = (
        f"<h1>{escaped(identity(capture))}</h1><p class='soft'>{escaped(TITLES[drawn.kind])}</p>"
        f"{heat_place(drawn.kind)}{NO_SCRIPT}"
        f"<div id=tabs hidden></div><p id=caption></p><div id=flame hidden></div>{TIP}"
    )
    return shell(capture.name, body, numbers.finished())


def heat_place(kind: str) -> str:
    """Where a heatmap is drawn."""
    label = "parts of each second" if kind == "subsecond" else "cores"
    return (
        f'<canvas id="heat-{kind}" tabindex="0" role="img" aria-label="Heatmap of {label} over '
        'time. Arrows move, Shift and arrows choose a range, Enter shows it."></canvas>'
    )


def keys(difference: bool) -> str:
    """What the colours mean."""
    shown = "".join(
        f'<span><svg width="11" height="11" class="key"><g class="{shade}">'
        f'<rect width="11" height="11" rx="2"/></g></svg> {escaped(words)}</span>'
        for shade, words in legend(difference)
    )
    return f'<p class="keys">{shown}</p>'


FLAME_PLACE = (
    '<div id=tabs role="tablist" aria-label="flame graphs"></div>'
    '<p id=caption></p><div id=flame role="tabpanel"></div>' + NO_SCRIPT
)

"""The guided tour as text for a terminal: every step with its facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sexton.reports.text.blocks import block, clamp

_INDENT = "    "


def tour_text(tour: Mapping[str, Any], width: int) -> str:
    """`tour` is a `sexton.tour/1` document."""
    width = clamp(width)
    lines = [*block(f"{tour['title']}: {tour['recording']}", width, "")]
    for step in tour["steps"]:
        lines += ["", *block(step["title"], width, _INDENT, first=f"{step['number']:>3} ")]
        for text in step["text"]:
            lines += block(text, width, _INDENT)
        lines += _facts(step, width)
    if tour["steps"][-1]["next"]:  # earlier ones are about the page's keys
        lines += ["", *block(tour["steps"][-1]["next"], width, _INDENT)]
    return "\n".join(lines) + "\n"


def _facts(step: Mapping[str, Any], width: int) -> Iterator[str]:
    """One line per fact: its value, and the normal or earlier value."""
    before_and_after: Sequence[str] = step.get("columns", ())[1:3]
    for fact in step["facts"]:
        if before_and_after:
            text = f"{fact['normal']} {before_and_after[0]}, {fact['here']} {before_and_after[1]}"
        else:
            text = f"{fact['here']} (normal: {fact['normal']})"
        yield from block(f"{fact['what']}: {text}", width, f"{_INDENT}  ", first=f"{_INDENT}· ")

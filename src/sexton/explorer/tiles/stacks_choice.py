"""How much of a span is looked at for its flame graph, while somebody waits for it.

A minute of a large node is half a million samples, and stacks may have been taken all night or for
some minutes after each alarm. So first a little of it is shown, evenly spread over the time of
which there are stacks, and then as much as is worth waiting for: all of a quarter of an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sexton.model.text import seconds

Window = tuple[float, float]
#: At first so many samples, in so many places; and in how many seconds, if it is not known how many
#: there are in one.
_QUICK_SAMPLES, _QUICK_SLICES, _QUICK_S = 200_000, 3, 15.0
_LEAST_S = 0.3
#: Then so many seconds; of more than these, slices. Two spans are compared at once.
LONGEST_S, COMPARED_S = 900.0, 300.0
SLICES, SLICE_S = 24, 15.0


class Reach(NamedTuple):
    """From when to when there are stacks, and of how many samples; `None` if nobody counted."""

    start: float
    end: float
    samples: int | None = None


class Choice(NamedTuple):
    """What is looked at; `note` tells what it is of, empty where it is all there is."""

    windows: list[Window]
    note: str


def choose(span: Window, reaches: Sequence[Reach], quick: bool = False) -> Choice:
    """What of a span is looked at; no windows where there are no stacks in it.

    >>> night = [Reach(0.0, 43200.0, 43200 * 9000)]
    >>> choose((10.0, 70.0), night)
    Choice(windows=[(10.0, 70.0)], note='')
    >>> choose((10.0, 70.0), night, quick=True).note
    'a first look: 3 times 7.41 s of 1 min 0 s'
    >>> found = choose((0.0, 43200.0), night)
    >>> len(found.windows), found.windows[1], found.note
    (24, (1800.0, 1815.0), 'a choice: 24 times 15 s of 12 h 0 min, evenly spread')
    >>> choose((0.0, 43200.0), [Reach(60.0, 65.0), Reach(900.0, 920.0)]).windows
    [(0.0, 43200.0)]
    """
    there = _covered(span, reaches)
    length = sum(end - start for start, end in there)
    longest, number, each_s = LONGEST_S, SLICES, SLICE_S
    if quick:
        longest, number = _quick_s(reaches), _QUICK_SLICES
        each_s = longest / number
    if length <= longest:
        return Choice([span] if there else [], "")
    windows = _spread(there, length, number, each_s)
    what = "a first look" if quick else "a choice"
    spread = "" if quick else ", evenly spread"
    told = f"{what}: {number} times {each_s:.3g} s of {seconds(round(length))}{spread}"
    return Choice(windows, told)


def nearest(span: Window, to: Window) -> Window:
    """As much of a long span as is compared, where it is nearest to another one.

    >>> nearest((0.0, 5000.0), (6000.0, 6010.0)), nearest((7000.0, 7010.0), (0.0, 1.0))
    ((4700.0, 5000.0), (7000.0, 7010.0))
    """
    start, end = span
    if end - start <= COMPARED_S:
        return span
    return (end - COMPARED_S, end) if start < to[0] else (start, start + COMPARED_S)


def cut_note(span: Window, baseline: Window) -> str:
    """What of two spans is compared, where it is not all.

    >>> cut_note((0.0, 60.0), (60.0, 90.0)), cut_note((0.0, 60.0), (60.0, 9000.0))
    ('', 'compared: the 5 min 0 s of each span that are nearest to the other')
    """
    if max(end - start for start, end in (span, baseline)) <= COMPARED_S:
        return ""
    return f"compared: the {seconds(COMPARED_S)} of each span that are nearest to the other"


def _covered(span: Window, reaches: Iterable[Reach]) -> list[Window]:
    """Of what of the span there are stacks, in order and each moment once."""
    found: list[Window] = []
    for each in sorted(reaches, key=lambda each: each[:2]):
        start, end = max(each.start, span[0]), min(each.end, span[1])
        if found:
            start = max(start, found[-1][1])
        if start >= end:
            continue
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, end))
    return found


def _quick_s(reaches: Sequence[Reach]) -> float:
    counted = [each for each in reaches if each.samples and each.end > each.start]
    if not counted:
        return _QUICK_S
    samples = sum(each.samples or 0 for each in counted)
    length = sum(each.end - each.start for each in counted)
    return max(_QUICK_SAMPLES * length / samples, _LEAST_S)


def _spread(there: list[Window], length: float, number: int, each_s: float) -> list[Window]:
    """So many windows, one in each equal part of the time there is."""
    found: list[Window] = []
    for at in range(number):
        offset = length * at / number
        for start, end in there:
            if offset < end - start:
                found.append((start + offset, min(start + offset + each_s, end)))
                break
            offset -= end - start
    return found

"""Every end of a unit that a recording knows of.

A long window holds a selection of readings, of the units too. A crash loop is one end in ten
seconds, and whoever asks what came before them wants them all.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sexton.model.text import printable
from sexton.model.unit import Unit
from sexton.replay.reader_pool import Crew
from sexton.replay.span import Span
from sexton.replay.span_reader import Book, Shelf
from sexton.store.arrays import coded, numbers
from sexton.store.recording import Recording

_COLUMNS = ("name", "main_exit_us")


def unit_ends(recording: Recording, span: Span, unit: str, crew: Crew | None = None) -> list[float]:
    """When its main process ended, monotonic seconds, in order; `unit` as it is printed."""
    found: set[int] = set()
    shelf = Shelf(recording, span, crew)
    for some in shelf.each(partial(_ends, unit), shelf.having(Unit)):
        found |= some
    return sorted(end / 1e6 for end in found if span.holds(end / 1e6))


def _ends(unit: str, book: Book) -> set[int]:
    table = book.segment.table(Unit, _COLUMNS, coded=("name",))
    if table is None or any(name not in table.column_names for name in _COLUMNS):
        return set()
    codes, names = coded(table.column("name"))
    mine = [code for code, name in enumerate(names) if printable(name) == unit]
    ends = np.unique(numbers(table.column("main_exit_us"))[np.isin(codes, mine)])
    return {*ends[ends > 0].tolist()}

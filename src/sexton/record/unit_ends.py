"""Every end of a unit that a recording knows of.

A long window holds a selection of readings, of the units too. A crash loop is one end in ten
seconds, and whoever asks what came before them wants them all.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sexton.model.text import printable
from sexton.model.unit import Unit
from sexton.record.shelf import Shelf
from sexton.record.span import Span
from sexton.store.recording import Recording
from sexton.store.schema import unescape

_COLUMNS = ("name", "main_exit_us")


def unit_ends(recording: Recording, span: Span, unit: str) -> list[float]:
    """When its main process ended, monotonic seconds, in order; `unit` as it is printed."""
    found: set[int] = set()
    for book in Shelf(recording, span).having(Unit):
        table = book.segment.table(Unit, _COLUMNS)
        if table is None or any(name not in table.column_names for name in _COLUMNS):
            continue
        names = table.column("name").cast(pa.string())
        every = pc.unique(names).to_pylist()
        mine = [name for name in every if printable(unescape(name)) == unit]
        for name in mine:
            ends = table.filter(pc.equal(names, name)).column("main_exit_us").to_pylist()
            found.update(end for end in ends if end)
    return sorted(end / 1e6 for end in found if span.holds(end / 1e6))

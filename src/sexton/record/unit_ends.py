"""Every end of a unit that a recording knows of.

A long window holds a selection of readings, of the units too. A crash loop is one end in ten
seconds, and whoever asks what came before them wants them all.
"""

from __future__ import annotations

from sexton.model.text import printable
from sexton.model.unit import Unit
from sexton.record.shelf import Shelf
from sexton.record.span import Span
from sexton.store.arrays import coded, numbers
from sexton.store.recording import Recording

_COLUMNS = ("name", "main_exit_us")


def unit_ends(recording: Recording, span: Span, unit: str) -> list[float]:
    """When its main process ended, monotonic seconds, in order; `unit` as it is printed."""
    found: set[int] = set()
    for book in Shelf(recording, span).having(Unit):
        table = book.segment.table(Unit, _COLUMNS, coded=("name",))
        if table is None or any(name not in table.column_names for name in _COLUMNS):
            continue
        codes, names = coded(table.column("name"))
        for code, name in enumerate(names):
            if printable(name) == unit:
                ends = numbers(table.column("main_exit_us"))[codes == code].tolist()
                found.update(end for end in ends if end > 0)
    return sorted(end / 1e6 for end in found if span.holds(end / 1e6))

"""What a row is.

A row is one frozen record read from the host: a noun in the singular, with units in its field
names (`system_ms`, `rss_bytes`). Counters are kept raw, exactly as the kernel counts them; rates
are computed later, in `sexton.series.steps`. A field that a kernel does not provide is `None`. Rows
have no time of their own unless the kernel provides one: their `Batch` has it.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from sexton.model.frozen import Frozen, frozen

RowType = TypeVar("RowType")
_tables: dict[str, str] = {}


class Row(Frozen):
    """The base class of rows."""

    __slots__: tuple[str, ...] = ()
    #: The fields that identify a thing within a reading: recordings keep each thing's readings
    #: together, where neighbouring counters differ little. Events have none.
    entity: ClassVar[tuple[str, ...]] = ()
    #: Counters that may use all 64 bits.
    unsigned: ClassVar[tuple[str, ...]] = ()


@dataclass_transform(frozen_default=True)
def row(cls: type[RowType]) -> type[RowType]:
    """A frozen, slotted dataclass; `dataclasses.replace`, `fields` and `asdict` work on it."""
    return frozen(cls)


def table(row_type: type[Row]) -> str:
    """The name of a row's table in a recording.

    >>> from sexton.model.rows.cpu import CoreTimes
    >>> table(CoreTimes)
    'core_times'
    """
    name = row_type.__name__
    if name not in _tables:
        _tables[name] = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return _tables[name]


def fields_of(row_type: type[Row]) -> tuple[str, ...]:
    """A row's columns, in order."""
    return tuple(field.name for field in fields(cast("Any", row_type)))

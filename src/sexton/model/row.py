"""What a row is.

A row is one frozen record read from the host: a noun in the singular, with units in its field
names (`system_ms`, `rss_bytes`). Counters are kept raw, exactly as the kernel counts them; rates
are made on reading, in `sexton.model.rates`. A field that a kernel does not give is `None`.
Rows carry no time of their own unless the kernel gave one: the `Batch` they came in does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast, dataclass_transform

RowType = TypeVar("RowType")


class Row:
    """The type every row shares, so that a window can hold them.

    Equality, hash and representation are written once here instead of being generated for each
    row: with some fifty of them that is a noticeable part of what a diagnosis costs a node.
    """

    __slots__: tuple[str, ...] = ()

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Row)
            and type(self) is type(other)
            and (self._values() == other._values())
        )

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        pairs = zip(self.__slots__, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"


@dataclass_transform(frozen_default=True)
def row(cls: type[RowType]) -> type[RowType]:
    """A frozen, slotted dataclass."""
    return dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


def table(row_type: type[Row]) -> str:
    """The name of a row's table in a recording.

    >>> from sexton.model.cpu import CoreTimes
    >>> table(CoreTimes)
    'core_times'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", row_type.__name__).lower()


def fields_of(row_type: type[Row]) -> tuple[str, ...]:
    """A row's columns, in order."""
    return tuple(field.name for field in fields(cast("Any", row_type)))

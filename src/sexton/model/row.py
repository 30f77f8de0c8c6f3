"""What a row is.

A row is one frozen record read from the host: a noun in the singular, with units in its field
names (`system_ms`, `rss_bytes`). Counters are kept raw, exactly as the kernel counts them; rates
are made on reading, in `sexton.model.rates`. A field that a kernel does not give is `None`.
Rows carry no time of their own unless the kernel gave one: the `Batch` they came in does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, ClassVar, NoReturn, TypeVar, cast, dataclass_transform

RowType = TypeVar("RowType")
_tables: dict[str, str] = {}


class Row:
    """The type every row shares, so that a window can hold them.

    What a frozen dataclass would generate for each row is written once here: with some fifty rows
    that is a noticeable part of what a diagnosis costs a node.
    """

    __slots__: tuple[str, ...] = ()
    #: The fields that tell one thing from another in a reading: recordings keep each thing's
    #: readings together, where neighbouring counters differ little. Events have none.
    entity: ClassVar[tuple[str, ...]] = ()
    #: Counters that may use all 64 bits.
    unsigned: ClassVar[tuple[str, ...]] = ()

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Row) and type(self) is type(other)
        return same and self._values() == cast("Row", other)._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        pairs = zip(self.__slots__, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __reduce__(self) -> tuple[type[Row], tuple[object, ...]]:
        return type(self), self._values()  # pickling would otherwise assign to a frozen row

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@dataclass_transform(frozen_default=True)
def row(cls: type[RowType]) -> type[RowType]:
    """A frozen, slotted dataclass; `dataclasses.replace`, `fields` and `asdict` work on it."""
    made = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    made.__init__ = _initialiser(made)  # type: ignore[method-assign]
    return made


def _initialiser(cls: type) -> Callable[..., None]:
    """An ``__init__`` that fills the slots themselves, past `Row.__setattr__`."""
    names: dict[str, Any] = {"_missing": MISSING}
    parameters, body = [], []
    for field in fields(cls):
        name = field.name
        names[f"_set_{name}"] = cls.__dict__[name].__set__
        value = name
        if field.default_factory is not MISSING:
            names[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif field.default is not MISSING:
            names[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(f"    _set_{name}(self, {value})")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(body)
    exec(source, names)
    return cast("Callable[..., None]", names["__init__"])


def table(row_type: type[Row]) -> str:
    """The name of a row's table in a recording.

    >>> from sexton.model.cpu import CoreTimes
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

"""Frozen records that are cheap to define.

The methods that a frozen dataclass would generate for each class are written once here: for a
hundred classes, generating them at every start is a noticeable part of the cost of a diagnosis.
`dataclasses.replace`, `fields` and `asdict` work as on any dataclass.

>>> @frozen
... class Core(Frozen):
...     number: int
...     share: float = 0.0
>>> Core(5), Core(5) == Core(5, 0.0), Core(5) == Core(6)
(Core(number=5, share=0.0), True, False)
>>> Core(5).share = 1.0
Traceback (most recent call last):
dataclasses.FrozenInstanceError: cannot assign to field 'share'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

Made = TypeVar("Made")


class Frozen:
    """The methods that frozen records share."""

    __slots__: tuple[str, ...] = ()

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Frozen) and type(self) is type(other)
        return same and self._values() == cast("Frozen", other)._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        pairs = zip(self.__slots__, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __reduce__(self) -> tuple[type[Frozen], tuple[object, ...]]:
        return type(self), self._values()  # pickling would otherwise assign to a frozen one

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[Made]) -> type[Made]:
    """Make a frozen, slotted dataclass of a subclass of `Frozen`."""
    made = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    made.__init__ = _initialiser(made)  # type: ignore[method-assign]
    return made


def _initialiser(cls: type) -> Callable[..., None]:
    """An ``__init__`` that sets the slots directly, bypassing `Frozen.__setattr__`."""
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
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(body)
    exec(source, names)
    return cast("Callable[..., None]", names["__init__"])

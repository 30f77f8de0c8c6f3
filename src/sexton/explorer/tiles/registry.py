"""How a lane declares itself, and how they are all found.

A lane is one module in `sexton.explorer.lanes`. Its file's stem is its id, its docstring says
what is seen (the first line is its title), and one class builds it::

    @lane(kind="lines", unit="%", order=70, needs=(Pressure,))
    class Builder(Lines): ...

A builder is fed segment after segment, in the order of recording, and can return tiles at any time.
One that is shown by two lanes is built once: the other names it (`of`).
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

import sexton.explorer.lanes
from sexton.explorer.tiles.build import Part
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.tables import TableSpan
from sexton.model.lane import FINEST, TOP, LaneKind, Marked, Table
from sexton.model.row import Row

_PACKAGE = "sexton.explorer.lanes."


class Drawing(NamedTuple):
    """Some tiles, with what their rows and channels are called."""

    names: tuple[str, ...]
    channels: tuple[str, ...]
    planes: dict[str, Array]


class Builder(Protocol):
    """What builds a lane, or two of them; `lane` is the id of the requested one."""

    #: May a segment bring more after it was sealed? Annexes do.
    comes_late: bool

    def ahead(self, part: Part) -> None:
        """Read what `feed` will need of a later segment; called from another thread."""
        ...

    def feed(self, part: Part) -> None:
        """Take what a segment holds that was not taken yet."""
        ...

    def settle(self) -> None:
        """Make what was fed ready to be drawn."""
        ...

    def forget(self, before: float) -> None:
        """Drop what was recorded before that time: retention has deleted it."""
        ...

    def names(self, lane: str) -> tuple[str, ...]: ...
    def draw(self, lane: str, level: int, first: int, count: int) -> Drawing: ...
    def marks(self) -> list[Marked]: ...

    def preload(self, span: TableSpan) -> None:
        """Read what `table` needs of the span, without the lock: tiles are drawn meanwhile."""
        ...

    def table(self, lane: str, span: TableSpan, most: int) -> Table: ...

    @property
    def bytes(self) -> int:
        """What it holds in memory, about."""
        ...


class Declared(NamedTuple):
    """What the registry knows of a lane; `of` is the lane whose builder draws it, or its own."""

    id: str
    title: str
    about: str
    kind: LaneKind
    unit: str
    order: int
    needs: tuple[type[Row], ...]
    of: str
    build: Callable[[], Builder] | None

    @property
    def levels(self) -> tuple[int, int]:
        return (FINEST if self.kind == "stacks" else 0), TOP


B = TypeVar("B", bound=Callable[[], Builder])
_found: dict[str, Declared] = {}


def lane(
    *, kind: LaneKind, unit: str, order: int, needs: tuple[type[Row], ...]
) -> Callable[[B], B]:
    """Register the decorated builder under its module's stem."""

    def register(build: B) -> B:
        _declare(build.__module__, (kind, unit, order, needs), build)
        return build

    return register


def shown_by(
    module: str, of: str, kind: LaneKind, unit: str, order_needs: tuple[int, tuple[type[Row], ...]]
) -> None:
    """Register a lane that another one's builder draws too."""
    _declare(module, (kind, unit, *order_needs), None, of)


def _declare(
    module: str,
    what: tuple[LaneKind, str, int, tuple[type[Row], ...]],
    build: Callable[[], Builder] | None,
    of: str = "",
) -> None:
    name = module.removeprefix(_PACKAGE)
    doc = (sys.modules[module].__doc__ or name).strip()  # python -OO has no docstrings
    title, _, about = doc.partition("\n")
    words = " ".join(about.split()).replace("``", "")
    kind, unit, order, needs = what
    _found[name] = Declared(
        name, title.rstrip("."), words, kind, unit, order, needs, of or name, build
    )


@cache
def all_lanes() -> tuple[Declared, ...]:
    """Every lane there is, by walking the folder; in the order of the page."""
    for module in pkgutil.iter_modules(sexton.explorer.lanes.__path__, _PACKAGE):
        importlib.import_module(module.name)
    return tuple(sorted(_found.values(), key=lambda item: (item.order, item.id)))

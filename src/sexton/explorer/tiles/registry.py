"""How lanes are declared and found.

A lane is one module in `sexton.explorer.lanes`. The file's stem is its id, the docstring describes
it (the first line is its title), and one class builds it. What it `draws` are metrics of one unit,
of which the page says what is normal, or something else of a unit::

    @lane(kind="lines", draws=(PRESSURE,), order=70, needs=(Pressure,))
    class Builder(Lines): ...

A builder is fed segment after segment, in the order of recording, and can return tiles at any time.
If one builder draws two lanes, the second lane names the first (`of`).
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

import sexton.explorer.lanes
from sexton.detect.registry import Threshold
from sexton.explorer.tiles.build import Part
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.tables import TableSpan
from sexton.model.lane import FINEST, TOP, LaneKind, Marked, Table
from sexton.model.row import Row
from sexton.series.catalogue import Metric

_PACKAGE = "sexton.explorer.lanes."


class Drawing(NamedTuple):
    """Some tiles, with the names of their rows and channels."""

    names: tuple[str, ...]
    channels: tuple[str, ...]
    planes: dict[str, Array]


class Builder(Protocol):
    """Builds a lane, or two of them; `lane` is the id of the requested one."""

    #: May a segment get more data after it was sealed? Annexes come late.
    comes_late: bool

    def ahead(self, part: Part) -> None:
        """Read what `feed` will need of a later segment; called from another thread."""
        ...

    def feed(self, part: Part) -> None:
        """Take the data of a segment that was not taken yet."""
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
        """Read what `table` needs, without the lock, so that tiles can be drawn meanwhile."""
        ...

    def table(self, lane: str, span: TableSpan, most: int) -> Table: ...

    @property
    def bytes(self) -> int:
        """About how much memory it takes."""
        ...


class Declared(NamedTuple):
    """A lane's declaration; `of` is the lane whose builder draws it, usually itself. From `limit`
    on the page enlarges what is too narrow to be seen."""

    id: str
    title: str
    about: str
    kind: LaneKind
    unit: str
    order: int
    needs: tuple[type[Row], ...]
    of: str
    build: Callable[[], Builder] | None
    limit: Threshold | None = None

    @property
    def levels(self) -> tuple[int, int]:
        return (FINEST if self.kind == "stacks" else 0), TOP


B = TypeVar("B", bound=Callable[[], Builder])
_found: dict[str, Declared] = {}


def lane(
    *,
    kind: LaneKind,
    draws: tuple[Metric, ...] | str,
    order: int,
    needs: tuple[type[Row], ...],
    limit: Threshold | None = None,
) -> Callable[[B], B]:
    """Register the decorated builder under its module's stem."""

    def register(build: B) -> B:
        _declare(build.__module__, (kind, draws, order, needs), build, limit=limit)
        return build

    return register


def shown_by(
    module: str, of: str, kind: LaneKind, unit: str, order_needs: tuple[int, tuple[type[Row], ...]]
) -> None:
    """Register a lane that the builder of another lane draws."""
    _declare(module, (kind, unit, *order_needs), None, of)


def _declare(
    module: str,
    what: tuple[LaneKind, tuple[Metric, ...] | str, int, tuple[type[Row], ...]],
    build: Callable[[], Builder] | None,
    of: str = "",
    limit: Threshold | None = None,
) -> None:
    name = module.removeprefix(_PACKAGE)
    doc = (sys.modules[module].__doc__ or name).strip()  # python -OO has no docstrings
    title, _, about = doc.partition("\n")
    kind, draws, order, needs = what
    metrics, unit = ((), draws) if isinstance(draws, str) else (draws, draws[0].unit)
    words = " ".join([*about.split(), *_normal(metrics)]).replace("``", "")
    _found[name] = Declared(
        name, title.rstrip("."), words, kind, unit, order, needs, of or name, build, limit
    )


def _normal(metrics: tuple[Metric, ...]) -> Iterator[str]:
    """What is normal: once if it is the same for all of these metrics."""
    if len({metric.normal for metric in metrics}) == 1:
        yield f"Normal: {metrics[0].normal}."
    elif metrics:
        yield f"Normal: {', '.join(f'{metric.help} ({metric.normal})' for metric in metrics)}."


@cache
def all_lanes() -> tuple[Declared, ...]:
    """All lanes in the folder, in the order of the page."""
    for module in pkgutil.iter_modules(sexton.explorer.lanes.__path__, _PACKAGE):
        importlib.import_module(module.name)
    return tuple(sorted(_found.values(), key=lambda item: (item.order, item.id)))

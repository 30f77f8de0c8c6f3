"""Memory cgroups: live ones, dying ones, and who left those.

Live and dying by the recorder's census. Below them the owners with most cgroups that were removed
and not released since: only traced removals count, so a line begins at zero with the recording.
"""

from __future__ import annotations

import numpy as np

from sexton.detect.stems import join, path_stem, split, unit_of
from sexton.explorer.tiles.build import Metrics, Part, Taken, places, put
from sexton.explorer.tiles.lines import Line, Lines, drawn_values
from sexton.explorer.tiles.pyramid import Array, Cells
from sexton.explorer.tiles.registry import Drawing, lane
from sexton.explorer.tiles.tables import TableColumns, TableSpan, tiles_of
from sexton.model.aligned import F64
from sexton.model.row import table
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent
from sexton.model.text import printable
from sexton.model.window import GAP_S
from sexton.series.catalogue import DYING, LIVE
from sexton.series.rates import F32
from sexton.store.arrays import coded, numbers
from sexton.store.schema import MONO

#: Owners that are shown, and that have a row.
MOST = 5
_MOST_OWNERS = 64
#: An owner with fewer at once gets no row: they are released a moment later.
_LEAST_DEAD = 5
_MOST_COUNTED = 10_000
#: Removed cgroups that are tracked until their release.
_MOST_DEAD = 2_000_000
#: The first row belongs to no owner: it is 0 whenever the trace was read.
_READ = ""
_CENSUS = {"live": LIVE, "dying": DYING}


@lane(kind="lines", draws=(LIVE, DYING), order=50, needs=(CgroupCensus,))
class Builder(Lines):
    """Builds two lines from the census, and one per owner."""

    def __init__(self) -> None:
        super().__init__(Metrics(LIVE, DYING))
        self.owners = _Owners()

    def feed(self, part: Part) -> None:
        self.owners.feed(part)
        super().feed(part)

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        return {(name,): taken.values[value.name][0] for name, value in _CENSUS.items()}

    def settle(self) -> None:
        super().settle()
        self.owners.pyramid.settle()

    def forget(self, before: float) -> None:
        super().forget(before)
        self.owners.forget(before)

    def shown(self) -> list[tuple[Line, str]]:
        return [((name,), name) for name in _CENSUS if (name,) in self.rows]

    def names(self, lane: str) -> tuple[str, ...]:
        return (*super().names(lane), *(name for _, name in self.owners.shown()))

    def draw(self, lane: str, level: int, first: int, count: int) -> Drawing:
        drawn = super().draw(lane, level, first, count)
        more = self.owners.draw(lane, level, first, count)
        planes = {
            name: np.concatenate([plane, more.planes[name]], axis=1)
            for name, plane in drawn.planes.items()
        }
        return Drawing(self.names(lane), drawn.channels, planes)

    def values(self, span: TableSpan, columns: TableColumns) -> tuple[Array, Array]:
        """The census from its series, the owners from what was counted."""
        counted = super().values(span, columns)
        _, _, tile, count = tiles_of(span.start, span.end, columns.level)
        owned = drawn_values(self.owners.draw("", columns.level, tile, count), columns)
        mean, peak = (np.concatenate(item) for item in zip(counted, owned, strict=True))
        return mean, peak

    @property
    def bytes(self) -> int:
        return self.pyramid.bytes + self.owners.pyramid.bytes


class _Owners(Lines):
    """Cgroups that were removed and not released, by owner."""

    def __init__(self) -> None:
        super().__init__(fill=0.0)
        self._boot, self._last = "", -np.inf
        self.rows.of([(_READ,)])
        self._dead: dict[int, str] = {}
        self._count: dict[str, int] = {}
        self._highest: dict[str, int] = {}

    def feed(self, part: Part) -> None:
        segment = part.book.segment
        if segment.boot_id != self._boot:
            self._boot, self._last = segment.boot_id, -np.inf
            self._dead, self._count = {}, {}
        moments = _moments(part)
        moments = moments[(moments > self._last) & np.isfinite(moments)]
        if not len(moments):
            return
        counts = self._counts(part, moments)
        owners = [_READ, *(row for row in counts if self._has_row(row))]
        none = np.zeros(len(moments), np.float32)
        values = np.stack([counts.get(owner, none) for owner in owners])[None]
        end = part.clock.wall(moments)
        spent = np.diff(moments, prepend=self._last)
        spent[spent > GAP_S] = 1.0
        rows = self.rows.of([(owner,) for owner in owners])
        put(self.pyramid, places(end - spent, end), Cells(values, spent[None], rows))
        self._last = float(moments[-1])

    def _has_row(self, owner: str) -> bool:
        if (owner,) in self.rows:
            return True
        return self._highest.get(owner, 0) >= _LEAST_DEAD and len(self.rows) <= _MOST_OWNERS

    def _counts(self, part: Part, moments: F64) -> dict[str, F32]:
        """Cgroups removed and not released, per owner and reading."""
        number = len(moments)
        lines = {
            owner: np.full(number, self._count.get(owner, 0), np.float32)
            for (owner,) in self.rows
            if owner != _READ
        }
        columns = (MONO, "kind", "cgroup_id", "path", "mono_ns")
        found = None
        if part.book.segment.rows(CgroupEvent):
            found = part.book.segment.table(CgroupEvent, columns, coded=("kind", "path"))
        if found is None or not {*columns} <= {*found.column_names}:
            return lines
        mono, ids, when = (numbers(found.column(name)) for name in (MONO, "cgroup_id", "mono_ns"))
        (kinds, kind_names), (paths, path_names) = (
            coded(found.column(name)) for name in ("kind", "path")
        )
        order = np.argsort(when, kind="stable")
        order = order[mono[order] > self._last]
        at = np.clip(np.searchsorted(moments, mono), 0, number - 1)
        for row in order.tolist():
            owner = self._changed(
                str(kind_names[kinds[row]]), int(ids[row]), path_names[paths[row]]
            )
            if owner is not None:
                start = lines.get(owner)
                if start is None:
                    start = lines[owner] = np.zeros(number, np.float32)
                start[at[row] :] = self._count[owner]
        return lines

    def _changed(self, kind: str, cgroup: int, path: object) -> str | None:
        """The owner whose number changed; None if no number did."""
        if kind == "rmdir" and cgroup not in self._dead and len(self._dead) < _MOST_DEAD:
            owner = self._dead[cgroup] = self._owner_of(str(path))
            change = 1
        elif kind in ("release", "mkdir") and cgroup in self._dead:
            owner = self._dead.pop(cgroup)
            change = -1
        else:
            return None
        self._count[owner] = self._count.get(owner, 0) + change
        self._highest[owner] = max(self._highest.get(owner, 0), self._count[owner])
        return owner

    def _owner_of(self, path: str) -> str:
        """The unit of a cgroup, or else its parent and the stem of its name."""
        parent, name = split(path)
        owner = unit_of(path) or join(parent, path_stem(name))
        return owner if owner in self._count or len(self._count) < _MOST_COUNTED else "others"

    def shown(self) -> list[tuple[Line, str]]:
        most = [name for name in self._highest if (name,) in self.rows]
        most.sort(key=lambda name: (-self._count.get(name, 0), -self._highest[name], name))
        return [((name,), f"from {printable(name)}") for name in most[:MOST]]


def _moments(part: Part) -> F64:
    """About when the trace was read: from the manifest, which needs no file to be opened."""
    entry = part.book.segment.manifest["tables"].get(table(CgroupEvent), {})
    if not entry.get("batches") or "first" not in entry:
        return np.empty(0)
    return np.linspace(entry["first"][0], entry["last"][0], int(entry["batches"]))

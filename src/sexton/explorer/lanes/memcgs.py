"""Memory cgroups: live ones, dying ones, and who left those.

Live and dying by the recorder's census. Below them the owners with most zombies, by the rule of the
verdict: removed, and not released within its grace. Only traced removals count, so a line begins at
zero with the recording. If events were lost, those that may have been released then, by the census,
are nobody's.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from sexton.detect.deaths import GRACE, Death, Gap, Open
from sexton.detect.growth import Count
from sexton.detect.kubernetes.pods import PodNames
from sexton.detect.stems import join, path_stem, split, unit_of
from sexton.explorer.tiles.build import Metrics, Part, Taken, places, put
from sexton.explorer.tiles.lines import Line, Lines, drawn_values
from sexton.explorer.tiles.pyramid import Array, Cells
from sexton.explorer.tiles.registry import Drawing, lane
from sexton.explorer.tiles.tables import TableColumns, TableSpan, tiles_of
from sexton.model.aligned import F64
from sexton.model.row import table
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupEventGap
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.text import printable
from sexton.model.window import longest_step
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
#: How well `_moments` knows when the trace was read.
_ABOUT_S = 0.25
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
    """Zombies by owner, as `sexton.detect.deaths` knows them at each reading of the trace."""

    def __init__(self) -> None:
        super().__init__(fill=0.0)
        self._names = PodNames()
        self._boot = ""
        self.rows.of([(_READ,)])
        self._highest: dict[str, int] = {}
        self._begin("")

    def _begin(self, boot: str) -> None:
        self._boot, self._last = boot, -np.inf
        self._open = Open()
        self._count: dict[str, int] = {}
        #: Zombies by id, and whose they are: a name may become known while one is there.
        self._zombies: dict[int, str] = {}
        self._missed = self._paused = False
        self._census: Count | None = None

    def feed(self, part: Part) -> None:
        segment = part.book.segment
        if segment.boot_id != self._boot:
            self._begin(segment.boot_id)
        for kind in (Pod, Container):
            for batch in segment.batches(kind) if segment.rows(kind) else ():
                self._names.add(batch.rows)
        moments = _moments(part)
        longest = longest_step(moments)
        moments = moments[(moments > self._last) & np.isfinite(moments)]
        if not len(moments):
            return
        self._paused = bool(np.isfinite(self._last) and moments[0] - self._last > longest)
        counts = self._counts(part, moments)
        owners = [_READ, *(row for row in counts if self._has_row(row))]
        none = np.zeros(len(moments), np.float32)
        values = np.stack([counts.get(owner, none) for owner in owners])[None]
        end = part.clock.wall(moments)
        spent = np.diff(moments, prepend=self._last)
        spent[spent > longest] = 1.0
        rows = self.rows.of([(owner,) for owner in owners])
        put(self.pyramid, places(end - spent, end), Cells(values, spent[None], rows))
        self._last = float(moments[-1])

    def _has_row(self, owner: str) -> bool:
        if (owner,) in self.rows:
            return True
        return self._highest.get(owner, 0) >= _LEAST_DEAD and len(self.rows) <= _MOST_OWNERS

    def _counts(self, part: Part, moments: F64) -> dict[str, F32]:
        """Zombies per owner and reading."""
        steps: dict[str, list[tuple[float, int]]] = {
            owner: [] for owner in {*self._count, *(row for (row,) in self.rows if row != _READ)}
        }
        until = float(moments[-1])
        ended = self._ended(part, moments)
        for death in (*ended, *self._open.unsure.values(), *self._open.by_id.values()):
            zombie_s = death.died_s + GRACE.value
            released_s = death.unsure_s if death.released_s is None else death.released_s
            was = death.cgroup_id in self._zombies
            becomes = not was and zombie_s <= (until if released_s is None else released_s)
            if not becomes and (released_s is None or not was):
                continue
            owner = self._zombies.get(death.cgroup_id) or self._owner_of(death.path)
            mine = steps.setdefault(owner, [])
            if becomes:
                mine.append((zombie_s, 1))
                self._zombies[death.cgroup_id] = owner
            if released_s is not None:
                mine.append((released_s, -1))
                self._zombies.pop(death.cgroup_id, None)
        lines = {}
        for owner, changes in steps.items():
            at = np.searchsorted(moments, [moment for moment, _ in changes])
            line = np.full(len(moments), self._count.get(owner, 0), np.float32)
            for place, (_, change) in zip(at.tolist(), changes, strict=True):
                line[place:] += change
            lines[owner] = line
            self._count[owner] = int(line[-1])
            self._highest[owner] = max(self._highest.get(owner, 0), int(line.max()))
        return lines

    def _ended(self, part: Part, moments: F64) -> list[Death]:
        """Deaths whose release is known by the last of these readings, or must have been missed."""
        segment, until = part.book.segment, float(moments[-1])
        self._open.expect(*self._marks(part, moments))
        ended: list[Death] = []
        columns = (MONO, "kind", "cgroup_id", "path", "mono_ns")
        found = None
        if segment.rows(CgroupEvent):
            found = segment.table(CgroupEvent, columns, coded=("kind", "path"))
        if found is not None and {*columns} <= {*found.column_names}:
            read, ids, when = (
                numbers(found.column(name)) for name in (MONO, "cgroup_id", "mono_ns")
            )
            (kinds, kind_names), (paths, path_names) = (
                coded(found.column(name)) for name in ("kind", "path")
            )
            order = np.argsort(when, kind="stable")
            for row in order[read[order] > self._last].tolist():
                kind, moment = str(kind_names[kinds[row]]), min(float(when[row]) / 1e9, until)
                if kind == "rmdir" and len(self._open.by_id) >= _MOST_DEAD:
                    continue
                path = str(path_names[paths[row]])
                ended += self._open.reach(moment)
                death = self._open.add(kind, int(ids[row]), path, moment)
                ended += [] if death is None else [death]
        ended += self._open.reach(until)
        if self._missed and self._census is not None:
            at_s = min(self._census.mono_s, until)
            ended += self._open.beyond(self._census.dying, at_s)
        return ended

    def _marks(self, part: Part, moments: F64) -> tuple[list[Gap], list[Count]]:
        """When events were lost, and the counts. The last may be read after the last events."""
        segment = part.book.segment
        gaps = [Gap(self._last, float(moments[0]), None)] if self._paused else []
        if segment.rows(CgroupEventGap):
            read = [self._last, *moments.tolist()]
            for batch in segment.batches(CgroupEventGap):
                lost = sum(row.lost for row in batch.rows)
                if lost and batch.mono_s > self._last:
                    before = bisect_left(read, batch.mono_s - _ABOUT_S, 1) - 1
                    gaps.append(Gap(read[before], batch.mono_s, lost))
        counted = [
            Count(batch.mono_s, row.dying, row.live)
            for batch in segment.batches(CgroupCensus)
            for row in batch.rows
            if row.scope == "node" and row.dying is not None and batch.mono_s > self._last
        ]
        self._missed |= bool(gaps)
        self._census = counted[-1] if counted else self._census
        return gaps, counted

    def _owner_of(self, path: str) -> str:
        """The workload or the unit of a cgroup, or else its parent and the stem of its name."""
        pod = self._names.of(path)
        parent, name = split(path)
        owner = unit_of(path) or join(parent, path_stem(name))
        owner = owner if pod is None else pod.family.words
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

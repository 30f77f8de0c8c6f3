"""Which units and directories left dead memory cgroups: every method, the strongest first.

1. tracefs: the path of a cgroup that was removed and not released. *Proven*, from the moment
   tracing began; *likely* for those that died before the trace buffer lost events, unless the count
   grew as much.
   A recording also knows those that died before the judged window and were not released since.
2. `lru_gen`: every offline memcg by the path it had. *Proven*, whenever it died.
3. v2 `cgroup.stat` at live directories: how many died directly below each. *Likely*: it gives the
   place and not the name.
4. The restart ledger: restarts whose number or period matches, with the ledger's strength.
5. Residual bytes: memory still charged to the dead children of a live directory. Bytes only,
   *possible*; those whose bytes grew within the window first.

An `Owner` is a live directory and, if known, the names that died below it: `path` is where a
cure works (`memory.force_empty`, `memory.reclaim`), `names` is what to stop. The counts of one
`path` add up: those that no method could name are one more owner of that path, without `names`.

What would make it wrong: a path shows where a memcg *was*. If a directory of the same name exists
again (a unit with cgroups of its own that restarted), its `cgroup.stat` counts fewer than died
there, and the dead belong to the directory above; on v1 they are shown below the new one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sexton.detect.deaths import already_dying, deaths
from sexton.detect.growth import dying_below, growth, latest_count
from sexton.detect.kubernetes.pods import PodPart, common, pods
from sexton.detect.ledger import suspects
from sexton.detect.rows_read import remembered
from sexton.detect.stems import join, kinds, path_stem, pattern, placer, split, unit_of
from sexton.model.chain import Strength
from sexton.model.rows.cgroup import CgroupResidual, OfflineMemcg
from sexton.model.rows.unit import Unit
from sexton.model.window import Window
from sexton.series.steps import rise

TRACED = "traced: removed, not released"
TRACED_BEFORE = "traced before this window: removed, not released"
LISTED = "listed as offline by lru_gen"
COUNTED = "cgroup.stat"
LEDGER = "restart counts"
RESIDUAL = "residual bytes of removed children"
#: Pods of a workload with a smaller part of the dead of a directory are not named one by one.
_SMALL = 5  # %
#: In the method of bytes that include some of the directory's own.
UPPER_BOUND = "upper bound"


@dataclass(frozen=True, slots=True)
class Owner:
    """A live directory below which memory cgroups died.

    `dying` is `None` if only bytes are known, `bytes` if only a count is. `names` is the name or
    the pattern of the dead below `path`, relative to it (``ecs.service``, ``run-*``); `unit` the
    systemd unit they belonged to, `pod` the pod or container, if it has a name. `strength` is how
    certain the attribution is; `about` if their number is that of the restarts, and not of the dead
    that were seen. `grown_bytes` is how much `bytes` grew within the window, negative
    if they shrank; `None` if nothing comparable was read before.
    """

    path: str
    dying: int | None
    bytes: int | None
    method: str
    strength: Strength
    unit: str | None
    names: str | None = None
    grown_bytes: int | None = None
    pod: PodPart | None = None
    about: bool = False

    @property
    def shown(self) -> str:
        """`path` with `names`, for display."""
        return join(self.path, self.names or "")

    @property
    def called(self) -> str:
        """The pod or container, else where it was."""
        return self.shown if self.pod is None else self.pod.words

    @property
    def exact(self) -> str | None:
        """The path all of them had; `None` if they differ or are not named."""
        return None if self.names is None or "*" in self.names else self.shown


@dataclass(slots=True)
class _Heap:
    """The dead of one stem below one live directory, and of one kind of pod."""

    names: set[str] = field(default_factory=set)
    pods: set[PodPart] = field(default_factory=set)
    traced: int = 0
    before: int = 0
    listed: int = 0
    matched: int = 0
    strength: Strength = Strength.POSSIBLE
    unit: str | None = None

    @property
    def dying(self) -> int:
        """The maximum, not the sum: traced cgroups are listed and matched as well."""
        return max(self.traced + self.before, self.listed, self.matched)

    @property
    def about(self) -> bool:
        """Restarts show how many there should be, not which ones they are."""
        return self.dying > max(self.traced + self.before, self.listed)

    @property
    def method(self) -> str:
        words = (
            (self.traced, TRACED), (self.before, TRACED_BEFORE), (self.listed, LISTED),
            (self.matched, LEDGER),
        )  # fmt: skip
        return " + ".join(word for number, word in words if number)

    def raise_strength(self, strength: Strength) -> None:
        self.strength = max(self.strength, strength, key=lambda item: item.rank)

    def add(self, other: _Heap, above: str) -> None:
        """Add the dead of a heap below `above`, a directory that is gone; "" if it is not."""
        self.names |= {f"{above}/{name}".lstrip("/") for name in other.names}
        self.pods |= other.pods
        self.traced += other.traced
        self.before += other.before
        self.listed += other.listed
        self.raise_strength(other.strength)


#: A live directory, a stem, and the workload whose pods they were, if they have a name.
_Key = tuple[str, str, PodPart | None]
_Heaps = dict[_Key, _Heap]


@remembered
def owners(window: Window) -> tuple[Owner, ...]:
    """Every known owner of dead memory cgroups, those with the most first.

    Kept with the window: detector, links and reports use it, and 70,000 names take most of a
    second.
    """
    below = dying_below(window)
    heaps = _named(window)
    _lift(window, heaps, below)
    _merge_small(heaps)
    counted = {path: number for path, number in below.items() if number}
    _add_suspects(window, heaps, counted)
    unit_at = {
        unit.cgroup.rstrip("/"): unit.name for unit in window.latest(Unit) or () if unit.cgroup
    }
    found: list[Owner] = []
    for (path, _, _), heap in heaps.items():
        names = pattern(heap.names)
        whole = join(path, names)
        unit = heap.unit or unit_at.get(whole) or unit_of(whole)
        owner = Owner(path, heap.dying, None, heap.method, heap.strength, unit, names)
        found.append(replace(owner, pod=common(heap.pods), about=heap.about))
    for path, number in counted.items():
        rest = number - sum(heap.dying for (parent, *_), heap in heaps.items() if parent == path)
        if rest > 0:
            unit = unit_at.get(path) or unit_of(path)
            found.append(Owner(path, rest, None, COUNTED, Strength.LIKELY, unit))
    return tuple(sorted(_with_pods(window, _with_bytes(window, found)), key=_order))


def _with_pods(window: Window, found: Iterable[Owner]) -> Iterator[Owner]:
    """Name the pods whose own directory is all that is known."""
    named = pods(window)
    for owner in found:
        yield owner if owner.pod is not None else replace(owner, pod=named.of(owner.path))


def _order(owner: Owner) -> tuple[int, int, int, int, str]:
    """By number; then by bytes gained in the window, since older bytes may be anything's; then by
    bytes."""
    grown = max(owner.grown_bytes or 0, 0)
    return (-(owner.dying or 0), -grown, -(owner.bytes or 0), -owner.strength.rank, owner.shown)


def _named(window: Window) -> _Heaps:
    """The dead whose paths are known, by live directory and stem."""
    traced, before, named = deaths(window), already_dying(window), pods(window)
    stayed = [death.path for death in traced.unreleased] if traced else []
    earlier = [death.path for death in before.deaths]
    listed = [memcg.path for memcg in window.latest(OfflineMemcg) or ()]
    kind_of = kinds(window, stayed, traced.made if traced else (), earlier, listed)
    heaps: _Heaps = defaultdict(_Heap)

    def counted(paths: Iterable[str]) -> Iterator[tuple[_Heap, int]]:
        for dead, number in Counter(paths).items():
            kind, pod = kind_of(dead), named.of(dead)
            heap = heaps[kind.path, kind.stem, pod.family if pod is not None else None]
            heap.names.add(kind.name)
            heap.pods |= set() if pod is None else {pod}
            yield heap, number

    for heap, number in counted(stayed):
        heap.traced += number
        heap.strength = Strength.PROVEN
    if traced is not None and not traced.sure(growth(window)):
        for heap, _ in counted(death.path for death in traced.doubted):
            heap.strength = Strength.LIKELY
    for heap, number in counted(earlier):
        heap.before += number
        heap.raise_strength(Strength.PROVEN if before.sure else Strength.LIKELY)
    for heap, number in counted(listed):
        heap.listed += number
        heap.strength = Strength.PROVEN
    return heaps


def _lift(window: Window, heaps: _Heaps, below: dict[str, int]) -> None:
    """Move the dead of a directory that was made again to the one above.

    It shows in the counts: less than half of the dead can be below it as it is now. They are
    counted above, where reclaim works, and would be counted twice. A directory without a count,
    below one that has a count, was not there yet or has no dead.
    """
    place = placer(window)
    for path in sorted({path for path, *_ in heaps} - {"/"}, key=len, reverse=True):
        parent, above = place(path)
        if path not in below and parent not in below:
            continue
        here = [key for key in heaps if key[0] == path]
        if sum(heaps[key].dying for key in here) <= 2 * below.get(path, 0):
            continue
        for key in here:
            heaps[parent, path_stem(f"{above}/{key[1]}"), key[2]].add(heaps.pop(key), above)


def _merge_small(heaps: _Heaps) -> None:
    """Put workloads with few of a directory's dead together: a hundred names say nothing."""
    total: Counter[tuple[str, str]] = Counter()
    for (path, stem, _), heap in heaps.items():
        total[path, stem] += heap.dying
    for path, stem, pod in list(heaps):
        if pod is not None and heaps[path, stem, pod].dying * 100 < _SMALL * total[path, stem]:
            heaps[path, stem, None].add(heaps.pop((path, stem, pod)), "")


def _add_suspects(window: Window, heaps: _Heaps, counted: dict[str, int]) -> None:
    """Attribute the dead that no stronger method named, by the restart ledger.

    A *possible* suspect is no owner; it only adds to owners that are already named.
    """
    for suspect in suspects(window):
        path, name = split(suspect.path)
        alike = [key for key in heaps if key[:2] == (path, path_stem(name))]
        key = max(alike, key=lambda key: heaps[key].dying, default=(path, path_stem(name), None))
        others = sum(heaps[each].dying for each in alike if each != key)
        number = suspect.matched - others  # of other pods, in the same place
        if not name or number <= 0:
            continue
        if key in heaps:
            heap = heaps[key]
        elif suspect.strength is Strength.POSSIBLE:
            continue
        else:
            heap = _Heap(names={name})
        free = _unnamed(window, heaps, counted, path)
        if heap.listed:
            heap.matched = min(number, heap.listed)  # the list is complete
        else:
            heap.matched = min(number, number if free is None else heap.dying + free)
        if not heap.dying:
            continue  # all the dead of that directory have other names already
        heap.raise_strength(suspect.strength)
        heap.unit = suspect.owner if suspect.kind == "unit" else heap.unit
        heaps[key] = heap


def _unnamed(window: Window, heaps: _Heaps, counted: dict[str, int], path: str) -> int | None:
    """How many of the dead below `path` have no known owner; on v1 those of the whole node."""
    if counted:
        here = sum(heap.dying for (parent, *_), heap in heaps.items() if parent == path)
        return max(counted.get(path, 0) - here, 0)
    census = latest_count(window)
    if census is None or census.dying is None:
        return None
    return max(census.dying - sum(heap.dying for heap in heaps.values()), 0)


def _with_bytes(window: Window, found: list[Owner]) -> list[Owner]:
    """Add residual bytes to a directory's only owner; else list them as an owner of their own."""
    result = list(found)
    earlier = _earlier(window)
    for row in window.latest(CgroupResidual) or ():
        if row.bytes <= 0:
            continue
        grown = _grown(row, earlier)
        here = [index for index, owner in enumerate(result) if owner.path == row.path]
        nameless = [index for index in here if result[index].names is None]
        target = here if len(here) == 1 else nameless
        if target:
            owner = result[target[0]]
            note = f", bytes {UPPER_BOUND}" if UPPER_BOUND in row.method else ""
            method = owner.method + note
            result[target[0]] = replace(owner, bytes=row.bytes, method=method, grown_bytes=grown)
        else:
            method = f"{RESIDUAL}: {row.method}"
            unit = unit_of(row.path)
            alone = Owner(row.path, None, row.bytes, method, Strength.POSSIBLE, unit)
            result.append(replace(alone, grown_bytes=grown))
    return result


def _earlier(window: Window) -> dict[str, CgroupResidual]:
    """The first reading with rows, except the last reading.

    An empty reading may mean that too few were dying to be listed: it is not a baseline.
    """
    batches = window.batches(CgroupResidual) or ()
    rows = next((batch.rows for batch in batches[:-1] if batch.rows), ())
    return {row.path: row for row in rows}


def _grown(row: CgroupResidual, earlier: dict[str, CgroupResidual]) -> int | None:
    """Bytes more than earlier, all of them if there were none; `None` if unknown.

    Bytes by two methods are not comparable: an upper bound includes the directory's own.
    """
    before = earlier.get(row.path)
    if before is not None:
        return rise(before.bytes, row.bytes) if before.method == row.method else None
    methods = {residual.method for residual in earlier.values()}
    if not methods or (UPPER_BOUND in row.method and row.method not in methods):
        return None
    return row.bytes

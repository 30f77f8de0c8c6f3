"""What a walking read would cost, estimated without making it.

Before 5.8 one read of ``memory.numa_stat`` (and of ``memory.stat`` on older ones still) visits
every memory cgroup below it, dying ones included: 10,000 cost 0.7 s of one core, inside the kernel,
uninterruptibly. So the files are timed where that is certainly cheap, and the rest is arithmetic:
at leaves (one live cgroup each), and at one small subtree of `n` cgroups. The difference over
`n - 1` is the cost of one more cgroup, about zero on kernels that keep sums.

A place is cheap only if it has few zombies as well, and a directory without children may have all
the zombies of the node (``/docker`` once its last container is gone). So before anything is timed,
plain counters, which walk nothing, bound the zombies of each place. v2 counts them (`cgroup.stat`).
v1 does not, but each holds at least a page: user memory, kernel memory (before 5.9 a slab page pins
a dead cgroup) or swap. So `memory.usage_in_bytes`, or `memory.memsw.usage_in_bytes` if that is
more, in pages, is the upper bound. Nothing is subtracted for live cgroups: a running container may
have zombies of its own.

All the timing is done by one child with a deadline, off the cores that serve the NIC. The result is
kept for a minute, so that the sources that need it share it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError, SourceMalformed, SourceSkipped
from sexton.host.host import Host
from sexton.host.reader import Directory, text
from sexton.sources.cgroupfs import census, stat
from sexton.sources.cgroupfs.layout import Layout, controller, mount_point
from sexton.sources.cores import run_child

FILES = ("memory.stat", "memory.numa_stat")
PAGE = 4096
#: The longest stall that timing a place may cause: 1/25 of the NIC watchdog's 5 s.
MOST_RISK_S = 0.2
#: Cost of one cgroup in one walk on the slowest known kernel (0.7 s for 10,000).
DEAREST_S = 70e-6
#: So a place that may have more cgroups than this is not timed.
MOST_MEMCGS = int(MOST_RISK_S / DEAREST_S)
#: Jitter between two fastest-of-three timings of the same small file.
JITTER_S = 20e-6
#: Any node has this many zombies; no need to locate them.
_ORDINARY = 50
#: How many leaves and subtrees are checked by their counters, and how many of them are timed.
_CHECKED = 40
_LEAVES = 5
_SUBTREES = 3
#: Larger subtrees add no precision.
_LARGEST = 100
_KEPT_S = 60.0
_DEADLINE_S = 1.5
#: Opens one component after the other, so that no link in another host's tree is followed. The
#: subtrees come with their size: the child knows what a leaf costs, and times the first subtree
#: that stays within the budget if each of its cgroups costs as much. Prints one line per file.
_CHILD = """
import os, sys, time
root, budget, files, leaves = sys.argv[1:5]
budget, files, leaves = float(budget), files.split(","), int(leaves)
places = list(zip(sys.argv[5::2], map(int, sys.argv[6::2])))

def once(path):
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for part in filter(None, path.split("/")):
        above = here
        here = os.open(part, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=above)
        os.close(above)
    started = time.perf_counter()
    while os.read(here, 1 << 18):
        pass
    spent = time.perf_counter() - started
    os.close(here)
    return spent

def quickest(path):
    best = None
    for _ in range(3):  # the first may be an outlier
        try:
            spent = once(path)
        except OSError:
            break
        best = spent if best is None else min(best, spent)
        if spent > budget / 3:
            break
    return best

for file in files:
    leaf = subtree = ()
    for index, (path, _) in enumerate(places[:leaves]):
        spent = quickest(path + "/" + file)
        if spent is None:
            continue
        if not leaf or spent < leaf[1]:
            leaf = index, spent
        if spent > budget / 3:
            break
    for index, (path, size) in enumerate(places[leaves:], leaves):
        if leaf and size * leaf[1] <= budget:
            spent = quickest(path + "/" + file)
            if spent is not None:
                subtree = index, spent
                break
    print(*leaf, *subtree)
"""


class Estimate(NamedTuple):
    """`measured_s` at `path` for `memcgs` cgroups, and `estimate_s` for the whole node.

    With `memcgs` 1 only leaves could be timed: the estimate is then an upper bound, because a
    leaf's fixed cost cannot be separated from the cost of a cgroup. `most_s` is the upper bound if
    jitter hid part of the cost of a cgroup.
    """

    file: str
    path: str
    memcgs: int
    measured_s: float
    estimate_s: float
    most_s: float


class _Place(NamedTuple):
    """Where to time: `live` directories below it, at most `most` cgroups in all."""

    path: str
    live: int
    most: int


class _Timing(NamedTuple):
    """What one file took at the fastest leaf, and at one subtree if one was small enough."""

    file: str
    leaf: _Place
    leaf_s: float
    subtree: _Place | None
    subtree_s: float

    def estimate(self, total: int) -> Estimate:
        if self.subtree is None:
            whole_s = self.leaf_s * total
            return Estimate(self.file, self.leaf.path, 1, self.leaf_s, whole_s, whole_s)
        live = self.subtree.live
        each_s = max(0.0, self.subtree_s - self.leaf_s) / live
        whole_s = self.leaf_s + each_s * (total - 1)
        most_s = whole_s + JITTER_S / live * (total - 1)
        return Estimate(self.file, self.subtree.path, 1 + live, self.subtree_s, whole_s, most_s)


def estimates(host: Host, layout: Layout) -> tuple[Estimate, ...]:
    """What reading each of `FILES` at the root would take; files that no leaf has are left out.

    Raises a `SourceError` if nothing can be timed, `SourceSkipped` if that is for safety.
    """
    mount_point(layout, FILES[0])
    counted, walked = census.recent(host, layout)
    total = counted.total
    if total is None:  # in a namespace the node's number is still an upper bound
        memory = controller(host, "memory")
        if memory is None:
            raise SourceAbsent(FILES[0], f"the number of cgroups is unknown: {counted.reason}")
        total = memory.cgroups
    return tuple(timing.estimate(total) for timing in _recent(host, layout, walked.kept, total))


def _recent(
    host: Host, layout: Layout, tree: Sequence[Directory], total: int
) -> tuple[_Timing, ...]:
    """The last timings if they are recent, else new ones; a failure is kept as well."""
    known = host.memo.get("walk timings")
    if known is None or time.monotonic() - known[0] > _KEPT_S:
        found: tuple[_Timing, ...] | SourceError
        try:
            found = _time(host, layout, tree, total)
        except SourceError as error:
            found = error
        known = host.memo["walk timings"] = (time.monotonic(), found)
    if isinstance(known[1], SourceError):
        raise known[1]
    timings: tuple[_Timing, ...] = known[1]
    return timings


def _time(host: Host, layout: Layout, tree: Sequence[Directory], total: int) -> tuple[_Timing, ...]:
    bounds = _Bounds(host, layout, max(0, total - len(tree)))
    leaves = _leaves(bounds, tree)
    places = [*leaves, *islice(_subtrees(bounds, tree), _SUBTREES)]
    top = layout.mount_point or ""
    if not leaves:
        why = f"every leaf checked may have more than {MOST_MEMCGS:,} dying cgroups; not timed"
        raise SourceSkipped(f"{top}/**/{FILES[0]}", why)
    pairs = [word for place in places for word in (f"{top}{place.path}", str(place.most))]
    script = (_CHILD, host.root, str(MOST_RISK_S), ",".join(FILES), str(len(leaves)), *pairs)
    output = run_child(host, FILES[0], _DEADLINE_S, *script)
    lines = output.decode("utf-8", "replace").split("\n")
    timings = tuple(_answer(file, line, places) for file, line in zip(FILES, lines, strict=False))
    found = tuple(timing for timing in timings if timing is not None)
    if not found:
        raise SourceAbsent(f"{top}/**/{FILES[0]}", "no cgroup below the root has this file")
    return found


def _answer(file: str, line: str, places: Sequence[_Place]) -> _Timing | None:
    words = line.split()
    if not words:
        return None
    try:
        subtree = places[int(words[2])] if len(words) > 2 else None
        subtree_s = float(words[3]) if len(words) > 2 else 0.0
        return _Timing(file, places[int(words[0])], float(words[1]), subtree, subtree_s)
    except (ValueError, IndexError):
        raise SourceMalformed(file, 0, "the reader printed no times") from None


class _Bounds:
    """Upper bound of zombies below a directory, by counters that walk nothing."""

    def __init__(self, host: Host, layout: Layout, dying: int) -> None:
        self._host = host
        self._top = layout.mount_point or ""
        self._counted = layout.version == 2
        self._dying = dying

    def most(self, path: str) -> int | None:
        """`None` if the counters cannot be read."""
        if self._dying <= _ORDINARY:
            return self._dying
        try:
            return min(self._dying, self._below(f"{self._top}{path}", path))
        except SourceError:
            return None

    def _below(self, directory: str, path: str) -> int:
        if self._counted:
            return stat.parse(text(self._host.files, f"{directory}/{stat.PATH}"), path).dying
        held = number(self._host, f"{directory}/memory.usage_in_bytes")
        with contextlib.suppress(SourceAbsent):  # swap is not accounted, and pins nothing
            held = max(held, number(self._host, f"{directory}/memory.memsw.usage_in_bytes"))
        return held // PAGE


def _leaves(bounds: _Bounds, tree: Sequence[Directory]) -> list[_Place]:
    """Leaves that can have the fewest zombies, from a sample of the whole tree."""
    paths = [path for path, _, children in tree if not children and path != "/"]
    found: list[_Place] = []
    for path in paths[:: max(1, len(paths) // _CHECKED)][:_CHECKED]:
        dead = bounds.most(path)
        if dead is not None and dead < MOST_MEMCGS:
            found.append(_Place(path, 0, 1 + dead))
        if sum(place.most <= 1 + _ORDINARY for place in found) == _LEAVES:
            break
    return sorted(found, key=lambda place: place.most)[:_LEAVES]


def _subtrees(bounds: _Bounds, tree: Sequence[Directory]) -> Iterator[_Place]:
    """Subtrees that are certainly small, with the most live cgroups first."""
    below: dict[str, int] = {path: 0 for path, _, children in tree if children and path != "/"}
    for directory in tree:
        above = directory.path
        while above := above.rpartition("/")[0]:
            if above in below:
                below[above] += 1
    workable = [path for path, live in below.items() if 0 < live <= _LARGEST]
    workable.sort(key=lambda path: -below[path])
    for path in workable[:_CHECKED]:
        dead = bounds.most(path)
        if dead is not None and 1 + below[path] + dead <= MOST_MEMCGS:
            yield _Place(path, below[path], 1 + below[path] + dead)


def pages_bytes(host: Host, directory: str) -> int:
    """Memory of a v1 cgroup and all below it, without kernel memory."""
    return number(host, f"{directory}/memory.usage_in_bytes") - number(
        host, f"{directory}/memory.kmem.usage_in_bytes"
    )


def number(host: Host, path: str) -> int:
    """A file that is one number."""
    content = text(host.files, path, 64)
    try:
        return int(content)
    except ValueError:
        raise SourceMalformed(path, 1, "not a number") from None

"""Collateral: running cgroups below a parent, and what reclaim there could take from them.

File cache is evicted (it is read from disk again), anonymous memory goes to swap if there is any.
Both are read per live child, including everything below it. Protected units, pods,
containers and user sessions are listed with the reason.

`memory.stat` walks all zombies on old kernels, so it is read only where that is cheap: on v1 if
`sexton.sources.cgroupfs.estimate` says so, on v2 if `cgroup.stat` shows few descendants. Otherwise
only the total of a child is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sexton.cure.protected import Rule, why_protected_path
from sexton.cure.reclaim.count import Dying, Parent, dying, parent_at
from sexton.errors import SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import text, walk
from sexton.model.plan import Refusal
from sexton.model.text import count, printable, size
from sexton.sources.cgroupfs import stat
from sexton.sources.cgroupfs.estimate import DEAREST_S, MOST_RISK_S, estimates, number

#: At most this many live children are read; the rest are only counted.
MOST_SIBLINGS = 2_000
#: At most this many names below the parent are checked.
MOST_NAMES = 50_000
ACCEPT = "--accept-collateral"
_SWAPS = "/proc/swaps"
#: The rest is in per-CPU counters that are not added up yet.
_ALMOST_ALL = 0.9
#: Less tmpfs than this share of what zombies hold is not worth a look at files.
_NOTABLE = 0.1
#: By version: cache with tmpfs, anonymous memory and tmpfs of a cgroup and everything below it.
_BELOW = {1: ("total_cache", "total_rss", "total_shmem"), 2: ("file", "anon", "shmem")}
_READ = frozenset((*_BELOW[1], *_BELOW[2], "total_swap", "cache", "rss", "swap"))


class Sibling(NamedTuple):
    """A live child of the parent with everything below it. `file_bytes` is evictable cache (without
    tmpfs); the parts are `None` if only `total_bytes` could be read, `swap_bytes` also if this
    kernel does not account it."""

    path: str
    total_bytes: int
    file_bytes: int | None
    anon_bytes: int | None
    shmem_bytes: int | None
    swap_bytes: int | None


class Held(NamedTuple):
    """Memory charged to zombies below a parent: cache, anonymous and tmpfs; the last is `shmem`."""

    total_bytes: int
    shmem_bytes: int


class ProtectedCgroup(NamedTuple):
    """A live cgroup below the parent that must not lose memory, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Collateral:
    """`own` is what processes in the parent itself hold; `live` is the number of live cgroups below
    it, `unread` the number not read. `swap_free_bytes` is 0 without swap and also when it is full:
    see `swap_total_bytes`."""

    parent: Parent
    dying: Dying
    siblings: tuple[Sibling, ...]
    own: Sibling | None
    protected: tuple[ProtectedCgroup, ...]
    live: int
    unread: int
    swap_free_bytes: int
    split: bool
    swap_total_bytes: int = 0
    held: Held | None = None

    @property
    def only_tmpfs(self) -> bool:
        """Whether reclaim cannot help: nearly all memory of the zombies is tmpfs, without swap."""
        if self.held is None or self.swap_total_bytes or not self.held.shmem_bytes:
            return False
        return self.held.shmem_bytes >= _ALMOST_ALL * self.held.total_bytes

    @property
    def tmpfs_share(self) -> str:
        """How much of the zombies' memory reclaim cannot free: tmpfs, without swap; "" if little.

        Where page cache holds some zombies and tmpfs others, reclaim frees the first only.
        """
        if self.held is None or self.swap_total_bytes or not self.held.shmem_bytes:
            return ""
        if self.held.shmem_bytes < _NOTABLE * self.held.total_bytes:
            return ""
        shmem, total = size(self.held.shmem_bytes), size(self.held.total_bytes)
        path = self.parent.path
        return f"{shmem} of {total} still charged to dying cgroups under {path} is tmpfs"

    @property
    def file_bytes(self) -> int | None:
        """Evictable cache of running cgroups."""
        return self._sum("file_bytes")

    @property
    def anon_bytes(self) -> int | None:
        """Their anonymous memory, which can only be swapped out."""
        return self._sum("anon_bytes")

    @property
    def swap_bytes(self) -> int | None:
        """What they already have in swap."""
        return self._sum("swap_bytes")

    @property
    def total_bytes(self) -> int:
        return sum(sibling.total_bytes for sibling in self._all())

    def _all(self) -> tuple[Sibling, ...]:
        return self.siblings if self.own is None else (*self.siblings, self.own)

    def _sum(self, name: str) -> int | None:
        values = [getattr(sibling, name) for sibling in self._all()]
        return None if any(value is None for value in values) else sum(values)


def read_collateral(
    host: Host, path: str, extra: Iterable[Rule] = (), split: bool | None = None
) -> Collateral:
    """Read the collateral below the parent at `path`. `split`: whether `memory.stat` may be read,
    if already known."""
    parent = parent_at(host, path)
    rules = tuple(extra)
    protected = [ProtectedCgroup(path, why)] if (why := why_protected_path(path, rules)) else []
    children: list[str] = []
    live = 0
    for below in walk(host.files, parent.directory):
        if below.path == "/":
            continue
        live += 1
        if below.path.count("/") == 1:
            children.append(below.path)
        # Its own name only: its ancestors below the parent were checked before it.
        name = f"/{below.path.rpartition('/')[2]}"
        if live <= MOST_NAMES and (why := why_protected_path(name, rules)):
            protected.append(ProtectedCgroup(f"{path}{below.path}", why))
    if split is None:
        split = parent.version == 2 or _is_cheap(host, parent)
    swap_total, swap_free = _swap(host)
    uncounted = None if swap_total else 0  # without swap it is zero
    siblings = []
    for child in children[:MOST_SIBLINGS]:
        try:
            siblings.append(_sibling(host, parent, child, split, uncounted))
        except SourceAbsent:  # removed meanwhile
            continue
    whole = _whole(host, parent) if split else None
    own = None if whole is None or parent.version != 1 else _own(parent, whole, uncounted)
    live_parts = siblings if own is None else [*siblings, own]
    held = None if whole is None else _held(parent, whole, live_parts)
    return Collateral(
        parent=parent,
        dying=dying(host, parent),
        siblings=tuple(siblings),
        own=own,
        protected=tuple(_topmost(protected)),
        live=live,
        unread=max(0, len(children) - MOST_SIBLINGS) + max(0, live - MOST_NAMES),
        swap_free_bytes=swap_free,
        split=split,
        swap_total_bytes=swap_total,
        held=held,
    )


def refusals(found: Collateral) -> tuple[Refusal, ...]:
    """Why nothing is freed there unless the user accepts the collateral."""
    refused = [
        Refusal(found.parent.path, f"{protected.path} is below it: {protected.why}", ACCEPT)
        for protected in found.protected
    ]
    if found.unread:
        many = count(found.unread, "live cgroup")
        refused.append(Refusal(found.parent.path, f"{many} below it could not be checked", ACCEPT))
    return tuple(refused)


def _topmost(protected: Iterable[ProtectedCgroup]) -> list[ProtectedCgroup]:
    """Drop cgroups that are inside another protected one."""
    kept: list[ProtectedCgroup] = []
    for cgroup in protected:
        if not any(cgroup.path.startswith(f"{above.path}/") for above in kept):
            kept.append(cgroup)
    return kept


def _is_cheap(host: Host, parent: Parent) -> bool:
    """Whether a walk stalls nothing. It is read once, so it may take more than a reading that is
    repeated: where each cgroup is on its own, 3,000 dying ones have a bound of 25 ms."""
    try:
        found = estimates(host, parent.layout)
    except SourceError:
        return False
    return any(
        estimate.file == "memory.stat" and estimate.most_s <= MOST_RISK_S for estimate in found
    )


def _is_small(host: Host, directory: str, path: str) -> bool:
    """Whether a walk would be cheap even at the highest known cost; v2 counts what it visits."""
    found = stat.parse(text(host.files, f"{directory}/{stat.PATH}"), printable(path))
    return (1 + found.descendants + found.dying) * DEAREST_S <= MOST_RISK_S


def _sibling(host: Host, parent: Parent, child: str, split: bool, uncounted: int | None) -> Sibling:
    """`uncounted` is the swap value if the kernel does not account it."""
    directory, path = f"{parent.directory}{child}", f"{parent.path}{child}"
    total = number(host, f"{directory}/{parent.usage_file}")
    if not split or (parent.version == 2 and not _is_small(host, directory, path)):
        return Sibling(path, total, None, None, None, uncounted)
    found = _memory_stat(host, directory, path)
    cache_name, anon_name, shmem_name = _BELOW[parent.version]
    cache, shmem = found.get(cache_name, 0), found.get(shmem_name, 0)
    if parent.version == 2:
        swap = _swapped(host, directory, uncounted)
    else:
        swap = found.get("total_swap", uncounted)  # present only if swap is accounted
    return Sibling(path, total, cache - shmem, found.get(anon_name), shmem, swap)


def _memory_stat(host: Host, directory: str, path: str) -> dict[str, int]:
    content = text(host.files, f"{directory}/memory.stat")
    return stat.flat_keyed(content, _READ, printable(path))


def _swapped(host: Host, directory: str, uncounted: int | None) -> int | None:
    """v2's own counter; missing if swap is not accounted."""
    try:
        return number(host, f"{directory}/memory.swap.current")
    except SourceAbsent:
        return uncounted


def _whole(host: Host, parent: Parent) -> dict[str, int] | None:
    """The parent's own `memory.stat`; `None` if reading it could take long."""
    try:
        if parent.version == 2 and not _is_small(host, parent.directory, parent.path):
            return None
        return _memory_stat(host, parent.directory, parent.path)
    except SourceError:
        return None


def _own(parent: Parent, found: dict[str, int], uncounted: int | None) -> Sibling:
    """The parent's own pages: v1 only, since on v2 a parent has no processes."""
    shmem = found.get("shmem", 0)
    cache, anon = found.get("cache", 0), found.get("rss", 0)
    swap = found.get("swap", uncounted)
    return Sibling(parent.path, cache + anon, cache - shmem, anon, shmem, swap)


def _held(parent: Parent, found: dict[str, int], live: Iterable[Sibling]) -> Held | None:
    """Memory charged below the parent, minus that of live cgroups."""
    cache, anon, shmem = (found.get(name, 0) for name in _BELOW[parent.version])
    total = cache + anon
    for sibling in live:
        parts = (sibling.file_bytes, sibling.anon_bytes, sibling.shmem_bytes)
        if None in parts:
            return None
        total -= sum(part or 0 for part in parts)
        shmem -= sibling.shmem_bytes or 0
    return Held(max(total, 0), max(shmem, 0))


def _swap(host: Host) -> tuple[int, int]:
    """Total and free bytes of swap. /proc/swaps is in KiB and starts with a header line."""
    try:
        lines = text(host.files, _SWAPS).splitlines()[1:]
    except SourceError:
        return 0, 0
    total = free = 0
    for line in lines:
        words = line.split()
        if len(words) >= 4 and words[-3].isdecimal() and words[-2].isdecimal():
            total += int(words[-3]) << 10
            free += max(0, int(words[-3]) - int(words[-2])) << 10
    return total, free

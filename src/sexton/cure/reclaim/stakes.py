"""Who lives below a parent, and what a reclaim there could take from them.

File cache goes for good (it is read from disk again), anonymous memory goes to swap where there is
any. Both are read per live child of the parent, with all below it. Whoever must not suffer is named
with the reason: protected units, pods, containers, people's sessions.

`memory.stat` walks on old kernels, so it is read only where that is cheap: on v1 where
`sexton.sources.cgroupfs.estimate` found it so, on v2 where `cgroup.stat` counts few enough below.
Else only the plain total of a child is known.
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
from sexton.model.text import count, printable
from sexton.sources.cgroupfs import stat
from sexton.sources.cgroupfs.estimate import DEAREST_S, estimates, number
from sexton.sources.cgroupfs.residual import MOST_READ_S

#: Live children of one parent whose memory is read; the rest is told as a number.
MOST_SIBLINGS = 2_000
#: Live cgroups below the parent whose names are looked at.
MOST_NAMES = 50_000
ACCEPT = "--accept-collateral"
_SWAPS = "/proc/swaps"
_V1_PARTS = ("cache", "shmem", "rss", "swap")
_V1 = frozenset((*_V1_PARTS, *(f"total_{each}" for each in _V1_PARTS)))
_V2 = frozenset({"file", "shmem", "anon"})


class Sibling(NamedTuple):
    """A live child of the parent with all below it. `file_bytes` is cache that could be evicted
    (tmpfs apart); the parts are `None` where only `total_bytes` could be read, `swap_bytes` also
    where this kernel does not account it."""

    path: str
    total_bytes: int
    file_bytes: int | None
    anon_bytes: int | None
    shmem_bytes: int | None
    swap_bytes: int | None


class Guarded(NamedTuple):
    """A live cgroup below the parent that must not suffer, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Stakes:
    """`own` is what processes in the parent itself hold; `live` is how many live cgroups are below
    it; `unread` how many children were too many to read. `swap_free_bytes` is 0 without swap, or
    where it is full: `swap_total_bytes` tells them apart."""

    parent: Parent
    dying: Dying
    siblings: tuple[Sibling, ...]
    own: Sibling | None
    guarded: tuple[Guarded, ...]
    live: int
    unread: int
    swap_free_bytes: int
    split: bool
    swap_total_bytes: int = 0

    @property
    def file_bytes(self) -> int | None:
        """Cache of the living that could be evicted."""
        return self._sum("file_bytes")

    @property
    def anon_bytes(self) -> int | None:
        """Their anonymous memory, which only swap could take."""
        return self._sum("anon_bytes")

    @property
    def swap_bytes(self) -> int | None:
        """What of theirs is out on swap already."""
        return self._sum("swap_bytes")

    @property
    def total_bytes(self) -> int:
        return sum(each.total_bytes for each in self._all())

    def _all(self) -> tuple[Sibling, ...]:
        return self.siblings if self.own is None else (*self.siblings, self.own)

    def _sum(self, name: str) -> int | None:
        values = [getattr(each, name) for each in self._all()]
        return None if any(value is None for value in values) else sum(values)


def stakes(host: Host, path: str, extra: Iterable[Rule] = (), split: bool | None = None) -> Stakes:
    """What is at stake below the parent at `path`, read now. `split`: whether `memory.stat` may be
    read is known from before."""
    parent = parent_at(host, path)
    rules = tuple(extra)
    guarded = [Guarded(path, why)] if (why := why_protected_path(path, rules)) else []
    children: list[str] = []
    live = 0
    for below in walk(host.files, parent.directory):
        if below.path == "/":
            continue
        live += 1
        if below.path.count("/") == 1:
            children.append(below.path)
        # By its own name: whatever is above it below the parent was asked before it.
        own = f"/{below.path.rpartition('/')[2]}"
        if live <= MOST_NAMES and (why := why_protected_path(own, rules)):
            guarded.append(Guarded(f"{path}{below.path}", why))
    if split is None:
        split = parent.version == 2 or _is_cheap(host, parent)
    swap_total, swap_free = _swap(host)
    uncounted = None if swap_total else 0  # without swap nothing can be out on it
    siblings = []
    for child in children[:MOST_SIBLINGS]:
        try:
            siblings.append(_sibling(host, parent, child, split, uncounted))
        except SourceAbsent:  # removed meanwhile
            continue
    return Stakes(
        parent=parent,
        dying=dying(host, parent),
        siblings=tuple(siblings),
        own=_own(host, parent, uncounted) if split else None,
        guarded=tuple(_topmost(guarded)),
        live=live,
        unread=max(0, len(children) - MOST_SIBLINGS) + max(0, live - MOST_NAMES),
        swap_free_bytes=swap_free,
        split=split,
        swap_total_bytes=swap_total,
    )


def refusals(found: Stakes) -> tuple[Refusal, ...]:
    """Why nothing is freed there unless the person accepts what it costs."""
    refused = [
        Refusal(found.parent.path, f"{guarded.path} lives below it: {guarded.why}", ACCEPT)
        for guarded in found.guarded
    ]
    if found.unread:
        many = count(found.unread, "live cgroup")
        refused.append(
            Refusal(found.parent.path, f"{many} below it could not all be looked at", ACCEPT)
        )
    return tuple(refused)


def _topmost(guarded: Iterable[Guarded]) -> list[Guarded]:
    """Of what lies in something guarded only that is named."""
    kept: list[Guarded] = []
    for each in guarded:
        if not any(each.path.startswith(f"{above.path}/") for above in kept):
            kept.append(each)
    return kept


def _is_cheap(host: Host, parent: Parent) -> bool:
    try:
        found = estimates(host, parent.layout)
    except SourceError:
        return False
    return any(each.file == "memory.stat" and each.most_s <= MOST_READ_S for each in found)


def _is_small(host: Host, directory: str, path: str) -> bool:
    """v2 counts what a walk could visit: at the dearest price we know, would it be cheap?"""
    found = stat.parse(text(host.files, f"{directory}/{stat.PATH}"), printable(path))
    return (1 + found.descendants + found.dying) * DEAREST_S <= MOST_READ_S


def _sibling(host: Host, parent: Parent, child: str, split: bool, uncounted: int | None) -> Sibling:
    """`uncounted` is what is out on swap where the kernel does not say."""
    directory, path = f"{parent.directory}{child}", f"{parent.path}{child}"
    name = "memory.current" if parent.version == 2 else "memory.usage_in_bytes"
    total = number(host, f"{directory}/{name}")
    if not split or (parent.version == 2 and not _is_small(host, directory, path)):
        return Sibling(path, total, None, None, None, uncounted)
    content = text(host.files, f"{directory}/memory.stat")
    if parent.version == 2:
        found = stat.flat_keyed(content, _V2, printable(path))
        shmem = found.get("shmem", 0)
        swap = _swapped(host, directory, uncounted)
        return Sibling(path, total, found.get("file", 0) - shmem, found.get("anon"), shmem, swap)
    found = stat.flat_keyed(content, _V1, printable(path))
    shmem = found.get("total_shmem", 0)
    return Sibling(
        path,
        total,
        found.get("total_cache", 0) - shmem,
        found.get("total_rss"),
        shmem,
        found.get("total_swap", uncounted),  # a line that is there only where it is accounted
    )


def _swapped(host: Host, directory: str, uncounted: int | None) -> int | None:
    """v2's own counter; it is missing where swap is not accounted."""
    try:
        return number(host, f"{directory}/memory.swap.current")
    except SourceAbsent:
        return uncounted


def _own(host: Host, parent: Parent, uncounted: int | None) -> Sibling | None:
    """v1 alone tells a parent's own pages from its children's; on v2 a parent has no processes."""
    if parent.version != 1:
        return None
    try:
        content = text(host.files, f"{parent.directory}/memory.stat")
    except SourceError:
        return None
    found = stat.flat_keyed(content, _V1, printable(parent.path))
    shmem = found.get("shmem", 0)
    cache, anon = found.get("cache", 0), found.get("rss", 0)
    swap = found.get("swap", uncounted)
    return Sibling(parent.path, cache + anon, cache - shmem, anon, shmem, swap)


def _swap(host: Host) -> tuple[int, int]:
    """Bytes of swap in all, and free. Sizes and uses are in KiB, after a line of titles."""
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

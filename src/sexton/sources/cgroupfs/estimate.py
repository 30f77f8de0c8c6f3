"""What a walking read would cost, found out without paying for it.

Before 5.8 one read of ``memory.numa_stat`` (and of ``memory.stat`` on older ones still) visits
every memory cgroup below it, the dying ones too: 10,000 cost 0.7 s of one core, inside the kernel,
where nothing can stop it. So the file is timed where it is surely cheap, and the rest is
arithmetic: at leaves (one cgroup each), and at one small subtree of `n` cgroups. The difference
over `n - 1` is the price of one more cgroup, which is about nothing on kernels that keep sums.

A subtree is small only if its dead are few as well. v2 counts them (`cgroup.stat`). v1 does not,
but each holds a page at least: the parent's `memory.usage_in_bytes` less the kernel's own
`memory.kmem.usage_in_bytes`, less the same of every live leaf that has processes, in pages, is the
most there can be. (All are plain counters; reading them walks nothing.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.sources.cgroupfs import stat
from sexton.sources.host import Host
from sexton.sources.reader import Directory, text

PAGE = 4096
#: The stall that timing a subtree could cause at the very worst, if each page of its dead were a
#: cgroup and each cost as much as a whole leaf: a twenty-fifth of the NIC watchdog's 5 s.
MOST_RISK_S = 0.2
#: Larger subtrees tell no more, and a handful is enough to choose from.
_LARGEST = 100
_CANDIDATES = 5
_LEAVES = 5
_ROUNDS = 3


class Estimate(NamedTuple):
    """`measured_s` at `path` for `memcgs` cgroups, and `estimate_s` for the whole node.

    With `memcgs` 1 only leaves could be timed: the estimate is then an upper bound, because a
    leaf's fixed cost cannot be told from the cost of a cgroup.
    """

    file: str
    path: str
    memcgs: int
    measured_s: float
    estimate_s: float


class _Subtree(NamedTuple):
    path: str
    live: int
    dead_at_most: int


def estimate(host: Host, top: str, tree: Sequence[Directory], total: int, file: str) -> Estimate:
    """What reading `file` at the root of `total` cgroups would take.

    `tree` are the live directories under the mount point `top`. Raises `SourceAbsent` where no
    leaf has the file.
    """
    leaf = _cheapest_leaf(host, top, tree, file)
    if leaf is None:
        raise SourceAbsent(f"{top}/**/{file}", "no cgroup below the root has it")
    path, leaf_s = leaf
    most = int(MOST_RISK_S / leaf_s)
    subtree = _largest_safe(host, top, tree, (total, most))
    if subtree is not None:
        seconds = timed(host, f"{top}{subtree.path}/{file}")
        if seconds is not None:
            memcgs = 1 + subtree.live
            each = max(0.0, seconds - leaf_s) / subtree.live
            return Estimate(file, subtree.path, memcgs, seconds, leaf_s + each * (total - 1))
    return Estimate(file, path, 1, leaf_s, leaf_s * total)


def timed(host: Host, path: str) -> float | None:
    """The quickest of three reads; `None` where the file is gone. More than one only while they
    are quick: the first may have been the accident."""
    best = None
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        try:
            host.files.read(path)
        except SourceAbsent:
            return best
        spent = time.perf_counter() - started
        best = spent if best is None else min(best, spent)
        if spent > MOST_RISK_S / _ROUNDS:
            break
    return best


def _cheapest_leaf(
    host: Host, top: str, tree: Sequence[Directory], file: str
) -> tuple[str, float] | None:
    """The quickest of a few: a leaf may hide dead children of its own, the quickest has fewest."""
    found = []
    for path, _, children in tree:
        if children or path == "/":
            continue
        seconds = timed(host, f"{top}{path}/{file}")
        if seconds is not None:
            found.append((path, seconds))
        if len(found) == _LEAVES or (seconds is not None and seconds > MOST_RISK_S / _ROUNDS):
            break
    return min(found, key=lambda item: item[1], default=None)


def _largest_safe(
    host: Host, top: str, tree: Sequence[Directory], bounds: tuple[int, int]
) -> _Subtree | None:
    """The subtree with the most live cgroups that has no more than `most` in all."""
    total, most = bounds
    safe = [
        subtree
        for subtree in _subtrees(host, top, tree, total - len(tree))
        if 1 + subtree.live + subtree.dead_at_most <= most
    ]
    return max(safe, key=lambda subtree: subtree.live, default=None)


def _subtrees(host: Host, top: str, tree: Sequence[Directory], dying: int) -> Iterator[_Subtree]:
    """Those of a workable size, with the most dead that each can have."""
    below: dict[str, list[Directory]] = {path: [] for path, _, children in tree if children}
    for directory in tree:
        above = directory.path
        while above := above.rpartition("/")[0]:
            if above in below:
                below[above].append(directory)
    workable = [path for path, inside in below.items() if path != "/" and len(inside) <= _LARGEST]
    workable.sort(key=lambda path: len(below[path]))
    for path in workable[-_CANDIDATES:]:
        try:
            dead = min(max(0, dying), _dead_at_most(host, top, path, below[path]))
        except (SourceAbsent, SourceMalformed):
            continue
        yield _Subtree(path, len(below[path]), dead)


def _dead_at_most(host: Host, top: str, path: str, inside: Sequence[Directory]) -> int:
    try:
        return stat.parse(text(host.files, f"{top}{path}/{stat.PATH}"), path).dying
    except SourceAbsent:
        pass
    # Pages that no leaf with a process of its own accounts for: the most the dead can have.
    left = pages_bytes(host, f"{top}{path}")
    for leaf, _, children in inside:
        if not children and text(host.files, f"{top}{leaf}/cgroup.procs"):
            left -= pages_bytes(host, f"{top}{leaf}")
    return max(0, left) // PAGE


def pages_bytes(host: Host, directory: str) -> int:
    """What a v1 cgroup and all below it hold, the kernel's own memory aside."""
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

"""Which directories went away between two counts.

A cgroup's inode is its id, so a directory that was removed and made again under the same name is
told apart. Not so in a copied tree, whose inodes are those of the copy: there the root's own inode
differs from count to count (or is 0), and only names can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from sexton.model.cgroup import CgroupDir
from sexton.model.window import Batch


def gone(before: Batch[CgroupDir], after: Batch[CgroupDir]) -> tuple[CgroupDir, ...]:
    """The rows of `before` that `after` no longer has; the other way round, those that came."""
    key = identity(before, after)
    left = {key(row) for row in after.rows}
    return tuple(row for row in before.rows if key(row) not in left)


def identity(before: Batch[CgroupDir], after: Batch[CgroupDir]) -> Callable[[CgroupDir], Hashable]:
    """What makes two rows the same directory: its inode, or where that means nothing its path."""
    roots = [
        next((row.inode for row in each.rows if row.path == "/"), 0) for each in (before, after)
    ]
    if roots[0] and roots[0] == roots[1]:
        return lambda row: (row.inode, row.path)
    return lambda row: row.path

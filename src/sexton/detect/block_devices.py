"""Which block devices are parts of others, by the kernel's rule for their names."""

from __future__ import annotations

import re


def is_part(name: str, disk: str) -> bool:
    """Is it the disk itself, a namespace of it or a partition?

    A disk whose name ends in a digit has a ``p`` before the number of a partition (`disk_name` in
    the kernel's block/partitions/core.c).

    >>> [is_part(name, "sda") for name in ("sda", "sda1", "sdab", "sdab1")]
    [True, True, False, False]
    >>> [is_part(name, "nvme0") for name in ("nvme0", "nvme0n1", "nvme0n1p2", "nvme01n1")]
    [True, True, True, False]
    >>> is_part("md0p1", "md0"), is_part("md12", "md1"), is_part("dm-10", "dm-1")
    (True, False, False)
    """
    if not disk or not name.startswith(disk):
        return False
    rest = r"(n\d+)?(p\d+)?" if disk[-1].isdecimal() else r"(\d+)?"
    return re.fullmatch(rest, name[len(disk) :], re.ASCII) is not None


def disk_of(name: str) -> str:
    """The disk as its driver calls it, without partition and namespace; else the name itself.

    >>> [disk_of(name) for name in ("sda1", "xvda", "nvme0n1p2", "mmcblk0p1", "dm-0", "md0p1")]
    ['sda', 'xvda', 'nvme0', 'mmcblk0', 'dm-0', 'md0']
    """
    found = re.fullmatch(r"((?:s|v|xv|h)d[a-z]+|(?:nvme|mmcblk|md)\d+)[np\d]*", name, re.ASCII)
    return found[1] if found is not None else name

"""Filesystems on this node's own disks and in its memory."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class Filesystem(Row):
    """One local filesystem, by its shortest mount point.

    `device` is the kernel's name of its disk ("sda1", "dm-0"), "" for a tmpfs. `read_only` is the
    state of the filesystem itself, `mount_read_only` whether every mount of it is read-only: the
    two differ after the kernel has stopped writing because of an error. `available_bytes` is what
    is left for all users, `free_bytes` includes what only root may use. Sizes are `None` if they
    were not read; `hung`: the call did not return in time.
    """

    entity = ("mount_point",)

    mount_point: str
    device: str
    fstype: str
    read_only: bool
    mount_read_only: bool
    total_bytes: int | None
    free_bytes: int | None
    available_bytes: int | None
    inodes: int | None
    free_inodes: int | None
    hung: bool = False

"""Disks and the filesystems on them."""

"""Real zombies for tests, made by `lab.zombie_maker`; skips where it cannot make them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import zombie_maker as lab
from lab.zombie_maker import CannotMakeZombies, ZombieMaker
from sexton.sources.cgroupfs.layout import Layout

__all__ = ["ZombieMaker", "scratch_cgroup", "zombies"]

PREFIX = "sexton-test"


@contextlib.contextmanager
def scratch_cgroup() -> Iterator[tuple[Layout, Path]]:
    """An empty memory cgroup `sexton-test-<pid>-<n>`, removed with its children at the end."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(lab.scratch_cgroup(PREFIX))
        except CannotMakeZombies as reason:
            pytest.skip(str(reason))
        yield made


@contextlib.contextmanager
def zombies(number: int, pin: str = "tmpfs") -> Iterator[ZombieMaker]:
    """`number` zombies under a separate parent, pinned on "tmpfs" or by "page cache"."""
    with contextlib.ExitStack() as stack:
        try:
            maker = stack.enter_context(lab.zombie_maker(PREFIX, pin))
        except CannotMakeZombies as reason:
            pytest.skip(str(reason))
        maker.make(number)
        yield maker

"""Real zombies for tests: `lab.graveyard`, with a skip where this machine has no place for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import graveyard as lab
from lab.graveyard import CannotDig, Graveyard
from sexton.sources.cgroupfs.layout import Layout

__all__ = ["Graveyard", "graveyard", "own_cgroup"]

PREFIX = "sexton-test"


@contextlib.contextmanager
def own_cgroup() -> Iterator[tuple[Layout, Path]]:
    """An empty memory cgroup `sexton-test-<pid>-<n>`, removed at the end with all below it."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(lab.own_cgroup(PREFIX))
        except CannotDig as reason:
            pytest.skip(str(reason))
        yield made


@contextlib.contextmanager
def graveyard(number: int, pin: str = "tmpfs") -> Iterator[Graveyard]:
    """So many zombies under a parent of their own, pinned on "tmpfs" or by "page cache"."""
    with contextlib.ExitStack() as stack:
        try:
            yard = stack.enter_context(lab.graveyard(PREFIX, pin))
        except CannotDig as reason:
            pytest.skip(str(reason))
        yard.dig(number)
        yield yard

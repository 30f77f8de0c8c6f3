"""What is asked of `find`, and what it needs of an opened profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sexton.model.heat import Heat
from sexton.model.profile import Profile

SECOND_NS = 1_000_000_000


class Heated(Protocol):
    """The part of `Opened` used here: heat of any span, samples of short ones."""

    @property
    def hertz(self) -> int | None: ...

    def heats(self, start_ns: int | None, end_ns: int | None, /) -> Iterator[Heat]: ...

    def profiles(self, start_ns: int | None, end_ns: int | None, /) -> Iterator[Profile]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeOptions:
    """`at`: instants in the capture's own clock to align on, instead of searching.

    `window_ns` is how much before and after such an instant is looked at; `most` how many spikes
    are looked into (the strongest); `fdr` the share of false ones accepted among those told.
    """

    fdr: float = 0.01
    at: tuple[int, ...] | None = None
    window_ns: tuple[int, int] = (10 * SECOND_NS, 2 * SECOND_NS)
    cpus: frozenset[int] | None = None
    event: str | None = None
    most: int = 10
    start_ns: int | None = None
    end_ns: int | None = None

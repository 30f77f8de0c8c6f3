"""Spikes, the seconds that stand out, and what grew in them; options of the search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sexton.profile.heat import SECOND_NS


class Grown(NamedTuple):
    """A function (or task) with a larger share in a spike than in comparable calm windows.

    Shares are of core time, 0 to 1; `q` accounts for the number of functions tested.
    """

    name: str
    module: str
    kind: int
    share: float
    calm_share: float
    own_share: float
    q: float


class SpikeStack(NamedTuple):
    """A stack, the task first, then outermost to innermost; shares are of core time, 0 to 1."""

    frames: tuple[str, ...]
    share: float
    calm_share: float


@dataclass(frozen=True, slots=True)
class Spike:
    """Some seconds on one core, or on several at once.

    `onset_ns` is its start, to 20 ms. `busy` and `normal` are shares of core time in the spike and
    normally. `q` is the significance of the spike over all tested cores and seconds.
    """

    cpus: tuple[int, ...]
    start_ns: int
    end_ns: int
    onset_ns: int
    busy: float
    normal: float
    kernel: float
    q: float
    grew: tuple[Grown, ...]
    stacks: tuple[SpikeStack, ...]
    tasks: tuple[tuple[str, int, float], ...]
    #: Number of calm windows it was compared with, and remarks on them.
    calm_windows: int
    note: str = ""
    #: The path down the stacks along which it grew, from the task to the innermost function with
    #: most of the growth; shares include everything below.
    path: SpikeStack | None = None
    #: It stood out by kernel time, not by busy time; `normal_kernel` is the normal kernel share.
    in_kernel: bool = False
    normal_kernel: float = 0.0
    #: Number of functions and tasks tested for `grew`.
    tested: int = 0
    #: The events it is aligned on, if given.
    events: tuple[int, ...] = ()


class Recurring(NamedTuple):
    """A burst that recurs too often on a core to count as a spike.

    `interval_ns` is the typical interval; `regular`: it is periodic (a cron job, a scraper). `busy`
    is the share of core time at its peak, `example` the largest one.
    """

    cpus: tuple[int, ...]
    interval_ns: int
    regular: bool
    times: int
    busy: float
    normal: float
    example: Spike | None


@dataclass(frozen=True, slots=True)
class Spikes:
    """The result of a search, the strongest spikes first."""

    spikes: tuple[Spike, ...]
    cells: int
    cores: int
    seconds: int
    fdr: float
    problems: list[str] = field(default_factory=list)
    recurring: tuple[Recurring, ...] = ()
    #: Number of significant spikes; `spikes` holds the strongest of them.
    found: int = 0
    #: Cores without a result: too few samples, or no spike could be significant there.
    blind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeOptions:
    """`at`: events to align on instead of searching, on the clock of the capture.

    `window_ns` is the time before and after an event that is analysed; `most` the number of spikes
    (the strongest) that are analysed; `fdr` the accepted share of false ones among those reported.
    """

    fdr: float = 0.01
    at: tuple[int, ...] | None = None
    window_ns: tuple[int, int] = (10 * SECOND_NS, 2 * SECOND_NS)
    cpus: frozenset[int] | None = None
    event: str | None = None
    most: int = 10
    start_ns: int | None = None
    end_ns: int | None = None

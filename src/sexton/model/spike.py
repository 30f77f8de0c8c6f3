"""Seconds that stand out, and what grew in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Grown(NamedTuple):
    """A function (or task) that took a larger share in a spike than in calm windows like it.

    Shares are of the core's time, 0 to 1; `q` is controlled for the number of functions tested.
    """

    name: str
    module: str
    kind: int
    share: float
    calm_share: float
    own_share: float
    q: float


class SpikeStack(NamedTuple):
    """A stack, outermost first, the task at its head; shares are of the cores' time, 0 to 1."""

    frames: tuple[str, ...]
    share: float
    calm_share: float


@dataclass(frozen=True, slots=True)
class Spike:
    """Some seconds on one core, or on several at once.

    `onset_ns` is where it began, to 20 ms. `busy` and `normal` are shares of the cores' time in
    the spike and usually. `q` is the spike's own significance over all cores and seconds looked at.
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
    #: How many calm windows it was compared with, and why fewer than wanted.
    calm_windows: int
    note: str = ""
    #: The way down the stacks along which it grew, from the task to the innermost function that
    #: carries most of the growth; shares include everything below.
    path: SpikeStack | None = None
    #: It stood out by time in the kernel, not by being busy; `normal_kernel` is usual for it.
    in_kernel: bool = False
    normal_kernel: float = 0.0
    #: How many functions and tasks were tested for `grew`.
    tested: int = 0
    #: The instants it is aligned on, where some were given.
    events: tuple[int, ...] = ()


class Recurring(NamedTuple):
    """What comes back again and again on a core: its habit, told apart from what is rare.

    `interval_ns` is the usual time from one to the next; `regular`: it is a period (a cron job,
    a scraper). `busy` is the share of the core's time at its height, `example` the largest one.
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
    """What was looked at, and what stood out of it, the strongest first."""

    spikes: tuple[Spike, ...]
    cells: int
    cores: int
    seconds: int
    fdr: float
    problems: list[str] = field(default_factory=list)
    recurring: tuple[Recurring, ...] = ()
    #: Significant ones in all; `spikes` holds the strongest of them.
    found: int = 0
    #: Cores of which it could not be told: sampled too rarely, or nothing could stand out there.
    blind: int = 0

"""Signals of a node laid over events: what was different in the seconds before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """One number of the node over time.

    `kind` is "core", "task", "function", "unit", "cgroup", "memory", "pressure", "nic", "tcp",
    "softirq" or "kernel_log"; `about` names the one it is of ("core 5", "kubelet[2113]",
    "ecs.service"), `name` what is counted ("system time"), `unit` how ("% of a core"). `value[i]`
    is the mean rate or level from `mono_s[i - 1]` to `mono_s[i]`, NaN if unknown.
    """

    kind: str
    about: str
    name: str
    unit: str
    mono_s: F64
    value: Floats


class Ranked(NamedTuple):
    """What one signal did before the events, against control windows matched to them.

    `before` and `control` are medians; `effect` is their difference in robust spreads of the
    control windows. `p` is by permutation of windows within each event's stratum, `q` controls the
    false discoveries over all signals. `lead_s` is how long before the event it began to differ,
    `None` if nothing stands out clearly enough. `shown` is the number of events before which it
    was beyond nine tenths of their own controls.
    """

    kind: str
    about: str
    name: str
    unit: str
    before: float
    control: float
    effect: float
    p: float
    q: float
    lead_s: float | None
    shown: int = 0


@dataclass(frozen=True, slots=True)
class Aligned:
    """Signals that pass the false-discovery control first, by effect; then the others, the most
    unlikely first.

    `events` are those compared, on the monotonic clock: of events close together the first. With
    fewer than five of them `significant` is 0 whatever `p` says; `smallest_p` is what the number
    of events and controls can reach at best.
    """

    events: tuple[float, ...]
    controls: int
    before_s: float
    tested: int
    fdr: float
    smallest_p: float
    significant: int
    ranked: tuple[Ranked, ...]
    notes: tuple[str, ...] = ()

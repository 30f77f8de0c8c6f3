"""Signals of a node on which nothing is wrong, awkward ones among them, and planted culprits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from sexton.explain.aligned import Plan, compare, lay_out, prepare
from sexton.model.aligned import F64, Aligned, Signal

START_S = 5_000.0
Rng = np.random.Generator
#: Memory of a wandering load, in seconds, and how many signals have it.
MEMORIES = (10.0, 60.0, 300.0, 1800.0)
#: Periods of jobs: those of cron, and some that fit into no minute.
PERIODS = (60.0, 300.0, 600.0, 7.3, 45.0, 90.0)

#: Readings come every second, the slower ones every ten: longer without any is a gap.
_GAP_S = 15.0


def align(
    signals: Iterable[Signal], events_mono_s: Sequence[float], plan: Plan | None = None
) -> Aligned:
    """Rank signals by what they did before the events.

    With a plan that does not say what was recorded, all of them are held: their readings tell.
    """
    plan = plan or Plan()
    recorded = plan.recorded
    if not recorded:
        signals = list(signals)
        recorded = recorded_by(signals)
    layout = lay_out(events_mono_s, recorded, plan)
    return compare(prepare(signals, layout), plan, layout)


def recorded_by(signals: Iterable[Signal]) -> tuple[tuple[float, float], ...]:
    """Stretches of time in which something was read."""
    distinct = {id(signal.mono_s): signal.mono_s for signal in signals if len(signal.mono_s)}
    if not distinct:
        return ()
    moments = np.unique(np.concatenate(list(distinct.values())))
    breaks = np.flatnonzero(np.diff(moments) > _GAP_S)
    starts = moments[np.concatenate([[0], breaks + 1])]
    ends = moments[np.concatenate([breaks, [len(moments) - 1]])]
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))


def seconds(hours: float) -> F64:
    return START_S + np.arange(round(3600 * hours)) + 0.3


def signal(name: str, mono: F64, value: F64) -> Signal:
    return Signal("core", name, "time", "%", mono, value)


def wandering(rng: Rng, number: int, memory_s: float) -> F64:
    """First-order, with unit spread."""
    keep = np.exp(-1 / memory_s)
    noise = rng.normal(0, np.sqrt(1 - keep**2), number)
    value = np.empty(number)
    now = rng.normal()
    for at, item in enumerate(noise.tolist()):
        now = keep * now + item
        value[at] = now
    return value


def job(rng: Rng, mono: F64, period_s: float) -> F64:
    """Some seconds of work at a fixed place in each period, give or take a second."""
    phase, length = rng.uniform(0, period_s), rng.uniform(1, min(20.0, period_s / 3))
    late = rng.uniform(0, 1, int(mono[-1] / period_s) + 2)
    begun = mono - phase
    turn = np.floor(begun / period_s).astype(int)
    running = begun - turn * period_s - late[turn] <= length
    return np.where(running, rng.uniform(20, 90), 0.0) + rng.gamma(2.0, 0.5, len(mono))


def batches(rng: Rng, number: int) -> F64:
    """Work that comes and goes in stretches of five to forty minutes."""
    value = np.empty(0)
    while len(value) < number:
        length = int(rng.uniform(300, 2400))
        value = np.concatenate([value, np.full(length, rng.choice([0.0, 0.0, 30.0, 80.0]))])
    return value[:number] + rng.gamma(3.0, 1.0, number)


def sparse(rng: Rng, number: int) -> F64:
    return rng.poisson(1 / rng.uniform(30, 600), number).astype(float)


def wild(rng: Rng, number: int) -> F64:
    return rng.pareto(1.2, number)


def ten_seconds(rng: Rng, mono: F64) -> Signal:
    """A table that is read every ten seconds, and now and then not at all."""
    slow = mono[::10].copy()
    value = np.exp(wandering(rng, len(slow), 6.0))
    for gap in rng.choice(len(slow) - 5, 4).tolist():
        value[gap : gap + 4] = np.nan
    return signal("slow", slow, value)


def healthy(rng: Rng, hours: float) -> list[Signal]:
    """About a hundred signals, in part dependent on one another."""
    mono = seconds(hours)
    number = len(mono)
    made: list[F64] = [rng.gamma(2.0, 1.0, number) for _ in range(15)]
    for memory in MEMORIES:
        shared = wandering(rng, number, memory)
        made += [np.exp(shared + 0.5 * wandering(rng, number, memory)) for _ in range(5)]
    made += [np.cumsum(rng.normal(0, 1, number)) for _ in range(5)]
    made += [job(rng, mono, period) for period in PERIODS for _ in range(3)]
    kinds: Sequence[Callable[[Rng, int], F64]] = (batches, sparse, wild)
    made += [kind(rng, number) for kind in kinds for _ in range(6)]
    day = np.sin(2 * np.pi * mono / 86_400)
    made += [10 + 5 * day + rng.normal(0, 1, number) for _ in range(2)]
    named = [signal(f"core {at}", mono, value) for at, value in enumerate(made)]
    return [*named, *(ten_seconds(rng, mono) for _ in range(5))]


def event_sets(rng: Rng, hours: float, sizes: Sequence[int]) -> Iterator[list[float]]:
    """Moments that have nothing to do with anything, without end."""
    first, last = START_S + 60, START_S + 3600 * hours
    while True:
        for size in sizes:
            yield sorted(rng.uniform(first, last, size).tolist())


def plant(value: F64, mono: F64, events: Sequence[float], lead_s: float, height: float) -> F64:
    """More of it from `lead_s` before each event until it."""
    found = value.copy()
    for event in events:
        # A reading holds what was since the one before it.
        inside = np.clip(mono - (event - lead_s), 0, 1) - np.clip(mono - event, 0, 1)
        found += height * inside
    return found


def apart(rng: Rng, hours: float, number: int, least_s: float = 200.0) -> list[float]:
    """Events at some distance from one another."""
    room = 3600 * hours - 200 - least_s * (number - 1)
    steps = np.sort(rng.uniform(0, room, number)) + least_s * np.arange(number)
    return (START_S + 100 + steps).tolist()

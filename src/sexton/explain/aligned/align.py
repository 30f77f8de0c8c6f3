"""Signals aligned on events, from readings to a ranking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sexton.explain.aligned.chance import (
    Sizes,
    Tested,
    effects_of,
    judge,
    lead_of,
    smallest_p,
    strata_known,
)
from sexton.explain.aligned.layout import LEAST_EVENTS, Layout, Plan
from sexton.explain.aligned.measure import Measured, measured
from sexton.model.aligned import Aligned, Ranked, Signal
from sexton.model.text import count

#: Effects of this many spreads get a lead time even if they may be chance.
_CLEAR = 2.0


def prepare(signals: Iterable[Signal], layout: Layout) -> list[Measured]:
    """What `compare` needs of these signals, which is little; parts may be prepared separately.

    Signals that were not read before enough events, or that never moved, are dropped.
    """
    if not layout.strata:
        return []
    sizes = _sizes(layout)
    parts = (_relevant(part, sizes) for part in measured(signals, layout))
    return [part for part in parts if part is not None]


def compare(parts: Sequence[Measured], plan: Plan, layout: Layout) -> Aligned:
    """The ranking of everything that was measured."""
    sizes = _sizes(layout)
    events = tuple(stratum.event for stratum in layout.strata)
    found = Aligned(
        events=events,
        controls=sum(len(stratum.controls) for stratum in layout.strata),
        before_s=layout.spans[-1],
        tested=0,
        fdr=plan.fdr,
        smallest_p=smallest_p(sizes, plan.permutations) if events else 1.0,
        significant=0,
        ranked=(),
        notes=layout.notes,
    )
    if not events:
        note = "no event has a control window to compare with"
        return replace(found, notes=(*layout.notes, note))
    if not parts:
        return replace(found, notes=(*layout.notes, "no signal was read around the events"))
    whole = Measured(
        [label for part in parts for label in part.labels],
        np.concatenate([part.windows for part in parts], axis=1),
        np.concatenate([part.onset for part in parts]),
    )
    ranked, significant = _ranked(whole, sizes, plan, layout.lookback_s)
    notes = layout.notes
    if len(events) < LEAST_EVENTS:
        few = (
            f"{count(len(events), 'event')}: with fewer than {LEAST_EVENTS} nothing can be"
            f" significant; no p can be below {found.smallest_p:.2g}"
        )
        notes = (*notes, few)
    return replace(
        found, tested=len(whole.labels), significant=significant, ranked=ranked, notes=notes
    )


def _sizes(layout: Layout) -> Sizes:
    return Sizes(tuple(1 + len(stratum.controls) for stratum in layout.strata))


def _relevant(part: Measured, sizes: Sizes) -> Measured | None:
    number = len(sizes.windows)
    least = max(min(number, LEAST_EVENTS), (number + 1) // 2)
    kept = np.zeros(len(part.labels), np.bool_)
    for values in part.windows:
        low = np.where(np.isfinite(values), values, np.inf).min(axis=1)
        high = np.where(np.isfinite(values), values, -np.inf).max(axis=1)
        kept |= (low < high) & (strata_known(values, sizes).sum(axis=1) >= least)
    if not kept.any():
        return None
    labels = [label for label, keep in zip(part.labels, kept.tolist(), strict=True) if keep]
    return Measured(labels, part.windows[:, kept], part.onset[kept])


def _ranked(
    whole: Measured, sizes: Sizes, plan: Plan, lookback_s: float
) -> tuple[tuple[Ranked, ...], int]:
    """The signals least likely to be chance, and how many are significant."""
    tested = judge(list(whole.windows), sizes, plan.permutations, plan.seed)
    chosen = _first(tested, plan)
    values = whole.windows[tested.span[chosen], chosen].astype(np.float64)
    units = [whole.labels[signal].unit for signal in chosen]
    found = effects_of(values, units, sizes)
    few = len(sizes.windows) < LEAST_EVENTS
    passes = tested.q[chosen] <= plan.fdr if not few else np.zeros(len(chosen), np.bool_)
    unlikely = np.where(passes, 0.0, tested.q[chosen])
    strength = -np.abs(tested.statistic[chosen])
    order = np.lexsort((strength, -np.abs(found.size).round(6), unlikely, ~passes))
    made = []
    for at in order[: plan.most_ranked].tolist():
        signal, size = int(chosen[at]), float(found.size[at])
        lead = None
        if passes[at] or abs(size) >= _CLEAR:
            onset = whole.onset[signal].astype(np.float64)
            lead = lead_of(onset, found.usual[at], size, lookback_s)
        made.append(
            Ranked(
                *whole.labels[signal],
                before=float(found.before[at]),
                control=float(found.control[at]),
                effect=size,
                p=float(tested.p[signal]),
                q=float(tested.q[signal]),
                lead_s=lead,
                shown=int(found.shown[at]),
            )
        )
    return tuple(made), int(passes.sum())


def _first(tested: Tested, plan: Plan) -> npt.NDArray[np.intp]:
    """The most unlikely signals, which are examined closely: at least all that pass."""
    order = np.argsort(-np.abs(tested.statistic), kind="stable")
    passing = int((tested.q <= plan.fdr).sum())
    # Twice as many as are listed: equally unlikely ones are ordered by the size of their effect.
    return order[: max(passing, 2 * plan.most_ranked)]

"""Signals laid over events, from readings to a ranking."""

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

_CLEAR = 2.0


def prepare(signals: Iterable[Signal], layout: Layout) -> list[Measured]:
    """What is compared of these signals, which is little; each may be measured apart from others.

    Kept are those that were read before enough of the events, and that ever moved.
    """
    if not layout.strata:
        return []
    sizes = _sizes(layout)
    return [
        kept
        for measured_signal in measured(signals, layout)
        if (kept := _relevant(measured_signal, sizes))
    ]


def compare(parts: Sequence[Measured], plan: Plan, layout: Layout) -> Aligned:
    """The ranking of what was measured."""
    return _Comparison(plan, layout).of(parts)


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


class _Comparison:
    """One layout, and everything measured by it."""

    def __init__(self, plan: Plan, layout: Layout) -> None:
        self.plan = plan
        self.layout = layout
        self.sizes = _sizes(layout)

    def of(self, parts: Sequence[Measured]) -> Aligned:
        layout, plan = self.layout, self.plan
        events = tuple(stratum.event for stratum in layout.strata)
        empty = Aligned(
            events=events,
            controls=sum(len(stratum.controls) for stratum in layout.strata),
            before_s=layout.spans[-1],
            tested=0,
            fdr=plan.fdr,
            smallest_p=smallest_p(self.sizes, plan.permutations) if events else 1.0,
            significant=0,
            ranked=(),
            notes=layout.notes,
        )
        if not events:
            return replace(
                empty, notes=(*layout.notes, "no event has a control window to compare with")
            )
        if not parts:
            return replace(empty, notes=(*layout.notes, "no signal was read around the events"))
        whole = Measured(
            [label for part in parts for label in part.labels],
            np.concatenate([part.windows for part in parts], axis=1),
            np.concatenate([part.onset for part in parts]),
        )
        tested = judge(list(whole.windows), self.sizes, plan.permutations, plan.seed)
        ranked, significant = self._ranked(whole, tested)
        notes = [*layout.notes, *self._notes(empty)]
        return replace(
            empty,
            tested=len(whole.labels),
            significant=significant,
            ranked=ranked,
            notes=tuple(notes),
        )

    def _ranked(self, whole: Measured, tested: Tested) -> tuple[tuple[Ranked, ...], int]:
        chosen = self._first(tested)
        values = whole.windows[tested.span[chosen], chosen].astype(np.float64)
        units = [whole.labels[signal].unit for signal in chosen]
        found = effects_of(values, units, self.sizes)
        few = len(self.sizes.windows) < LEAST_EVENTS
        passes = tested.q[chosen] <= self.plan.fdr if not few else np.zeros(len(chosen), np.bool_)
        unlikely = np.where(passes, 0.0, tested.q[chosen])
        strength = -np.abs(tested.statistic[chosen])
        order = np.lexsort((strength, -np.abs(found.size).round(6), unlikely, ~passes))
        made = []
        for at in order[: self.plan.most_ranked].tolist():
            signal, size = int(chosen[at]), float(found.size[at])
            lead = None
            if passes[at] or abs(size) >= _CLEAR:
                onset = whole.onset[signal].astype(np.float64)
                lead = lead_of(onset, found.usual[at], size, self.layout.lookback_s)
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

    def _first(self, tested: Tested) -> npt.NDArray[np.intp]:
        """The most unlikely ones: only they are looked at closely. Every one that passes is."""
        order = np.argsort(-np.abs(tested.statistic), kind="stable")
        passing = int((tested.q <= self.plan.fdr).sum())
        # As many again: those that are as unlikely are ordered by what they amount to.
        return order[: max(passing, 2 * self.plan.most_ranked)]

    def _notes(self, empty: Aligned) -> list[str]:
        number = len(empty.events)
        if number < LEAST_EVENTS:
            return [
                f"{count(number, 'event')}: with fewer than {LEAST_EVENTS} nothing can be"
                f" significant; no p can be below {empty.smallest_p:.2g}"
            ]
        return []

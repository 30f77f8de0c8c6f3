"""What grew: functions, tasks and stacks of a spike, compared with calm windows.

A function's share of core time in the spike is compared with the variation of that share between
calm windows (Student's t for one more window of the same kind), and its p is never smaller than
that of the counts alone (Fisher). The false discovery rate is controlled over the tested functions.

The callers of a function grow with it. The first in the list is the innermost function with at
least half of the largest growth; functions that only lead to it (``do_syscall_64``) come last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sexton.model.profile import I64, Floats, Kind
from sexton.profile.flame import outermost
from sexton.profile.select import below
from sexton.profile.significance import benjamini_hochberg, hypergeometric_tail, t_tail
from sexton.profile.spikes.baseline import angle
from sexton.profile.spikes.spike import Grown, SpikeStack
from sexton.profile.spikes.windows import Counts

#: Functions with fewer samples in all windows together are not tested.
LEAST_SAMPLES = 8
#: Growth below this share of core time is not reported.
LEAST_GROWTH = 0.01
#: The share of the largest growth that a function needs to be listed first.
_CARRIES = 0.5
#: A function with this share of its samples in a callee only leads to that callee.
_LEADS = 0.8
_MOST_GROWN = 20
_MOST_STACKS = 5
_MOST_TASKS = 5


class Growth(NamedTuple):
    """The result for one spike; `head` is the first function of `grew`."""

    grew: tuple[Grown, ...]
    stacks: tuple[SpikeStack, ...]
    path: SpikeStack | None
    tasks: tuple[tuple[str, int, float], ...]
    tested: int
    head: tuple[str, str] | None
    #: Busy and kernel shares of core time.
    busy: float
    kernel: float


def growth(counts: Counts, hot: int, fdr: float) -> Growth:
    """The first `hot` windows are the spike (or the events), the others are calm."""
    tree, totals = counts.tree, counts.totals()
    frames = len(tree.frames)
    outer = outermost(tree)
    total = _by_frame(tree.frame[outer], totals[:, outer], frames)
    own = _by_frame(tree.frame, counts.own, frames)
    rise, calm = _change(total, counts.trials, hot)
    enough = total.sum(axis=0) >= LEAST_SAMPLES
    tested = np.flatnonzero(enough & (tree.frames.kinds != Kind.ROOT))
    by_total, by_own = (p_grown(seen[:, tested], counts.trials, hot) for seen in (total, own))
    q = np.full(frames, np.nan)
    q[tested] = benjamini_hochberg(np.minimum(1.0, 2 * np.minimum(by_total, by_own)))
    sure = np.flatnonzero((np.nan_to_num(q, nan=1.0) <= fdr) & (rise >= LEAST_GROWTH))
    order = _ordered(counts, sure, rise, hot)
    hot_trials = counts.trials[:hot].sum()
    grew = tuple(
        Grown(
            tree.frames.names[frame],
            tree.frames.modules[frame],
            int(tree.frames.kinds[frame]),
            float(total[:hot, frame].sum() / hot_trials),
            float(calm[frame]),
            float(own[:hot, frame].sum() / hot_trials),
            float(q[frame]),
        )
        for frame in order[:_MOST_GROWN]
    )
    head = None
    if grew and grew[0].kind != Kind.TASK:
        head = (grew[0].name, grew[0].module)
    now = counts.own[:hot].sum(axis=0)
    in_kernel = (tree.frames.kinds == Kind.KERNEL)[tree.frame]
    node_rise, node_calm = _change(totals, counts.trials, hot)
    return Growth(
        grew,
        _stacks(counts, hot),
        _path(counts, node_rise, node_calm),
        _tasks(counts, hot),
        len(tested),
        head,
        min(1.0, float(now.sum() / hot_trials)),
        min(1.0, float(now[in_kernel].sum() / hot_trials)),
    )


def p_grown(seen: I64, trials: Floats, hot: int) -> Floats:
    """One-sided p per column: more in the first `hot` windows than the others predict."""
    windows = len(trials) - hot
    p = _floor(seen, trials, hot)
    if windows < 2:
        return p
    angles = angle(seen.astype(np.float64), trials[:, None])
    calm = angles[hot:]
    sampling = float(np.mean(1 / (4 * np.maximum(trials[hot:], 1))))
    variance = np.maximum(calm.var(axis=0, ddof=1), sampling)
    now = float(np.mean(1 / (4 * np.maximum(trials[:hot], 1))))
    # The windows of the spike may be shorter than the calm ones: then their sampling noise counts.
    one = np.maximum(variance, now) / hot + variance / windows
    t = (angles[:hot].mean(axis=0) - calm.mean(axis=0)) / np.sqrt(one)
    return np.maximum(p, t_tail(t, windows - 1))


def _floor(seen: I64, trials: Floats, hot: int) -> Floats:
    now, usual = seen[:hot].sum(axis=0), seen[hot:].sum(axis=0)
    drawn = round(float(trials[:hot].sum()))
    rest = round(float(trials[hot:].sum()))
    if rest == 0:
        return np.ones(len(now))
    p = np.ones(len(now))
    for at in np.flatnonzero(now * rest > usual * drawn).tolist():
        # Counts can exceed the trials, which are estimated from the sampling rate.
        hits, misses = min(int(now[at]), drawn), min(int(usual[at]), rest)
        p[at] = hypergeometric_tail(hits, drawn, hits + misses, drawn + rest)
    return p


def _change(seen: I64, trials: Floats, hot: int) -> tuple[Floats, Floats]:
    """Per column: the growth of its share of core time, and its normal share."""
    now = seen[:hot].sum(axis=0) / max(trials[:hot].sum(), 1.0)
    if len(trials) == hot:
        return now, np.zeros(len(now))
    usual = seen[hot:].sum(axis=0) / max(trials[hot:].sum(), 1.0)
    return now - usual, usual


def _by_frame(frame: np.ndarray, counts: I64, frames: int) -> I64:
    sums = [np.bincount(frame, row, minlength=frames) for row in counts]
    return np.stack(sums).astype(np.int64)


def _ordered(counts: Counts, sure: I64, rise: Floats, hot: int) -> list[int]:
    """The innermost function with most growth, others by growth, its callers, tasks."""
    tree = counts.tree
    kinds = tree.frames.kinds
    tasks = [frame for frame in sure.tolist() if kinds[frame] == Kind.TASK]
    plain = [frame for frame in sure.tolist() if kinds[frame] != Kind.TASK]
    tasks.sort(key=lambda frame: -rise[frame])
    if not plain:
        return tasks
    now = counts.own[:hot].sum(axis=0)
    within = tree.totals(now)
    weight = np.bincount(tree.frame, within, minlength=len(tree.frames))
    levels = np.bincount(tree.frame, within * tree.depth, minlength=len(tree.frames))
    depth = levels / np.maximum(weight, 1)
    largest = max(rise[frame] for frame in plain)
    carriers = [frame for frame in plain if rise[frame] >= _CARRIES * largest]
    head = max(carriers, key=lambda frame: (depth[frame], rise[frame]))
    under = below(tree, np.arange(len(tree.frames)) == head)
    through = tree.totals(np.where(under, now, 0))
    outer = outermost(tree)
    led = np.bincount(tree.frame[outer], through[outer], minlength=len(tree.frames))
    all_of = np.bincount(tree.frame[outer], within[outer], minlength=len(tree.frames))
    leads = {
        frame
        for frame in plain
        if depth[frame] < depth[head] and led[frame] >= _LEADS * all_of[frame]
    }
    others = [frame for frame in plain if frame != head and frame not in leads]
    others.sort(key=lambda frame: -rise[frame])
    return [head, *others, *sorted(leads, key=lambda frame: -depth[frame]), *tasks]


def _stacks(counts: Counts, hot: int) -> tuple[SpikeStack, ...]:
    """Stacks whose own samples grew most."""
    rise, usual = _change(counts.own, counts.trials, hot)
    best = np.argsort(-rise, kind="stable")[:_MOST_STACKS]
    return tuple(
        _stack(counts, int(node), float(rise[node] + usual[node]), float(usual[node]))
        for node in best
        if rise[node] > 0 and node > 0
    )


def _path(counts: Counts, rise: Floats, usual: Floats) -> SpikeStack | None:
    """From the root to the child that grew most, as long as it has most of the growth."""
    tree = counts.tree
    node, last = 0, 0
    largest = 0.0
    while True:
        children = _children(tree.end, node)
        if not children:
            break
        node = max(children, key=lambda child: rise[child])
        # Relative to the growth of the task: other tasks may have grown meanwhile.
        largest = largest or float(rise[node])
        if largest <= 0 or rise[node] < _CARRIES * largest:
            break
        last = node
    if last == 0:
        return None
    return _stack(counts, last, float(rise[last] + usual[last]), float(usual[last]))


def _children(end: np.ndarray, node: int) -> list[int]:
    found = []
    child = node + 1
    while child < end[node]:
        found.append(child)
        child = int(end[child])
    return found


def _stack(counts: Counts, node: int, now: float, usual: float) -> SpikeStack:
    names = counts.tree.frames.names
    return SpikeStack(tuple(names[frame] for frame in counts.tree.path(node)), now, usual)


def _tasks(counts: Counts, hot: int) -> tuple[tuple[str, int, float], ...]:
    """The tasks that grew most: name, pid, share of core time in the spike."""
    if not counts.tasks:
        return ()
    keys = list(counts.tasks)
    seen = np.stack([counts.tasks[key] for key in keys], axis=1)
    rise, usual = _change(seen, counts.trials, hot)
    best = np.argsort(-rise, kind="stable")[:_MOST_TASKS]
    return tuple(
        (keys[at][0], keys[at][1], float(rise[at] + usual[at])) for at in best if rise[at] > 0
    )

"""From samples with names (perf script text, folded stacks, pprof) to a `Profile`."""

from __future__ import annotations

import numpy as np

from sexton.model.profile import I32, Frames, Kind, Profile
from sexton.profile.grow import grow
from sexton.profile.perf.named import Named

ROOT = "all"


def profile_of(named: Named) -> Profile:
    """The same samples, in the order of time, their stacks grown into a tree."""
    tasks = len(named.tasks)
    table = Frames(
        names=(ROOT, *named.tasks, *named.names),
        modules=("", *("" for _ in named.tasks), *named.modules),
        kinds=np.concatenate(
            (
                np.array([Kind.ROOT], np.uint8),
                np.full(tasks, Kind.TASK, np.uint8),
                named.kinds,
            )
        ),
    )
    tree, leaf = grow(
        _shifted(named.stack_task, 1),
        named.stack_start,
        _shifted(named.stack_frame, 1 + tasks),
        table,
    )
    node = leaf[named.stack]
    time = named.time_ns
    if not named.timed or len(time) < 2 or bool((time[1:] >= time[:-1]).all()):
        order: slice | np.ndarray[tuple[int], np.dtype[np.int64]] = slice(None)
    else:  # several files joined, or perf's own order by arrival
        order = np.argsort(time, kind="stable")
    return Profile(
        time_ns=time[order],
        cpu=named.cpu[order],
        thread=named.thread[order],
        cgroup=named.cgroup[order],
        event=named.event[order],
        node=node[order],
        weight=None if named.weight is None else named.weight[order],
        threads=named.threads,
        cgroups=named.cgroups,
        events=named.events,
        tree=tree,
        facts=named.facts,
        timed=named.timed,
    )


def _shifted(ids: I32, by: int) -> I32:
    return (ids + np.int32(by)).astype(np.int32, copy=False)

"""Profiles as the recorder keeps them: a capture of some minutes as the tables of one annex.

============  ====================================================================================
``heat``      second, cpu, samples, busy, kernel: by (second, cpu), as `sexton.model.heat` has them
``heat_cell`` the fifty cells of each row of ``heat``, in a file of its own: hours of many cores are
              drawn by the second without touching it
``sample``    time_us, cpu, who, node (and weight) in the order of time, in row groups of which the
              first and last time are told, so that a few seconds are read alone
``who``       thread, cgroup, event: what a sample's `who` points to; few of them occur together
``node``      frame, depth: the tree in pre-order, from which the rest of it follows
``frame``     name, module, kind
``thread``    pid, tid, comm
``cgroup``    path
============  ====================================================================================

Events and what is known of the capture as a whole stand in the manifest, under "profile". Times are
CLOCK_MONOTONIC in whole microseconds, cut, never rounded: a sample stays in its second and cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sexton.model.heat import CELLS, Heat
from sexton.model.profile import I32, Frames, Profile, Thread, Tree
from sexton.store.annex import Stored
from sexton.store.escaped import escape

#: Samples of a row group: some ten seconds of 96 cores.
_GROUP = 100_000
_DELTA, _SPLIT = "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"


def kept(profile: Profile, heat: Heat) -> dict[str, Stored]:
    """The tables of an annex; `profile` must be timed."""
    who, pairs = _who(profile)
    return {
        "heat": _heat(heat),
        "heat_cell": _cells(heat),
        "sample": _samples(profile, who),
        "who": _whole({"thread": pairs[0], "cgroup": pairs[1], "event": pairs[2]}),
        "node": _nodes(profile.tree),
        "frame": _frames(profile.tree.frames),
        "thread": _threads(profile.threads),
        "cgroup": _whole({"path": _texts(profile.cgroups)}),
    }


def told(profile: Profile) -> dict[str, Any]:
    """What the manifest says of the capture as a whole."""
    facts = profile.facts
    return {
        "samples": len(profile) if profile.weight is None else int(profile.weight.sum()),
        "lost": facts.lost,
        "throttled": facts.throttled,
        "cores": facts.cores,
        "host": _escaped(facts.host),
        "release": _escaped(facts.release),
        "command": _escaped(facts.command),
        "events": [[escape(each.name), each.hertz, each.period] for each in profile.events],
        "problems": [escape(each) for each in facts.problems[:20]],
    }


def _escaped(text: str | None) -> str | None:
    return None if text is None else escape(text)


def _who(profile: Profile) -> tuple[I32, tuple[I32, I32, I32]]:
    """Per sample which (thread, cgroup, event) it is, and what each of those means."""
    cgroups = len(profile.cgroups) + 1
    events = max(len(profile.events), 1)
    size = (len(profile.threads) + 1) * cgroups * events
    key = (profile.thread + np.int64(1)) * cgroups
    key += profile.cgroup + np.int64(1)
    key *= events
    key += profile.event
    if size <= 4 * len(key) + (1 << 16):  # a mark per possible one, where sorting would be dearer
        there = np.zeros(size, np.bool_)
        there[key] = True
        distinct = np.flatnonzero(there)
        number = np.zeros(size, np.int32)
        number[distinct] = np.arange(len(distinct), dtype=np.int32)
        who = number[key]
    else:
        distinct, inverse = np.unique(key, return_inverse=True)
        who = inverse.astype(np.int32)
    rest, event = np.divmod(distinct, events)
    thread, cgroup = np.divmod(rest, cgroups)
    one = np.int64(1)
    return who, (
        (thread - one).astype(np.int32),
        (cgroup - one).astype(np.int32),
        event.astype(np.int32),
    )


def _samples(profile: Profile, who: I32) -> Stored:
    def groups() -> Iterator[pa.Table]:
        for start in range(0, max(len(profile), 1), _GROUP):
            rows = slice(start, start + _GROUP)
            columns: dict[str, Any] = {
                "time_us": profile.time_ns[rows] // 1000,
                "cpu": profile.cpu[rows],
                "who": who[rows],
                "node": profile.node[rows],
            }
            if profile.weight is not None:
                columns["weight"] = profile.weight[rows]
            yield pa.table(columns)

    used = np.zeros(len(profile.tree), np.bool_)
    used[profile.node] = True
    varied = 4 * int(np.count_nonzero(used)) > len(profile)
    plain = {"time_us": _DELTA, **({"node": _SPLIT} if varied else {})}
    how = _encoded(("cpu", "who", "node", "weight"), plain)
    return Stored(groups(), {**how, "write_statistics": ["time_us"]})


def _heat(heat: Heat) -> Stored:
    content = pa.table(
        {
            "second": heat.second,
            "cpu": heat.cpu,
            "samples": heat.samples,
            "busy": heat.busy,
            "kernel": heat.kernel,
        }
    )
    plain = {"second": _DELTA}
    return Stored([content], _encoded(("cpu", "samples", "busy", "kernel"), plain))


def _cells(heat: Heat) -> Stored:
    """Bytes where they hold the numbers, pairs of bytes where not: the width tells."""
    wide = bool(len(heat)) and int(heat.cells.max()) > 255
    cells = np.ascontiguousarray(heat.cells, np.dtype("<u2") if wide else np.uint8)
    width = CELLS * cells.itemsize
    buffers = [None, pa.py_buffer(cells.reshape(-1).view(np.uint8))]
    array = pa.Array.from_buffers(pa.binary(width), len(heat), buffers)
    return Stored([pa.table({"cells": array})], _encoded((), {}))


def _nodes(tree: Tree) -> Stored:
    deep = int(tree.depth.max(initial=0)) > 255
    depth = tree.depth if deep else tree.depth.astype(np.uint8)
    varied = len(tree.frames) > 1 << 14
    plain = {"frame": _SPLIT} if varied else {}
    names = ("depth",) if varied else ("depth", "frame")
    return Stored([pa.table({"frame": tree.frame, "depth": depth})], _encoded(names, plain))


def _frames(frames: Frames) -> Stored:
    columns = {
        "name": _texts(frames.names),
        "module": _texts(frames.modules),
        "kind": frames.kinds,
    }
    return Stored([pa.table(columns)], _encoded(("module", "kind"), {}))


def _threads(threads: Sequence[Thread]) -> Stored:
    columns = {
        "pid": np.array([each.pid for each in threads], np.int64),
        "tid": np.array([each.tid for each in threads], np.int64),
        "comm": _texts([each.comm for each in threads]),
    }
    return Stored([pa.table(columns)], _encoded(("comm",), {"pid": _DELTA, "tid": _DELTA}))


def _whole(columns: Mapping[str, Any]) -> Stored:
    return Stored([pa.table(dict(columns))], _encoded(tuple(columns), {}))


def _texts(texts: Sequence[str]) -> pa.Array:
    return pa.array([escape(each) for each in texts], pa.string())


def _encoded(dictionary: Sequence[str], plain: Mapping[str, str]) -> dict[str, Any]:
    return {
        "use_dictionary": [name for name in dictionary if name not in plain] or False,
        "column_encoding": dict(plain) or None,
        "write_statistics": False,
    }

"""Real captures of small loads, and what ``perf script`` makes of them as folded stacks."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from typing import NamedTuple

import numpy as np

from sexton.model.profile import Event, Facts
from sexton.profile.perf.raw import KERNEL_PID, KernelFacts, Raw, Space, no_maps
from sexton.profile.perf.walk import Columns

_HEADER = re.compile(r"\s*(.*?)\s+(-?\d+)/(-?\d+)\s*")


def record(capture, command, *, hertz=1997, more=(), environment=None):
    """Run `command` under perf; skips nothing: whoever calls it has looked for perf."""
    base = ["perf", "record", "-q", "-F", str(hertz), "-e", "cpu-clock", "-g", "--buildid-mmap"]
    full = [*base, "-k", "CLOCK_MONOTONIC", "-o", str(capture), *more, "--", *map(str, command)]
    subprocess.run(full, check=True, env=environment, capture_output=True, timeout=120)
    return capture


def folded_by_perf(capture, *options):
    """``comm;outermost;…;leaf`` → samples, out of perf's own text."""
    script = ["perf", "script", "-i", str(capture), "-F", "comm,pid,tid,ip,sym", *options]
    output = subprocess.run(script, check=True, capture_output=True, timeout=120).stdout
    counts = Counter()
    for block in output.decode("utf-8", "surrogateescape").split("\n\n"):
        header, *frames = block.strip("\n").split("\n")
        if header.strip():
            names = [frame.strip().partition(" ")[2] for frame in frames]
            counts[";".join([_HEADER.fullmatch(header)[1], *reversed(names)])] += 1
    return counts


def folded(profile):
    """The same out of a profile."""
    names = profile.tree.frames.names
    counts = Counter()
    for node, samples in enumerate(np.bincount(profile.node).tolist()):
        if samples:
            counts[";".join(names[frame] for frame in profile.tree.path(node))] += samples
    return counts


def remove_perf_maps(pids):
    """Delete the maps that programs of ours left in /tmp."""
    for pid in pids:
        if os.path.exists(f"/tmp/perf-{pid}.map"):
            os.unlink(f"/tmp/perf-{pid}.map")


class Sample(NamedTuple):
    """One sample of a capture made by hand: `frames` are (space, address), the innermost first."""

    time_ns: int
    cpu: int
    pid: int
    tid: int
    comm: str
    frames: tuple


def raw_of(samples, *, spaces=(), files=(), kernel=None, facts=None):
    """A `Raw` of those samples, as the reader would give it."""
    comms = list(dict.fromkeys(sample.comm for sample in samples))
    places = list(dict.fromkeys(place for sample in samples for place in sample.frames))
    stacks = list(dict.fromkeys((sample.comm, sample.frames) for sample in samples))
    starts = np.cumsum([0, *(len(frames) for _, frames in stacks)])

    def column(kind, values):
        return np.array(list(values), kind)

    columns = Columns(
        time_ns=column(np.int64, (sample.time_ns for sample in samples)),
        cpu=column(np.int32, (sample.cpu for sample in samples)),
        pid=column(np.int32, (sample.pid for sample in samples)),
        tid=column(np.int32, (sample.tid for sample in samples)),
        comm=column(np.int32, (comms.index(sample.comm) for sample in samples)),
        cgroup=np.full(len(samples), -1, np.int32),
        event=np.zeros(len(samples), np.int16),
        stack=column(np.int32, (stacks.index((sample.comm, sample.frames)) for sample in samples)),
        stack_comm=column(np.int32, (comms.index(comm) for comm, _ in stacks)),
        stack_start=starts.astype(np.int64),
        stack_frame=column(np.int32, (places.index(at) for _, all_ in stacks for at in all_)),
        address=column(np.uint64, (address for _, address in places)),
        space=column(np.int32, (space for space, _ in places)),
        cgroup_id=np.empty(0, np.int64),
        bad=0,
    )
    return Raw(
        columns=columns,
        comms=comms,
        cgroups=[],
        spaces=[Space(KERNEL_PID, no_maps()), *spaces],
        files=list(files),
        kernel=kernel or KernelFacts(),
        events=(Event("cpu-clock"),),
        facts=facts or Facts(),
    )

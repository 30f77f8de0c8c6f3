"""Writes a synthetic recording segment by segment, in memory that does not grow with its length."""

from __future__ import annotations

import json
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lab.synthetic.columns import SegmentTables
from lab.synthetic.cores import Cores
from lab.synthetic.memory import Memory
from lab.synthetic.network import Network
from lab.synthetic.plan import Plan, Planted, Schedule, Ticks
from lab.synthetic.services import HOST, Services
from lab.synthetic.stacks import Stacks, write_stacks
from lab.synthetic.tasks import Tasks
from sexton import __version__
from sexton.model.row import table
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.recorder import Alarm, Mark, RecorderCost, RecorderNote
from sexton.sources.registry import all_sources
from sexton.store.compaction import compact
from sexton.store.layout import prepare, read_manifest, segment_name, segments_in
from sexton.store.pins import add_pin
from sexton.store.retention import Limits, drop_replaced, size_of
from sexton.store.sealed import Contents, write_segment

_ABSENT = {
    "bpf.softirq_wait": "bpftrace is not installed",
    "cgroupfs.root_stat": "memory is on cgroup v1, which has no cgroup.stat",
    "cgroupfs.stat": "memory is on cgroup v1, which has no cgroup.stat",
    "debugfs.lru_gen": "this kernel has no lru_gen",
}
_WRITERS = 2
_NO_LIMITS = Limits(age_s=1e12, most_bytes=1 << 62)


@dataclass(frozen=True, slots=True)
class Generated:
    """Summary: the directory, the size of each table, and everything planted."""

    directory: Path
    segments: int
    rows: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    planted: tuple[Planted, ...] = ()
    boots: tuple[str, ...] = ()

    def of(self, cause: str) -> list[Planted]:
        """All occurrences of one cause, in order."""
        return [planted for planted in self.planted if planted.cause == cause]

    def json(self) -> str:
        return json.dumps({**asdict(self), "directory": str(self.directory)}, indent=1)


def write(directory: Path, plan: Plan, compacted: bool = True) -> Generated:
    """Write a recording; the directory must not contain one yet.

    `compacted` merges the segments of every hour, as the recorder does when an hour is over.
    """
    prepare(directory)
    segments = directory / "segments"
    if any(segments.iterdir()):
        raise FileExistsError(f"{directory}: already contains a recording")
    schedule = Schedule(plan)
    node = _Node(schedule)
    every = schedule.segments()
    rows: Counter[str] = Counter()
    size: Counter[str] = Counter()
    stacks = Stacks(schedule, np.random.default_rng([plan.seed, 3])) if plan.stack_hertz else None
    running: deque[Future[Path]] = deque()

    def finish(done: Future[Path]) -> None:
        for name, described in read_manifest(done.result())["tables"].items():
            rows[name] += described.get("rows", 0)
            size[name] += described.get("bytes", 0)

    with ThreadPoolExecutor(_WRITERS) as writers:
        for number, ticks in enumerate(every, 1):
            contents = node.segment(ticks)
            name = segment_name(number, float(ticks.wall[0])).text
            while len(running) >= _WRITERS:
                finish(running.popleft())
            running.append(writers.submit(write_segment, segments, name, contents))
            if stacks is not None:
                profile = stacks.profile(ticks, contents.tables[CoreTimes])
                wait([running[-1]])
                annex = write_stacks(segments / name, dict(contents.header), profile, ticks)
                rows["samples"] += len(profile)
                size["samples"] += size_of(annex)
        while running:
            finish(running.popleft())
    for pin in node.services.pins:
        add_pin(directory, pin)
    if compacted:
        done = compact(directory, _NO_LIMITS, settled_s=None)
        if done.problems:
            raise OSError("; ".join(done.problems))
        drop_replaced(segments)
    boots = tuple(node.services.boot_id(boot) for boot in sorted({part.boot for part in every}))
    return Generated(
        directory, len(segments_in(segments)), dict(rows), dict(size), schedule.planted(), boots
    )


class _Node:
    """The state of the node, kept from one segment to the next."""

    def __init__(self, schedule: Schedule) -> None:
        seed = schedule.plan.seed
        rngs = [np.random.default_rng([seed, 2, index]) for index in range(6)]
        self._rng = rngs[0]
        self._cores = Cores(schedule, rngs[1])
        self._network = Network(schedule, rngs[2])
        self._memory = Memory(schedule, rngs[3])
        self._tasks = Tasks(schedule, rngs[4])
        self.services = Services(schedule, rngs[5])
        self._boot: int | None = None
        self._header = _header()
        self._read: frozenset[str] = frozenset()

    def segment(self, ticks: Ticks) -> Contents:
        if self._boot is not None and self._boot != ticks.boot:
            for subsystem in (self._cores, self._network, self._memory, self._tasks, self.services):
                subsystem.reset()
        self._boot = ticks.boot
        segment = SegmentTables(ticks, self._rng)
        traffic = self._network.traffic(ticks)
        self._cores.write(segment, traffic)
        self._network.write(segment, traffic)
        paths = self._memory.paths
        self._memory.write(segment)
        self._tasks.write(segment, paths)
        self.services.write(segment)
        header = {**self._header, "boot_id": self.services.boot_id(ticks.boot)}
        self._read |= segment.read
        return Contents(header, segment.tables, segment.readings_table(), _states(self._read))


def _header() -> dict[str, Any]:
    providers = {table(kind): source.id for source in all_sources() for kind in source.rows}
    providers |= {table(kind): "recorder" for kind in (Alarm, Mark, RecorderCost, RecorderNote)}
    return {"host": HOST, "sexton": __version__, "providers": providers}


def _states(read: frozenset[str]) -> list[list[Any]]:
    """The state of every source: ok if one of its tables was read so far."""
    found = []
    for source in all_sources():
        state, detail = "skipped", "opt-in, not requested"
        if any(table(kind) in read for kind in source.rows):
            state, detail = "ok", ""
        elif source.id in _ABSENT:
            state, detail = "absent", _ABSENT[source.id]
        found.append([source.id, source.path, state, detail, "", False])
    return found

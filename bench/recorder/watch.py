"""All programs watch the same crowd once a second, in turn; Sexton between the peers."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.crowd import busy_processes, cgroup_tree, memory_root
from bench.recorder.account import Cost, cost, size_of
from bench.recorder.ours import FULL_NAME, PLAIN_NAME, STACKS_NAME, variants
from bench.recorder.peers import PEERS, Peer, RunSpec, unified_root
from bench.recorder.plan import Plan
from bench.table import escaped, log, spread

HEAD = """\
| program | watches | CPU of one core | to start | peak memory | kept | written | ours ÷ its CPU |
|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Watched:
    """One program's runs under the load, or why there are none."""

    peer: Peer
    costs: tuple[Cost, ...]
    kept_per_s: tuple[float, ...]
    reason: str = ""

    @property
    def share(self) -> float | None:
        return statistics.median(reading.share for reading in self.costs) if self.costs else None

    @property
    def peak_bytes(self) -> int | None:
        return max(reading.peak_bytes for reading in self.costs) if self.costs else None

    def row(self, ours: float | None) -> str:
        name = f"`{self.peer.name}`"
        if not self.costs:
            return f"| {name} | {self.peer.watches} | not run: {escaped(self.reason)} | | | | | |"
        start = statistics.median(reading.start_cpu_s for reading in self.costs)
        share = self.share or 0
        ratio = f"{ours / share:.2f}" if ours is not None and share else ""
        kept = statistics.median(self.kept_per_s)
        wrote = statistics.median(reading.written_per_s for reading in self.costs)
        cells = [
            f"{spread([reading.share for reading in self.costs])} %",
            f"{start:.2f} s",
            f"{(self.peak_bytes or 0) / 1e6:.0f} MB",
            f"{kept / 1000:.1f} kB/s",
            f"{wrote / 1000:.1f} kB/s",
            ratio,
        ]
        note = f" ({self.reason})" if self.reason else ""
        return f"| {name} | {self.peer.watches}{note} | {' | '.join(cells)} |"


def order(plan: Plan) -> list[Peer]:
    """Sexton before, between and after the peers, so that a slow minute affects all."""
    ours = variants(plan.sexton)
    half = len(PEERS) // 2
    return [
        ours["plain"],
        *PEERS[:half],
        ours["stacks"],
        *PEERS[half:],
        ours["plain"],
        ours["full"],
    ]


def watch(plan: Plan) -> list[Watched]:
    """Run all programs; one that cannot run gets a reason."""
    runs: dict[str, list[Watched]] = {}
    with busy_processes(3, 0.05, {min(os.sched_getaffinity(0))}):
        for peer in order(plan):
            seconds = {
                PLAIN_NAME: plan.ours_s,
                STACKS_NAME: plan.stacks_s,
                FULL_NAME: plan.ours_s // 4,  # of which only the memory is promised
            }.get(peer.name, plan.peer_s)
            one = _once(peer, seconds + plan.warm_up_s, plan.warm_up_s)
            log(f"  {one.row(None)}")
            runs.setdefault(peer.name, []).append(one)
    return [_joined(run) for run in runs.values()]


def _once(peer: Peer, seconds: int, warm_up_s: int) -> Watched:
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch, ExitStack() as stack:
        if "v2" in peer.watches and unified_root() != memory_root():
            # It sees only v2's cgroups: create as many there as the others see.
            stack.enter_context(cgroup_tree(1_000, unified_root()))
        run = peer.prepare(RunSpec(Path(scratch), seconds))
        if isinstance(run, str):
            return Watched(peer, (), (), run)
        taken = cost(run.program, warm_up_s)
        if taken.failure:
            return Watched(peer, (), (), taken.failure)
        if run.scraper:
            if not run.scraper.fetched_bytes:
                return Watched(peer, (), (), f"no scrape succeeded: {run.scraper.failures[-1:]}")
            kept = run.scraper.fetched_bytes
        else:
            kept = size_of(run.kept) if run.kept else 0
    left = f"left {taken.left_behind} process(es) behind" if taken.left_behind else ""
    return Watched(peer, (taken,), (kept / seconds,), left)


def _joined(runs: list[Watched]) -> Watched:
    return Watched(
        runs[0].peer,
        tuple(reading for run in runs for reading in run.costs),
        tuple(value for run in runs for value in run.kept_per_s),
        "; ".join(dict.fromkeys(run.reason for run in runs if run.reason)),
    )


def table(watched: list[Watched], ours: float | None) -> Iterator[str]:
    yield HEAD
    for peer in watched:
        yield peer.row(ours)

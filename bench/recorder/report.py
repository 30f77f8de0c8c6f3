"""All parts of the recorder's benchmark, compared with the promises."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from bench.crowd import crowd
from bench.recorder import ours
from bench.recorder.account import EndedEarly, hierarchy
from bench.recorder.flood import flood
from bench.recorder.plan import Plan
from bench.recorder.replay import replay
from bench.recorder.slowdown import Slowdown, sampling, slowdowns
from bench.recorder.watch import Watched, table, watch
from bench.table import Measured, against_limit, log
from sexton.errors import SourceError

Result = TypeVar("Result")


@dataclass
class Report:
    """Rows compared with promises, and notes for below the table."""

    lines: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def measure(plan: Plan, take: Callable[[Measured], None]) -> Report:
    """Run the selected parts; each row goes to `take` as soon as it is known."""
    report = Report()

    def add(lines: list[Measured]) -> None:
        for line in lines:
            report.lines.append(line)
            take(line)

    began = time.monotonic()
    with crowd(1_000, 1_000) if set(plan.parts) - {"replay"} else nullcontext():
        watched: list[Watched] = []
        lost: float | None = None
        if plan.wants("watch"):
            log("recorder: all programs in turn with 1,000 processes and 1,000 cgroups")
            watched = watch(plan)
            add(promises(watched))
            report.notes.append(peer_table(watched))
        if plan.wants("slowdown"):
            log("recorder: fixed work on a pinned core, with and without us")
            lost, lines = _slower(plan)
            add(lines)
        if watched and plan.wants("slowdown"):
            stacks = Stacks(
                _of(watched, ours.PLAIN_NAME),
                _of(watched, ours.STACKS_NAME),
                lost,
                os.cpu_count() or 1,
            )
            add([stacks.line()])
            report.notes.append(stacks.on(96))
        if plan.wants("flood"):
            log("recorder: a flood of packets, with and without us")
            add(flood(plan))
    if plan.wants("replay"):
        log(f"recorder: a recording of {plan.hours:g} h × {plan.cores} cores")
        add(replay(plan))
    log(f"recorder: done in {time.monotonic() - began:.0f} s")
    return report


def promises(watched: list[Watched]) -> list[Measured]:
    """Promises about CPU and memory on the crowded machine."""
    plain, full = _of(watched, ours.PLAIN_NAME), _of(watched, ours.FULL_NAME)
    lines = [
        against_limit("record, CPU of one core", plain.share, 0.9, "%", plain.reason),
        against_limit("record, steady memory", _steady(plain), 90, "MB", plain.reason),
        against_limit("record, peak memory", _megabytes(plain), 150, "MB", plain.reason),
        against_limit(
            "record with stacks, probe and ring, peak memory",
            _megabytes(full),
            300,
            "MB",
            full.reason,
        ),
    ]
    atop = next((peer.share for peer in watched if peer.peer.name.startswith("atop")), None)
    if atop and plain.share is not None:
        # A share of a core depends on the core and its load; this ratio hardly does.
        here, there = f"{plain.share:.2f} %", f"{atop:.2f} %"
        ratio, set_out = plain.share / atop, "for comparison"
        lines.append(Measured("record against atop -w, CPU", here, there, ratio, None, set_out))
    return lines


@dataclass(frozen=True)
class Stacks:
    """Cost of stacks: the recorder without and with them, and percent of a core in interrupts."""

    plain: Watched
    stacks: Watched
    lost: float | None
    cores: int

    @property
    def reason(self) -> str:
        unpriced = "samples could not be priced" if self.lost is None else ""
        return self.plain.reason or self.stacks.reason or unpriced

    def line(self) -> Measured:
        what = f"record --stacks, share of {self.cores} cores, kernel side counted"
        share = machine_share(self.stacks.share, self.lost, self.cores)
        return against_limit(what, share, 1, "%", self.reason)

    def on(self, cores: int) -> str:
        """Extrapolate their cost to `cores` cores, in words."""
        if self.plain.share is None or self.stacks.share is None or self.lost is None:
            return f"Stacks on {cores} cores: not extrapolated; {self.reason}."
        lost, plain = max(self.lost, 0), self.plain.share
        per_core = max(self.stacks.share - plain, 0) / self.cores
        kept = max(self.stacks.kept_per_s[0] - self.plain.kept_per_s[0], 0) / self.cores
        large = machine_share(plain + cores * per_core, lost, cores)
        return textwrap.fill(
            f"Stacks on {cores} cores, extrapolated from {self.cores} and not measured: samples "
            f"come at the same rate on every core, so each core, and with it the machine, loses "
            f"the same {lost:.2f} % to interrupts while it is busy. Draining and writing grow with "
            f"the samples: {per_core:.2f} % of one core and {kept / 1000:.0f} kB/s for each core "
            f"here, so {cores * per_core:.0f} % of one core and {cores * kept / 1e6:.1f} MB/s "
            f"there. The rest of the recorder ({plain:.2f} % of one core) grows with cores only in "
            f"/proc/stat, softnet and interrupts. Together {large:.2f} % of that machine. Not in "
            "this: deeper stacks, NUMA, and that one perf process drains all buffers.",
            100,
        )


def machine_share(share: float | None, lost: float | None, cores: int) -> float | None:
    """Percent of the machine: one core's CPU spread over all, plus the loss of every core.

    A negative loss is noise and counts as zero.

    >>> machine_share(1.0, 0.25, 2)
    0.75
    >>> machine_share(1.0, -0.25, 2)
    0.5
    """
    return None if share is None or lost is None else share / cores + max(lost, 0)


def peer_table(watched: list[Watched]) -> str:
    plain = _of(watched, ours.PLAIN_NAME)
    where = "cpuacct" if hierarchy().name == "cpuacct" else "cpu.stat"
    rows = "\n".join(table(watched, plain.share))
    return f"""\
Each program samples once a second, one program after another, beside 1,000 sleeping processes,
1,000 cgroups and three processes at 5 % CPU. CPU is that of the whole process tree, from a cgroup's
{where}, from the warm-up to the end (including final writes): median (lowest–highest). Memory is
VmHWM summed over the tree.

{rows}"""


def _slower(plan: Plan) -> tuple[float | None, list[Measured]]:
    """Percent of a core that samples cost, and the rows about time lost in the kernel."""
    priced, why = _tried(lambda: sampling(plan))
    here = f"{priced.text()} of a core" if priced else f"not run: {why}"
    method = "perf at 100 times the rate, divided"
    lines = [Measured(f"{ours.HERTZ} stacks a second on a busy core", here, method, None, None, "")]
    reason = ours.absent(plan.sexton)
    taken: dict[str, Slowdown] = {}
    if not reason:
        found, reason = _tried(lambda: slowdowns(plan))
        taken = found or {}
    names = {"stacks": "record --stacks", "full": "record with everything"}
    noise = f"two rounds of nothing differ by {taken['nothing'].text()}" if taken else ""
    for name, value in names.items():
        here = taken[name].text() if taken else f"not run: {reason}"
        what = f"fixed work on a core beside {value}, slower by"
        lines.append(Measured(what, here, noise, None, None, "for comparison"))
    return (priced.percent if priced else None), lines


def _tried(work: Callable[[], Result]) -> tuple[Result | None, str]:
    try:
        return work(), ""
    except (EndedEarly, SourceError) as failed:
        return None, str(failed)


def _of(watched: list[Watched], name: str) -> Watched:
    return next(peer for peer in watched if peer.peer.name == name)


def _steady(watched: Watched) -> float | None:
    costs = watched.costs
    return max(cost.steady_bytes for cost in costs) / 1e6 if costs else None


def _megabytes(watched: Watched) -> float | None:
    return None if watched.peak_bytes is None else watched.peak_bytes / 1e6

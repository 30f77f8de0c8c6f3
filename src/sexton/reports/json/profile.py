"""The JSON documents of `sexton profile`; the contracts are in docs/json.md.

Times are UNIX seconds, `null` without a wall clock; each also has a field in seconds from the
start of the capture. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sexton.model.profile import Flame, FlameDifference, FunctionCount, Kind, Tree
from sexton.model.text import printable
from sexton.profile.spikes.spike import Grown, Spike, Spikes, SpikeStack
from sexton.profile.timeline import Timeline
from sexton.reports.text.blocks import picked
from sexton.reports.text.profile import Contents
from sexton.reports.text.profile_head import Capture

SPIKES = "sexton.spikes/1"
INFO = "sexton.profile/1"
DIFFERENCE = "sexton.flame.difference/1"
TOP = "sexton.functions/1"
TIMELINE = "sexton.timeline/1"
_KINDS = {
    Kind.ROOT: "root",
    Kind.TASK: "task",
    Kind.KERNEL: "kernel",
    Kind.USER: "user",
    Kind.UNTOLD: None,
}


def capture_json(capture: Capture) -> dict[str, Any]:
    """Host, time range, lost samples, problems."""
    facts = capture.facts
    start = None if capture.end_ns is None else capture.times.start_ns
    return {
        "path": printable(facts.path),
        "format": printable(facts.format),
        "host": _text(facts.host),
        "kernel": _text(facts.release),
        "command": _text(facts.command),
        "cores": facts.cores,
        "samples": capture.samples,
        "start": _wall(capture, start),
        "end": _wall(capture, capture.end_ns),
        "seconds": None if capture.span_s is None else round(capture.span_s, 6),
        "lost": facts.lost,
        "throttled": facts.throttled,
        "problems": [printable(problem) for problem in facts.problems],
    }


def spikes_json(capture: Capture, found: Spikes, exit_code: int) -> dict[str, Any]:
    """Contract ``sexton.spikes/1``."""
    return {
        "schema": SPIKES,
        "exit": exit_code,
        "capture": capture_json(capture),
        "looked_at": {
            "core_seconds": found.cells,
            "cores": found.cores,
            "seconds": found.seconds,
            "false_discovery_rate": found.fdr,
        },
        "problems": [printable(problem) for problem in found.problems],
        "found": max(found.found, len(found.spikes)),
        "spikes": [_spike(capture, spike) for spike in found.spikes],
        "recurring": [
            {
                "cores": list(burst.cpus),
                "interval_s": burst.interval_ns / 1e9,
                **picked(burst, "regular", "times"),
                "busy": _share(burst.busy),
                "normal": _share(burst.normal),
                "example": None if burst.example is None else _spike(capture, burst.example),
            }
            for burst in found.recurring
        ],
    }


def _spike(capture: Capture, spike: Spike) -> dict[str, Any]:
    return {
        "cores": list(spike.cpus),
        "start": _wall(capture, spike.start_ns),
        "end": _wall(capture, spike.end_ns),
        "onset": _wall(capture, spike.onset_ns),
        "start_s": _since(capture, spike.start_ns),
        "end_s": _since(capture, spike.end_ns),
        "onset_s": _since(capture, spike.onset_ns),
        "busy": _share(spike.busy),
        "normal": _share(spike.normal),
        "kernel": _share(spike.kernel),
        "normal_kernel": _share(spike.normal_kernel) if spike.in_kernel else None,
        "stood_out_by": "kernel" if spike.in_kernel else "busy",
        "q": _number(spike.q),
        "grew": [
            {
                **_function(growth),
                "share": _share(growth.share),
                "calm_share": _share(growth.calm_share),
                "own_share": _share(growth.own_share),
                "q": _number(growth.q),
            }
            for growth in spike.grew
        ],
        "tested": spike.tested,
        "path": None if spike.path is None else _stack(spike.path),
        "stacks": [_stack(stack) for stack in spike.stacks],
        "tasks": [
            {"name": printable(name), "pid": pid if pid >= 0 else None, "share": _share(share)}
            for name, pid, share in spike.tasks
        ],
        "calm_windows": spike.calm_windows,
        "note": printable(spike.note),
        "events": [_wall(capture, event) for event in spike.events],
        "events_s": [_since(capture, event) for event in spike.events],
    }


def _function(counted: Grown | FunctionCount) -> dict[str, Any]:
    return {
        "name": printable(counted.name),
        "module": printable(counted.module),
        "kind": _KINDS[Kind(counted.kind)],
    }


def _stack(stack: SpikeStack) -> dict[str, Any]:
    return {
        "frames": [printable(name) for name in stack.frames],
        "share": _share(stack.share),
        "calm_share": _share(stack.calm_share),
    }


def info_json(capture: Capture, held: Contents) -> dict[str, Any]:
    """Contract ``sexton.profile/1``."""
    clock = capture.facts.clock
    return {
        "schema": INFO,
        "capture": capture_json(capture),
        "clock": printable(clock.kind),
        "events": [
            {"name": printable(event.name), **picked(event, "hertz", "period"), "samples": number}
            for event, number in held.events
        ],
        "tasks": [{"name": printable(name), "samples": number} for name, number in held.tasks],
        "cores": [
            {"core": cpu if cpu >= 0 else None, "samples": number} for cpu, number in held.cores
        ],
        "stacks": held.stacks,
        "functions": held.functions,
        "idle_samples": held.idle,
        "sampled_seconds": held.seconds,
    }


def difference_json(
    captures: Sequence[Capture], found: FlameDifference, names: tuple[str, str]
) -> dict[str, Any]:
    """Contract ``sexton.flame.difference/1``."""
    before, after = found.tree.totals(found.before), found.tree.totals(found.after)
    return {
        "schema": DIFFERENCE,
        "captures": [capture_json(capture) for capture in captures],
        "before": {"name": printable(names[0]), "samples": int(found.before.sum())},
        "after": {"name": printable(names[1]), "samples": int(found.after.sum())},
        "blocks": None if found.blocks is None else list(found.blocks),
        "nodes": [
            {
                **_node(found.tree, node),
                "before": int(before[node]),
                "after": int(after[node]),
                "q": _number(float(found.q[node])),
            }
            for node in range(len(found.tree))
            if before[node] or after[node]
        ],
    }


def top_json(capture: Capture, flame: Flame, found: Sequence[FunctionCount]) -> dict[str, Any]:
    """Contract ``sexton.functions/1``."""
    return {
        "schema": TOP,
        "capture": capture_json(capture),
        "start": _wall(capture, flame.start_ns),  # `null` where the chosen range is open
        "end": _wall(capture, flame.end_ns),
        "start_s": _since(capture, flame.start_ns),
        "end_s": _since(capture, flame.end_ns),
        "samples": flame.samples,
        "functions": [
            {**_function(count), "own": count.own, "total": count.total} for count in found
        ],
    }


def timeline_json(capture: Capture, counted: Timeline) -> dict[str, Any]:
    """Contract ``sexton.timeline/1``: matching samples and all samples per column."""
    return {
        "schema": TIMELINE,
        "capture": capture_json(capture),
        "start": _wall(capture, counted.start_ns),
        "start_s": _since(capture, counted.start_ns),
        "column_seconds": counted.column_ns / 1e9,
        "cores": None if counted.cpus is None else list(counted.cpus),
        "samples": [
            [None if value < 0 else value for value in row] for row in counted.matched.tolist()
        ],
        "taken": counted.sampled.tolist(),
    }


def _node(tree: Tree, node: int) -> dict[str, Any]:
    frame = int(tree.frame[node])
    frames = tree.frames
    kind = Kind.ROOT if node == 0 else Kind(int(frames.kinds[frame]))
    return {
        "depth": int(tree.depth[node]),
        "name": "all" if node == 0 else printable(frames.names[frame]),
        "module": printable(frames.modules[frame]),
        "kind": _KINDS[kind],
    }


def _wall(capture: Capture, time_ns: int | None) -> float | None:
    wall = None if time_ns is None else capture.times.wall_s(time_ns)
    return None if wall is None else round(wall, 6)


def _since(capture: Capture, time_ns: int | None) -> float | None:
    return None if time_ns is None else round(capture.times.since(time_ns), 6)


def _share(value: float) -> float | None:
    return None if value != value else round(value, 6)


def _number(value: float) -> float | None:
    """`null` for NaN, which means not tested."""
    return None if value != value else value


def _text(value: str | None) -> str | None:
    return None if value is None else printable(value)

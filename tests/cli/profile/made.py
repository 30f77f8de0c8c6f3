"""Captures made by hand: what the renderers are shown, with no reader or analysis in between."""

from __future__ import annotations

import numpy as np

from sexton.model.profile import Clock, Facts, Flame, FlameDifference, Frames, Kind, Tree
from sexton.profile.spikes.spike import Grown, Spike, Spikes, SpikeStack
from sexton.reports.text.profile_head import Capture, Times

#: Names that would leave their place if they could.
HOSTILE = (
    "</script><script>alert(1)",
    "]]><b>",
    "nul\0nul",
    "\u202egnp.exe",
    "two\nlines",
    "\x1b[31mred",
    b"\xff\xfe".decode("utf-8", "surrogateescape"),
    "&amp;\"'`${1}",
    "日本語の関数名",
)
START_NS = 1_000_000_000_000
WALL = Clock("monotonic", 1_763_172_000_000_000_000 - START_NS)


def tree_of(stacks: list[tuple[str, ...]]) -> tuple[Tree, dict[tuple[str, ...], int]]:
    """A tree in pre-order over all prefixes; a name that begins with ``k:`` is the kernel's."""
    paths = sorted({stack[:depth] for stack in stacks for depth in range(len(stack) + 1)})
    names = ["", *dict.fromkeys((path[-1], len(path) == 1) for path in paths if path)]
    number = {name: at for at, name in enumerate(names)}
    kinds = [Kind.ROOT]
    for name, task in names[1:]:
        kinds.append(Kind.TASK if task else Kind.KERNEL if name[:2] == "k:" else Kind.USER)
    frames = Frames(
        ("", *(name.removeprefix("k:") for name, _ in names[1:])),
        ("", *("[kernel.kallsyms]" if name[:2] == "k:" else "" for name, _ in names[1:])),
        np.array(kinds, np.uint8),
    )
    frame = [0 if not path else number[path[-1], len(path) == 1] for path in paths]
    ends = [
        next((at for at in range(me + 1, len(paths)) if paths[at][: len(path)] != path), len(paths))
        for me, path in enumerate(paths)
    ]
    tree = Tree(
        np.array(frame, np.int32),
        np.array([len(path) for path in paths], np.int32),
        np.array(ends, np.int32),
        frames,
    )
    return tree, {path: at for at, path in enumerate(paths)}


def flame_of(folded: dict[str, int]) -> Flame:
    """``{"task;k:outer;k:inner": samples}``."""
    stacks = [tuple(item.split(";")) for item in folded]
    tree, places = tree_of(stacks)
    own = np.zeros(len(tree), np.int64)
    for stack, number in zip(stacks, folded.values(), strict=True):
        own[places[stack]] += number
    return Flame(tree, own, "cpu-clock", 120.0, START_NS, START_NS + 120 * 10**9)


def difference_of(before: dict[str, int], after: dict[str, int], q: float) -> FlameDifference:
    """Every node with the same `q`."""
    both = flame_of({**before, **after})
    sides = []
    for side in (before, after):
        full = {name: side.get(name, 0) for name in {**before, **after}}
        sides.append(flame_of(full).own)
    return FlameDifference(both.tree, sides[0], sides[1], np.full(len(both.tree), q))


def capture(clock: Clock = WALL, **facts: object) -> Capture:
    document = {"host": "node-7", "release": "6.1.0", "cores": 4, "lost": 0, "throttled": 0}
    known = Facts(path="perf.data", format="perf.data", clock=clock, **{**document, **facts})
    return Capture(known, Times(START_NS, clock.wall_s), START_NS + 120 * 10**9, lambda: 46_560)


def spike(**changes: object) -> Spike:
    at = START_NS + 67 * 10**9
    fields: dict[str, object] = {
        "cpus": (3,),
        "start_ns": at,
        "end_ns": at + 5 * 10**9,
        "onset_ns": at + 320_000_000,
        "busy": 0.991,
        "normal": 0.12,
        "kernel": 0.96,
        "q": 3e-9,
        "grew": (
            Grown("mem_cgroup_css_rstat_flush", "[kernel]", Kind.KERNEL, 0.88, 0.002, 0.8, 1e-7),
            Grown("kubelet", "", Kind.TASK, 0.93, 0.02, 0.0, 2e-6),
        ),
        "stacks": (
            SpikeStack(("kubelet", "entry_SYSCALL_64", "do_syscall_64", "flush"), 0.88, 0.002),
        ),
        "tasks": (("kubelet", 2113, 0.93), ("swapper", 0, 0.01)),
        "calm_windows": 12,
    }
    return Spike(**{**fields, **changes})  # type: ignore[arg-type]


def spikes(*found: Spike, problems: list[str] | None = None) -> Spikes:
    return Spikes(found, 480, 4, 120, 0.01, problems or [])

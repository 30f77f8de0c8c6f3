"""speedscope: the JSON of https://www.speedscope.app, "sampled" profiles.

https://www.speedscope.app/file-format-schema.json. A flame graph is one profile, with stacks in
tree order. Samples are one profile per core, in time order and with gaps (empty stacks where a core
was idle or not sampled), so that all cores share one time axis; or one profile per task, added up.
Weights are seconds if the sampling rate is known; else samples, without gaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import numpy as np

from sexton.model.profile import I64, Bools, Flame, Frames, Profile
from sexton.model.text import printable
from sexton.profile.export import About, Parts, paths, require_times, shown, weights_of

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_NS = 1_000_000_000
_PIECE = 1 << 13
_GAP = "[]"
By = Literal["core", "task"]


def from_flame(flame: Flame, about: About) -> Iterator[bytes]:
    """One profile of everything."""
    writer = _Writer(about)
    own = flame.own.tolist()
    ids = writer.frames(flame.tree.frames)
    for node, path in paths(flame.tree, flame.own > 0):
        writer.add(about.name, _stack(path, ids), own[node] * writer.unit)
    return writer.pieces()


def from_profiles(parts: Parts, about: About, by: By = "core") -> Iterator[bytes]:
    """One profile per core or per task."""
    writer = _Writer(about)
    cores = _Cores(writer)
    for profile, rows in parts:
        ids = writer.frames(profile.tree.frames)
        if by == "task":
            _by_task(writer, profile, rows, ids)
        else:
            require_times(profile, "a profile per core")
            chosen = np.arange(len(profile)) if rows is None else np.flatnonzero(rows)
            cores.add(profile, chosen, ids)
    return writer.pieces()


def _by_task(writer: _Writer, profile: Profile, rows: Bools | None, ids: list[int]) -> None:
    own = np.zeros(len(profile.tree), np.int64)
    np.add.at(own, profile.node if rows is None else profile.node[rows], weights_of(profile, rows))
    counts = own.tolist()
    names = profile.tree.frames.names
    for node, path in paths(profile.tree, own > 0):
        task = shown(names[path[0]] if path else "")
        writer.add(task, _stack(path, ids), counts[node] * writer.unit)


class _Cores:
    """Puts samples on one time axis that starts at the first sample."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer
        self._first: int | None = None
        self._filled: dict[int, float] = {}  # per core: seconds covered by a stack or a gap

    def add(self, profile: Profile, chosen: I64, ids: list[int]) -> None:
        if not len(chosen):
            return
        if self._first is None:
            self._first = int(profile.time_ns[chosen[0]])
        wanted = np.zeros(len(profile.tree), np.bool_)
        wanted[profile.node[chosen]] = True
        stacks = {node: _stack(path, ids) for node, path in paths(profile.tree, wanted)}
        # Core by core, so that profiles are sorted by core.
        by_core = chosen[np.argsort(profile.cpu[chosen], kind="stable")]
        cpus = profile.cpu[by_core].tolist()
        times = ((profile.time_ns[by_core] - self._first) / _NS).tolist()
        for cpu, time, node in zip(cpus, times, profile.node[by_core].tolist(), strict=True):
            self._one(cpu, time, stacks[node])

    def _one(self, cpu: int, time: float, stack: str) -> None:
        writer = self._writer
        name = f"core {cpu}" if cpu >= 0 else "core unknown"
        filled = self._filled.get(cpu, 0.0)
        # Up to half a period is sampling jitter.
        if writer.in_seconds and time - filled > writer.unit / 2:
            writer.add(name, _GAP, time - filled)
            filled = time
        writer.add(name, stack, writer.unit)
        self._filled[cpu] = filled + writer.unit


def _stack(path: list[int], ids: list[int]) -> str:
    """The outermost first."""
    return f"[{','.join([str(ids[frame]) for frame in path])}]"


class _Writer:
    def __init__(self, about: About) -> None:
        self._about = about
        self.in_seconds = bool(about.hertz)
        self.unit: float = 1 / about.hertz if about.hertz else 1
        self._frames: dict[tuple[str, str], int] = {}
        self._profiles: dict[str, tuple[list[str], list[float]]] = {}

    def frames(self, table: Frames) -> list[int]:
        """The numbers of these frames in the document."""
        return [
            self._frames.setdefault((shown(name), printable(module)), len(self._frames))
            for name, module in zip(table.names, table.modules, strict=True)
        ]

    def add(self, profile: str, stack: str, weight: float) -> None:
        stacks, weights = self._profiles.setdefault(profile, ([], []))
        stacks.append(stack)
        weights.append(weight)

    def pieces(self) -> Iterator[bytes]:
        """The document, in pieces."""
        frames = [
            {"name": name, "file": module} if module else {"name": name}
            for name, module in self._frames
        ]
        head = {
            "$schema": _SCHEMA,
            "exporter": "sexton",
            "name": printable(self._about.name),
            "activeProfileIndex": 0,
            "shared": {"frames": frames},
        }
        yield f'{json.dumps(head)[:-1]}, "profiles": ['.encode()
        for at, (name, (stacks, weights)) in enumerate(self._profiles.items()):
            header = {
                "type": "sampled",
                "name": name,
                "unit": "seconds" if self.in_seconds else "none",
                "startValue": 0,
                "endValue": round(sum(weights), 9),
            }
            yield f'{"," if at else ""}\n{json.dumps(header)[:-1]}, "samples": ['.encode()
            yield from _joined(stacks)
            yield b'], "weights": ['
            yield from _joined([_number(weight) for weight in weights])
            yield b"]}"
        yield b"]}\n"


def _number(weight: float) -> str:
    return str(weight) if isinstance(weight, int) else f"{weight:.9f}"


def _joined(values: list[str]) -> Iterator[bytes]:
    for at in range(0, len(values), _PIECE):
        yield ("," if at else "").encode() + ",".join(values[at : at + _PIECE]).encode()

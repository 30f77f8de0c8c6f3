"""pprof: a gzipped ``perftools.profiles.Profile`` for ``go tool pprof``, Pyroscope, Parca.

``samples/count`` first and, if the rate is known, ``cpu/nanoseconds``. Ids run from 1 without gaps
(Parca requires that). The task is the label ``thread`` (``pprof -tagroot=thread`` shows it as the
root), the core is the label ``cpu``, as text, so that continuous profilers can query it. One
mapping per module, with its build id if known; there are no addresses. The output is reproducible:
it does not contain the time of writing.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sexton.model.profile import Bools, Flame, Frames, Profile
from sexton.model.text import printable
from sexton.profile.export import About, Parts, paths, shown, weights_of
from sexton.profile.perf.protobuf import number, text, varint

_NS = 1_000_000_000
_KERNEL = "[kernel.kallsyms]"
#: Core unknown.
_NO_CPU = -1


class _Key(NamedTuple):
    """The key of a sample: encoded location ids, thread and core."""

    locations: bytes
    thread: int
    cpu: int


def from_flame(flame: Flame, about: About) -> bytes:
    """A flame graph: with tasks, without cores."""
    writer = _Writer(about)
    own = flame.own.tolist()
    stack = _Stack(writer, flame.tree.frames)
    for node, path in paths(flame.tree, flame.own > 0):
        writer.add(stack.key(path, _NO_CPU), own[node])
    return writer.finish()


def from_profiles(parts: Parts, about: About) -> bytes:
    """Samples by task and core, all parts added up."""
    writer = _Writer(about)
    for profile, rows in parts:
        stack = _Stack(writer, profile.tree.frames)
        for path, cpu, count in _counted(profile, rows):
            writer.add(stack.key(path, cpu), count)
    return writer.finish()


def _counted(profile: Profile, rows: Bools | None) -> Iterator[tuple[list[int], int, int]]:
    """Each stack on each core, with its count."""
    node = profile.node if rows is None else profile.node[rows]
    cpu = profile.cpu if rows is None else profile.cpu[rows]
    if not len(node):
        return
    cores = int(cpu.max()) + 2
    pairs, at = np.unique(node.astype(np.int64) * cores + cpu + 1, return_inverse=True)
    counts = np.zeros(len(pairs), np.int64)
    np.add.at(counts, at.reshape(-1), weights_of(profile, rows))
    wanted = np.zeros(len(profile.tree), np.bool_)
    wanted[node] = True
    rows_of = zip((pairs // cores).tolist(), (pairs % cores).tolist(), counts.tolist(), strict=True)
    mine, core, count = next(rows_of)
    for box, path in paths(profile.tree, wanted):
        while mine == box:
            yield path, core - 1, count
            mine, core, count = next(rows_of, (-1, 0, 0))


class _Stack:
    """Maps the frames of a tree to the tables of the writer."""

    def __init__(self, writer: _Writer, frames: Frames) -> None:
        self._writer = writer
        self._frames = frames
        self._known: dict[int, bytes] = {}

    def key(self, path: Sequence[int], cpu: int) -> _Key:
        """Locations are innermost first; the first of the path is the task."""
        known = self._known
        for frame in path[1:]:
            if frame not in known:
                name, module = self._frames.names[frame], self._frames.modules[frame]
                known[frame] = varint(self._writer.location(shown(name), printable(module)))
        task = shown(self._frames.names[path[0]]) if path else ""
        locations = b"".join([known[frame] for frame in path[:0:-1]])
        return _Key(locations, self._writer.string(task), cpu)


class _Writer:
    def __init__(self, about: About) -> None:
        self._about = about
        self._strings = {"": 0}
        self._mappings: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._locations: dict[tuple[str, str], int] = {}
        self._counts: dict[_Key, int] = {}

    def string(self, value: str) -> int:
        return self._strings.setdefault(value, len(self._strings))

    def location(self, name: str, module: str) -> int:
        """A location per name and module: there are no addresses."""
        if module:
            self._mappings.setdefault(module, len(self._mappings) + 1)
        self._functions.setdefault(name, len(self._functions) + 1)
        return self._locations.setdefault((name, module), len(self._locations) + 1)

    def add(self, key: _Key, count: int) -> None:
        self._counts[key] = self._counts.get(key, 0) + count

    def finish(self) -> bytes:
        # pprof shows the first mapping as the profiled file.
        if _KERNEL in self._mappings:
            others = [module for module in self._mappings if module != _KERNEL]
            self._mappings = {module: at for at, module in enumerate((_KERNEL, *others), start=1)}
        period = round(_NS / self._about.hertz) if self._about.hertz else 0
        types = [("samples", "count"), ("cpu", "nanoseconds")][: 2 if period else 1]
        pieces = [text(1, self._type(*kind)) for kind in types]
        pieces += (self._sample(key, count, period) for key, count in self._counts.items())
        pieces += (self._mapping(module, at) for module, at in self._mappings.items())
        for (name, module), at in self._locations.items():
            line = text(4, number(1, self._functions[name]))
            pieces.append(text(4, number(1, at) + number(2, self._mappings.get(module, 0)) + line))
        for name, at in self._functions.items():
            index = self.string(name)
            pieces.append(text(5, number(1, at) + number(2, index) + number(3, index)))
        pieces.append(number(9, self._about.wall_ns or 0))
        pieces.append(number(10, self._about.duration_ns or 0))
        if period:
            pieces.append(text(11, self._type("cpu", "nanoseconds")) + number(12, period))
        pieces += (text(6, string.encode()) for string in self._strings)
        return gzip.compress(b"".join(pieces), mtime=0)

    def _type(self, name: str, unit: str) -> bytes:
        return number(1, self.string(name)) + number(2, self.string(unit))

    def _sample(self, key: _Key, count: int, period: int) -> bytes:
        values = varint(count) + (varint(count * period) if period else b"")
        labels = self._label("thread", key.thread) if key.thread else b""
        if key.cpu != _NO_CPU:
            labels += self._label("cpu", self.string(str(key.cpu)))
        return text(2, text(1, key.locations) + text(2, values) + labels)

    def _label(self, name: str, value: int) -> bytes:
        return text(3, number(1, self.string(name)) + number(2, value))

    def _mapping(self, module: str, at: int) -> bytes:
        build_id = self._about.build_ids.get(module, "")
        fields = number(1, at) + number(5, self.string(module)) + number(6, self.string(build_id))
        return text(3, fields + number(7, 1))  # has_functions: already symbolised

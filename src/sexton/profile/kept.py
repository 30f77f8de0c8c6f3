"""Profiles read back from a recording: heat without stacks, and stacks of the seconds looked at.

Each annex (`sexton.profile.keeping` says what is in one) is a piece of the timeline, with a clock
of its own, since wall clocks jump. Opening a recording reads manifests alone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.errors import StoreError
from sexton.model.heat import CELLS, Heat
from sexton.model.profile import I32, I64, Clock, Event, Facts, Frames, Profile, Thread, Tree
from sexton.model.text import count
from sexton.store.annex import Annex
from sexton.store.escaped import unescape
from sexton.store.recording import Recording

#: Trees that stay in memory: who looks at one range looks at its neighbours next.
_MOST_TREES = 4


class KeptPiece:
    """One annex. Times are its boot's monotonic clock; `end_ns` is the last sample's."""

    def __init__(self, annex: Annex, trees: OrderedDict[Path, Stacks]) -> None:
        self.annex = annex
        self.path = annex.path
        self.clock = clock_of(annex)
        self.start_ns = round(annex.start[0] * 1e6) * 1000
        self.end_ns = round(annex.end[0] * 1e6) * 1000
        self._trees = trees

    @property
    def samples(self) -> int:
        return self.annex.fact("samples") or 0

    @property
    def events(self) -> tuple[Event, ...]:
        return _events(self.annex)

    def heat(self) -> Heat:
        """Without opening a sample or a stack; `StoreError` where it is damaged."""
        return read_heat(self.annex)

    def profile(self, start_ns: int | None = None, end_ns: int | None = None) -> Profile:
        """All of it, or what lies between two moments, the second excluded; other samples are not
        decoded. `StoreError` where it is damaged or gone."""
        return read_profile(self.annex, self._stacks(), start_ns, end_ns)

    def _stacks(self) -> Stacks:
        found = self._trees.pop(self.path, None)
        if found is None:
            found = Stacks(self.annex)
        self._trees[self.path] = found
        while len(self._trees) > _MOST_TREES:
            self._trees.popitem(last=False)
        return found


def kept_pieces(path: Path, facts: Facts | None = None) -> list[KeptPiece]:
    """The decoded stacks of a recording's last boot that has any, in the order of time.

    What the reader should know ends in `facts.problems`: other boots, damage. `StoreError` where
    `path` is no recording.
    """
    recording = Recording(path)
    boots: dict[str, list[Annex]] = {}
    for segment in recording.segments:
        for annex in segment.annexes:
            boots.setdefault(annex.boot_id, []).append(annex)
    if facts is not None:
        facts.path, facts.format = str(path), "recording"
        facts.problems += recording.problems
        if len(boots) > 1:
            facts.problems.append(f"{count(len(boots), 'boot')} have stacks: shown is the last")
    if not boots:
        return []
    mine = sorted(boots[list(boots)[-1]], key=lambda annex: annex.start)
    trees: OrderedDict[Path, Stacks] = OrderedDict()
    if facts is not None:
        _sum_up(facts, mine)
    return [KeptPiece(annex, trees) for annex in mine]


def last_boot(path: Path) -> str:
    """The boot that was recorded last."""
    segments = Recording(path).segments
    return segments[-1].boot_id if segments else ""


def _sum_up(facts: Facts, annexes: list[Annex]) -> None:
    last = facts_of(annexes[-1])
    facts.host, facts.release, facts.command = last.host, last.release, last.command
    facts.cores, facts.clock = last.cores, last.clock
    for name in ("lost", "throttled"):
        known = [number for each in annexes if (number := each.fact(name)) is not None]
        setattr(facts, name, sum(known) if known else None)


def read_seconds(annex: Annex) -> Heat:
    """Heat by the second, without its cells (there are none in it, of any row)."""
    found = annex.table("heat")
    return Heat(
        _column(found, "second", np.int64),
        _column(found, "cpu", np.int32),
        _column(found, "samples", np.int32),
        _column(found, "busy", np.int32),
        _column(found, "kernel", np.int32),
        np.zeros((found.num_rows, 0), np.uint16),
    )


def read_heat(annex: Annex) -> Heat:
    """Without opening a sample or a stack."""
    heat = read_seconds(annex)
    cells = annex.table("heat_cell").column("cells")
    width = cells.type.byte_width
    kind = np.uint8 if width == CELLS else np.dtype("<u2")
    if width != CELLS * np.dtype(kind).itemsize or len(cells) != len(heat):
        raise StoreError(f"{annex.name}: its cells do not fit its heat")
    parts = [_fixed(chunk, width) for chunk in cells.chunks]
    flat = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return replace(heat, cells=flat.view(kind).reshape(-1, CELLS).astype(np.uint16))


def _fixed(chunk: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of a column of fixed width, which has no other way to numpy."""
    whole = np.frombuffer(chunk.buffers()[1], np.uint8)
    return whole[chunk.offset * width : (chunk.offset + len(chunk)) * width]


def _column(found: pa.Table, name: str, kind: Any) -> Any:
    return found.column(name).to_numpy().astype(kind, copy=False)


class Stacks:
    """What all samples of an annex point to; read once."""

    def __init__(self, annex: Annex) -> None:
        nodes = annex.table("node")
        depth = _column(nodes, "depth", np.int32)
        frames = annex.table("frame")
        named = Frames(
            _names(frames.column("name")),
            _names(frames.column("module")),
            _column(frames, "kind", np.uint8),
        )
        frame = _column(nodes, "frame", np.int32)
        if len(depth) == 0 or depth[0] != 0 or frame.max() >= len(named) or frame.min() < 0:
            raise StoreError(f"{annex.name}: its stacks make no tree")
        self.tree = Tree(frame, depth, ends_of(depth), named)
        threads = annex.table("thread")
        columns = (_column(threads, "pid", np.int64).tolist(), threads.column("tid").to_pylist())
        self.threads = tuple(map(Thread, *columns, _names(threads.column("comm"))))
        self.cgroups = _names(annex.table("cgroup").column("path"))
        who = annex.table("who")
        self.who_thread = _column(who, "thread", np.int32)
        self.who_cgroup = _column(who, "cgroup", np.int32)
        self.who_event = _column(who, "event", np.int16)


def read_profile(
    annex: Annex, stacks: Stacks, start_ns: int | None = None, end_ns: int | None = None
) -> Profile:
    """The samples of an annex, or those between two moments (the second excluded): other row
    groups are not decoded."""
    source = annex.opened("sample")
    wanted = [
        group
        for group in range(source.metadata.num_row_groups)
        if _touches(source.metadata.row_group(group), start_ns, end_ns)
    ]
    try:
        found = source.read_row_groups(wanted, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{annex.name}: {str(error).splitlines()[0]}") from None
    time_us: I64 = _column(found, "time_us", np.int64)
    rows = _inside(time_us, start_ns, end_ns)
    who = _column(found, "who", np.int32)[rows]
    weight = _column(found, "weight", np.int64)[rows] if "weight" in found.column_names else None
    return Profile(
        time_ns=time_us[rows] * 1000,
        cpu=_column(found, "cpu", np.int32)[rows],
        thread=stacks.who_thread[who],
        cgroup=stacks.who_cgroup[who],
        event=stacks.who_event[who],
        node=_column(found, "node", np.int32)[rows],
        weight=weight,
        threads=stacks.threads,
        cgroups=stacks.cgroups,
        events=_events(annex),
        tree=stacks.tree,
        facts=facts_of(annex),
    )


def _inside(time_us: I64, start_ns: int | None, end_ns: int | None) -> slice:
    first, last = 0, len(time_us)
    if start_ns is not None:
        first = int(np.searchsorted(time_us, -(-start_ns // 1000)))
    if end_ns is not None:
        last = int(np.searchsorted(time_us, -(-end_ns // 1000)))
    return slice(first, max(first, last))


def _touches(group: Any, start_ns: int | None, end_ns: int | None) -> bool:
    told = group.column(0).statistics
    if told is None or not told.has_min_max:
        return True
    later = end_ns is not None and told.min * 1000 >= end_ns
    earlier = start_ns is not None and told.max * 1000 < start_ns
    return not (later or earlier)


def facts_of(annex: Annex) -> Facts:
    """What is known of the capture that an annex was made from."""
    found = annex.manifest.get("profile", {})
    return Facts(
        path=str(annex.path),
        format="annex",
        host=_unescaped(found.get("host")),
        release=_unescaped(found.get("release")),
        command=_unescaped(found.get("command")),
        cores=annex.fact("cores"),
        clock=clock_of(annex),
        lost=annex.fact("lost"),
        throttled=annex.fact("throttled"),
        problems=[unescape(str(each)) for each in found.get("problems", ())],
    )


def clock_of(annex: Annex) -> Clock:
    """By its segment's two clocks, as they stood to each other then."""
    return Clock("monotonic", round((annex.start[1] - annex.start[0]) * 1e9))


def _events(annex: Annex) -> tuple[Event, ...]:
    told = annex.manifest.get("profile", {}).get("events", ())
    return tuple(Event(unescape(str(name)), hertz, period) for name, hertz, period in told)


def _unescaped(text: object) -> str | None:
    return unescape(text) if isinstance(text, str) else None


def _names(column: pa.ChunkedArray) -> tuple[str, ...]:
    found = column.to_pylist()
    if "\0" in "".join(found):  # most are themselves, and there are ten thousands
        found = [unescape(each) if each[:1] == "\0" else each for each in found]
    return tuple(found)


def ends_of(depth: I32) -> I32:
    """For nodes in pre-order: one past the last node below each.

    >>> ends_of(np.array([0, 1, 2, 2, 1], np.int32)).tolist()
    [5, 4, 3, 4, 5]
    """
    ends = np.empty(len(depth), np.int32)
    deepest = int(depth.max(initial=0))
    order = np.argsort(depth.astype(np.uint16 if deepest < 1 << 16 else np.int32), kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(deepest + 2))
    above = np.array([], np.intp)
    for level in range(deepest + 1):
        here = order[bounds[level] : bounds[level + 1]]
        following = np.full(len(here), len(depth), np.int64)
        following[:-1] = here[1:]  # the next one as deep, unless the parent ends before it
        if level:
            parent = above[np.searchsorted(above, here) - 1]
            np.minimum(following, ends[parent], out=following)
        ends[here] = following
        above = here
    return ends

"""Profiles in a recording: the tables of an annex, written and read back.

An annex holds a capture of some minutes. It is one piece of the timeline, with its own clock,
because wall clocks jump. Opening a recording reads only manifests; heat is read without stacks, and
samples only for the queried seconds. perf files that are not decoded yet (usually the last minutes)
are read as files; one that becomes an annex meanwhile is skipped with a problem line.

============  ====================================================================================
``heat``      second, cpu, samples, busy, kernel: by (second, cpu), see `sexton.model.profile.Heat`
``heat_cell`` the fifty cells of each row of ``heat``, in a separate file: hours of many cores are
              drawn by the second without reading it
``sample``    time_us, cpu, who, node (and weight) in time order, in row groups with statistics of
              their times, so that a few seconds can be read alone
``who``       thread, cgroup, event: what `who` of a sample refers to; few combinations occur
``node``      frame, depth: the tree in pre-order, from which the rest follows
``frame``     name, module, kind
``thread``    pid, tid, comm
``cgroup``    path
============  ====================================================================================

Events and facts about the capture are in the manifest, under "profile". Times are CLOCK_MONOTONIC
in whole microseconds, truncated and not rounded: a sample stays in its second and cell.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.errors import SextonError, StoreError
from sexton.model.profile import (
    CELLS,
    I32,
    I64,
    Clock,
    Event,
    Facts,
    Frames,
    Heat,
    Kind,
    Profile,
    Thread,
    Tree,
)
from sexton.model.text import count, printable
from sexton.store.annex import Annex, Stored, annex_name, boot_at
from sexton.store.encoding import escape, unescape
from sexton.store.pieces import waiting_stacks
from sexton.store.recording import Recording

if TYPE_CHECKING:
    from sexton.profile.files import FilePiece

#: Trees kept in memory: the next query is often for a neighbouring range.
_MOST_TREES = 4
#: More than Linux supports.
MOST_CORES = 1 << 16
#: A second of heat, and a sample's whole microseconds, begin before the first sample does.
_SLACK_S = 2


class RecordedPiece:
    """One annex. Times are CLOCK_MONOTONIC of its boot; `end_ns` is the time of the last sample."""

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
        """Read without samples and stacks; `StoreError` if damaged."""
        return read_heat(self.annex)

    def profile(self, start_ns: int | None = None, end_ns: int | None = None) -> Profile:
        """All samples, or those of a range (end excluded); other row groups are not decoded.
        `StoreError` if damaged or deleted."""
        return read_profile(self.annex, self._stacks(), start_ns, end_ns)

    def _stacks(self) -> Stacks:
        found = self._trees.pop(self.path, None)
        if found is None:
            found = Stacks(self.annex)
        self._trees[self.path] = found
        while len(self._trees) > _MOST_TREES:
            self._trees.popitem(last=False)
        return found


def recorded_pieces(path: Path, facts: Facts | None = None) -> list[RecordedPiece]:
    """The decoded stacks of the last boot that has any, in time order.

    Other boots and damage are added to `facts.problems`. `StoreError` if `path` is not a
    recording.
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
            facts.problems.append(f"stacks of {count(len(boots), 'boot')}: only the last is shown")
    if not boots:
        return []
    mine = sorted(boots[list(boots)[-1]], key=lambda annex: annex.start)
    trees: OrderedDict[Path, Stacks] = OrderedDict()
    if facts is not None:
        _sum_up(facts, mine)
    return [RecordedPiece(annex, trees) for annex in mine]


def last_boot(path: Path) -> str:
    """The boot that was recorded last."""
    segments = Recording(path).segments
    return segments[-1].boot_id if segments else ""


def pieces_of_recording(path: Path, facts: Facts) -> list[RecordedPiece | FilePiece]:
    """All stacks of the last boot that has any, in time order, decoded or not.

    Problems are added to `facts.problems`. `StoreError` if `path` is not a recording.
    """
    kept = recorded_pieces(path, facts)
    boot_id = kept[-1].annex.boot_id if kept else last_boot(path)
    waiting = undecoded_pieces(path, boot_id, {piece.annex.name for piece in kept}, facts)
    begins: list[tuple[int, RecordedPiece | FilePiece]] = [
        (piece.start_ns, piece) for piece in kept
    ]
    begins += [(piece.begun_ns or 0, piece) for piece in waiting]
    return [piece for _, piece in sorted(begins, key=lambda start: start[0])]


def undecoded_pieces(
    recording: Path, boot_id: str, done: Collection[str], facts: Facts
) -> list[FilePiece]:
    """perf files of one boot whose annex is not in `done`, by start; unreadable ones are added to
    `facts.problems`."""
    from sexton.profile.files import PERF_DATA, DecodedCache, FilePiece, first_sample_ns, recognise
    from sexton.profile.symbols import SymbolOptions
    from sexton.profile.symbols.symbols import Symbols

    kallsyms = recording / "stacks" / f"kallsyms-{boot_id}.gz"
    options = SymbolOptions(kallsyms=str(kallsyms) if kallsyms.exists() else None)
    symbols, recent = Symbols(options), DecodedCache()
    found: list[tuple[int, FilePiece]] = []
    for stack in waiting_stacks(recording):
        if annex_name(stack.path.name) in done:
            continue
        try:
            if boot_at(recording, stack.path.stat().st_mtime) != boot_id:
                continue
            known = recognise(stack.path)
            begun = first_sample_ns(str(stack.path))
        except FileNotFoundError:  # decoded meanwhile
            continue
        except SextonError as error:
            facts.problems.append(printable(f"skipped: {error}"))
            continue
        if known.format == PERF_DATA and begun is not None:
            found.append((begun, FilePiece(known, symbols, recent, begun)))
        else:
            facts.problems.append(printable(f"skipped: {stack.path}: not readable as perf.data"))
    return [piece for _, piece in sorted(found, key=lambda pair: pair[0])]


def _sum_up(facts: Facts, annexes: list[Annex]) -> None:
    last = facts_of(annexes[-1])
    facts.host, facts.release, facts.command = last.host, last.release, last.command
    facts.cores, facts.clock = last.cores, last.clock
    for name in ("lost", "throttled"):
        known = [number for annex in annexes if (number := annex.fact(name)) is not None]
        setattr(facts, name, sum(known) if known else None)


def check_annex(annex: Annex) -> None:
    """Read all of it as its readers do; `StoreError` if they could not."""
    read_heat(annex)
    read_profile(annex, Stacks(annex))
    facts_of(annex)


def check_perf(path: Path) -> None:
    """Read the header of a perf file; `StoreError` if there is none to read samples with. A file
    that perf could not finish has a header."""
    from sexton.profile.perf.pieces import Capture

    try:
        with Capture(str(path)):
            pass
    except (SextonError, OSError) as error:
        raise StoreError(str(error).removeprefix(f"{path}: ")) from None


def read_seconds(annex: Annex) -> Heat:
    """Heat by the second; `cells` has no columns."""
    found = annex.table("heat")
    with sensible(annex):
        heat = Heat(
            _during(annex, number_column(found, "second", np.int64), 1),
            number_column(found, "cpu", np.int32),
            number_column(found, "samples", np.int32),
            number_column(found, "busy", np.int32),
            number_column(found, "kernel", np.int32),
            np.zeros((found.num_rows, 0), np.uint16),
        )
        indices(heat.cpu, MOST_CORES)
        if any(part.min(initial=0) < 0 for part in (heat.samples, heat.busy, heat.kernel)):
            raise ValueError("heat below zero")
        return heat


def read_heat(annex: Annex) -> Heat:
    """Heat with its cells, read without samples and stacks."""
    heat = read_seconds(annex)
    with sensible(annex):
        cells = annex.table("heat_cell").column("cells")
        width = cells.type.byte_width
        kind = np.uint8 if width == CELLS else np.dtype("<u2")
        if width != CELLS * np.dtype(kind).itemsize or len(cells) != len(heat):
            raise StoreError(f"{annex.name}: heat cells do not match heat rows")
        parts = [_fixed(chunk, width) for chunk in cells.chunks]
        flat = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
        return replace(heat, cells=flat.view(kind).reshape(-1, CELLS).astype(np.uint16))


def _fixed(chunk: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of a fixed-width column, which Arrow cannot convert to numpy."""
    whole = np.frombuffer(chunk.buffers()[1], np.uint8)
    return whole[chunk.offset * width : (chunk.offset + len(chunk)) * width]


def number_column(found: pa.Table, name: str, kind: Any) -> Any:
    """A column of whole numbers, none of them missing or too large; `ValueError` for others."""
    column = found.column(name)
    if column.null_count or not pa.types.is_integer(column.type):
        raise ValueError(f"{name} is not a column of numbers")
    stored = column.to_numpy()
    if len(stored) and not np.can_cast(stored.dtype, kind):
        limits = np.iinfo(kind)
        if not limits.min <= int(stored.min()) <= int(stored.max()) <= limits.max:
            raise ValueError(f"{name} holds a number that is too large")
    return stored.astype(kind, copy=False)


def _during(annex: Annex, times: I64, per_second: int) -> I64:
    """Check that times are in order and within the span of their annex."""
    if len(times):
        first, last = (edge[0] * per_second for edge in (annex.start, annex.end))
        slack = _SLACK_S * per_second
        if not first - slack <= times[0] <= times[-1] <= last + slack or (np.diff(times) < 0).any():
            raise ValueError("a time is out of order or outside its span")
    return times


@contextmanager
def sensible(annex: Annex) -> Iterator[None]:
    """An annex is untrusted: its checksums may match and its content still be invalid."""
    try:
        yield
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        first = str(error).split("\n")[0]
        raise StoreError(f"{annex.name}: cannot be understood: {printable(first)}") from None


def indices(found: Any, most: int, least: int = -1) -> Any:
    """Check indices into a list of `most` items; -1 is none of them."""
    if len(found) and not least <= found.min() <= found.max() < most:
        raise ValueError("an index is out of range")
    return found


class Stacks:
    """The tree, threads and cgroups that the samples of an annex refer to; read once.

    `StoreError` where it is damaged or makes no sense.
    """

    def __init__(self, annex: Annex) -> None:
        with sensible(annex):
            self._read(annex)

    def _read(self, annex: Annex) -> None:
        nodes = annex.table("node")
        depth = number_column(nodes, "depth", np.int32)
        frames = annex.table("frame")
        named = Frames(
            _names(frames.column("name")),
            _names(frames.column("module")),
            number_column(frames, "kind", np.uint8),
        )
        frame = number_column(nodes, "frame", np.int32)
        check_tree(depth)
        indices(frame, len(named), 0)
        indices(named.kinds, len(Kind), 0)
        if len(frame) != len(depth) or len({*map(len, (named.names, named.modules))}) != 1:
            raise ValueError("stacks do not form a tree")
        self.tree = Tree(frame, depth, ends_of(depth), named)
        threads = annex.table("thread")
        pids, tids = (number_column(threads, name, np.int64).tolist() for name in ("pid", "tid"))
        self.threads = tuple(map(Thread, pids, tids, _names(threads.column("comm"))))
        self.cgroups = _names(annex.table("cgroup").column("path"))
        who = annex.table("who")
        self.who_thread = indices(number_column(who, "thread", np.int32), len(self.threads))
        self.who_cgroup = indices(number_column(who, "cgroup", np.int32), len(self.cgroups))
        self.who_event = indices(number_column(who, "event", np.int16), len(_events(annex)))


def read_profile(
    annex: Annex, stacks: Stacks, start_ns: int | None = None, end_ns: int | None = None
) -> Profile:
    """The samples of an annex, or those of a range (end excluded); other row groups are not
    decoded. `StoreError` as for `Stacks`."""
    with sensible(annex):
        source = annex.opened("sample")
        wanted = [
            group
            for group in range(source.metadata.num_row_groups)
            if _touches(source.metadata.row_group(group), start_ns, end_ns)
        ]
        found = source.read(groups=wanted)
        time_us = _during(annex, number_column(found, "time_us", np.int64), 1_000_000)
        rows = _inside(time_us, start_ns, end_ns)
        who = indices(number_column(found, "who", np.int32)[rows], len(stacks.who_thread), 0)
        weighted = "weight" in found.column_names
        return Profile(
            time_ns=time_us[rows] * 1000,
            cpu=indices(number_column(found, "cpu", np.int32)[rows], MOST_CORES),
            thread=stacks.who_thread[who],
            cgroup=stacks.who_cgroup[who],
            event=stacks.who_event[who],
            node=indices(number_column(found, "node", np.int32)[rows], len(stacks.tree), 0),
            weight=number_column(found, "weight", np.int64)[rows] if weighted else None,
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
    times = group.column(0).statistics
    if times is None or not times.has_min_max:
        return True
    later = end_ns is not None and times.min * 1000 >= end_ns
    earlier = start_ns is not None and times.max * 1000 < start_ns
    return not (later or earlier)


def facts_of(annex: Annex) -> Facts:
    """Facts about the capture of an annex."""
    with sensible(annex):
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
            problems=[unescape(str(problem)) for problem in found.get("problems", ())],
        )


def clock_of(annex: Annex) -> Clock:
    """From the two clocks of its segment."""
    return Clock("monotonic", round((annex.start[1] - annex.start[0]) * 1e9))


def _events(annex: Annex) -> tuple[Event, ...]:
    with sensible(annex):
        events = annex.manifest.get("profile", {}).get("events", ())
        found = [Event(unescape(str(name)), hertz, period) for name, hertz, period in events]
        for number in (number for event in found for number in event[1:]):
            if number is not None and not (type(number) is int and 0 <= number < 1 << 62):
                raise ValueError("an event's rate is not a number")
        return tuple(found)


def _unescaped(text: object) -> str | None:
    return unescape(text) if isinstance(text, str) else None


def _names(column: pa.ChunkedArray) -> tuple[str, ...]:
    found = column.to_pylist()
    if "\0" in "".join(found):  # few are escaped, and there are tens of thousands
        found = [unescape(row) if row[:1] == "\0" else row for row in found]
    return tuple(found)


def check_tree(depth: I32) -> None:
    """`ValueError` unless these are depths of a tree in pre-order: below the root, each node is at
    most one level deeper than the one before it."""
    below = depth[1:]
    if not len(depth) or depth[0] or below.min(initial=1) < 1 or np.diff(depth).max(initial=0) > 1:
        raise ValueError("stacks do not form a tree")


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
        following[:-1] = here[1:]  # the next node of this depth, unless the parent ends before it
        if level:
            parent = above[np.searchsorted(above, here) - 1]
            np.minimum(following, ends[parent], out=following)
        ends[here] = following
        above = here
    return ends


#: Samples of a row group: some ten seconds of 96 cores.
_GROUP = 100_000
_DELTA, _SPLIT = "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"


def annex_tables(profile: Profile, heat: Heat) -> dict[str, Stored]:
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


def annex_facts(profile: Profile) -> dict[str, Any]:
    """Facts about the capture, for the manifest."""
    facts = profile.facts
    return {
        "samples": len(profile) if profile.weight is None else int(profile.weight.sum()),
        "lost": facts.lost,
        "throttled": facts.throttled,
        "cores": facts.cores,
        "host": _escaped(facts.host),
        "release": _escaped(facts.release),
        "command": _escaped(facts.command),
        "events": [[escape(known.name), known.hertz, known.period] for known in profile.events],
        "problems": [escape(problem) for problem in facts.problems[:20]],
    }


def _escaped(text: str | None) -> str | None:
    return None if text is None else escape(text)


def _who(profile: Profile) -> tuple[I32, tuple[I32, I32, I32]]:
    """The (thread, cgroup, event) number of each sample, and the three columns of those."""
    cgroups = len(profile.cgroups) + 1
    events = max(len(profile.events), 1)
    size = (len(profile.threads) + 1) * cgroups * events
    key = (profile.thread + np.int64(1)) * cgroups
    key += profile.cgroup + np.int64(1)
    key *= events
    key += profile.event
    if size <= 4 * len(key) + (1 << 16):  # a flag per possible value is cheaper than a sort
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
    return who, (
        (thread - 1).astype(np.int32),
        (cgroup - 1).astype(np.int32),
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
    """One byte per cell if that is enough, else two: readers go by the width."""
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
    columns = {"name": _texts(frames.names), "module": _texts(frames.modules), "kind": frames.kinds}
    return Stored([pa.table(columns)], _encoded(("module", "kind"), {}))


def _threads(threads: Sequence[Thread]) -> Stored:
    columns = {
        "pid": np.array([thread.pid for thread in threads], np.int64),
        "tid": np.array([thread.tid for thread in threads], np.int64),
        "comm": _texts([thread.comm for thread in threads]),
    }
    return Stored([pa.table(columns)], _encoded(("comm",), {"pid": _DELTA, "tid": _DELTA}))


def _whole(columns: Mapping[str, Any]) -> Stored:
    return Stored([pa.table(dict(columns))], _encoded(tuple(columns), {}))


def _texts(texts: Sequence[str]) -> pa.Array:
    return pa.array([escape(text) for text in texts], pa.string())


def _encoded(dictionary: Sequence[str], plain: Mapping[str, str]) -> dict[str, Any]:
    return {
        "use_dictionary": [name for name in dictionary if name not in plain] or False,
        "column_encoding": dict(plain) or None,
        "write_statistics": False,
    }

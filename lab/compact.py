"""Makes a scene's recording small and fit to be committed.

::

    python -m lab.compact DIR... [--into tests/incidents] [--window 20..140] [--accept]

DIR is the output of `lab.play`: a recording with a ``scene.json``. The result is
``INTO/<scene>-<kernel>-<hierarchy>/`` with ``scene.json`` and ``recording/``: one sealed segment
that ``sexton diagnose --from`` reads and ``sexton recording verify`` accepts. It leaves out event
rings, perf's raw files, the symbol cache and the recorder's status; rows that no detector needs
(`DROPPED`, mounts other than cgroups, other counters, processes that never ran); log lines from
before the scene; and user-space frames (see `compact_stacks`). Names of the machine are replaced
(see `scrub`).

The diagnosis must stay the same, apart from unrelated log lines. If a verdict, a severity or a
chain differs, nothing is kept, unless ``--accept`` is given after a review.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.compact_rows import LINES, RecordingStart, kept_rows
from lab.compact_stacks import slimmed, within
from lab.hidden_source import ChangedWindow
from lab.incident import INCIDENTS, RECORDING, SCENE, replayed
from lab.scrub import BOOT, HOST, Scrub, private_names
from sexton.errors import StoreError
from sexton.explain.diagnosis import diagnose
from sexton.model.row import Row, table
from sexton.model.rows.node import Node
from sexton.model.rows.recorder import RecorderCost
from sexton.model.rows.task import Process
from sexton.model.rows.trace import RingState
from sexton.model.window import Window
from sexton.profile.heat import heat_of
from sexton.profile.recorded import Stacks, annex_facts, annex_tables, read_profile
from sexton.store.annex import Annex, write_annex
from sexton.store.layout import segment_name
from sexton.store.recording import Recording
from sexton.store.schema import MONO, encode, fields_in, rows_of, schema_of, tables
from sexton.store.sealed import Contents, write_segment
from sexton.store.verify import verify

#: Size limits for one incident and for all.
MAX_BYTES = 1_200_000
MAX_BYTES_ALL = 20_000_000
#: The recorder's cost accounting and event rings.
DROPPED: tuple[type[Row], ...] = (RecorderCost, RingState)


class Part(NamedTuple):
    """The kept span in monotonic seconds, both ends included."""

    start_s: float
    end_s: float

    def of(self, found: pa.Table) -> pa.Table:
        moments = found.column(MONO)
        return found.filter(
            pc.and_(pc.greater_equal(moments, self.start_s), pc.less_equal(moments, self.end_s))
        )


def compact(source: Path, out: Path, window: tuple[float, float] | None = None) -> Path:
    """Write a small copy of `source` as the recording `out`; `StoreError` if `source` is empty.

    `window` is in seconds since the first reading.
    """
    recording = Recording(source)
    last = recording.segments[-1] if recording.segments else None
    if last is None:
        raise StoreError(f"{source}: no readings")
    mine = [segment for segment in recording.segments if segment.boot_id == last.boot_id]
    begin, end = mine[0].start[0], last.end[0]
    part = Part(begin, end)
    if window is not None:
        part = Part(begin + window[0], min(begin + window[1], end))
    found = _tables(mine, part)
    scrub = Scrub(_host(recording), _private(found, _scene_processes(source)), _release(found))
    start = RecordingStart(mine[0].start[0], mine[0].start[1])
    made = {kind: scrub.table(kept_rows(kind, value, start)) for kind, value in found.items()}
    header = {key: value for key, value in last.manifest.items() if key in _HEADER}
    header |= {"boot_id": BOOT, "host": HOST, "sequence": 1}
    readings = _readings(mine, part, made)
    states = [[scrub(field) if isinstance(field, str) else field for field in state]
              for state in last.manifest.get("states", ())]  # fmt: skip
    segments = out / "segments"
    segments.mkdir(parents=True, exist_ok=True)
    name = segment_name(1, mine[0].start[1] + part.start_s - begin).text
    filled = {kind: value for kind, value in made.items() if value.num_rows}
    whole = write_segment(segments, name, Contents(header, filled, readings, states))
    for annex in (annex for segment in mine for annex in segment.annexes):
        _stacks(annex, whole, part, scrub)
    shutil.rmtree(out / "stacks", ignore_errors=True)
    return whole


_HEADER = ("sexton", "providers", "periods")


def _tables(segments: Sequence[Any], part: Part) -> dict[type[Row], pa.Table]:
    """Every table over the kept span, in the current schema."""
    found: dict[type[Row], pa.Table] = {}
    for kind in tables().values():
        if kind in DROPPED or not any(segment.has(kind) for segment in segments):
            continue
        pieces = [
            _current_schema(kind, piece) for segment in segments if (piece := segment.table(kind))
        ]
        whole = pa.concat_tables(pieces) if pieces else schema_of(kind).empty_table()
        found[kind] = part.of(whole.combine_chunks())
    return found


def _current_schema(kind: type[Row], piece: pa.Table) -> pa.Table:
    """Convert to the current columns; new ones are null."""
    schema = schema_of(kind)
    columns = [
        piece.column(field.name).cast(field.type)
        if field.name in piece.column_names
        else pa.nulls(piece.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _readings(segments: Sequence[Any], part: Part, made: Mapping[type[Row], pa.Table]) -> pa.Table:
    """When each table was read, with the number of rows kept."""
    pieces = [piece for segment in segments if (piece := segment.readings()) is not None]
    whole = part.of(pa.concat_tables(pieces).combine_chunks())
    rows = {table(kind): Counter(value.column(MONO).to_pylist()) for kind, value in made.items()}
    whole = whole.filter(pc.is_in(whole.column("table"), pa.array(sorted(rows), pa.string())))
    pairs = zip(whole.column("table").to_pylist(), whole.column(MONO).to_pylist(), strict=True)
    place = whole.schema.get_field_index("rows")
    field = whole.schema.field(place)
    left = pa.array([rows[name][moment] for name, moment in pairs], field.type)
    return whole.set_column(place, field, left)


def _private(found: dict[type[Row], pa.Table], cast: Sequence[str]) -> frozenset[str]:
    processes = found.get(Process)
    if processes is None:
        return frozenset()
    pairs = zip(
        processes.column("comm").to_pylist(), processes.column("kernel").to_pylist(), strict=True
    )
    return private_names(set(pairs), cast)


def _scene_processes(source: Path) -> list[str]:
    """Process names that belong to the scene, if scene.json lists them."""
    try:
        scene = json.loads((source / SCENE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return [str(name) for name in scene.get("cast", ())]


def _stacks(annex: Annex, segment: Path, part: Part, scrub: Scrub) -> None:
    profile = read_profile(annex, Stacks(annex))
    # Whole seconds, because a replay counts stacks per second.
    seconds = (math.floor(part.start_s), math.floor(part.end_s) + 1)
    profile = within(profile, *(second * 1_000_000_000 for second in seconds))
    if not len(profile):
        return
    small = slimmed(profile, scrub)
    ahead_s = annex.start[1] - annex.start[0]
    edges = [int(time_ns) / 1e9 for time_ns in (small.time_ns[0], small.time_ns[-1])]
    header = {
        "boot_id": BOOT,
        "start": [edges[0], edges[0] + ahead_s],
        "end": [edges[1], edges[1] + ahead_s],
        "profile": annex_facts(small),
    }
    write_annex(segment, annex.name, header, annex_tables(small, heat_of(small)))


def differences(before: Path, after: Path) -> Iterator[str]:
    """How the diagnosis of `after` differs from that of `before` without unrelated log lines."""
    old = diagnose(_scene_lines(replayed(before).window, Recording(before)))
    new = diagnose(replayed(after).window)
    known = new.by_id
    for finding in old.findings:
        now = known[finding.id]
        for word in ("verdict", "severity"):
            was, is_now = getattr(finding, word), getattr(now, word)
            if was != is_now:
                yield f"{finding.id}: {word} was {was}, is {is_now} ({now.summary})"
    chains = [
        [(chain.findings, chain.strength) for chain in diagnosis.chains] for diagnosis in (old, new)
    ]
    if chains[0] != chains[1]:
        yield f"chains were {chains[0]}, are {chains[1]}"


def _scene_lines(window: Window, recording: Recording) -> Window:
    """The window with only the scene's log lines."""
    last = recording.segments[-1].boot_id
    start = next(segment.start for segment in recording.segments if segment.boot_id == last)
    lines = {}
    for kind in LINES:
        batches = [batch for batch in window.batches(kind) or () if batch.rows]
        if batches:
            found = pa.Table.from_batches([encode(kind, batches)[0]])
            kept_here = kept_rows(kind, found, RecordingStart(*start))
            rows: dict[float, list[Row]] = {}
            moments = kept_here.column(MONO).to_pylist()
            for moment, row in zip(moments, rows_of(kind, fields_in(kind, kept_here)), strict=True):
                rows.setdefault(moment, []).append(row)
            lines[kind] = [
                replace(batch, rows=tuple(rows.get(batch.mono_s, ())))
                for batch in window.batches(kind) or ()
            ]
    return ChangedWindow(window, lines)


def size_of(place: Path) -> int:
    """Bytes of all regular files below."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def incident_name(scene: dict[str, Any]) -> str:
    """The name of an incident's directory.

    >>> incident_name({"id": "idle", "kernel": "6.1.0-37-cloud-amd64", "hierarchy": "v2"})
    'idle-6.1-v2'
    """
    release = re.match(r"\d+\.\d+", str(scene["kernel"]))
    return f"{scene['id']}-{release[0] if release else scene['kernel']}-{scene['hierarchy']}"


def add_incident(
    source: Path, into: Path, window: tuple[float, float] | None, accept: bool
) -> list[str]:
    """Add one incident; returns the problems found, in which case nothing is kept."""
    scene = json.loads((source / SCENE).read_text("utf-8"))
    place = into / incident_name(scene)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".new-") as aside:
        out = Path(aside) / RECORDING
        compact(source, out, window)
        problems = [f"{fault.place}: {fault.detail}" for fault in verify(out).troubles]
        if not accept and window is None:
            problems += differences(source, out)
        if size_of(out) > MAX_BYTES:
            problems.append(f"{size_of(out):,} bytes, {MAX_BYTES:,} allowed")
        if problems:
            return problems
        shutil.rmtree(place / RECORDING, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        out.rename(place / RECORDING)
    text = json.dumps(_scrubbed_scene(scene), indent=2, ensure_ascii=False)
    scrub = Scrub(_host(Recording(source)), release=str(scene["kernel"]))
    (place / SCENE).write_text(scrub(text) + "\n", "utf-8")
    for path in [place, *place.rglob("*")]:  # git does not store modes: match a fresh checkout
        path.chmod(0o755 if path.is_dir() else 0o644)
    return []


def _scrubbed_scene(scene: dict[str, Any]) -> dict[str, Any]:
    """The committed part of scene.json, without details of the machine."""
    wanted = ("id", "title", "kernel", "hierarchy", "seconds", "injected", "substitutes", "adapted",
              "moments", "expected", "why", "cast")  # fmt: skip
    return {key: scene[key] for key in wanted if key in scene}


def _host(recording: Recording) -> str:
    return str(recording.segments[-1].manifest.get("host", ""))


def _release(found: Mapping[type[Row], pa.Table]) -> str:
    """The kernel release, if recorded."""
    nodes = found.get(Node)
    return str(nodes.column("kernel")[0]) if nodes is not None and nodes.num_rows else ""


def _span(text: str) -> tuple[float, float]:
    start, _, end = text.partition("..")
    return float(start or 0), float(end or np.inf)


def main(arguments: Sequence[str] | None = None) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m lab.compact", None, __doc__, formatter_class=form)
    parser.add_argument("sources", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--into", type=Path, default=INCIDENTS)
    parser.add_argument("--window", type=_span, help="seconds since the start, e.g. 20..140")
    parser.add_argument("--accept", action="store_true", help="accept a different diagnosis")
    args = parser.parse_args(arguments)
    failed = 0
    for source in args.sources:
        try:
            problems = add_incident(source, args.into, args.window, args.accept)
        except (StoreError, OSError, KeyError, ValueError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        failed += bool(problems)
        for line in problems or [f"{size_of(source):,} bytes became {_size(source, args.into):,}"]:
            print(f"{source.name}: {line}")
    total = sum(map(size_of, args.into.glob(f"*/{RECORDING}")))
    print(f"{args.into}: {total:,} of {MAX_BYTES_ALL:,} bytes")
    return 1 if failed or total > MAX_BYTES_ALL else 0


def _size(source: Path, into: Path) -> int:
    return size_of(
        into / incident_name(json.loads((source / SCENE).read_text("utf-8"))) / RECORDING
    )


if __name__ == "__main__":
    sys.exit(main())

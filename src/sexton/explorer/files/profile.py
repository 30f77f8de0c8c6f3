"""`profile report`, `flame`, `diff` and `heatmap` as the explorer's page, in one HTML file.

A capture becomes the page's data: a lane of cores, a lane of samples within each second, and flame
graphs. The stacks of a short capture go in whole, so that the page can draw the flame graph of any
range: one count per column of time, core and stack, packed as varint differences of one ascending
key. Text, tables and the verdict are plain HTML and need no script.

Times in the data are seconds of the capture's own clock, so a second on the page is a second of
the capture; `recording.clock` says how to show them.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.explorer.files.capture import CaptureLanes
from sexton.explorer.files.page import (
    DATA_BYTES,
    SCHEMA,
    Part,
    Wanted,
    embedded,
    page_html,
    tiles,
    top_of,
)
from sexton.explorer.server.documents import flame_document, functions_document, named_columns, safe
from sexton.model.profile import I32, I64, Flame, Heat, Profile, Tree
from sexton.model.text import count
from sexton.profile.heat import SECOND_NS
from sexton.profile.select import Selection, mask
from sexton.profile.stack_tree import join
from sexton.reports.spikes_html import capture_title, head_html, spikes_html, verdict_sentence
from sexton.reports.svg.flame_picture import Box, boxes_of
from sexton.reports.svg.flame_svg import escaped
from sexton.reports.text.profile_head import Capture, percent
from sexton.reports.text.spikes import (
    busy_change,
    cores_named,
    lasting,
    recurring_words,
    verdict_word,
)

if TYPE_CHECKING:
    from sexton.model.profile import FlameDifference
    from sexton.profile.spikes.spike import Spike, Spikes

#: Boxes per flame graph; a report holds several.
WHOLE_BOXES, SPIKE_BOXES = 4000, 2500
_MOST_FUNCTIONS = 100
#: Packed stacks: about 2.5 bytes per entry.
MOST_ENTRIES = 600_000
#: Longer captures get no packed stacks.
MOST_SAMPLES = 3_000_000
#: Numbers of boxes to try until the entries fit.
_FEWER = (2500, 800, 250)
#: Columns of time that packed stacks are counted in.
_STACK_COLUMNS = 1024


class Chosen(NamedTuple):
    """The chosen samples: the range in the capture's nanoseconds, and the command to repeat it."""

    selection: Selection
    command: str


class Samples(NamedTuple):
    """What a page of one capture is made from. `profiles` are read once, for the stacks."""

    heats: Iterable[Heat]
    profiles: Iterable[Profile]
    flame: Flame
    hertz: int | None


def capture_data(capture: Capture, samples: Samples, chosen: Chosen) -> dict[str, Any]:
    """The page's data for a choice of samples: lanes, its flame graph, its packed stacks."""
    span = _span(capture, chosen.selection)
    lanes = None if span is None else CaptureLanes(samples.heats, span, samples.hertz)
    whole_span = span or Part(0.0, 1.0)
    facts = capture.facts
    problems = list(dict.fromkeys(facts.problems))
    if lanes is not None and lanes.left_out:
        problems.append(f"{count(lanes.left_out, 'core')} not drawn: too many for this long a span")
    data = _data(whole_span, samples.flame, None)
    data["recording"] |= {
        "node": {"host": capture.name, "cores": facts.cores, "kernel": facts.release or None},
        "clock": _clock(capture),
        "problems": problems,
        "lanes": [] if lanes is None else lanes.lanes,
    }
    data["origin"] = capture.times.start_ns / 1e9
    data["command"] = chosen.command
    data["tables"] = {} if lanes is None else lanes.tables()
    if lanes is None or not lanes.lanes:
        return _safe(data)
    data["stacks"] = _packed(capture, samples, chosen.selection, whole_span)
    data = _safe(data)
    room = DATA_BYTES - len(embedded(data))
    data["top"] = top_of(whole_span)
    wanted = Wanted(whole_span, Part(whole_span.end, whole_span.end), max(room, DATA_BYTES // 2))
    data["lanes"], data["finest"] = tiles(lanes, data["recording"]["lanes"], wanted)
    return data


def difference_data(found: FlameDifference, names: Sequence[str]) -> dict[str, Any]:
    """The page's data for a difference of two flame graphs, which has no time axis."""
    flame = Flame(found.tree, found.after, "")
    data = _data(Part(0.0, 1.0), flame, found)
    data["recording"]["node"] = {"host": " → ".join(names), "cores": None, "kernel": None}
    data["flames"][0]["document"]["sides"] = list(names)
    return _safe(data)


def _data(span: Part, flame: Flame, difference: FlameDifference | None) -> dict[str, Any]:
    where = {"from": span.start, "to": span.end, "cpu": None}
    document = flame_document(flame, difference, WHOLE_BOXES)
    return {
        "schema": SCHEMA,
        "profile": True,
        "recording": {
            "start": span.start,
            "end": span.end,
            "live": False,
            "tour": False,
            "gaps": [],
            "lanes": [],
            "problems": [],
        },
        "open": {"select": list(span), "core": None, "baseline": None},
        "top": 0,
        "finest": 0,
        "lanes": {},
        "tables": {},
        "marks": {"schema": "sexton.marks/1", "marks": [], "left_out": 0},
        "flames": [{**where, "baseline": None, "document": document}],
        "functions": [{**where, "document": functions_document(flame, _MOST_FUNCTIONS)}],
        "stacks": None,
        "spikes": [],
        "moments": {"spike": [], "reset": []},
    }


def _safe(data: dict[str, Any]) -> dict[str, Any]:
    cleaned: dict[str, Any] = safe(data)
    return cleaned


def _span(capture: Capture, selection: Selection) -> Part | None:
    """The chosen range in seconds of the capture's clock; None if it has no times."""
    if capture.end_ns is None:
        return None
    start, end = capture.times.start_ns, capture.end_ns + 1
    if selection.start_ns is not None:
        start = max(start, selection.start_ns)
    if selection.end_ns is not None:
        end = min(end, selection.end_ns)
    return Part(start / 1e9, max(end, start + 1) / 1e9)


def _clock(capture: Capture) -> dict[str, Any]:
    """How the page shows times: in this machine's zone, as the terminal does, or from the start."""
    wall = capture.times.wall_s(capture.times.start_ns) if capture.end_ns is not None else None
    try:
        local = None if wall is None else time.localtime(wall)
    except (OverflowError, OSError, ValueError):
        local = None
    if local is None or wall is None:
        return {"offset": -capture.times.start_ns / 1e9, "zone": "", "relative": True}
    offset = wall - capture.times.start_ns / 1e9 + local.tm_gmtoff
    return {"offset": offset, "zone": local.tm_zone, "relative": False}


# Stacks that the page can count itself.


class StackColumns(NamedTuple):
    """Columns of time: the start and the width in nanoseconds, and how many."""

    start_ns: int
    column_ns: int
    number: int


class Kept(NamedTuple):
    """The drawn stacks: a tree, and its drawn nodes in pre-order."""

    tree: Tree
    boxes: Sequence[Box]


class _Counted(NamedTuple):
    """Per chosen sample: column, core, box, weight."""

    column: I64
    cpu: I32
    box: I64
    weight: I64


def _packed(
    capture: Capture, samples: Samples, selection: Selection, span: Part
) -> dict[str, Any] | None:
    if capture.samples > MOST_SAMPLES or not samples.flame.samples:
        return None
    length = int(np.ceil(span.end)) - int(span.start)
    width = max(-(-length // _STACK_COLUMNS), 1)
    columns = StackColumns(int(span.start) * SECOND_NS, width * SECOND_NS, -(-length // width))
    kept = Kept(samples.flame.tree, boxes_of(samples.flame, _FEWER[0]))
    return packed_stacks(samples.profiles, kept, columns, selection)


def packed_stacks(
    profiles: Iterable[Profile], kept: Kept, columns: StackColumns, selection: Selection
) -> dict[str, Any] | None:
    """What `packed.js` decodes; None if it cannot be made small enough.

    To save entries, narrow stacks count for their callers; if that is not enough, all cores are
    counted together.
    """
    counted = [_counted(profile, kept, columns, selection) for profile in profiles]
    cores = np.unique(np.concatenate([part.cpu for part in counted])) if counted else None
    if cores is None or not len(cores):
        return None
    for by_core in (True, False):
        for most in _FEWER:
            chosen, place = fewer_boxes(kept.boxes, most)
            keys, counts = _keyed(counted, cores if by_core else None, place)
            if len(keys) <= MOST_ENTRIES:
                shown = [kept.boxes[number] for number in chosen]
                return {
                    "first": columns.start_ns / 1e9,
                    "column": columns.column_ns / 1e9,
                    "cores": cores.tolist() if by_core else [None],
                    "depth": [box.depth for box in shown],
                    **named_columns(kept.tree, shown),
                    "entries": len(keys),
                    "packed": base64.b64encode(_varints(keys, counts)).decode(),
                }
    return None


def fewer_boxes(boxes: Sequence[Box], most: int) -> tuple[list[int], I64]:
    """The widest boxes, and for every box the one that counts its samples."""
    counts = np.array([box.counts[0] for box in boxes])
    least = 0
    if len(boxes) > most:
        least = int(np.partition(counts, len(boxes) - most)[len(boxes) - most])
    chosen: list[int] = []
    place = np.zeros(len(boxes), np.int64)
    line: list[int] = []
    for at, box in enumerate(boxes):
        del line[box.depth :]
        if at == 0 or counts[at] > least:
            place[at] = len(chosen)
            chosen.append(at)
        else:
            place[at] = place[line[-1]]
        line.append(at)
    return chosen, place


def _counted(profile: Profile, kept: Kept, columns: StackColumns, selection: Selection) -> _Counted:
    place = _drawn_node(profile.tree, kept)
    column = (profile.time_ns - columns.start_ns) // columns.column_ns
    wanted = mask(profile, selection) & (column >= 0) & (column < columns.number)
    weight = np.ones(len(profile), np.int64) if profile.weight is None else profile.weight
    return _Counted(
        column[wanted], profile.cpu[wanted], place[profile.node[wanted]], weight[wanted]
    )


def _drawn_node(tree: Tree, kept: Kept) -> I64:
    """Per node of a profile's tree, the box that draws it."""
    joined, (ours, theirs) = join([kept.tree, tree])
    box = np.full(len(joined), -1, np.int64)
    box[ours[[item.node for item in kept.boxes]]] = np.arange(len(kept.boxes))
    parents = joined.parents()
    for depth in range(1, int(joined.depth.max(initial=0)) + 1):
        here = np.flatnonzero((joined.depth == depth) & (box < 0))
        box[here] = box[parents[here]]
    return box[theirs]


def _keyed(counted: Sequence[_Counted], cores: I32 | None, place: I64) -> tuple[I64, I64]:
    """One ascending key per column, core and box, and its count."""
    width = 1 if cores is None else len(cores)
    nodes = int(place.max(initial=0)) + 1
    keys, weights = [], []
    for part in counted:
        core = 0 if cores is None else np.searchsorted(cores, part.cpu)
        keys.append((part.column * width + core) * nodes + place[part.box])
        weights.append(part.weight)
    distinct, row = np.unique(np.concatenate(keys), return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, row, np.concatenate(weights))
    return distinct, sums


def _varints(keys: I64, counts: I64) -> bytes:
    """The difference from the previous key, and the count, alternating."""
    values = np.empty(2 * len(keys), np.int64)
    values[0::2] = np.diff(keys, prepend=0)
    values[1::2] = counts
    return _seven_bits(values)


def _seven_bits(values: I64) -> bytes:
    """
    >>> _seven_bits(np.array([0, 127, 128, 300])).hex()
    '007f8001ac02'
    """
    size = np.ones(len(values), np.int64)
    for bits in range(7, 63, 7):
        size += values >= 1 << bits
    ends = np.cumsum(size)
    out: npt.NDArray[np.uint8] = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    for byte in range(int(size.max(initial=0))):
        here = size > byte
        more = size[here] > byte + 1
        out[ends[here] - size[here] + byte] = (values[here] >> (7 * byte)) & 127 | more * 128
    return out.tobytes()


# The text around the page.


class Compared(NamedTuple):
    """A spike's flame graph against calm: the difference, the calm seconds, and their words."""

    found: FlameDifference
    calm: Part
    words: str


class Report(NamedTuple):
    """What `profile report` says besides its pictures."""

    capture: Capture
    spikes: Spikes
    exit: int
    hertz: int | None
    flame: Flame
    compared: Sequence[Compared | None]


def report_html(report: Report, data: dict[str, Any]) -> str:
    """The file of `profile report`; `data` is `capture_data`'s, and gets the spikes."""
    for number, spike in enumerate(report.spikes.spikes):
        _add_spike(report, data, number, spike)
    data["verdict"] = {
        "exit": report.exit,
        "word": verdict_word(report.spikes, report.exit),
        "text": verdict_sentence(report.capture, report.spikes, report.exit),
        "recurring": [recurring_words(burst) for burst in report.spikes.recurring],
    }
    if data["recording"]["lanes"] and data["spikes"]:
        data["open"] = data["spikes"][0]["open"]
    event = report.flame.event + (f" at {report.hertz} Hz" if report.hertz else "")
    above = "\n".join(head_html(report.capture, report.spikes, report.exit, event))
    below = "\n".join(spikes_html(report.capture, report.spikes))
    return page_html(capture_title(report.capture), above + _help(data), below, safe(data))


def flame_html(title: str, note: str, data: dict[str, Any]) -> str:
    """The file of `profile flame`, `diff` or `heatmap`: a title and the page."""
    above = f"<header><h1>{escaped(title)}</h1><p>{escaped(note)}</p></header>"
    return page_html(title, above + _help(data), "", data)


def _help(data: dict[str, Any]) -> str:
    text = "<noscript><p>The flame graph and the lanes need JavaScript.</p></noscript>"
    if not data["recording"]["lanes"]:
        return text
    return (
        "<p>Drag over the lanes for the flame graph of those seconds. Click a core for that core "
        "alone, Shift-click another for a range.</p>" + text
    )


def core_list(cpus: Iterable[int]) -> str:
    """Cores as ``--cpu`` takes them.

    >>> core_list((5, 3, 4, 0))
    '0,3-5'
    """
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _add_spike(report: Report, data: dict[str, Any], number: int, spike: Spike) -> None:
    """The spike in the list, on the time axis, and as a flame graph against calm."""
    times = report.capture.times
    span = [spike.start_ns / 1e9, spike.end_ns / 1e9]
    known = bool(spike.cpus) and all(cpu >= 0 for cpu in spike.cpus)
    cores = core_list(spike.cpus) if known else None
    compared = report.compared[number] if number < len(report.compared) else None
    shown = {
        "select": span,
        "core": cores,
        "baseline": None if compared is None else list(compared.calm),
    }
    title = f"{times.clock(spike.onset_ns, 2)} for {lasting(spike)}, {cores_named(spike.cpus)}"
    top = spike.grew[0] if spike.grew else None
    grew = f"{top.name} {percent(top.calm_share)} → {percent(top.share)}" if top else ""
    data["spikes"].append({"title": title, "busy": busy_change(spike), "grew": grew, "open": shown})
    data["moments"]["spike"].append({"time": spike.onset_ns / 1e9, "text": title})
    data["moments"]["spike"].sort(key=lambda moment: moment["time"])
    if compared is None:
        return
    document = flame_document(report.flame, compared.found, SPIKE_BOXES)
    document |= {"core_seconds": None, "sides": ["calm", "spike"], "note": compared.words}
    data["flames"].append(
        {"from": span[0], "to": span[1], **shown, "cpu": cores, "document": document}
    )

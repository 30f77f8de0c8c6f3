"""The incident in one HTML file, for a ticket: verdict and story as text, the explorer between.

Everything the page can request is computed here once: tiles, marks, tables, flame graphs, the
explanation. Where all tiles would be too large, the finest columns are kept around the event only;
elsewhere the page draws coarser ones and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.detect.registry import all_detectors
from sexton.errors import CommandError, StoreError
from sexton.explorer.files.page import (
    DATA_BYTES,
    SCHEMA,
    Part,
    Wanted,
    embedded,
    escaped_lines,
    page_html,
    tiles,
    top_of,
)
from sexton.explorer.server.documents import (
    explain_document,
    flame_document,
    functions_document,
    marks_document,
    ordered_document,
    safe,
    table_document,
)
from sexton.model.diagnosis import Diagnosis
from sexton.model.lane import column_s
from sexton.model.text import clock, count, day, seconds
from sexton.reports.svg.flame_svg import escaped
from sexton.reports.text.verdict import verdict_text

if TYPE_CHECKING:
    from sexton.explorer.tiles.flames import Seen, Who
    from sexton.explorer.tiles.view import View

_WIDTH = 100
#: Seconds around the event that always keep their finest columns.
_AROUND_S = 300.0
_MOST_NEAR_S = 900.0
_MOST_MARKS = 2000
_MOST_ROWS = 120
_MOST_FUNCTIONS = 50
_MOST_MOMENTS = 200
#: The baseline: up to this many seconds before the event.
_CALM_S = 60.0
_LEAST_CALM_S = 5.0
_MOMENTS = ("spike", "reset")
_MOST_BOXES = 2500
_MOST_CORES = 2
#: Boxes in the order of time: of each saturated core once.
_ORDERED_BOXES = 1500


def event_of(diagnosis: Diagnosis) -> Part:
    """The span the report opens on: that of the best chain if it is short, else the whole."""
    whole = Part(diagnosis.start, diagnosis.end)
    named = diagnosis.chains[0].findings if diagnosis.chains else ()
    found = [diagnosis.by_id[name] for name in named]
    found = found or [finding for finding in diagnosis.findings if finding.is_problem]
    spans = [
        Part(finding.start, finding.end if finding.end is not None else finding.start)
        for finding in found
        if finding.start is not None
    ]
    short = [span for span in spans if span.end - span.start < 0.5 * (whole.end - whole.start)]
    if not short:
        return whole
    return Part(min(span.start for span in short), max(span.end for span in short))


class Saturated(NamedTuple):
    """Seconds in which cores were saturated, and which cores; each gets a flame graph."""

    part: Part
    cores: tuple[int, ...]


def saturated_in(diagnosis: Diagnosis) -> Saturated | None:
    holding = {check.id for check in all_detectors() if check.holds_core}
    found = next((item for item in diagnosis.findings if item.id in holding), None)
    if found is None or not found.is_problem or found.start is None or found.end is None:
        return None
    named = [name for name in found.entities.get("core", ()) if name.isascii() and name.isdigit()]
    return Saturated(Part(found.start, found.end), tuple(map(int, named[:_MOST_CORES])))


def page_data(view: View, diagnosis: Diagnosis, room: int = DATA_BYTES) -> dict[str, Any]:
    """The page's data; at most `room` bytes of JSON where possible."""
    span, event = Part(diagnosis.start, diagnosis.end), event_of(diagnosis)
    busy = saturated_in(diagnosis)
    parts = list(dict.fromkeys((span, event, *(() if busy is None else (busy.part,)))))
    view.warm()  # lanes know their rows only after this
    about = view.about()
    recording = {**about, "start": span.start, "end": span.end, "live": False, "tour": False}
    ids = [lane["id"] for lane in about["lanes"]]
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "recording": recording,
        "event": list(event if busy is None else busy.part),
        "top": top_of(span),
        "marks": _marks(view, span),
        "tables": {lane: list(_tables(view, lane, parts)) for lane in ids},
        "flames": list(_flames(view, parts, busy)),
        "functions": list(_functions(view, parts, busy)),
        "explain": explain_document(diagnosis),
        "moments": {kind: _moments(view, kind, span) for kind in _MOMENTS},
    }
    data = safe(data)
    left = room - len(embedded(data))
    drawn = [lane for lane in about["lanes"] if lane["kind"] != "marks"]
    data["lanes"], data["finest"] = tiles(view, drawn, Wanted(span, _near(event), left))
    return data


def _near(event: Part) -> Part:
    """The span that keeps its finest columns."""
    if event.end - event.start > _MOST_NEAR_S:  # no short event: keep the end
        return Part(event.end - _MOST_NEAR_S, event.end)
    return Part(event.start - _AROUND_S, event.end + _AROUND_S)


def _marks(view: View, span: Part) -> dict[str, Any]:
    found = view.marks(*span, most=_MOST_MARKS)
    return marks_document(found, max(view.marks_between(*span) - len(found), 0))


def _tables(view: View, lane: str, parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        found = view.table(lane, *part, most=_MOST_ROWS)
        yield _of(part, table_document(found))


def _flames(view: View, parts: Sequence[Part], busy: Saturated | None) -> Iterator[dict[str, Any]]:
    """One per part; of the saturated cores alone; and against the time before."""
    from sexton.explorer.tiles.flames import cut_note

    for part in parts:
        if seen := _seen(view, part):
            yield _drawn(part, seen)
    if busy is None:
        return
    calm = Part(max(parts[0].start, busy.part.start - _CALM_S), busy.part.start)
    for core in busy.cores:
        if seen := _seen(view, busy.part, core):
            drawn = _drawn(busy.part, seen, core)
            yield drawn
            ordered = ordered_document(view.ordered(*busy.part, _who(core)), _ORDERED_BOXES)
            yield {**drawn, "document": ordered, "order": "time"}
    for of in (None, *busy.cores[:1]):
        seen = _seen(view, busy.part, of)
        if seen and calm.end - calm.start >= _LEAST_CALM_S and _seen(view, calm, of):
            difference = view.difference(busy.part, calm, _who(of))
            document = flame_document(seen.flame, difference, _MOST_BOXES)
            document["note"] = cut_note(busy.part, calm)
            yield {**_of(busy.part, document), "cpu": of, "baseline": list(calm)}


def _drawn(part: Part, seen: Seen, core: int | None = None) -> dict[str, Any]:
    document = {**flame_document(seen.flame, None, _MOST_BOXES), "note": seen.note}
    return {**_of(part, document), "cpu": core, "baseline": None}


def _seen(view: View, part: Part, core: int | None = None) -> Seen | None:
    """None if there are no samples."""
    try:
        found = view.seen(*part, _who(core))
    except (CommandError, StoreError):
        return None
    return found if found.flame.samples else None


def _who(core: int | None) -> Who:
    from sexton.explorer.tiles.flames import Who

    return Who(cpu=core)


def _functions(
    view: View, parts: Sequence[Part], busy: Saturated | None
) -> Iterator[dict[str, Any]]:
    wanted: list[tuple[Part, int | None]] = [(part, None) for part in parts]
    wanted += [] if busy is None else [(busy.part, core) for core in busy.cores]
    for part, core in wanted:
        seen = _seen(view, part, core)
        if seen is not None:
            document = {**functions_document(seen.flame, _MOST_FUNCTIONS), "note": seen.note}
            yield {**_of(part, document), "cpu": core}


def _of(part: Part, document: Mapping[str, Any]) -> dict[str, Any]:
    return {"from": part.start, "to": part.end, "document": document}


def _moments(view: View, kind: str, span: Part) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    at = span.start - 1e-3
    while len(found) < _MOST_MOMENTS:
        mark = view.found(kind, at)
        if mark is None or mark.time > span.end:
            break
        found.append({"time": mark.time, "text": mark.text})
        at = mark.time
    return found


def shortfall(data: Mapping[str, Any]) -> Sequence[str]:
    """Notes for the reader: where the page is coarser than the recording."""
    if not data["finest"]:
        return ()
    column = column_s(data["finest"])
    return (f"Around the event a chart column is 1 s; outside it is {column:.0f} s.",)


def incident_html(
    diagnosis: Diagnosis, data: Mapping[str, Any] | None, notes: Sequence[str] = ()
) -> str:
    """The file. Without `data` it holds only text, and `notes` say why."""
    above = "\n".join(_above(diagnosis, data is not None, notes))
    text = escaped_lines(verdict_text(diagnosis, _WIDTH))
    below = f'<h2>Full verdict</h2><pre tabindex="0">{text}</pre>'
    return page_html(_title(diagnosis), above, below, data)


def _title(diagnosis: Diagnosis) -> str:
    host = diagnosis.node.hostname if diagnosis.node is not None else "a node"
    when = f"{day(diagnosis.start)} {clock(diagnosis.start)} UTC".strip()
    return f"{diagnosis.exit.word.capitalize()}: {host}, {when}"


def _above(diagnosis: Diagnosis, pictures: bool, notes: Sequence[str]) -> Iterator[str]:
    yield "<header>"
    word = escaped(diagnosis.exit.word.capitalize())
    host = diagnosis.node.hostname if diagnosis.node is not None else "a node"
    yield f'<h1><span class="exit{int(diagnosis.exit)}">{word}</span> {escaped(host)}</h1>'
    yield f"<p>{escaped(_span(diagnosis))}</p></header>"
    if diagnosis.story:
        yield "<h2>What happened</h2><ol>"
        yield from (f"<li>{escaped(sentence)}</li>" for sentence in diagnosis.story)
        yield "</ol>"
    for note in notes:
        yield f'<p class="note">{escaped(note)}</p>'
    if pictures:
        yield "<noscript><p>The charts need JavaScript; the verdict below does not.</p></noscript>"


def _span(diagnosis: Diagnosis) -> str:
    node = diagnosis.node
    parts = [
        f"{day(diagnosis.start)} {clock(diagnosis.start)} to {clock(diagnosis.end)} UTC".strip(),
        seconds(diagnosis.end - diagnosis.start),
        f"Linux {node.kernel}" if node is not None else "",
        count(node.cores, "core") if node is not None and node.cores else "",
    ]
    return " · ".join(part for part in parts if part)

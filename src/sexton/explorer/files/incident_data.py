"""What a report carries along: the explorer's answers for one span, packed into its page.

Everything the page may ask for is asked here, once: tiles, marks, tables, flame graphs, the
explanation. Where all tiles would be too much the finest columns are kept around the event alone;
the page draws the rest from the coarser ones and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.detect.detectors import saturated_core
from sexton.errors import CommandError, StoreError
from sexton.explorer.files.incident_tiles import Part, Wanted, tiles, top_of
from sexton.explorer.files.page_shell import embedded
from sexton.explorer.server.answers import safe
from sexton.explorer.server.documents import (
    flame_document,
    functions_document,
    marks_document,
    table_document,
)
from sexton.model.diagnosis import Diagnosis
from sexton.model.lane import column_s
from sexton.reports.json.diagnosis import diagnosis_json

if TYPE_CHECKING:
    from sexton.explorer.tiles.stacks_view import Seen, Who
    from sexton.explorer.tiles.view import View

SCHEMA = "sexton.page/1"
#: What a ticket takes, with the scripts and the text around it.
MOST_BYTES = 3_000_000
#: So much around the event keeps its finest columns, however long the report.
_AROUND_S = 300.0
_MOST_NEAR_S = 900.0
_MOST_MARKS = 2000
_MOST_ROWS = 120
_MOST_FUNCTIONS = 50
_MOST_MOMENTS = 200
#: What calm is compared with, before the event.
_CALM_S = 60.0
_LEAST_CALM_S = 5.0
_MOMENTS = ("spike", "reset")
_MOST_BOXES = 2500
_MOST_CORES = 2


def event_of(diagnosis: Diagnosis) -> Part:
    """What the report is about: where the best chain has a moment, else all of it."""
    whole = Part(diagnosis.start, diagnosis.end)
    named = diagnosis.chains[0].findings if diagnosis.chains else ()
    found = [diagnosis.by_id[name] for name in named]
    found = found or [each for each in diagnosis.findings if each.is_problem]
    spans = [
        Part(each.start, each.end if each.end is not None else each.start)
        for each in found
        if each.start is not None
    ]
    short = [each for each in spans if each.end - each.start < 0.5 * (whole.end - whole.start)]
    if not short:
        return whole
    return Part(min(each.start for each in short), max(each.end for each in short))


class Held(NamedTuple):
    """The seconds in which a core was held, and which; what a flame graph is wanted of."""

    part: Part
    cores: tuple[int, ...]


def held_in(diagnosis: Diagnosis) -> Held | None:
    found = diagnosis.by_id.get(saturated_core.NAME)
    if found is None or not found.is_problem or found.start is None or found.end is None:
        return None
    named = [name for name in found.entities.get("core", ()) if name.isascii() and name.isdigit()]
    return Held(Part(found.start, found.end), tuple(map(int, named[:_MOST_CORES])))


def page_data(view: View, diagnosis: Diagnosis, room: int = MOST_BYTES) -> dict[str, Any]:
    """What is embedded in the page; at most `room` bytes of JSON, where that can be."""
    span, event = Part(diagnosis.start, diagnosis.end), event_of(diagnosis)
    held = held_in(diagnosis)
    parts = list(dict.fromkeys((span, event, *(() if held is None else (held.part,)))))
    view.warm()  # only then every lane knows its rows
    about = view.about()
    told = {**about, "start": span.start, "end": span.end, "live": False, "tour": False}
    ids = [lane["id"] for lane in about["lanes"]]
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "recording": told,
        "event": list(event if held is None else held.part),
        "top": top_of(span),
        "marks": _marks(view, span),
        "tables": {lane: list(_tables(view, lane, parts)) for lane in ids},
        "flames": list(_flames(view, parts, held)),
        "functions": list(_functions(view, parts, held)),
        "explain": diagnosis_json(diagnosis),
        "moments": {kind: _moments(view, kind, span) for kind in _MOMENTS},
    }
    data = safe(data)
    left = room - len(embedded(data))
    drawn = [lane for lane in about["lanes"] if lane["kind"] != "marks"]
    data["lanes"], data["finest"] = tiles(view, drawn, Wanted(span, _near(event), left))
    return data


def _near(event: Part) -> Part:
    """What keeps its finest columns in any case."""
    if event.end - event.start > _MOST_NEAR_S:  # it has no moment: then what came last
        return Part(event.end - _MOST_NEAR_S, event.end)
    return Part(event.start - _AROUND_S, event.end + _AROUND_S)


def _marks(view: View, span: Part) -> dict[str, Any]:
    found = view.marks(*span, most=_MOST_MARKS)
    return marks_document(found, max(view.marks_between(*span) - len(found), 0))


def _tables(view: View, lane: str, parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        found = view.table(lane, *part, most=_MOST_ROWS)
        yield _of(part, table_document(found))


def _flames(view: View, parts: Sequence[Part], held: Held | None) -> Iterator[dict[str, Any]]:
    """Of each part; of the held core alone, too, and against the calm before it."""
    from sexton.explorer.tiles.stacks_choice import cut_note

    for part in parts:
        if seen := _seen(view, part):
            yield _drawn(part, _noted(flame_document(seen.flame, None, _MOST_BOXES), seen.note))
    if held is None:
        return
    calm = Part(max(parts[0].start, held.part.start - _CALM_S), held.part.start)
    for core in held.cores:
        if seen := _seen(view, held.part, core):
            document = _noted(flame_document(seen.flame, None, _MOST_BOXES), seen.note)
            yield _drawn(held.part, document, core)
    for of in (None, *held.cores[:1]):
        seen = _seen(view, held.part, of)
        if seen and calm.end - calm.start >= _LEAST_CALM_S and _seen(view, calm, of):
            difference = view.difference(held.part, calm, _who(of))
            document = flame_document(seen.flame, difference, _MOST_BOXES)
            document = _noted(document, cut_note(held.part, calm))
            yield {**_drawn(held.part, document, of), "baseline": list(calm)}


def _drawn(part: Part, document: Mapping[str, Any], core: int | None = None) -> dict[str, Any]:
    return {**_of(part, document), "cpu": core, "baseline": None}


def _seen(view: View, part: Part, core: int | None = None) -> Seen | None:
    """`None` where no stacks were sampled."""
    try:
        found = view.seen(*part, _who(core))
    except (CommandError, StoreError):
        return None
    return found if found.flame.samples else None


def _noted(document: dict[str, Any], note: str) -> dict[str, Any]:
    """As the server answers: with what it is of, where that is less than the span."""
    return {**document, "note": note}


def _who(core: int | None) -> Who:
    from sexton.explorer.tiles.stacks_view import Who

    return Who(cpu=core)


def _functions(view: View, parts: Sequence[Part], held: Held | None) -> Iterator[dict[str, Any]]:
    from sexton.profile.functions import functions

    asked: list[tuple[Part, int | None]] = [(part, None) for part in parts]
    asked += [] if held is None else [(held.part, core) for core in held.cores]
    for part, core in asked:
        seen = _seen(view, part, core)
        if seen is not None:
            found = functions(seen.flame)
            shown = found[:_MOST_FUNCTIONS]
            document = functions_document(shown, seen.flame.samples, len(found) - len(shown))
            yield {**_of(part, _noted(document, seen.note)), "cpu": core}


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
    """What a reader of the page should know: where it is coarser than what was recorded."""
    if not data["finest"]:
        return ()
    column = column_s(data["finest"])
    return (
        f"Seconds are kept around the event; elsewhere in the pictures a column is {column:.0f} s.",
    )

"""The endpoints of the HTTP API: path, parameters, and the function that answers.

Routes, input validation and the OpenAPI description (``/openapi.json``) are generated from this one
table. Answers are computed off the event loop, slow ones on separate threads. The API is
read-only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.explorer.server import documents
from sexton.explorer.server.documents import AGAIN, FOREVER
from sexton.explorer.server.query import LATEST_S, Parameter, Refused, Values, span_of
from sexton.model.lane import COLUMNS, FINEST, MOST_TILES, TOP, column_s

if TYPE_CHECKING:
    from sexton.explorer.tiles.flames import Who
    from sexton.explorer.tiles.view import View

_MOST_MARKS = 2000
_MOST_ROWS = 200
#: The page searches this many.
_MOST_FUNCTIONS = 2000

#: UNIX seconds, as `sexton why` accepts them.
_MOMENT = re.compile(r"@?[0-9]{9,12}(?:\.[0-9]{1,9})?", re.ASCII)

FROM = Parameter("from", "number", "UNIX seconds, inclusive")
TO = Parameter("to", "number", "UNIX seconds, after `from`")
LANE = Parameter("lane", "string", "a lane's id", 1, 40, pattern="[a-z][a-z0-9_]*", place="path")
CPU = Parameter("cpu", "integer", "only this core", 0, 65535, required=False)
TASK = Parameter("task", "string", "only threads whose name contains this", 1, 256, required=False)
CGROUP = Parameter(
    "cgroup", "string", "only cgroups whose path contains this", 1, 4096, required=False
)
BASELINE = (
    Parameter("baseline_from", "number", "start of the baseline span", required=False),
    Parameter("baseline_to", "number", "end of the baseline span; both or neither", required=False),
)
FUNCTION = Parameter(
    "function", "string", "only stacks with this function, by its name in answers", 1, 500, False
)
ORDER = Parameter(
    "order", "string", "time: siblings in the order of time", 4, 4, False, None, "time"
)
QUICK = Parameter("quick", "integer", "1: return a fast partial result", 0, 1, False, 0)

#: Thread pools: requests of milliseconds never wait for requests of seconds.
TILES, FLAMES, STORIES = "tiles", "flames", "stories"


@dataclass(frozen=True, slots=True)
class Site:
    """What is served. `of` identifies this process, `tour` is the guided tour's document.

    `stop` returns true once the client has disconnected.
    """

    view: View
    of: str
    tour: Mapping[str, Any] | None = None
    stop: Callable[[], bool] | None = None
    _known: dict[str, Any] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        """`view.about()`, cached until the recording grows; its series may be out of date."""
        recording = self.view.recording
        if self._known.get("of") is not recording:
            self._known.update(about=self.view.about(), of=recording)
        found: dict[str, Any] = self._known["about"]
        return found


class Made(NamedTuple):
    """A response document and its cache header."""

    document: Mapping[str, Any]
    cache: str = AGAIN


class Endpoint(NamedTuple):
    """`schema` is a name in `openapi.SCHEMAS`; each `pool` has its own threads and queue."""

    path: str
    about: str
    schema: str
    answer: Callable[[Site, Values], Made]
    parameters: tuple[Parameter, ...] = ()
    pool: str = TILES


def _recording(site: Site, _: Values) -> Made:
    site.view.refresh()
    return Made(documents.recording_document(site.view.about(), site.of, site.tour is not None))


def _strip(site: Site, values: Values) -> Made:
    from sexton.explorer.tiles.flames import LATE_S

    lane = _known(site, values)
    if values["of"] is not None and values["of"] != site.of:
        raise Refused("a different recording is being served now: reload the page", 409)
    low, high = lane["levels"]
    if lane["kind"] == "marks" or not low <= values["level"] <= high:
        raise Refused(f"level: {lane['id']} has levels {low} to {high}; marks are at /api/marks")
    strip = site.view.strip(lane["id"], values["level"], values["first"], values["count"])
    document = documents.strip_document(strip)
    done = (strip.first + document["count"]) * COLUMNS * column_s(strip.level)
    about = site.about()
    # A new recorder may append to the recording, and stacks are decoded late.
    finished = done <= (about["end"] or 0.0) - LATE_S
    return Made(document, FOREVER if finished and values["of"] is not None else AGAIN)


def _marks(site: Site, values: Values) -> Made:
    span = span_of(values)
    found = site.view.marks(*span, most=_MOST_MARKS)
    left = max(site.view.marks_between(*span) - len(found), 0)
    return Made(documents.marks_document(found, left))


def _table(site: Site, values: Values) -> Made:
    lane = _known(site, values)["id"]
    return Made(documents.table_document(site.view.table(lane, *span_of(values), most=_MOST_ROWS)))


def _flame(site: Site, values: Values) -> Made:
    from sexton.explorer.tiles.flames import cut_note

    span, who, function = span_of(values), _who(values), values["function"]
    if (values["baseline_from"] is None) != (values["baseline_to"] is None):
        raise Refused("baseline_from and baseline_to must be given together")
    if values["order"] is not None:
        if function is not None or values["baseline_from"] is not None:
            raise Refused("order: time has neither a baseline nor a function")
        return Made(documents.ordered_document(site.view.ordered(*span, who, site.stop)))
    difference = None
    if values["baseline_from"] is not None:
        baseline = span_of(values, "baseline_from", "baseline_to")
        difference = site.view.difference(span, baseline, who, site.stop)
    if difference is None:
        quick = values["quick"]
        seen = site.view.glimpse(*span, who) if quick else site.view.seen(*span, who, site.stop)
        extra = {"note": seen.note, "settled": seen.settled}
    else:
        seen = site.view.seen(*span, who, site.stop)
        extra = {"note": cut_note(span, baseline), "settled": True}
    if function is not None:
        return Made({**documents.sandwich_document(seen.flame, difference, function), **extra})
    return Made({**documents.flame_document(seen.flame, difference), **extra})


def _functions(site: Site, values: Values) -> Made:
    seen = site.view.seen(*span_of(values), _who(values), site.stop)
    document = documents.functions_document(seen.flame, _MOST_FUNCTIONS)
    return Made({**document, "note": seen.note})


def _explain(site: Site, values: Values) -> Made:
    from sexton.explorer.tiles.questions import finding_marks

    found = site.view.diagnosis(*span_of(values), site.stop)
    marks = documents.mark_documents(finding_marks(found))
    return Made({**documents.explain_document(found), "marks": marks})


def _why(site: Site, values: Values) -> Made:
    from sexton.reports.text.why import why_json

    what = values["what"]
    if (values["from"] is None) != (values["to"] is None):
        raise Refused("from and to must be given together")
    if values["from"] is not None:
        found = site.view.why(what, span_of(values), site.stop)
    else:
        moment = _MOMENT.fullmatch(what) is not None
        found = site.view.why(float(what.lstrip("@")) if moment else what, None, site.stop)
    return Made(why_json(found))


def _next(site: Site, values: Values) -> Made:
    found = site.view.found(values["kind"], values["after"], backwards=bool(values["back"]))
    return Made(documents.next_document(found))


def _tour(site: Site, _: Values) -> Made:
    if site.tour is None:
        raise Refused("no guided tour for this recording", 404)
    return Made(site.tour)


def _who(values: Values) -> Who:
    from sexton.explorer.tiles.flames import Who

    return Who(values["cpu"], values["task"], values["cgroup"])


def _known(site: Site, values: Values) -> dict[str, Any]:
    """The lane of the request, as `View.about` lists it."""
    lanes: dict[str, dict[str, Any]] = {lane["id"]: lane for lane in site.about()["lanes"]}
    if values["lane"] not in lanes:
        raise Refused(f"no lane {values['lane']!r}; lanes: {', '.join(lanes)}", 404)
    return lanes[values["lane"]]


ENDPOINTS = (
    Endpoint("/api/recording", "The recording: node, time span, lanes", "Recording", _recording),
    Endpoint(
        "/api/strip/{lane}",
        "Tiles of a lane; fewer than requested if they exceed one megabyte",
        "Strip",
        _strip,
        (
            LANE,
            Parameter("level", "integer", "columns of 2**level s; -1: 20 ms", FINEST, TOP),
            Parameter("first", "integer", "index of the first tile, 0 at the epoch", 0, LATEST_S),
            Parameter("count", "integer", "number of tiles", 1, MOST_TILES, False, 1),
            Parameter("of", "string", "the recording's id", 1, 64, False, None, "[0-9a-f]+"),
        ),
    ),
    Endpoint("/api/marks", "Events, alarms and marks of a span", "Marks", _marks, (FROM, TO)),
    Endpoint("/api/table/{lane}", "A span of a lane as a table", "Table", _table, (LANE, FROM, TO)),
    Endpoint(
        "/api/flame",
        "The flame graph of a span, its difference from a baseline, or in the order of time",
        "Flame",
        _flame,
        (FROM, TO, CPU, TASK, CGROUP, *BASELINE, FUNCTION, ORDER, QUICK),
        FLAMES,
    ),
    Endpoint(
        "/api/functions",
        "The functions with the most samples in a span",
        "Functions",
        _functions,
        (FROM, TO, CPU, TASK, CGROUP),
        FLAMES,
    ),
    Endpoint(
        "/api/explain",
        "The diagnosis of a span, as in `sexton diagnose --from DIR --json`",
        "Diagnosis",
        _explain,
        (FROM, TO),
        STORIES,
    ),
    Endpoint(
        "/api/why",
        "The cause chain of one entity, as in `sexton why WHAT --from DIR --json`",
        "Why",
        _why,
        (
            Parameter("what", "string", "core 5, eth0, ecs.service, @1794737700, …", 1, 200),
            replace(FROM, required=False),
            replace(TO, required=False),
        ),
        STORIES,
    ),
    Endpoint(
        "/api/next",
        "The next spike, reset or mark of a kind",
        "Next",
        _next,
        (
            Parameter("kind", "string", "spike, reset, or a mark's kind", 1, 40, pattern="[a-z_]+"),
            Parameter("after", "number", "UNIX seconds, exclusive"),
            Parameter("back", "integer", "1: search backwards", 0, 1, False, 0),
        ),
    ),
    Endpoint("/api/tour", "The steps of the guided tour, if there is one", "Tour", _tour),
)

"""Every question the page can ask: its address, its parameters, and what answers it.

One table, from which the routes, the checks of what arrives and the description for machines
(``/openapi.json``) are made. Answers are computed off the event loop, the slow ones by threads of
their own. Nothing here can change anything: a view only reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.explorer.server.documents import AGAIN, FOREVER
from sexton.explorer.server.query import LATEST_S, Parameter, Refused, Values, span_of
from sexton.model.lane import COLUMNS, FINEST, MOST_TILES, TOP, column_s

if TYPE_CHECKING:
    from sexton.explorer.tiles.stacks_view import Who
    from sexton.explorer.tiles.view import View

_MOST_MARKS = 2000
_MOST_ROWS = 200
_MOST_FUNCTIONS = 50

#: UNIX seconds as `sexton why` takes them.
_MOMENT = re.compile(r"@?[0-9]{9,12}(?:\.[0-9]{1,9})?", re.ASCII)

FROM = Parameter("from", "number", "UNIX seconds, inclusive")
TO = Parameter("to", "number", "UNIX seconds, after `from`")
LANE = Parameter("lane", "string", "a lane's id", 1, 40, pattern="[a-z][a-z0-9_]*", place="path")
CPU = Parameter("cpu", "integer", "only this core", 0, 65535, required=False)
TASK = Parameter("task", "string", "only threads with this in their name", 1, 256, required=False)
CGROUP = Parameter(
    "cgroup", "string", "only cgroups with this in their path", 1, 4096, required=False
)
BASELINE = (
    Parameter("baseline_from", "number", "of the span to compare with", required=False),
    Parameter("baseline_to", "number", "its end; both or neither", required=False),
)
QUICK = Parameter("quick", "integer", "1: a first look where all takes long", 0, 1, False, 0)

#: Who works on an answer: what takes milliseconds never waits for what takes seconds.
TILES, FLAMES, STORIES = "tiles", "flames", "stories"


@dataclass(frozen=True, slots=True)
class Site:
    """What is served: `of` is this process's own mark, `tour` a document that guides visitors.

    `stop` tells whether nobody waits for the answer that is being worked on.
    """

    view: View
    of: str
    tour: Mapping[str, Any] | None = None
    stop: Callable[[], bool] | None = None
    _known: dict[str, Any] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        """The view's own, looked at once for as long as nothing is recorded; not for its series."""
        recording = self.view.recording
        if self._known.get("of") is not recording:
            self._known.update(about=self.view.about(), of=recording)
        found: dict[str, Any] = self._known["about"]
        return found


class Made(NamedTuple):
    """An answer before it is bytes."""

    document: Mapping[str, Any]
    cache: str = AGAIN


class Endpoint(NamedTuple):
    """`schema` names the answer's in `openapi`; each `bench` has its own queue."""

    path: str
    about: str
    schema: str
    answer: Callable[[Site, Values], Made]
    parameters: tuple[Parameter, ...] = ()
    bench: str = TILES


def _recording(site: Site, _: Values) -> Made:
    from sexton.explorer.server.documents import recording_document

    site.view.refresh()
    return Made(recording_document(site.view.about(), site.of, site.tour is not None))


def _strip(site: Site, values: Values) -> Made:
    from sexton.explorer.server.documents import strip_document
    from sexton.explorer.tiles.stacks_view import LATE_S

    lane = _known(site, values)
    if values["of"] is not None and values["of"] != site.of:
        raise Refused("another recording is served here now: load the page again", 409)
    low, high = lane["levels"]
    if lane["kind"] == "marks" or not low <= values["level"] <= high:
        raise Refused(f"level: {lane['id']} has {low} to {high}; marks are in /api/marks")
    strip = site.view.strip(lane["id"], values["level"], values["first"], values["count"])
    document = strip_document(strip)
    done = (strip.first + document["count"]) * COLUMNS * column_s(strip.level)
    about = site.about()
    # A recorder may go on where the last one ended, and what it decodes comes late.
    finished = done <= (about["end"] or 0.0) - LATE_S
    return Made(document, FOREVER if finished and values["of"] is not None else AGAIN)


def _marks(site: Site, values: Values) -> Made:
    from sexton.explorer.server.documents import marks_document

    span = span_of(values)
    found = site.view.marks(*span, most=_MOST_MARKS)
    return Made(marks_document(found, max(site.view.marks_between(*span) - len(found), 0)))


def _table(site: Site, values: Values) -> Made:
    from sexton.explorer.server.documents import table_document

    lane = _known(site, values)["id"]
    return Made(table_document(site.view.table(lane, *span_of(values), most=_MOST_ROWS)))


def _flame(site: Site, values: Values) -> Made:
    from sexton.explorer.server.documents import flame_document
    from sexton.explorer.tiles.stacks_choice import cut_note

    span, who = span_of(values), _who(values)
    if (values["baseline_from"] is None) != (values["baseline_to"] is None):
        raise Refused("baseline_from and baseline_to go together")
    difference = None
    if values["baseline_from"] is not None:
        baseline = span_of(values, "baseline_from", "baseline_to")
        difference = site.view.difference(span, baseline, who, site.stop)
    if difference is None:
        quick = values["quick"]
        seen = site.view.glimpse(*span, who) if quick else site.view.seen(*span, who, site.stop)
        told = {"note": seen.note, "settled": seen.settled}
    else:
        seen = site.view.seen(*span, who, site.stop)
        told = {"note": cut_note(span, baseline), "settled": True}
    return Made({**flame_document(seen.flame, difference), **told})


def _functions(site: Site, values: Values) -> Made:
    from sexton.explorer.server.documents import functions_document
    from sexton.profile.functions import functions

    seen = site.view.seen(*span_of(values), _who(values), site.stop)
    found = functions(seen.flame)
    shown = found[:_MOST_FUNCTIONS]
    told = functions_document(shown, seen.flame.samples, len(found) - len(shown))
    return Made({**told, "note": seen.note})


def _explain(site: Site, values: Values) -> Made:
    from sexton.explorer.server.documents import mark_documents
    from sexton.reports.json.diagnosis import diagnosis_json

    found = site.view.diagnosis(*span_of(values), site.stop)
    marks = mark_documents(site.view.finding_marks(found))
    return Made({**diagnosis_json(found), "marks": marks})


def _why(site: Site, values: Values) -> Made:
    from sexton.reports.json.why import why_json

    what = values["what"]
    if (values["from"] is None) != (values["to"] is None):
        raise Refused("from and to go together")
    if values["from"] is not None:
        found = site.view.why(what, span_of(values), site.stop)
    else:
        moment = _MOMENT.fullmatch(what) is not None
        found = site.view.why(float(what.lstrip("@")) if moment else what, None, site.stop)
    return Made(why_json(found))


def _next(site: Site, values: Values) -> Made:
    from sexton.explorer.server.documents import next_document

    found = site.view.found(values["kind"], values["after"], backwards=bool(values["back"]))
    return Made(next_document(found))


def _tour(site: Site, _: Values) -> Made:
    if site.tour is None:
        raise Refused("this recording has no guided tour", 404)
    return Made(site.tour)


def _who(values: Values) -> Who:
    from sexton.explorer.tiles.stacks_view import Who

    return Who(values["cpu"], values["task"], values["cgroup"])


def _known(site: Site, values: Values) -> dict[str, Any]:
    lanes: dict[str, dict[str, Any]] = {each["id"]: each for each in site.about()["lanes"]}
    if values["lane"] not in lanes:
        raise Refused(f"there is no lane {values['lane']!r}; there are {', '.join(lanes)}", 404)
    return lanes[values["lane"]]


ENDPOINTS = (
    Endpoint("/api/recording", "What is recorded: node, time, lanes", "Recording", _recording),
    Endpoint(
        "/api/strip/{lane}",
        "Some tiles of a lane; fewer than asked for where they would be more than a megabyte",
        "Strip",
        _strip,
        (
            LANE,
            Parameter("level", "integer", "columns of 2**level s; -1: 20 ms", FINEST, TOP),
            Parameter("first", "integer", "the first tile, from the epoch", 0, LATEST_S),
            Parameter("count", "integer", "tiles", 1, MOST_TILES, required=False, default=1),
            Parameter("of", "string", "the recording's id", 1, 64, False, None, "[0-9a-f]+"),
        ),
    ),
    Endpoint("/api/marks", "What happened: events, alarms, marks", "Marks", _marks, (FROM, TO)),
    Endpoint("/api/table/{lane}", "A lane's span in words", "Table", _table, (LANE, FROM, TO)),
    Endpoint(
        "/api/flame",
        "Where the cores were in a span, beside a baseline where one is given",
        "Flame",
        _flame,
        (FROM, TO, CPU, TASK, CGROUP, *BASELINE, QUICK),
        FLAMES,
    ),
    Endpoint(
        "/api/functions",
        "The functions with the most samples of a span",
        "Functions",
        _functions,
        (FROM, TO, CPU, TASK, CGROUP),
        FLAMES,
    ),
    Endpoint(
        "/api/explain",
        "The diagnosis of a span, as `sexton diagnose --from DIR --json` gives it",
        "Diagnosis",
        _explain,
        (FROM, TO),
        STORIES,
    ),
    Endpoint(
        "/api/why",
        "The chain through one thing, as `sexton why WHAT --from DIR --json` gives it",
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
            Parameter("back", "integer", "1: the one before instead", 0, 1, False, 0),
        ),
    ),
    Endpoint("/api/tour", "The steps of the guided tour, where there is one", "Tour", _tour),
)

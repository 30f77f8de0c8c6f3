"""What a Grafana board consists of, in the words of its JSON model (schema 38: Grafana 10; later
versions migrate it).

Only what these boards use is here. What a panel says about itself (description, unit, a text for
"no data") is required, so that no panel goes without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

SCHEMA_VERSION = 38
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """One PromQL expression. `shape`: ``range`` over the board's time, ``heatmap`` the same by
    bucket, ``instant`` for the values of now, ``table`` for the same as rows."""

    expr: str
    legend: str = ""
    shape: str = "range"

    def json(self, ref: str) -> Json:
        now = self.shape in ("instant", "table")
        shown = {"table": "table", "heatmap": "heatmap"}.get(self.shape, "time_series")
        return {
            "refId": ref,
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": shown,
            "instant": now,
            "range": not now,
            "legendFormat": self.legend or "__auto",
        }


@dataclass(frozen=True)
class State:
    """A value that means something, in words and a colour."""

    value: int
    text: str
    colour: str


def mapping(*states: State) -> list[Json]:
    options = {
        str(state.value): {"text": state.text, "color": state.colour, "index": index}
        for index, state in enumerate(states)
    }
    return [{"type": "value", "options": options}]


@dataclass(frozen=True)
class Steps:
    """Colours by value: the first below all bounds. `drawn` adds the bounds to a graph."""

    first: str = "text"
    above: tuple[tuple[float, str], ...] = ()
    drawn: bool = False

    def json(self) -> Json:
        # Grafana's schema refuses its own page's null here, and its page ignores all other steps
        # where the value is missing. No value on the boards is below 0.
        steps: list[Json] = [{"color": self.first, "value": 0}]
        steps += [{"color": colour, "value": bound} for bound, colour in self.above]
        return {"mode": "absolute", "steps": steps}


@dataclass(frozen=True)
class Link:
    """Opens in a new tab. `url` may have variables and fields of the row."""

    title: str
    url: str

    def json(self) -> Json:
        return {"title": self.title, "url": self.url, "targetBlank": True}


@dataclass(frozen=True)
class Override:
    """Properties for some fields: `matcher` as Grafana names it, with what it matches."""

    matcher: str
    matched: str
    properties: Mapping[str, object]

    def json(self) -> Json:
        return {
            "matcher": {"id": self.matcher, "options": self.matched},
            "properties": [{"id": name, "value": value} for name, value in self.properties.items()],
        }


def of_query(ref: str, **properties: object) -> Override:
    """For what one query returns; ``custom__axisPlacement`` is ``custom.axisPlacement``."""
    return Override("byFrameRefID", ref, _dotted(properties))


def of_field(name: str, **properties: object) -> Override:
    return Override("byName", name, _dotted(properties))


def _dotted(properties: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("__", "."): value for name, value in properties.items()}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """`says` is the description: what is shown, and what is normal. `no_value` is shown where there
    is no data; a panel that may be empty on a healthy node says there what that means."""

    kind: ClassVar[str]

    title: str
    says: str
    width: int
    height: int
    unit: str
    queries: tuple[Query, ...]
    no_value: str = "no data"
    steps: Steps = Steps()
    overrides: tuple[Override, ...] = ()
    links: tuple[Link, ...] = ()
    mappings: tuple[State, ...] = ()
    bounds: tuple[float | None, float | None] = (None, None)
    decimals: int | None = None

    def json(self, number: int, x: int, y: int) -> Json:
        return {
            **_placed(self, number, x, y),
            "type": self.kind,
            "title": self.title,
            "description": self.says,
            "datasource": DATASOURCE,
            "targets": [
                query.json(chr(ord("A") + index)) for index, query in enumerate(self.queries)
            ],
            "transformations": self.transformations(),
            "fieldConfig": {
                "defaults": self._defaults(),
                "overrides": [override.json() for override in self.all_overrides()],
            },
            "options": self.options(),
        }

    def options(self) -> Json:
        raise NotImplementedError

    def custom(self) -> Json:
        return {}

    def transformations(self) -> list[Json]:
        return []

    def all_overrides(self) -> Sequence[Override]:
        return self.overrides

    def _defaults(self) -> Json:
        least, most = self.bounds
        values: Json = {
            "unit": self.unit,
            "noValue": self.no_value,
            "color": {"mode": self.colour_mode()},
            "thresholds": self.steps.json(),
            "mappings": mapping(*self.mappings) if self.mappings else [],
            "links": [link.json() for link in self.links],
            "custom": self.custom(),
        }
        optional = {"min": least, "max": most, "decimals": self.decimals}
        return values | {name: value for name, value in optional.items() if value is not None}

    def colour_mode(self) -> str:
        return "thresholds"


def _placed(panel: Panel | Text, number: int, x: int, y: int) -> Json:
    return {"id": number, "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height}}


_REDUCED = {"values": False, "calcs": ["lastNotNull"], "fields": ""}


@dataclass(frozen=True, kw_only=True)
class Stat(Panel):
    """Big values of now, one tile per series."""

    kind = "stat"

    def options(self) -> Json:
        return {
            "reduceOptions": _REDUCED,
            "orientation": "auto",
            "textMode": "value" if len(self.queries) == 1 else "value_and_name",
            "colorMode": "background" if len(self.queries) == 1 else "value",
            "graphMode": "none",
            "justifyMode": "center",
        }


@dataclass(frozen=True, kw_only=True)
class BarGauge(Panel):
    """One bar per series, of now."""

    kind = "bargauge"

    def options(self) -> Json:
        return {
            "reduceOptions": _REDUCED,
            "orientation": "horizontal",
            "displayMode": "basic",
            "valueMode": "color",
            "showUnfilled": False,
            "minVizWidth": 8,
            "minVizHeight": 16,
        }


_LEGEND = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
_TOOLTIP = {"mode": "multi", "sort": "desc"}


@dataclass(frozen=True, kw_only=True)
class Graph(Panel):
    """Lines over time, or bars for what is counted; gaps stay gaps."""

    kind = "timeseries"
    style: str = "line"
    stacked: bool = False

    def options(self) -> Json:
        return {"legend": _LEGEND, "tooltip": _TOOLTIP}

    def custom(self) -> Json:
        bars = self.style == "bars"
        return {
            "drawStyle": self.style,
            "lineWidth": 1,
            "lineInterpolation": "linear",
            "fillOpacity": 60 if bars or self.stacked else 10,
            "spanNulls": False,
            "showPoints": "never" if bars else "auto",
            "pointSize": 4,
            "stacking": {"mode": "normal" if self.stacked else "none", "group": "A"},
            "axisPlacement": "auto",
            "thresholdsStyle": {"mode": "dashed" if self.steps.drawn else "off"},
        }

    def colour_mode(self) -> str:
        return "palette-classic"


@dataclass(frozen=True, kw_only=True)
class Heatmap(Panel):
    """A histogram over time: time to the right, buckets upwards, the more the darker."""

    kind = "heatmap"

    def options(self) -> Json:
        return {
            "calculate": False,
            "color": {
                "mode": "scheme",
                "scheme": "Oranges",
                "fill": "dark-orange",
                "scale": "exponential",
                "exponent": 0.5,
                "steps": 64,
                "reverse": False,
            },
            "rowsFrame": {"layout": "auto"},
            "filterValues": {"le": 1e-9},
            "showValue": "never",
            "cellGap": 1,
            "cellValues": {"unit": "short", "decimals": 0},
            "yAxis": {"unit": self.unit, "axisPlacement": "left", "reverse": False},
            "legend": {"show": True},
            "tooltip": {"show": True, "yHistogram": True},
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
        }

    def custom(self) -> Json:
        return {"scaleDistribution": {"type": "linear"}}


@dataclass(frozen=True, kw_only=True)
class Timeline(Panel):
    """States over time, one line per series; equal neighbours are one bar."""

    kind = "state-timeline"

    def options(self) -> Json:
        return {
            "legend": {**_LEGEND, "showLegend": False},
            "tooltip": {"mode": "single", "sort": "none"},
            "showValue": "never",
            "mergeValues": True,
            "rowHeight": 0.85,
            "alignValue": "left",
        }

    def custom(self) -> Json:
        return {"lineWidth": 0, "fillOpacity": 85}


@dataclass(frozen=True)
class Column:
    """A column of a table, `name` is the field's; `more` are its properties."""

    name: str
    title: str
    width: int | None = None
    links: tuple[Link, ...] = ()
    more: Mapping[str, object] = field(default_factory=dict)

    def override(self) -> Override:
        properties: dict[str, object] = dict(self.more)
        if self.width is not None:
            properties["custom.width"] = self.width
        if self.links:
            properties["links"] = [link.json() for link in self.links]
        return Override("byName", self.title, properties)


@dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """Rows of now. Rows of several queries that agree in their common labels are one."""

    kind = "table"
    columns: tuple[Column, ...]
    hidden: tuple[str, ...] = ()
    sort: str
    descending: bool = True

    def options(self) -> Json:
        return {
            "showHeader": True,
            "cellHeight": "sm",
            "frameIndex": 0,
            "sortBy": [{"displayName": self.sort, "desc": self.descending}],
            "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        }

    def custom(self) -> Json:
        return {"align": "left", "cellOptions": {"type": "auto"}, "inspect": False}

    def transformations(self) -> list[Json]:
        arranged = {
            "id": "organize",
            "options": {
                "excludeByName": dict.fromkeys(("Time", *self.hidden), True),
                "indexByName": {column.name: at for at, column in enumerate(self.columns)},
                "renameByName": {column.name: column.title for column in self.columns},
            },
        }
        merged = [{"id": "merge", "options": {}}] if len(self.queries) > 1 else []
        return [*merged, arranged]

    def all_overrides(self) -> Sequence[Override]:
        mine = [column.override() for column in self.columns]
        return [*self.overrides, *(override for override in mine if override.properties)]


@dataclass(frozen=True, kw_only=True)
class Text:
    """Markdown, in which variables work."""

    title: str
    says: str
    width: int
    height: int
    content: str
    queries: tuple[Query, ...] = ()

    def json(self, number: int, x: int, y: int) -> Json:
        return {
            **_placed(self, number, x, y),
            "type": "text",
            "title": self.title,
            "description": self.says,
            "transformations": [],
            "fieldConfig": {"defaults": {}, "overrides": []},
            "options": {"mode": "markdown", "content": self.content},
        }


@dataclass(frozen=True)
class Row:
    """A heading and the panels under it, from left to right; a line is full at 24 columns."""

    title: str
    panels: tuple[Panel | Text, ...]


@dataclass(frozen=True)
class Choice:
    """A variable that lists a label's values. Where it is `several`, all is one choice."""

    name: str
    label: str
    query: str
    several: bool = False

    def json(self) -> Json:
        made: Json = {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": DATASOURCE,
            "definition": self.query,
            "query": {"query": self.query, "refId": f"variable-{self.name}"},
            "refresh": 2,  # when the time range changes: a silent node is found where it was heard
            "sort": 5,
            "multi": self.several,
            "includeAll": self.several,
            "hide": 0,
            "regex": "",
            "skipUrlSync": False,
            "options": [],
            "current": {},
        }
        if self.several:
            made["allValue"] = ".+"
            made["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
        return made


def datasource_variable() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Prometheus",
        "query": "prometheus",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "regex": "",
        "skipUrlSync": False,
        "options": [],
        "current": {},
    }


def custom_variable(name: str, label: str, values: Sequence[str]) -> Json:
    options = [{"selected": not at, "text": text, "value": text} for at, text in enumerate(values)]
    return {
        "type": "custom",
        "name": name,
        "label": label,
        "query": ",".join(values),
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "skipUrlSync": False,
        "options": options,
        "current": options[0],
    }


@dataclass(frozen=True)
class Event:
    """A line across all graphs wherever `expr` has a value."""

    name: str
    expr: str
    title: str
    colour: str

    def json(self) -> Json:
        return {
            "name": self.name,
            "datasource": DATASOURCE,
            "enable": True,
            "hide": False,
            "iconColor": self.colour,
            "expr": self.expr,
            "step": "",
            "titleFormat": self.title,
            "textFormat": "",
            "tagKeys": "",
            "useValueForTime": False,
        }


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board; `uid` is part of its URL and of links to it."""

    uid: str
    title: str
    says: str
    variables: tuple[Json, ...]
    rows: tuple[Row, ...]
    links: tuple[Link, ...]
    events: tuple[Event, ...] = ()
    since: str = "now-6h"

    def json(self) -> Json:
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.says,
            "tags": ["sexton"],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,  # one cursor on all graphs
            "fiscalYearStartMonth": 0,
            "liveNow": False,
            "refresh": "30s",
            "time": {"from": self.since, "to": "now"},
            "timepicker": {},
            "timezone": "",
            "weekStart": "",
            "templating": {"list": list(self.variables)},
            "annotations": {"list": [event.json() for event in self.events]},
            "links": [_board_link(link) for link in self.links],
            "panels": list(self._panels()),
        }

    def _panels(self) -> list[Json]:
        made: list[Json] = []
        y = 0
        for row in self.rows:
            made.append(_heading(row, len(made) + 1, y))
            y += 1
            x = height = 0
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y, height = 0, y + height, 0
                made.append(panel.json(len(made) + 1, x, y))
                x, height = x + panel.width, max(height, panel.height)
            y += height
        return made


def _heading(row: Row, number: int, y: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        "panels": [],
    }


def _board_link(link: Link) -> Json:
    return {
        "title": link.title,
        "type": "link",
        "icon": "external link",
        "tooltip": "",
        "url": link.url,
        "tags": [],
        "asDropdown": False,
        "targetBlank": True,
        "includeVars": False,
        "keepTime": False,
    }

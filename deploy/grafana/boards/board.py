"""A board: its variables, its rows of panels and where they stand, its links and events.

The JSON has schema 38, that of Grafana 10; later versions migrate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.grafana.boards.panels import Panel, Text
from deploy.grafana.boards.parts import DATASOURCE, Json, Link

SCHEMA_VERSION = 38
COLUMNS = 24


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

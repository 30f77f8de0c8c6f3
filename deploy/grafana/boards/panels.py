"""Panels, by the way they show their data. Only what these boards use is here.

What a panel says about itself (description, unit, a text for "no data") is required, so that no
panel goes without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from deploy.grafana.boards.parts import (
    DATASOURCE,
    UNCOLOURED,
    Json,
    Link,
    Override,
    Query,
    State,
    Steps,
    mapping,
)


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
    steps: Steps = UNCOLOURED
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
    """A column of a table. `name` is the field's: a label, or ``Value``. `more` are properties."""

    name: str
    title: str
    width: int | None = None
    links: tuple[Link, ...] = ()
    more: Mapping[str, object] = field(default_factory=dict)

    def override(self) -> Override:
        # Without its own, an empty cell shows the text of an empty panel.
        properties: dict[str, object] = {"noValue": "–", **self.more}
        if self.width is not None:
            properties["custom.width"] = self.width
        if self.links:
            properties["links"] = [link.json() for link in self.links]
        return Override("byName", self.title, properties)


def coloured(meanings: Sequence[State]) -> Mapping[str, object]:
    """Properties of a column that shows states: their words in their colours."""
    return {"mappings": mapping(*meanings), "custom.cellOptions": {"type": "color-text"}}


@dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """Rows of now. One query: with two, the names of fields depend on which of them has data."""

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
        return [arranged]

    def all_overrides(self) -> Sequence[Override]:
        mine = [column.override() for column in self.columns]
        return [*self.overrides, *mine]


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

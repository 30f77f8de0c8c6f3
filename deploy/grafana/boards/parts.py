"""Parts of panels, in the words of Grafana's JSON model: queries, colours, links, overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


UNCOLOURED = Steps()


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

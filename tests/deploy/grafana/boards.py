"""The committed boards, and what Grafana's page does with their variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[3] / "deploy/grafana"
BOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}
ALL = "$__all"

Value = str | list[str]


class Target(NamedTuple):
    """A query of a panel."""

    panel: str
    ref: str
    expr: str
    instant: bool

    @property
    def name(self) -> str:
        return f"{self.panel} {self.ref}"


def panels(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Without the headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def targets(board: Mapping[str, Any]) -> Iterator[Target]:
    for panel in panels(board):
        for target in panel.get("targets", ()):
            yield Target(panel["title"], target["refId"], target["expr"], target["instant"])


def expressions(board: Mapping[str, Any]) -> Iterator[str]:
    """Of panels, events and variables."""
    for target in targets(board):
        yield target.expr
    for event in board["annotations"]["list"]:
        yield event["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def interpolated(text: str, values: Mapping[str, Value], board: Mapping[str, Any]) -> str:
    """`text` with the chosen values, as Grafana's formats `raw` and `regex` write them."""
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}

    def chosen(match: re.Match[str]) -> str:
        name, form = match[1], match[2]
        value = values[name]
        if value == ALL:
            return str(variables[name]["allValue"])
        listed = [value] if isinstance(value, str) else value
        if form == "raw":
            assert len(listed) == 1, name
            return listed[0]
        escaped = [re.sub(r"[\\^$*+?.()|[\]{}/]", r"\\\g<0>", each) for each in listed]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    return re.sub(r"\$\{(job|instance):(raw|regex)\}", chosen, text)

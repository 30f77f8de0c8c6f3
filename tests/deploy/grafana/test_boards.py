"""The boards' JSON: what their readers rely on, and what Grafana would quietly draw wrong."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from deploy.grafana.boards.__main__ import BOARDS as MADE
from deploy.grafana.boards.__main__ import path_of, text_of
from sexton.detect.registry import detector_ids
from sexton.export import families as f
from sexton.export.exporter import Pace
from sexton.export.families import FAMILIES, Family, Kind
from sexton.export.server import RUNBOOKS
from tests.deploy.grafana.boards import BOARDS, expressions, interpolated, panels, targets

BY_NAME = {family.name: family for family in FAMILIES}
DISCOVERED = ("job", "instance")
COLUMNS = 24
MOST_PANELS = 22

every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def family_of(name: str) -> Family | None:
    """Of a series, which for histograms has a suffix."""
    found = BY_NAME.get(name)
    if found is None:
        found = BY_NAME.get(re.sub(r"_(bucket|sum|count)$", "", name))
        return found if found is not None and found.kind is Kind.HISTOGRAM else None
    return found if found.kind is not Kind.HISTOGRAM else None


def without_strings(expr: str) -> str:
    """Only names of metrics are kept, where a selector lists them."""
    expr = re.sub(r'\{__name__=~"([\w|]+)"\}', r"(\1)", expr)
    return re.sub(r'`[^`]*`|"[^"]*"', '""', expr)


def test_the_files_are_what_the_code_makes():
    stale = [path_of(board).name for board in MADE if path_of(board).read_text() != text_of(board)]
    assert stale == [], "run: make dashboards"
    assert {board.uid for board in MADE} == {*BOARDS}


@every_board
def test_ids_and_titles_are_unique(board):
    for key in ("id", "title"):
        counted = Counter(panel[key] for panel in board["panels"])
        assert [value for value, number in counted.items() if number > 1] == []
    for panel in panels(board):
        refs = [target["refId"] for target in panel.get("targets", ())]
        assert len({*refs}) == len(refs)


@every_board
def test_a_board_can_be_read_at_once(board):
    assert 10 <= len(panels(board)) <= MOST_PANELS
    assert board["title"].startswith("Sexton")
    assert board["uid"] in BOARDS


@every_board
def test_every_panel_says_what_it_shows_in_which_unit_and_what_is_normal(board):
    for panel in panels(board):
        assert len(panel["description"]) > 40, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        if panel["type"] == "text":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert "ormal" in panel["description"], panel["title"]
        assert defaults["unit"], panel["title"]
        assert defaults["noValue"], panel["title"]
        assert panel["targets"], panel["title"]


@every_board
def test_what_is_missing_is_not_drawn_as_zero(board):
    for panel in panels(board):
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        assert custom.get("spanNulls", False) is False, panel["title"]
    assert "vector(" not in "".join(
        target.expr for target in targets(board) if "count(sexton_verdict" not in target.expr
    )


def test_a_verdict_is_shown_in_words():
    shown = {
        text["text"]
        for panel in panels(BOARDS["sexton-node"])
        if panel["title"] == "Verdict"
        for mapping in panel["fieldConfig"]["defaults"]["mappings"]
        for text in mapping["options"].values()
    }
    assert shown == {"healthy", "problem", "cannot tell"}


@every_board
def test_everything_is_read_from_the_chosen_data_source(board):
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert board["templating"]["list"][0]["name"] == "datasource"
    for panel in panels(board):
        if panel["type"] != "text":
            assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel.get("targets", ()))
    assert all(event["datasource"] == chosen for event in board["annotations"]["list"])


@every_board
def test_only_metrics_and_labels_that_are_exported_are_used(board):
    for expr in expressions(board):
        assert ":" not in re.sub(r"\[.*?\]", "", without_strings(expr)), (
            f"a recorded series: {expr}"
        )
        names = re.findall(r"\b(?:sexton_\w+|up)\b", without_strings(expr))
        assert names, expr
        labels = {*DISCOVERED, "le"}
        for name in names:
            family = family_of(name)
            assert name == "up" or family is not None, f"{name} in {expr}"
            labels |= {*family.labels} if family is not None else {*DISCOVERED}
        used = re.findall(r"(\w+)\s*(?:=~|!~|!=|=(?!=))", without_strings(expr))
        for listed in re.findall(r"\b(?:by|on|without|group_left)\s*\(([^)]*)\)", expr):
            used += [label.strip() for label in listed.split(",") if label.strip()]
        assert {*used} <= labels, expr


@every_board
def test_histograms_are_asked_for_bounds_that_they_have(board):
    for expr in expressions(board):
        for name, bound in re.findall(r'(\w+)_bucket\{[^}]*?le="([\d.]+)"', expr.replace("${", "")):
            assert float(bound) in BY_NAME[name].buckets, expr


@every_board
def test_rates_are_over_a_window_that_grafana_chooses(board):
    for expr in expressions(board):
        for name, window in re.findall(r"\b(\w+)(?:\{[^\[]*\})?\[([^\]]*)\]", expr):
            family = family_of(name)
            changing = family is not None and family.kind is not Kind.GAUGE
            assert window == "$__rate_interval" or window == "$__range", expr
            assert window == "$__rate_interval" or changing or "max_over_time" in expr, expr
        for name in re.findall(r"\bsexton_\w+", without_strings(expr)):
            family = family_of(name)
            if family is not None and family.kind is not Kind.GAUGE:
                assert re.search(rf"(rate|increase)\({name}\{{", expr), f"a raw counter: {expr}"


@every_board
def test_every_query_asks_for_the_chosen_nodes_only(board):
    own = "job=`${job:raw}`, instance=`${instance:raw}`"
    wanted = own if board["uid"] == "sexton-node" else "job=~`${job:regex}`"
    for target in targets(board):
        selected = re.findall(
            r"\b(?:sexton_\w+|up)\{((?:\$\{|[^}])*?(?:`[^`]*`[^}`]*)*)\}", target.expr
        )
        named = re.findall(r"\b(?:sexton_\w+|up)\b", without_strings(target.expr))
        assert len(selected) == len(named), target.expr
        assert all(each.startswith(wanted) for each in selected), target.expr


@every_board
def test_hidden_quotes_cannot_end_a_string(board):
    values = {"job": 'a"b\\c', "instance": "d'e\"\\"}
    for target in targets(board):
        shown = interpolated(target.expr, values, board)
        assert "${" not in shown
        assert "$__" not in shown.replace("$__rate_interval", "").replace("$__range", "")


@every_board
def test_panels_cover_the_board_without_overlaps_or_holes(board):
    taken = Counter(
        (x, y)
        for panel in board["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    lines = max(y for _, y in taken) + 1
    assert max(taken.values()) == 1
    assert len(taken) == COLUMNS * lines, [
        (x, y) for y in range(lines) for x in range(COLUMNS) if (x, y) not in taken
    ]


def test_the_node_board_reads_from_the_verdict_to_the_recorder():
    order = [panel["title"] for panel in panels(BOARDS["sexton-node"])]
    assert order[0] == "Verdict"
    assert order.index("Cause chains") < order.index("Problems found")
    assert order.index("Problems found") < order.index("Memory cgroups: dying, live, leak")
    assert order[-1] == "Sources"


@every_board
def test_links_lead_to_the_explorer_at_that_time_and_to_runbooks(board):
    text = str(board)
    assert "#v=${__from:date:seconds},${__to:date:seconds}" in text
    assert RUNBOOKS + "${__data.fields." in text
    assert "localhost" not in text
    assert not re.search(r"\d+\.\d+\.\d+\.\d+", text)
    linked = {*re.findall(r"/d/([\w-]+)", text)}
    assert linked == {*BOARDS} - {board["uid"]}
    assert not any(f"/runbooks/{name}" in text for name in detector_ids())


def test_every_metric_is_on_a_board():
    shown = "\n".join(expr for board in BOARDS.values() for expr in expressions(board))
    missing = [name for name in BY_NAME if not re.search(rf"\b{name}(_bucket|_count)?\b", shown)]
    #: Which window was judged is part of how the recorder runs, not of what it found.
    assert missing == ["sexton_verdict_window_seconds"]


def test_the_oldest_verdict_of_a_healthy_node_is_green():
    (panel,) = (
        panel for panel in panels(BOARDS["sexton-node"]) if panel["title"] == "Can it be trusted?"
    )
    (age,) = (
        target["refId"]
        for target in panel["targets"]
        if "sexton_verdict_timestamp_seconds" in target["expr"]
    )
    (steps,) = (
        each["value"]["steps"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == age
        for each in override["properties"]
        if each["id"] == "thresholds"
    )
    pace = Pace()
    oldest_s = pace.calm_s + 4 * pace.refresh_s
    assert [step["color"] for step in steps if (step["value"] or 0) <= oldest_s] == ["green"]


def test_the_readme_names_the_panels_that_are_empty_without_a_process():
    """`sexton export --once` writes none of these; the series of a recorder only with --from."""
    missing = {
        f.CORE_KERNEL, f.EXPORTER_CPU, f.EXPORTER_MEMORY, f.FAILURES, f.RECORDER, f.LAST_READING,
        f.ALARMS, f.RECORDER_CPU, f.RECORDER_MEMORY, f.WRITTEN, f.LOST, f.SHED, f.PROBLEM,
        f.SOFTIRQ_WAIT, f.SOFTIRQ_PENDING,
    }  # fmt: skip
    empty = set()
    for board in BOARDS.values():
        for panel in panels(board):
            every = [
                {family_of(name) for name in re.findall(r"\bsexton_\w+", target["expr"])}
                for target in panel.get("targets", ())
            ]
            if every and all(used and used <= missing for used in every):
                empty.add(panel["title"])
    readme = " ".join((path_of(MADE[0]).parent / "README.md").read_text().split())
    listed = readme.partition("With `sexton export --once`")[2].partition("With `--once --from`")[0]
    assert empty == set(re.findall(r'"([^"]+)"', listed))

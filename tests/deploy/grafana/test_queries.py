"""Every query of the boards against a real Prometheus: no panel is empty, whatever the names."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.deploy.grafana.boards import ALL, BOARDS, Value, interpolated, panels, targets
from tests.deploy.grafana.scene import GONE, HEALTHY, NODES, SICK, STALE, UNKNOWN, Chosen, scraped
from tests.deploy.peers import answer, until

NODE, FLEET = BOARDS["sexton-node"], BOARDS["sexton-fleet"]
WINDOW_S = 60
EVERYWHERE: dict[str, Value] = {"job": ALL}
#: What has data only if something is wrong or special. All others have it on a healthy node, too.
TEXTS = {
    panel["title"]: panel["fieldConfig"]["defaults"]["noValue"]
    for board in BOARDS.values()
    for panel in panels(board)
    if panel["type"] != "text"
}
NODE_TITLES = tuple(panel["title"] for panel in panels(NODE) if panel["type"] != "text")


@pytest.fixture(scope="module")
def prometheus_url(tmp_path_factory):
    with scraped(tmp_path_factory.mktemp("prometheus")) as url:
        yield url


def query(url: str, expr: str, instant: bool = True) -> list[dict[str, Any]]:
    """The series of a query over the last half minute that have a number somewhere."""
    shown = expr.replace("$__rate_interval", f"{WINDOW_S}s").replace("$__range", f"{WINDOW_S}s")
    now = time.time()
    path, times = ("query", {"time": now})
    if not instant:
        path, times = ("query_range", {"start": now - 30, "end": now, "step": 1})
    found = answer(f"{url}/api/v1/{path}?" + urlencode({"query": shown, **times}))
    assert found["status"] == "success"
    assert not found.get("warnings"), found
    return [series for series in found["data"]["result"] if _numbers(series)]


def _numbers(series: Mapping[str, Any]) -> list[str]:
    points = series.get("values") or [series["value"]]
    return [value for _, value in points if value != "NaN"]


def empty(url: str, board: Mapping[str, Any], values: Mapping[str, Value]) -> list[str]:
    """Queries without data."""
    return [
        target.name
        for target in targets(board)
        if not query(url, interpolated(target.expr, values, board), target.instant)
    ]


def empty_panels(url: str, board: Mapping[str, Any], values: Mapping[str, Value]) -> set[str]:
    """Panels none of whose queries has data."""
    without = empty(url, board, values)
    return {
        panel["title"]
        for panel in panels(board)
        if panel["type"] != "text"
        and all(f"{panel['title']} {target['refId']}" in without for target in panel["targets"])
    }


def of(chosen: Chosen) -> dict[str, Value]:
    return {"job": chosen.job, "instance": chosen.instance}


def test_no_query_of_the_node_board_is_empty_on_a_sick_node(prometheus_url):
    until(lambda: empty(prometheus_url, NODE, of(SICK)) == [], "data in every query")


def test_no_query_of_the_fleet_board_is_empty(prometheus_url):
    until(lambda: empty(prometheus_url, FLEET, EVERYWHERE) == [], "data in every query")


def test_a_panel_without_data_on_a_healthy_node_says_what_that_means(prometheus_url):
    usual = {title for title, text in TEXTS.items() if text == "no data"}
    until(
        lambda: not empty_panels(prometheus_url, NODE, of(HEALTHY)) & usual,
        "data in every panel that should have some",
    )
    empty_ones = empty_panels(prometheus_url, NODE, of(HEALTHY))
    assert {"Cause chains", "Problems found", "Automatic restarts of units"} <= empty_ones
    only = {"job": [HEALTHY.job]}
    assert not empty_panels(prometheus_url, FLEET, only) & usual
    assert {"Sick nodes", "Silent nodes"} <= empty_panels(prometheus_url, FLEET, only)


@pytest.mark.parametrize(("chosen", "verdict"), [(SICK, "1"), (HEALTHY, "0"), (UNKNOWN, "3")])
def test_a_chosen_node_is_the_only_one_shown(prometheus_url, chosen, verdict):
    expr = interpolated(
        "sexton_verdict{job=`${job:raw}`, instance=`${instance:raw}`}", of(chosen), NODE
    )
    (series,) = query(prometheus_url, expr)
    assert series["value"][1] == verdict
    assert series["metric"]["instance"] == chosen.instance


@pytest.mark.parametrize("chosen", [STALE, GONE])
def test_a_node_that_is_not_seen_has_no_verdict_rather_than_a_healthy_one(prometheus_url, chosen):
    """And no panel says that nothing is wrong with it."""
    without = empty_panels(prometheus_url, NODE, of(chosen))
    assert {"Verdict", "Memory cgroups: dying, live, leak"} <= without or chosen == GONE
    said = {title: TEXTS[title] for title in without & {*NODE_TITLES}}
    assert said
    promised = {title for title, text in said.items() if text.startswith("no ")}
    assert all(re.search("^no data|, if |, or ", said[title]) for title in promised), said
    (verdict,) = (target for target in targets(NODE) if target.panel == "Verdict")
    shown = interpolated(verdict.expr, of(chosen), NODE)
    until(lambda: query(prometheus_url, shown) == [], "no verdict")
    assert "Can it be trusted?" not in without


def test_jobs_can_be_chosen_together_whatever_their_names(prometheus_url):
    some = {"job": [SICK.job, HEALTHY.job]}
    expr = interpolated("count(sexton_verdict{job=~`${job:regex}`})", some, FLEET)
    assert [series["value"][1] for series in query(prometheus_url, expr)] == ["2"]


def test_the_fleet_counts_every_node_once(prometheus_url):
    def counted() -> dict[str, float]:
        return {
            target.ref: sum(
                float(series["value"][1])
                for series in query(prometheus_url, interpolated(target.expr, EVERYWHERE, FLEET))
            )
            for target in targets(FLEET)
            if target.panel == "Nodes by verdict, now"
        }

    # healthy, problem, cannot tell, not judged, silent
    until(lambda: counted() == {"A": 1, "B": 1, "C": 1, "D": 1, "E": 1}, "each node in one state")
    assert len(NODES) == 5


def test_sick_nodes_are_listed_with_their_chain(prometheus_url):
    (target,) = (target for target in targets(FLEET) if target.panel == "Sick nodes")
    (row,) = query(prometheus_url, interpolated(target.expr, EVERYWHERE, FLEET))
    assert row["metric"]["instance"] == SICK.instance
    assert row["metric"]["root"] == "crash_looping_unit"
    assert row["metric"]["sentence"].endswith("→ NIC reset")
    assert row["value"][1] == "3"  # proven


def test_variables_list_jobs_and_nodes_even_silent_ones(prometheus_url):
    def listed(metric: str, label: str) -> list[str]:
        asked = urlencode({"match[]": metric})
        found: list[str] = answer(f"{prometheus_url}/api/v1/label/{label}/values?{asked}")["data"]
        return found

    jobs = '{__name__=~"sexton_build_info|sexton_verdict"}'
    assert {*listed(jobs, "job")} == {chosen.job for chosen in NODES}
    selector = interpolated("up{job=`${job:raw}`}", of(GONE), NODE)
    assert {UNKNOWN.instance, STALE.instance, GONE.instance} == {*listed(selector, "instance")}
    queries = [
        variable["query"] for variable in NODE["templating"]["list"] if "definition" in variable
    ]
    assert [each["query"] for each in queries] == [
        f"label_values({jobs}, job)",
        "label_values(up{job=`${job:raw}`}, instance)",
    ]

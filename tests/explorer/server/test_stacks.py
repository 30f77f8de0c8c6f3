"""Flame graphs, differences and functions of a recording with stacks, by the real command."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.explorer.server.asking import Running, serving
from tests.support.annexes import IDLE, WALK, samples, with_stacks
from tests.support.profiles import SECOND, Sample
from tests.support.recordings import WALL_S

SCRIPT = "<script>x\x1b"
START = WALL_S + 100
SPAN = f"from={START}&to={START + 4}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("stacks")
    extra = [
        Sample(round((102 + step / 10) * SECOND), 0, ("main", SCRIPT), SCRIPT, 7, f"/{SCRIPT}")
        for step in range(20)
    ]
    both = sorted([*samples(), *extra], key=lambda sample: sample[0])
    with_stacks(place, both)
    with serving(str(place)) as running:
        yield running


def boxes(document: dict[str, Any]) -> dict[str, int]:
    nodes = document["nodes"]
    return {
        document["names"][name]: count
        for name, count in zip(nodes["name"], nodes["samples"], strict=True)
    }


def test_a_flame_graph_is_a_tree_whose_boxes_hold_their_children(server: Running) -> None:
    json = server.get(f"/api/flame?{SPAN}").json
    nodes = json["nodes"]
    assert nodes["parent"][0] == -1
    assert nodes["kind"][0] == "root"
    assert nodes["samples"][0] == json["total"]
    for at, parent in enumerate(nodes["parent"][1:], 1):
        assert 0 <= parent < at
        below = sum(
            nodes["samples"][index] for index in range(at) if nodes["parent"][index] == parent
        )
        assert below + nodes["samples"][at] + nodes["own"][parent] <= nodes["samples"][parent]
    assert boxes(json)["mem_cgroup_iter"] == 40
    assert json["pruned"] == 0


def test_a_task_called_script_is_escaped_text(server: Running) -> None:
    answer = server.get(f"/api/flame?{SPAN}")
    assert "<script>x\\x1b" in boxes(answer.json)
    assert b"\x1b" not in answer.body


@pytest.mark.parametrize(
    ("who", "there", "missing"),
    [
        ("cpu=1", "mem_cgroup_iter", "<script>x\\x1b"),
        ("cpu=0", "<script>x\\x1b", "mem_cgroup_iter"),
        ("task=kubelet", "mem_cgroup_iter", "<script>x\\x1b"),
        ("cgroup=/kubepods", "mem_cgroup_iter", "<script>x\\x1b"),
        ("task=%3Cscript%3E", "<script>x\\x1b", "mem_cgroup_iter"),
    ],
)
def test_one_core_task_or_cgroup_can_be_looked_at(
    server: Running, who: str, there: str, missing: str
) -> None:
    found = boxes(server.get(f"/api/flame?{SPAN}&{who}").json)
    assert there in found
    assert missing not in found


@pytest.mark.parametrize("pattern", ["%28a%2B%29%2B%24", "%5B", "%2A", "%5C"])
def test_words_are_never_patterns(server: Running, pattern: str) -> None:
    answer = server.get(f"/api/flame?{SPAN}&task={pattern}")
    assert answer.status in (200, 404), answer.body


def test_a_difference_has_both_sides_of_every_box(server: Running) -> None:
    span = f"from={START + 2}&to={START + 4}"
    json = server.get(f"/api/flame?{span}&baseline_from={START}&baseline_to={START + 2}").json
    nodes = json["nodes"]
    assert {len(node) for node in nodes.values()} == {len(nodes["parent"])}
    at = json["names"].index("<script>x\\x1b")
    boxed = nodes["name"].index(at)
    assert (nodes["before"][boxed], nodes["samples"][boxed]) == (0, 20)
    assert json["before"] == nodes["before"][0]


@pytest.mark.parametrize(
    ("function", "samples", "missing"),
    [("mem_cgroup_iter", 40, "<script>x\\x1b"), ("%3Cscript%3Ex%5Cx1b", 20, "mem_cgroup_iter")],
)
def test_the_stacks_of_one_function_are_those_it_is_in(
    server: Running, function: str, samples: int, missing: str
) -> None:
    whole = server.get(f"/api/flame?{SPAN}").json
    json = server.get(f"/api/flame?{SPAN}&function={function}").json
    assert (json["total"], json["all"]) == (samples, whole["total"])
    assert missing not in boxes(json)
    both = f"{SPAN}&baseline_from={START}&baseline_to={START + 2}&function={function}"
    json = server.get(f"/api/flame?{both}").json
    assert (json["total"], json["all"]) == (samples, whole["total"])
    assert json["before"] <= json["all_before"]


def test_a_function_that_is_nowhere_has_no_samples(server: Running) -> None:
    json = server.get(f"/api/flame?{SPAN}&function=.%2A").json
    assert json["total"] == 0
    assert len(json["nodes"]["parent"]) == 1


def test_siblings_can_be_in_the_order_of_time(server: Running) -> None:
    json = server.get(f"/api/flame?{SPAN}&order=time").json
    nodes = json["nodes"]
    assert json["total"] == server.get(f"/api/flame?{SPAN}").json["total"]
    assert nodes["start"] == sorted(nodes["start"])
    assert len(nodes["start"]) == len(nodes["parent"])
    refused = server.get(f"/api/flame?{SPAN}&order=time&function=main")
    assert (refused.status, "neither" in refused.json["error"]) == (422, True)


def test_functions_are_counted_once_and_have_shares(server: Running) -> None:
    json = server.get(f"/api/functions?{SPAN}").json
    rows = {row["name"]: row for row in json["rows"]}
    assert rows["mem_cgroup_iter"]["self"] == 40
    assert rows["mem_cgroup_iter"]["share"] == pytest.approx(40 / json["samples"])
    assert rows[WALK[1].removeprefix("k:")]["self"] == 0
    assert IDLE[0].removeprefix("k:") not in rows, "idle cores are left out"


def test_the_stacks_lane_counts_samples_in_cells_of_20_ms(server: Running) -> None:
    first = int(START // 5.12)
    json = server.get(f"/api/strip/stacks?level=-1&first={first}&count=2").json
    cells = np.frombuffer(base64.b64decode(json["planes"]["mean"]), "<u2")
    assert json["dtype"] == "uint16"
    assert int(cells[cells != 65535].sum()) > 0


def test_where_no_stacks_were_taken_is_not_found(server: Running) -> None:
    answer = server.get(f"/api/flame?from={START + 5000}&to={START + 5001}")
    assert answer.status == 404
    assert "stacks" in answer.json["error"]

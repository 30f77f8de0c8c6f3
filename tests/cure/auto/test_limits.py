"""How many nodes may be out of service, the kill switch, and the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.cluster.client import Answer
from sexton.cure.auto.limits import clock_wrong, out_of_service, over_budget, thrown, why_over
from sexton.cure.auto.policy import Named, Pool
from sexton.cure.nodes import TAINT
from tests.support.fake_kubernetes import AWAY, NODE, FakeKubernetes, node

SWITCH = Named("sexton", "sexton-fix")
PATH = "/api/v1/namespaces/sexton/configmaps/sexton-fix"
POOL = Pool("pool=gpu", max_nodes=1)


def nodes(*others: dict, own: dict | None = None) -> list[dict]:
    return [own or node(), *others]


def test_a_node_that_is_out_of_service_counts():
    assert out_of_service(node()) == ""
    assert out_of_service(node(unschedulable=True)) == "cordoned"
    assert out_of_service(node(ready="Unknown")) == "not ready"
    assert out_of_service(node(taints=[TAINT])) == "being fixed"
    assert out_of_service({}) == "not ready", "not known is not ready"


def test_the_budget_in_nodes():
    out = node("b", zone="z2", unschedulable=True)
    assert why_over(nodes(node("b", zone="z2")), POOL, NODE) == ""
    assert "1 node out of service: b (cordoned): max_nodes is 1" in why_over(nodes(out), POOL, NODE)
    assert why_over(nodes(out), replace(POOL, max_nodes=2), NODE) == ""


def test_the_budget_in_percent():
    pool = Pool("pool=gpu", max_percent=25, one_per_zone=False)
    others = [node(f"n{number}") for number in range(7)]
    assert why_over(nodes(*others), pool, NODE) == ""
    others[0] = node("n0", unschedulable=True)
    assert why_over(nodes(*others), pool, NODE) == "", "two of eight"
    others[1] = node("n1", ready="False")
    assert "25 % of 8 allows 2" in why_over(nodes(*others), pool, NODE)
    assert why_over(nodes(*others[3:5]), pool, NODE) == "25 % of 3 nodes is none"


def test_one_per_zone_and_a_node_without_a_zone_may_be_in_any():
    pool = replace(POOL, max_nodes=5)
    assert why_over(nodes(node("b", zone="z2", unschedulable=True)), pool, NODE) == ""
    for zone in ("z1", ""):
        why = why_over(nodes(node("b", zone=zone, unschedulable=True)), pool, NODE)
        assert "one per zone, and in z1 1 node out of service" in why
    assert "its zone is not known" in why_over(nodes(own=node(zone="")), pool, NODE)
    assert why_over(nodes(own=node(zone="")), replace(pool, one_per_zone=False), NODE) == ""


def test_a_node_that_is_not_in_the_pool_or_out_of_service_itself():
    assert "not in the pool" in why_over([node("b")], POOL, NODE)
    assert "cordoned already" in why_over(nodes(own=node(unschedulable=True)), POOL, NODE)


def test_hostile_names_are_escaped():
    bad = node("b", zone="z\x1b[2J", unschedulable=True)
    bad["metadata"]["name"] = "\x1b[2J"
    assert why_over(
        nodes(bad, own=node(zone="z\x1b[2J")), replace(POOL, max_nodes=9), NODE
    ).isprintable()


def test_the_list_of_the_pool_is_whole_or_it_is_an_error():
    fake = FakeKubernetes(node(), node("b", zone="z2"))
    assert over_budget(fake.cluster(), POOL, NODE) == ""
    pages = [Answer(200, {"items": [node()], "metadata": {"continue": "x"}}),
             Answer(200, {"items": [node("b", unschedulable=True)], "metadata": {}})]  # fmt: skip
    fake.on = lambda verb, path: pages.pop(0)
    assert "max_nodes is 1" in over_budget(fake.cluster(), POOL, NODE)
    assert "continue=x" in fake.calls[-1]


@pytest.mark.parametrize("value", ["true", "yes", "1", "because", "TRUE\n"])
def test_any_value_of_the_switch_stops(value: str):
    fake = FakeKubernetes()
    fake.put_thing(PATH, {"data": {"stop": value}})
    assert "the kill switch is on: stop in ConfigMap sexton/sexton-fix" in thrown(
        fake.cluster(), SWITCH, NODE
    )


@pytest.mark.parametrize(
    "data", [{}, {"stop": ""}, {"stop": "false"}, {"stop": "0"}, {"x": "true"}]
)
def test_a_switch_that_is_off(data):
    fake = FakeKubernetes()
    fake.put_thing(PATH, {"data": data})
    assert thrown(fake.cluster(), SWITCH, NODE) == ""


def test_a_label_of_the_node_stops():
    fake = FakeKubernetes()
    fake.node()["metadata"]["labels"]["sexton.dev/fix-stop"] = "true"
    assert "label sexton.dev/fix-stop" in thrown(fake.cluster(), SWITCH, NODE)


def test_a_switch_that_cannot_be_read_stops():
    fake = FakeKubernetes()
    del fake.things[PATH]
    assert "is not there" in thrown(fake.cluster(), SWITCH, NODE)
    fake.on = lambda verb, path: Answer(403, {"message": "forbidden"})
    assert "cannot be read" in thrown(fake.cluster(), SWITCH, NODE)

    def away(verb: str, path: str) -> None:
        raise AWAY

    fake.on = away
    assert "cannot be read" in thrown(fake.cluster(), SWITCH, NODE)


def test_a_clock_that_is_off():
    fake = FakeKubernetes()
    cluster = fake.cluster()
    assert "does not give its time" in clock_wrong(cluster)
    for ahead_s, words in ((0.0, ""), (20.0, ""), (3600.0, "behind"), (-3600.0, "ahead of")):
        fake.ahead_s = ahead_s
        cluster.node(NODE)
        assert words in clock_wrong(cluster)
        assert bool(words) == bool(clock_wrong(cluster))

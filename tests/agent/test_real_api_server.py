"""With a real API server: the condition, the events, and that the agent may do nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.agent.condition import State
from sexton.agent.reporter import Reporter
from sexton.agent.verdict import Cause
from sexton.cluster.access import HOST, PORT, from_kubeconfig, in_cluster
from sexton.cluster.client import ApiServer
from tests.deploy.peers import until
from tests.support.kubernetes import ROOT, Cluster

pytestmark = pytest.mark.whole

MANIFESTS = ROOT / "deploy/kubernetes"
ACCOUNT = "sexton-node-agent"
FINE = State("True", "Healthy", "no problem found")
WORDS = "crash loop a → <b>&\U0001f4a5"
CHAIN = Cause("crash_looping_unit", "zombie_memcgs", "a\u202e.service", "proven", WORDS)
ILL = State("False", "CrashLoopingUnit", CHAIN.words)


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Cluster:
    """With the manifests of deploy/kubernetes, as soon as the policies are in force."""
    for name in ("rbac.yaml", "policy.yaml"):
        cluster.kubectl("apply", "--validate=strict", "-f", MANIFESTS / name)
    cluster.add_node("node-z")
    config = cluster.kubeconfig_of(token(cluster, "node-z"), "first")
    cluster.add_node("node-y")

    def refused() -> bool:
        status, _ = patch(config, "node-y", {"phase": "Running"})
        with ApiServer(from_kubeconfig(str(config))) as server:
            event = {"metadata": {"name": "node-y.early", "namespace": "default"}}
            about = {"involvedObject": {"kind": "Node", "name": "node-y"}}
            other = server.post("/api/v1/namespaces/default/events", {**event, **about})
        return {status, other.status} == {403}

    until(refused, "the policies to be in force")
    return cluster


def token(cluster: Cluster, node: str) -> str:
    """The token of the agent's pod on a Node. Without a kubelet the pod is only an object."""
    name = f"agent-{node}"
    container = {"name": "agent", "image": "none"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "sexton"},
        "spec": {"nodeName": node, "serviceAccountName": ACCOUNT, "containers": [container]},
    }
    cluster.kubectl("apply", "-f", "-", given=json.dumps(pod))
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}")
    return cluster.kubectl("create", "token", ACCOUNT, "-n", "sexton", *bound).strip()


def patch(config: Path, node: str, status: dict) -> tuple[int, str]:
    with ApiServer(from_kubeconfig(str(config))) as server:
        answer = server.patch(f"/api/v1/nodes/{node}/status", {"status": status})
        return answer.status, answer.message


class Agent:
    """A reporter with the rights of one on `node`, without its waits."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.cluster, self.node = cluster, node
        self.config = cluster.kubeconfig_of(token(cluster, node), node)
        self.said: list[str] = []
        self._now = 0.0
        self.begin()

    def begin(self) -> None:
        access = from_kubeconfig(str(self.config))
        self.reporter = Reporter(self.node, lambda: ApiServer(access), self.said.append)

    def report(self, state: State, *causes: Cause) -> None:
        self._now += 700.0
        self.reporter.see(state, causes, self._now)
        self._now += 700.0
        self.reporter.report(self._now)

    @property
    def condition(self) -> dict:
        conditions = self.cluster.get("node", self.node)["status"]["conditions"]
        (ready,) = (each for each in conditions if each["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")
        (found,) = (each for each in conditions if each["type"] == "SextonHealthy")
        return found

    def events(self) -> list[dict]:
        chosen = f"--field-selector=involvedObject.name={self.node}"
        return self.cluster.get("events", "-n", "default", chosen)["items"]


@pytest.fixture
def agent(installed: Cluster, request: pytest.FixtureRequest) -> Iterator[Agent]:
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[:50].strip("-")
    installed.add_node(name)
    yield Agent(installed, name)
    installed.kubectl("delete", "node", name)


def test_a_condition_and_an_event_that_kubectl_shows(agent: Agent):
    agent.report(FINE)
    healthy = agent.condition
    assert healthy["status"] == "True"
    agent.report(ILL, CHAIN)
    assert agent.said == []
    ill = agent.condition
    assert (ill["status"], ill["reason"]) == ("False", "CrashLoopingUnit")
    assert ill["lastTransitionTime"] >= healthy["lastTransitionTime"]
    shown = agent.cluster.kubectl("describe", "node", agent.node)
    (line,) = (line for line in shown.splitlines() if "SextonHealthy" in line)
    assert line.split()[1] == "False"
    assert "CrashLoopingUnit" in line
    assert "crash loop a → <b>&💥 (proven)" in line
    events = shown.partition("Events:")[2]
    assert events.count("CrashLoopingUnit") == 1
    assert "sexton" in events


def test_one_event_per_chain_over_restarts_of_the_agent(agent: Agent):
    other = CHAIN._replace(root="cpu_pressure", sentence="CPU starvation")
    for _ in range(3):
        agent.report(ILL, CHAIN, other)
    agent.begin()
    agent.report(ILL, CHAIN, other)
    assert agent.said == []
    found = agent.events()
    assert sorted(event["reason"] for event in found) == ["CpuPressure", "CrashLoopingUnit"]
    assert all(event["count"] >= 1 for event in found)
    assert {event["type"] for event in found} == {"Warning"}


def test_a_node_that_was_created_anew(agent: Agent):
    agent.report(ILL, CHAIN)
    agent.cluster.kubectl("delete", "node", agent.node)
    agent.report(ILL, CHAIN)
    assert "not found" in agent.said[-1]
    agent.cluster.add_node(agent.node)
    agent.config = agent.cluster.kubeconfig_of(token(agent.cluster, agent.node), agent.node)
    agent.begin()
    agent.report(ILL, CHAIN)
    assert agent.condition["status"] == "False"
    assert len({event["involvedObject"]["uid"] for event in agent.events()}) == 2


def test_as_in_a_pod_whose_token_expired_and_is_replaced(agent: Agent, tmp_path: Path):
    (tmp_path / "ca.crt").write_bytes(agent.cluster.authority.read_bytes())
    (tmp_path / "token").write_text("expired")
    access = in_cluster({HOST: "127.0.0.1", PORT: str(agent.cluster.port)}, tmp_path)
    assert access is not None
    agent.reporter = Reporter(agent.node, lambda: ApiServer(access), agent.said.append)
    agent.report(FINE)
    (words,) = agent.said
    assert "401 Unauthorized" in words
    (tmp_path / "token").write_text(token(agent.cluster, agent.node))
    agent.report(FINE)
    assert agent.condition["status"] == "True"


CAN = {
    ("get", "nodes", ""), ("patch", "nodes/status", ""), ("create", "events", "default"),
    ("patch", "events", "default"),
}  # fmt: skip


def test_the_account_has_exactly_these_rights(installed: Cluster):
    who = f"--as=system:serviceaccount:sexton:{ACCOUNT}"
    found = set()
    for space in ("default", "sexton", "kube-system"):
        listed = installed.kubectl("auth", "can-i", "--list", who, "-n", space, "--no-headers")
        for line in listed.splitlines():
            resource, verbs = line.split()[0], line.rpartition("[")[2].rstrip("] ").split()
            if resource.startswith(("self", "[")):  # what everybody may: ask about itself
                continue
            of = "" if resource.startswith("nodes") else space
            found |= {(verb, resource, of) for verb in verbs}
    assert found == CAN


def refusals(node: str) -> dict[str, tuple[str, dict]]:
    """What is refused: the node that is patched, and the change of its status."""
    ours = [{"type": "SextonHealthy", "status": "True"}]
    return {
        "another node": ("node-y", {"conditions": ours}),
        "another condition": (node, {"conditions": [{"type": "Ready", "status": "False"}]}),
        "a new condition": (node, {"conditions": [{"type": "MemoryPressure", "status": "True"}]}),
        "both": (node, {"conditions": [*ours, {"type": "Ready", "status": "False"}]}),
        "removing one": (node, {"conditions": [{"$patch": "delete", "type": "Ready"}]}),
        "capacity": (node, {"capacity": {"cpu": "64"}, "conditions": ours}),
        "addresses": (node, {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}),
    }


@pytest.mark.parametrize("what", list(refusals("")))
def test_the_policy_refuses(agent: Agent, what: str):
    agent.report(FINE)
    before = agent.cluster.get("node", agent.node)["status"]
    node, status = refusals(agent.node)[what]
    code, words = patch(agent.config, node, status)
    assert code == 403, words
    assert "sexton-node-agent may" in words
    assert agent.cluster.get("node", agent.node)["status"] == before


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_the_policy_refuses_metadata_through_the_status(agent: Agent, field: str):
    with ApiServer(from_kubeconfig(str(agent.config))) as server:
        body = {"metadata": {field: {"a/b": "c"}}}
        answer = server.patch(f"/api/v1/nodes/{agent.node}/status", body)
    assert answer.status == 403
    assert "labels, annotations" in answer.message


def test_a_token_that_is_of_no_node_may_report_about_none(installed: Cluster):
    plain = installed.kubectl("create", "token", ACCOUNT, "-n", "sexton").strip()
    config = installed.kubeconfig_of(plain, "plain")
    status, words = patch(config, "node-z", {"conditions": [{"type": "SextonHealthy"}]})
    assert (status, "its own node" in words) == (403, True)


def test_it_writes_no_event_about_others_and_changes_none_of_theirs(agent: Agent):
    def event(name: str, about: dict, **more: object) -> dict:
        return {
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": about, "reason": "X", "type": "Normal", **more,
        }  # fmt: skip

    mine = {"kind": "Node", "name": agent.node}
    theirs = event(f"{agent.node}.theirs", mine, reportingComponent="kubelet")
    theirs |= {"apiVersion": "v1", "kind": "Event"}
    agent.cluster.kubectl("create", "-f", "-", given=json.dumps(theirs))
    path = "/api/v1/namespaces/default/events"
    with ApiServer(from_kubeconfig(str(agent.config))) as server:
        for about in ({"kind": "Node", "name": "node-y"}, {"kind": "Pod", "name": agent.node}):
            assert server.post(path, event("e1", about)).status == 403
        answer = server.patch(f"{path}/{agent.node}.theirs", {"message": "all is well"})
        assert answer.status == 403
        assert "its own events" in answer.message
        elsewhere = event("e1", mine)
        elsewhere["metadata"]["namespace"] = "kube-system"
        path = path.replace("default", "kube-system")
        assert server.post(path, elsewhere).status == 403


def test_the_policies_have_no_type_errors(installed: Cluster):
    assert installed.checked_policies() == [{"observedGeneration": 1, "typeChecking": {}}] * 2


def test_an_api_server_that_was_away_gets_what_happened(agent: Agent):
    agent.report(FINE)
    agent.cluster.stop_api()
    try:
        agent.report(ILL, CHAIN)
        agent.report(FINE)
        agent.report(ILL, CHAIN)
        assert len(agent.said) == 1
        assert "refused" in agent.said[0]
    finally:
        agent.cluster.start_api()

    def is_back() -> bool:
        agent.report(ILL, CHAIN)
        return "reached again" in agent.said[-1]

    until(is_back, "the agent to be heard again")
    assert agent.condition["status"] == "False"
    assert len(agent.events()) == 1

"""The chart on a real API server, which checks every field; and installed by helm itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from tests.agent.test_real_api_server import patch
from tests.deploy.helm.conftest import CHART, Helm, merged, nested
from tests.deploy.helm.test_chart import BOOLEANS, EVERYTHING, NAME, WITH, spec
from tests.deploy.peers import until
from tests.support.kubernetes import Cluster, running_cluster

pytestmark = pytest.mark.whole

SPACE = "other"


@pytest.fixture(scope="module")
def cluster(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With the Prometheus operator's own definitions, and a namespace for the chart."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        for path in sorted(helm.definitions.iterdir()):
            # Too long for the annotation that an apply from this side leaves.
            made.kubectl("apply", "--server-side", "-f", path)
        for name in ("podmonitors", "prometheusrules"):
            crd = f"crd/{name}.monitoring.coreos.com"
            made.kubectl("wait", "--for=condition=Established", crd, "--timeout=60s")
        made.kubectl("create", "namespace", SPACE)
        yield made


def accepted(cluster: Cluster, text: str) -> list[str]:
    """What the server would make of it, without doing it."""
    dry = ("--dry-run=server", "--validate=strict", "-f", "-")
    return cluster.kubectl("apply", *dry, given=text).splitlines()


def test_the_server_takes_all_of_it(cluster: Cluster, helm: Helm):
    for values in ({}, EVERYTHING):
        said = accepted(cluster, helm.text(values))
        assert len(said) == len(helm.made(values))
        assert all(line.endswith("(server dry run)") for line in said)


@pytest.mark.parametrize("path", BOOLEANS)
def test_the_server_takes_each_switch_both_ways(cluster: Cluster, helm: Helm, path: str):
    for value in (True, False):
        accepted(cluster, helm.text(merged(WITH.get(path, {}), nested(path, value))))


def test_a_misspelt_field_would_have_been_refused(cluster: Cluster, helm: Helm):
    """So the checks above mean something, also for the operator's resources."""
    text = helm.text(EVERYTHING)
    for right, wrong in (("hostPID:", "hostPid:"), ("jobLabel:", "jobLable:"), ("expr:", "exp:")):
        dry = ("--dry-run=server", "--validate=strict", "-f", "-")
        said = cluster.kubectl("apply", *dry, given=text.replace(right, wrong, 1), ok=False)
        assert "unknown field" in said, wrong


def pod(helm: Helm) -> str:
    """As the controller would make it."""
    made = helm.made()
    labels = made["DaemonSet", NAME]["spec"]["template"]["metadata"]["labels"]
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "labels": labels}}
    return json.dumps({**whole, "spec": {**spec(made), "nodeName": "node-p"}})


def test_helm_installs_once_a_cluster_and_leaves_nothing(cluster: Cluster, helm: Helm):
    config = f"--kubeconfig={cluster.kubeconfig}"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return helm.run(*words, config)

    ended = run("install", "mine", str(CHART), f"--namespace={SPACE}")
    assert ended.returncode == 0, ended.stderr
    assert "SextonHealthy" in ended.stdout
    try:
        again = run("install", "second", str(CHART), "--namespace=default")
        assert again.returncode != 0
        assert "invalid ownership metadata" in again.stderr
        account = f"--as=system:serviceaccount:{SPACE}:{NAME}"
        for verb, what, part, may in (
            ("get", "nodes", "", True), ("patch", "nodes", "status", True),
            ("list", "nodes", "", False), ("get", "pods", "", False), ("get", "secrets", "", False),
        ):  # fmt: skip
            # It says no by its exit status as well.
            asked = ("auth", "can-i", verb, what, f"--subresource={part}", account, "-q")
            cluster.kubectl(*asked, ok=may)
        cluster.add_node("node-p")
        space = f"--namespace={SPACE}"
        label = "pod-security.kubernetes.io/enforce"
        cluster.kubectl("label", "namespace", SPACE, f"{label}=baseline")
        refused = cluster.kubectl("create", space, "-f", "-", given=pod(helm), ok=False)
        assert "violates PodSecurity" in refused
        cluster.kubectl("label", "--overwrite", "namespace", SPACE, f"{label}=privileged")
        cluster.kubectl("create", space, "-f", "-", given=pod(helm))
        token = cluster.kubectl(
            "create", "token", NAME, space, "--bound-object-kind=Pod", "--bound-object-name=one"
        ).strip()
        cluster.add_node("node-q")
        mine = cluster.kubeconfig_of(token, "mine")

        def patched(node: str) -> tuple[int, str]:
            ours = {"type": "SextonHealthy", "status": "True", "reason": "Healthy"}
            return patch(mine, node, {"conditions": [ours]})

        def in_force() -> bool:
            dry = cluster.kubectl("get", "validatingadmissionpolicybindings", "-o", "name")
            return dry.count("sexton-node-agent") == 2

        until(in_force, "the policies to be there")
        assert patched("node-p")[0] == 200
        until(lambda: patched("node-q")[0] == 403, "the policy to be in force")
        assert "its own node" in patched("node-q")[1]
    finally:
        ended = run("uninstall", "mine", f"--namespace={SPACE}", "--wait=false")
        gone = ("--ignore-not-found", "--force", f"--namespace={SPACE}")
        cluster.kubectl("delete", "pod", "one", *gone)
    assert ended.returncode == 0, ended.stderr
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,priorityclasses"
    left = cluster.kubectl("get", kinds, "-o", "name")
    assert NAME not in left


def test_the_text_is_what_helm_keeps(helm: Helm):
    """Nothing in it depends on the time or on chance."""
    first, second = helm.text(EVERYTHING), helm.text(EVERYTHING)
    assert first == second
    assert all(isinstance(one, dict) for one in yaml.safe_load_all(first) if one is not None)

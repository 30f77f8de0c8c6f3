"""`kubectl sexton`: found by the real kubectl, asking a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

import sexton
from tests.deploy.peers import until
from tests.support.kubernetes import ROOT, Cluster, running_cluster
from tests.support.tools import need

FOLDER = ROOT / "deploy/krew"
PLUGIN = FOLDER / "kubectl-sexton"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def run(*words: str, kubectl: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """The plug-in with this kubectl, or with none."""
    before = f"{kubectl}:" if kubectl else ""
    return subprocess.run(
        [PLUGIN, *words],
        env={"PATH": f"{before}{PATH}", **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_script_has_no_errors_that_a_shell_sees():
    for path in (PLUGIN, FOLDER / "package.sh"):
        assert subprocess.run(["sh", "-n", path], capture_output=True).stderr == b""
        assert os.access(path, os.X_OK)


def test_help_and_what_is_wrong_need_no_cluster():
    shown = run("--help")
    assert shown.returncode == 0
    assert "kubectl sexton [options] diagnose NODE" in shown.stdout
    assert run().returncode == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["diagnose"], "which node?"),
        (["diagnose", "../x"], "cannot be the name of a Node"),
        (["diagnose", 'a", "privileged": true'], "cannot be the name of a Node"),
        (["diagnose", "a", "b"], "unexpected b"),
        (["diagnose", "--json", "a"], "unknown option --json"),
        (["diagnose", "a", "--agent-namespace", "A b"], "cannot be the name of a namespace"),
        (["why", "node/x"], "which pod?"),
        (["why", "pod/$(id)"], "cannot be the name of a pod"),
        (["why", "pod/x", "-n", "a/b"], "cannot be the name of a namespace"),
        (["why", "pod/x", "--node"], "--node needs a value"),
        (["cure", "x"], "unknown command cure"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_line(words: list[str], why: str):
    ended = run(*words)
    assert ended.returncode == 2
    assert why in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_archive_is_what_the_manifest_names(tmp_path: Path):
    need("tar", package="tar")
    url = "https://example.org/kubectl-sexton.tar.gz"
    for name in ("a", "b"):
        subprocess.run([FOLDER / "package.sh", tmp_path / name, url], check=True)
    first, second = (tmp_path / name / "kubectl-sexton.tar.gz" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    manifest = yaml.safe_load((tmp_path / "a/sexton.yaml").read_text())
    assert manifest["spec"]["version"] == f"v{sexton.__version__}"
    (platform,) = manifest["spec"]["platforms"]
    digest = subprocess.run(["sha256sum", first], capture_output=True, text=True, check=True)
    assert (platform["uri"], platform["sha256"]) == (url, digest.stdout.split()[0])
    with tarfile.open(first) as packed:
        members = {one.name: one for one in packed.getmembers()}
    assert set(members) == {one["from"] for one in platform["files"]}
    assert members[platform["bin"]].mode & 0o111
    assert len(manifest["spec"]["shortDescription"]) <= 50, "krew's limit"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With two nodes: an agent and a pod on the first. No kubelet: pods are only objects."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        made.kubectl("create", "namespace", "sexton")
        made.kubectl("create", "namespace", "prod")
        for node in ("node-a", "node-b"):
            made.add_node(node)
        labels = {"app.kubernetes.io/name": "sexton"}
        for space, name, given in (("sexton", "agent-7", labels), ("prod", "api-7c9", {})):
            pod = {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": space, "labels": given},
                "spec": {"nodeName": "node-a", "containers": [{"name": "agent", "image": "none"}]},
            }  # fmt: skip
            made.kubectl("create", "-f", "-", given=json.dumps(pod))
            running = json.dumps({"status": {"phase": "Running"}})
            argv = ("pod", name, "-n", space, "--subresource=status", "--type=merge", "-p", running)
            made.kubectl("patch", *argv)
        yield made


#: Without a kubelet nothing can be executed: that one call is only shown.
SHIM = """#!/bin/sh
for word in "$@"; do
  case $word in exec) printf '%s\\n' "$@"; exit 3 ;; esac
done
exec {kubectl} "$@"
"""


@pytest.fixture
def shim(cluster: Cluster, tmp_path: Path) -> Mapping[str, str]:
    """FAKE: a kubectl that is the real one, but for `exec`."""
    place = tmp_path / "kubectl"
    place.write_text(SHIM.format(kubectl=cluster.programs.of_debian("kubectl")))
    place.chmod(0o755)
    return {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)}  # its cache


@pytest.mark.whole
def test_kubectl_finds_it(cluster: Cluster, tmp_path: Path):
    kubectl = cluster.programs.of_debian("kubectl")
    environment = {"PATH": f"{FOLDER}:{PATH}", "HOME": str(tmp_path)}
    shown = subprocess.run(
        [kubectl, "sexton", "--help"], env=environment, capture_output=True, text=True
    )
    assert shown.stdout.startswith("usage: kubectl sexton"), shown.stderr


@pytest.mark.whole
def test_diagnose_asks_the_agent_of_that_node(shim: Mapping[str, str], tmp_path: Path):
    inside = ["exec", "--namespace=sexton", "agent-7", "--container=agent", "--", "sexton"]
    read = [*inside, "diagnose", "--from", "/var/lib/sexton"]
    plain = run("diagnose", "node-a", kubectl=tmp_path, **shim)
    assert plain.stdout.splitlines() == [*read, "--window", "20m.."], plain.stderr
    assert plain.returncode == 3, "sexton's own status"
    given = run("diagnose", "node/node-a", "--", "--json", "a b", kubectl=tmp_path, **shim)
    assert given.stdout.splitlines() == [*read, "--json", "a b"]
    away = run("diagnose", "node-z", kubectl=tmp_path, **shim)
    assert away.returncode == 2
    assert "not found" in away.stderr


@pytest.mark.whole
def test_why_goes_where_the_pod_runs_or_ran(shim: Mapping[str, str], tmp_path: Path):
    asked = ["why", "pod", "prod/api-7c9", "--from", "/var/lib/sexton"]
    found = run("why", "pod/api-7c9", "-n", "prod", kubectl=tmp_path, **shim)
    assert found.stdout.splitlines()[-5:] == asked, found.stderr
    gone = run("why", "pod/old", "-n=prod", kubectl=tmp_path, **shim)
    assert gone.returncode == 2
    words = ("why", "pod/old", "--namespace=prod", "--node", "node-a", "--", "--json")
    told = run(*words, kubectl=tmp_path, **shim)
    assert told.stdout.splitlines()[-5:] == ["pod", "prod/old", *asked[3:], "--json"], told.stderr
    empty = run("why", "pod/old", "--node", "node-b", kubectl=tmp_path, **shim)
    assert empty.returncode == 2
    assert "no agent runs on node-b" in empty.stderr


@pytest.mark.whole
def test_without_an_agent_a_pod_watches_and_is_removed(
    cluster: Cluster, shim: Mapping[str, str], tmp_path: Path
):
    none = run("diagnose", "node-b", kubectl=tmp_path, **shim)
    assert none.returncode == 2
    assert "name its --agent-namespace, or an --image" in none.stderr
    words = ("diagnose", "node-b", "--image", "registry/sexton:1", "--", "--json")
    argv = [PLUGIN, *words]
    environment = {"PATH": f"{tmp_path}:{PATH}", **shim}
    process = subprocess.Popen(
        argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        pod = _watching(cluster, process)
        spec = pod["spec"]
        (container,) = spec["containers"]
        assert spec["nodeName"] == "node-b"
        assert spec["activeDeadlineSeconds"] == 300
        assert spec["automountServiceAccountToken"] is False
        assert container["args"] == ["diagnose", "--seconds", "10", "--no-trace", "--json"]
        security = container["securityContext"]
        assert security["privileged"] is False
        assert security["capabilities"] == {"add": ["SYSLOG"], "drop": ["ALL"]}
        assert all(m.get("readOnly") for m in container["volumeMounts"] if m["name"] != "tmp")
        state = {"terminated": {"exitCode": 1, "reason": "Error"}}
        status = {"phase": "Failed", "containerStatuses": [_status(state)]}
        name = pod["metadata"]["name"]
        where = ("pod", name, "-n", "sexton", "--subresource=status", "--type=merge")
        cluster.kubectl("patch", *where, "-p", json.dumps({"status": status}))
        process.wait(120)
    finally:
        process.kill()
        process.wait()
    left = cluster.get("pods", "-n", "sexton")["items"]
    kept = [one["metadata"]["name"] for one in left if "deletionTimestamp" not in one["metadata"]]
    assert kept == ["agent-7"]


def _status(state: dict) -> dict:
    return {
        "name": "sexton", "image": "x", "imageID": "x", "ready": False, "restartCount": 0,
        "state": state,
    }  # fmt: skip


def _watching(cluster: Cluster, process: subprocess.Popen[str]) -> dict:
    def found() -> dict | None:
        chosen = "--selector=app.kubernetes.io/name=sexton-diagnose"
        items = cluster.get("pods", "-n", "sexton", chosen)["items"]
        if not items:
            assert process.poll() is None, process.communicate()[1]
        return items[0] if items else None

    made = until(found, "the pod that watches")
    assert made is not None
    return made

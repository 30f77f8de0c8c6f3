"""A Node of a real API server that claims to be this machine, with pods that no kubelet runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sexton.cluster.access import from_kubeconfig
from sexton.cluster.client import ApiServer
from sexton.cure.apply import FixContext
from sexton.cure.journal import State
from sexton.cure.node_plan import NodeWishes, node_steps, read_view
from sexton.cure.nodes import Cluster as Api
from sexton.cure.writer import DryWriter
from sexton.host.host import open_host
from sexton.model.plan import Plan, as_json
from tests.cure.test_apply import Calm
from tests.model.test_plan import plan
from tests.support.kubernetes import ROOT, Cluster

MANIFESTS = ROOT / "deploy/kubernetes"
ACCOUNT = "sexton-fix"
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
ZONE = "topology.kubernetes.io/zone"

#: `sexton` with a lock of its own, and a watchdog that never barks: others load this machine.
RUN = """
import sys
from sexton.cure import journal, watchdog
journal.NODE_LOCK = sys.argv[1]
class Calm(watchdog.Watchdog):
    def _worse(self, now):
        return ""
watchdog.Watchdog = Calm
from sexton.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class Site:
    """One Node of the cluster, and what is done to it; `kubeconfig` is the administrator's."""

    def __init__(self, cluster: Cluster, name: str, folder: Path) -> None:
        self.cluster, self.name, self.folder = cluster, name, folder
        self.kubeconfig = cluster.kubeconfig
        self.state = State(str(folder / "fix"))
        self.said: list[str] = []
        self.add_node(name)

    def add_node(self, name: str, zone: str = "z1") -> None:
        self.cluster.add_node(name)
        status = {"status": {"nodeInfo": {"bootID": BOOT}}}
        self.kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps(status))
        self.kubectl("label", "node", name, f"pool={self.name}", f"{ZONE}={zone}")

    def kubectl(self, *arguments: str, given: str = "") -> str:
        return self.cluster.kubectl(*arguments, given=given)

    def add_pod(self, name: str, owner: str = "ReplicaSet", grace_s: int = 0, **more: Any) -> None:
        """On the Node. With a grace period of 0 the server removes it at once; no kubelet."""
        about: dict[str, Any] = {
            "name": name, "namespace": "default", "labels": {"app": name, "site": self.name},
            "annotations": more.pop("annotations", {}),
        }  # fmt: skip
        if owner:
            reference = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "1-2-3"}
            about["ownerReferences"] = [{**reference, "controller": more.pop("controller", True)}]
        spec = {
            "nodeName": self.name, "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": "c", "image": "none"}], **more,
        }  # fmt: skip
        thing = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
        self.kubectl("create", "-f", "-", given=json.dumps(thing))
        # As a kubelet reports it: budgets do not protect pods that never ran.
        ready = {"type": "Ready", "status": "True"}
        status = json.dumps({"status": {"phase": "Running", "conditions": [ready]}})
        self.kubectl("patch", "pod", name, "--subresource=status", "-p", status)

    @property
    def pods(self) -> list[str]:
        found = self.cluster.get("pods", "-A", f"--field-selector=spec.nodeName={self.name}")
        return sorted(each["metadata"]["name"] for each in found["items"])

    @property
    def spec(self) -> tuple[Any, Any]:
        """What a rollback has to bring back."""
        node = self.cluster.get("node", self.name)
        return node["spec"], node["metadata"].get("annotations", {})

    def budget(self, name: str, allowed: int) -> None:
        """A PodDisruptionBudget for the pod of this name; the controller's part is done here."""
        spec = {"selector": {"matchLabels": {"app": name}}, "minAvailable": 1}
        about = {"name": name, "namespace": "default"}
        thing = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": about}
        self.kubectl("apply", "-f", "-", given=json.dumps({**thing, "spec": spec}))
        status = {
            "observedGeneration": 1, "disruptionsAllowed": allowed, "expectedPods": 1,
            "currentHealthy": 1, "desiredHealthy": 1,
        }  # fmt: skip
        self.kubectl(
            "patch", "pdb", name, "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": status}),
        )  # fmt: skip

    def api(self, kubeconfig: Path | None = None, kind: type[ApiServer] = ApiServer) -> Api:
        access = from_kubeconfig(str(kubeconfig or self.kubeconfig))
        return Api(lambda: kind(access))

    def token(self, account: str = ACCOUNT, namespace: str = "sexton") -> Path:
        """A kubeconfig with the token of a DaemonSet's pod on the Node."""
        pod = f"fix-{self.name}"
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "1-2-3"}
        about = {"ownerReferences": [{**owner, "controller": True}]}
        thing = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod, "namespace": namespace, **about},
            "spec": {
                "nodeName": self.name, "serviceAccountName": account,
                "containers": [{"name": "c", "image": "none"}],
            },
        }  # fmt: skip
        self.kubectl("apply", "-f", "-", given=json.dumps(thing))
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}")
        made = self.kubectl("create", "token", account, "-n", namespace, *bound).strip()
        return self.cluster.kubeconfig_of(made, f"{account}-{self.name}")

    def plan(self, *wanted: str, allowed: tuple[str, ...] = (), seconds: float = 60.0) -> Plan:
        wishes = NodeWishes(frozenset(wanted), frozenset(allowed), seconds)
        found = node_steps(read_view(self.api(), self.name, wishes), BOOT)
        assert not found.refusals, found.refusals
        now = time.time()
        return plan(boot_id=BOOT, evidence_until_unix=now, made_unix=now, steps=tuple(found.steps))

    def fix(
        self, api: Api | None = None, progress: Callable[[str], None] | None = None
    ) -> FixContext:
        return FixContext(
            open_host(), DryWriter(), self.state, progress=progress or self.said.append,
            watch=lambda *_: Calm(), cluster=api or self.api(),
        )  # fmt: skip

    def sexton(self, *arguments: str, code: str = RUN) -> subprocess.CompletedProcess[str]:
        """`sexton …` in a process of its own, which may be killed."""
        argv = self.argv(*arguments, code=code)
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)

    def argv(self, *arguments: str, code: str = RUN) -> list[str]:
        return [sys.executable, "-c", code, str(self.folder / "node.lock"), *arguments]

    def save(self, made: Plan) -> list[str]:
        """The arguments that apply it."""
        place = self.folder / "plan.json"
        place.write_text(json.dumps(as_json(made)))
        return ["fix", "apply", str(place), "--confirm", made.hash, *self.options]

    @property
    def options(self) -> list[str]:
        return ["--state", self.state.directory, "--kubeconfig", str(self.kubeconfig)]

    def lease(self, spec: Mapping[str, Any]) -> None:
        """The Lease as somebody else wrote it."""
        body = json.dumps({"spec": spec})
        self.kubectl("-n", "sexton", "patch", "lease", "sexton-fix", "--type=merge", "-p", body)

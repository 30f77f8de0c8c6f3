"""A Node of a cluster and its pods, by the API server.

The only code that changes a cluster. It can do three things: patch a Node, on condition that nobody
changed it since it was read (`metadata.resourceVersion`); ask for the eviction of one pod, by name
and UID, which the server refuses while a PodDisruptionBudget forbids it; and, in
`sexton.cure.auto.lease`, hold one Lease. It deletes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from sexton.cluster.client import MERGE, Answer, ApiServer, Unreachable, node_path
from sexton.cluster.pacing import BackOff
from sexton.errors import (
    CommandError,
    SourceAbsent,
    SourceDenied,
    SourceError,
    SourceMalformed,
    SourceTimeout,
)
from sexton.model.text import printable

SERVER = "API server"
RIGHTS = "deploy/kubernetes/fix-rbac.yaml"
NO_CREDENTIAL = (
    "no credential for the API server: --kubeconfig FILE, or run it in a pod with the service"
    f" account sexton-fix ({RIGHTS})"
)
ZONE = "topology.kubernetes.io/zone"
_PAGE = 100
_MOST_PAGES = 200
#: Others changed it, or the server is busy or restarts: read and try again.
_AGAIN = frozenset({409, 429, 500, 502, 503, 504})
_MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")
#: Annotations by which an owner forbids evictions, and the value that does not.
_KEPT = {
    "karpenter.sh/do-not-disrupt": "false",
    "karpenter.sh/do-not-evict": "false",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
}
EMPTYDIR, UNMANAGED = "emptydir", "unmanaged"
#: The option of `fix plan` that allows each.
ALLOWED_BY = {EMPTYDIR: "--delete-emptydir-data", UNMANAGED: "--evict-unmanaged"}


class Right(NamedTuple):
    """What RBAC grants or not."""

    verb: str
    resource: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'/' if self.part else ''}{self.part}"


PATCH_NODES = Right("patch", "nodes")
LIST_PODS, EVICT = Right("list", "pods"), Right("create", "pods", "eviction")


class Pod(NamedTuple):
    """What a drain must know of a pod. `kept_by` is the annotation that forbids its eviction."""

    namespace: str
    name: str
    uid: str
    phase: str
    ending: bool
    owner: str
    mirror: bool
    emptydir: bool
    kept_by: str

    @property
    def label(self) -> str:
        return printable(f"{self.namespace}/{self.name}")

    @property
    def stays(self) -> str:
        """Why a drain leaves it; empty if it has to go."""
        if self.mirror:
            return "static"
        if self.owner == "DaemonSet":
            return "of a DaemonSet"
        return "finished" if self.phase in _FINISHED else ""

    def blocked(self, allowed: frozenset[str]) -> tuple[str, str]:
        """Why it may not be evicted, and the option that allows it; two empty strings if it may."""
        if self.kept_by:
            return f"its annotation {self.kept_by} forbids it", ""
        if not self.owner and UNMANAGED not in allowed:
            return "nothing would start it again: it has no controller", ALLOWED_BY[UNMANAGED]
        if self.emptydir and EMPTYDIR not in allowed:
            return "the data in its emptyDir would be lost", ALLOWED_BY[EMPTYDIR]
        return "", ""


class NodeState(NamedTuple):
    """A Node and its pods when a plan is made. `missing` are rights that the credential lacks."""

    name: str
    uid: str
    boot_id: str
    cordoned: bool
    tainted: bool
    pods: tuple[Pod, ...]
    missing: tuple[str, ...] = ()


#: The one taint that Sexton sets.
TAINT = {"key": "sexton.dev/fix", "value": "in-progress", "effect": "NoSchedule"}


@dataclass(slots=True)
class Cluster:
    """The API server, with a credential. `dry`: the server checks each request and does nothing.

    `ahead_s`: how far its clock was ahead of ours in its last answer; it counts whole seconds.
    """

    connect: Callable[[], ApiServer]
    dry: bool = False
    ahead_s: float | None = None

    def call(self, ask: Callable[[ApiServer], Answer]) -> Answer:
        """One request on a connection of its own: minutes may pass between two."""
        try:
            with self.connect() as server:
                answer = ask(server)
                self.ahead_s = None if answer.unix is None else answer.unix - time.time()
                return answer
        except Unreachable as error:
            raise SourceTimeout(SERVER, printable(str(error))) from None

    def read(self, path: str, what: str) -> Mapping[str, Any]:
        return _good(self.call(lambda server: server.get(path)), what)

    def node(self, name: str) -> Mapping[str, Any]:
        found = self.read(node_path(name), f"Node {printable(name)}")
        if not metadata(found, "uid") or not metadata(found, "resourceVersion"):
            raise SourceMalformed(SERVER, 0, f"Node {printable(name)} without uid")
        return found

    def listed(self, path: str, what: str, **query: str) -> list[Mapping[str, Any]]:
        """All items of a list, page by page; never a part of them."""
        found: list[Mapping[str, Any]] = []
        query = {key: value for key, value in query.items() if value} | {"limit": str(_PAGE)}
        for _ in range(_MOST_PAGES):
            page = self.read(f"{path}?{urlencode(query)}", what)
            items = page.get("items")
            if not isinstance(items, list):
                raise SourceMalformed(SERVER, 0, f"{what}: not a list")
            found += [item for item in items if isinstance(item, dict)]
            after = metadata(page, "continue")
            if not after:
                return found
            query["continue"] = after
        raise SourceMalformed(SERVER, 0, f"{what}: more than {_PAGE * _MOST_PAGES:,}")

    def pods(self, name: str) -> tuple[Pod, ...]:
        selector = f"spec.nodeName={name}"
        return tuple(map(pod_of, self.listed("/api/v1/pods", "pods", fieldSelector=selector)))

    def change(
        self, name: str, patch_of: Callable[[Mapping[str, Any]], Any], within_s: float
    ) -> bool:
        """Patch a Node by what `patch_of` makes of it as it is now; false if it makes nothing.

        Where somebody else changed the Node meanwhile, it is read again.
        """
        end_s, pause = time.monotonic() + within_s, BackOff()
        while True:
            try:
                node = self.node(name)
                patch = patch_of(node)
                if patch is None:
                    return False
                answer = self.call(lambda server, n=node, p=patch: self._patch(server, n, p))  # type: ignore[misc]
                if answer.status not in _AGAIN:
                    _good(answer, f"patch Node {printable(name)}")
                    return True
                why, asked_s = f"{answer.status} {printable(answer.message)}", answer.asked_s
            except SourceTimeout as error:
                why, asked_s = error.detail, None
            wait_s = pause.failed(asked_s)
            if time.monotonic() + wait_s >= end_s:
                raise SourceTimeout(SERVER, f"Node {printable(name)} not patched: {why}")
            time.sleep(wait_s)

    def _patch(
        self, server: ApiServer, node: Mapping[str, Any], patch: Mapping[str, Any]
    ) -> Answer:
        version = {"resourceVersion": metadata(node, "resourceVersion")}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
        path = node_path(metadata(node, "name")) + ("?dryRun=All" if self.dry else "")
        return server.patch(path, body, MERGE)

    def evict(self, pod: Pod) -> Answer:
        """Ask for the eviction of exactly this pod, with the pod's own grace period."""
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if self.dry:
            options["dryRun"] = ["All"]
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        return self.call(lambda server: server.post(f"{path}/eviction", body))

    def state(self, name: str, rights: tuple[Right, ...]) -> NodeState:
        """For a plan; with the `rights` that the credential lacks."""
        node = self.node(name)
        missing = tuple(str(right) for right in rights if not self._may(right))
        listed = LIST_PODS in rights and str(LIST_PODS) not in missing
        return NodeState(
            name,
            metadata(node, "uid"),
            boot_id(node),
            is_cordoned(node),
            TAINT in taints(node),
            self.pods(name) if listed else (),
            missing,
        )

    def _may(self, right: Right) -> bool:
        wanted = {"verb": right.verb, "resource": right.resource, "subresource": right.part}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = _good(self.call(lambda server: server.post(path, body)), "own rights")
        return part(answer, "status").get("allowed") is True


def need(cluster: Cluster | None) -> Cluster:
    """`CommandError` without a credential."""
    if cluster is None:
        raise CommandError(NO_CREDENTIAL)
    return cluster


def _good(answer: Answer, what: str) -> Mapping[str, Any]:
    """The body of an answer; an error in words if it is a refusal."""
    if 200 <= answer.status < 300:
        return answer.body
    said = f"{what}: {answer.status} {printable(answer.message)[:300]}"
    if answer.status == 403:
        raise SourceDenied(SERVER, f"{said} ({RIGHTS} grants what is needed)", RIGHTS)
    if answer.status == 401:
        raise SourceDenied(SERVER, f"{said}: the credential is not valid or expired")
    if answer.status == 404:
        raise SourceAbsent(SERVER, said)
    if answer.status in _AGAIN:
        raise SourceTimeout(SERVER, said)
    raise SourceError(SERVER, said)


def part(found: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """An object in an object; empty if it is missing or something else."""
    for name in names:
        found = found.get(name)  # type: ignore[assignment]
        if not isinstance(found, dict):
            return {}
    return found


def metadata(found: Mapping[str, Any], name: str) -> str:
    value = part(found, "metadata").get(name)
    return value if isinstance(value, str) else ""


def is_cordoned(node: Mapping[str, Any]) -> bool:
    return part(node, "spec").get("unschedulable") is True


def boot_id(node: Mapping[str, Any]) -> str:
    """The boot that its kubelet reported."""
    return str(part(node, "status", "nodeInfo").get("bootID", ""))


def taints(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All its taints, by anyone."""
    found = part(node, "spec").get("taints")
    return [taint for taint in found if isinstance(taint, dict)] if isinstance(found, list) else []


def pod_of(found: Mapping[str, Any]) -> Pod:
    """Of an object of the server.

    >>> pod = {"metadata": {"name": "a", "namespace": "b", "annotations":
    ...        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}}
    >>> pod_of(pod).kept_by
    'cluster-autoscaler.kubernetes.io/safe-to-evict'
    """
    about = part(found, "metadata")
    notes = part(about, "annotations")
    owners = about.get("ownerReferences")
    controllers = [
        str(owner.get("kind"))
        for owner in (owners if isinstance(owners, list) else ())
        if isinstance(owner, dict) and owner.get("controller") is True
    ]
    volumes = part(found, "spec").get("volumes")
    return Pod(
        metadata(found, "namespace"),
        metadata(found, "name"),
        metadata(found, "uid"),
        str(part(found, "status").get("phase", "")),
        bool(about.get("deletionTimestamp")),
        controllers[0] if controllers else "",
        _MIRROR in notes,
        any(
            isinstance(volume, dict) and "emptyDir" in volume
            for volume in (volumes if isinstance(volumes, list) else ())
        ),
        next((key for key, no in _KEPT.items() if notes.get(key, no) != no), ""),
    )


def leaving(pods: tuple[Pod, ...]) -> list[Pod]:
    """The pods that a drain has to move away."""
    return [pod for pod in pods if not pod.stays]


def blockers(pods: tuple[Pod, ...], allowed: frozenset[str]) -> list[tuple[Pod, str, str]]:
    """The pods that a drain may not evict, why, and the option that allows it."""
    found = [(pod, *pod.blocked(allowed)) for pod in leaving(pods) if not pod.ending]
    return [(pod, why, option) for pod, why, option in found if why]

"""What the steps on a Node of a cluster share: which Node they mean, and how it is read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sexton.cure.nodes import (
    TAINT,
    Cluster,
    NodeState,
    blockers,
    boot_id,
    is_cordoned,
    leaving,
    metadata,
    taints,
)
from sexton.errors import CommandError
from sexton.model.plan import Condition
from sexton.model.text import printable

#: For one change of a Node, conflicts included.
PATCH_S = 60.0
_NO, _YES = "no", "yes"


def node_conditions(state: NodeState) -> tuple[Condition, ...]:
    """It is still the same Node, and this machine."""
    name = state.name
    return (
        Condition(f"Node {name}", "metadata.uid", state.uid,
                  "a Node that was created anew is another one", f"node.uid {name}"),
        Condition(f"boot of Node {name}", "status.nodeInfo.bootID", state.boot_id,
                  "the plan is for the machine it was made on", f"node.boot_id {name}"),
    )  # fmt: skip


def is_same(node: Mapping[str, Any], uid: str) -> None:
    """Checked in the same request that changes it."""
    if metadata(node, "uid") != uid:
        raise CommandError(f"Node {printable(metadata(node, 'name'))} was created anew")


def _evictable(cluster: Cluster, subject: str) -> str:
    return str(len(leaving(cluster.pods(subject))))


def _blockers(cluster: Cluster, subject: str) -> str:
    """Pods that may not be evicted; what is allowed stands behind the Node's name."""
    name, _, allowed = subject.partition(" ")
    found = blockers(cluster.pods(name), frozenset(allowed.split()))
    return ", ".join(pod.label for pod, _, _ in found[:5])


#: Readings of preconditions and proofs.
READINGS: Mapping[str, Callable[[Cluster, str], str]] = {
    "node.uid": lambda cluster, name: metadata(cluster.node(name), "uid"),
    "node.boot_id": lambda cluster, name: boot_id(cluster.node(name)),
    "node.cordoned": lambda cluster, name: _YES if is_cordoned(cluster.node(name)) else _NO,
    "node.tainted": lambda cluster, name: _YES if TAINT in taints(cluster.node(name)) else _NO,
    "node.pods": _evictable,
    "node.blockers": _blockers,
}

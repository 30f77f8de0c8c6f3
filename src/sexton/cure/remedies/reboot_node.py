"""The last resort, and only ever printed: drain the node, and let it boot again.

A reboot frees every zombie, and they come back if what leaves them still starts. With kured in the
cluster one file is enough: it cordons, drains and reboots one node at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from sexton.cure.remedy import Hands
from sexton.errors import CommandError
from sexton.model.plan import Step

RECLAIMS = False
SENTINEL = "/var/run/reboot-required"


def propose(identity: str, node: str, in_cluster: bool) -> Step:
    """`in_cluster`: a kubelet runs here, so that pods have to go first."""
    name = quote(node)
    drain = (
        f"kubectl get node {name} -o jsonpath='{{.spec.unschedulable}}'"
        "   # true: it was cordoned before; leave it so afterwards",
        f"kubectl cordon {name}",
        f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data --timeout=15m",
        f"touch {SENTINEL}   # on the node, if kured runs in the cluster: it reboots it in turn",
        "systemctl reboot   # on the node, if there is no kured",
        f"kubectl uncordon {name}   # when it is Ready again",
    )
    return Step(
        id=identity,
        remedy="reboot_node",
        title="last resort: drain and reboot",
        target="node",
        risk="high",
        risk_why="every process on the node ends; what leaves the zombies must not start again",
        preconditions=(),
        effect="printed only: Sexton never reboots a node",
        cannot_undo="everything in memory, and every running job",
        undo="none",
        proof=(),
        commands=drain if in_cluster else ("systemctl reboot",),
        parameters={},
        automatic=False,
    )


def prepare(step: Step, _hands: Hands) -> dict[str, Any]:
    raise CommandError(f"step {step.id}: Sexton never reboots a node; {step.commands[0]}")


def carry_out(step: Step, hands: Hands) -> dict[str, Any]:
    return prepare(step, hands)


def undo(_before: Mapping[str, Any], _hands: Hands) -> list[str]:
    return []

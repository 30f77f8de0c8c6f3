"""Last resort, only ever printed: drain the node and reboot it.

A reboot frees every zombie, but they come back if the unit that leaves them still starts. With
kured in the cluster one file is enough: it cordons, drains and reboots one node at a time.
"""

from __future__ import annotations

from shlex import quote
from typing import Any

from sexton.cure.remedy import StepContext, nothing_to_undo
from sexton.errors import CommandError
from sexton.model.plan import Step

RECLAIMS = False
undo = nothing_to_undo
SENTINEL = "/var/run/reboot-required"


def propose(identity: str, node: str, in_cluster: bool) -> Step:
    """`in_cluster`: a kubelet runs here, so pods must be drained first."""
    name = quote(node)
    drain = (
        f"kubectl get node {name} -o jsonpath='{{.spec.unschedulable}}'"
        "   # true: already cordoned; leave it so afterwards",
        f"kubectl cordon {name}",
        f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data --timeout=15m",
        f"touch {SENTINEL}   # on the node, if the cluster runs kured: it reboots nodes in turn",
        "systemctl reboot   # on the node, without kured",
        f"kubectl uncordon {name}   # once it is Ready",
    )
    return Step(
        id=identity,
        remedy="reboot_node",
        title="last resort: drain and reboot",
        target="node",
        risk="high",
        risk_why="ends every process on the node; zombies return if their source starts again",
        preconditions=(),
        effect="printed only: Sexton never reboots a node",
        cannot_undo="everything in memory, and every running job",
        undo="none",
        proof=(),
        commands=drain if in_cluster else ("systemctl reboot",),
        parameters={},
        automatic=False,
    )


def prepare(step: Step, _context: StepContext) -> dict[str, Any]:
    raise CommandError(f"step {step.id}: Sexton never reboots a node; {step.commands[0]}")


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    return prepare(step, context)

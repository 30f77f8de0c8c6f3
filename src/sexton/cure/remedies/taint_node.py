"""Taint the Node, so that pods that tolerate a cordon stay away as well, and people see why."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from sexton.cure.node_steps import PATCH_S, is_same, node_conditions
from sexton.cure.nodes import TAINT, NodeState, metadata, need, taints
from sexton.cure.remedy import StepContext, text_parameter
from sexton.model.plan import Condition, Criterion, Step
from sexton.model.text import printable

RECLAIMS = False
_SPELLED = f"{TAINT['key']}={TAINT['value']}:{TAINT['effect']}"


def propose(identity: str, state: NodeState) -> Step:
    """`state` is of a Node without this taint."""
    name = state.name
    clean = Condition(f"Node {name} has the taint {TAINT['key']}", "spec.taints", "no",
                      "it would be another plan's", f"node.tainted {name}")  # fmt: skip
    return Step(
        id=identity,
        remedy="taint_node",
        title=f"taint {name}",
        target=f"node/{name}",
        risk="low",
        risk_why="new pods without this toleration go to other nodes; running ones stay",
        preconditions=(*node_conditions(state), clean),
        effect=f"PATCH nodes/{name}: adds the taint {_SPELLED}; others' taints stay",
        cannot_undo="",
        undo="removes this taint; others' taints stay",
        proof=(Criterion("it has the taint", "spec.taints", ">=", 1, "",
                         f"node.tainted {name}"),),
        commands=(f"kubectl taint node {quote(name)} {_SPELLED}",),
        parameters={"node": name, "uid": state.uid},
    )  # fmt: skip


def prepare(step: Step, context: StepContext) -> dict[str, Any]:
    name = text_parameter(step, "node")
    node = need(context.cluster).node(name)
    had = [dict(taint) for taint in taints(node) if _is_ours(taint)]
    return {"node": name, "uid": text_parameter(step, "uid"), "had": had}


def _is_ours(taint: Mapping[str, Any]) -> bool:
    """By key and effect, which are unique on a Node."""
    return all(taint.get(name) == TAINT[name] for name in ("key", "effect"))


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    name, uid = text_parameter(step, "node"), text_parameter(step, "uid")

    def patch(node: Mapping[str, Any]) -> dict[str, Any] | None:
        is_same(node, uid)
        found = taints(node)
        if any(map(_is_ours, found)):
            return None
        return {"spec": {"taints": [*found, TAINT]}}

    need(context.cluster).change(name, patch, context.deadline_s(PATCH_S))
    return {"said": f"tainted {name}"}


def undo(before: Mapping[str, Any], context: StepContext) -> list[str]:
    """The taint as it was: none, or with the value it had."""
    name, uid = str(before["node"]), str(before["uid"])
    had = [dict(taint) for taint in before["had"]]
    said: list[str] = []

    def patch(node: Mapping[str, Any]) -> dict[str, Any] | None:
        said.clear()
        if metadata(node, "uid") != uid:
            said.append(f"not restored: {printable(name)} was created anew since")
            return None
        found = taints(node)
        wanted = [*(taint for taint in found if not _is_ours(taint)), *had]
        if [taint for taint in found if _is_ours(taint)] == had:
            return None
        said.append(f"removed the taint {TAINT['key']} from {printable(name)}")
        return {"spec": {"taints": wanted or None}}

    need(context.cluster).change(name, patch, context.deadline_s(PATCH_S))
    return said

"""Cordon the Node: the scheduler puts no new pods on it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from shlex import quote
from typing import Any

from sexton.cure.node_steps import PATCH_S, is_same, node_conditions
from sexton.cure.nodes import NodeState, is_cordoned, metadata, need, part
from sexton.cure.remedy import StepContext, text_parameter
from sexton.model.plan import Condition, Criterion, Step
from sexton.model.text import printable

RECLAIMS = False
#: On the Node, beside the cordon: the plan that set it. A cordon without it is somebody else's.
MARK = "sexton.dev/cordoned-by"


def propose(identity: str, state: NodeState) -> Step:
    """`state` is of a Node that is not cordoned."""
    name, token = state.name, secrets.token_hex(8)
    was_free = Condition(
        f"Node {name} is cordoned",
        "spec.unschedulable",
        "no",
        "a cordon by somebody else is not ours to lift",
        f"node.cordoned {name}",
    )
    return Step(
        id=identity,
        remedy="cordon_node",
        title=f"cordon {name}",
        target=f"node/{name}",
        risk="low",
        risk_why="new pods go to other nodes, or stay pending if these have no room",
        preconditions=(*node_conditions(state), was_free),
        effect=f"PATCH nodes/{name}: spec.unschedulable true, annotation {MARK}",
        cannot_undo="",
        undo=f"uncordon: the same PATCH backwards, if the annotation is still {token}",
        proof=(Criterion("it is cordoned", "spec.unschedulable", ">=", 1, "",
                         f"node.cordoned {name}"),),
        commands=(f"kubectl cordon {quote(name)}",),
        parameters={"node": name, "uid": state.uid, "token": token},
    )  # fmt: skip


def prepare(step: Step, context: StepContext) -> dict[str, Any]:
    name = text_parameter(step, "node")
    node = need(context.cluster).node(name)
    return {
        "node": name,
        "uid": text_parameter(step, "uid"),
        "token": text_parameter(step, "token"),
        "cordoned": is_cordoned(node),
    }


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    name, uid = text_parameter(step, "node"), text_parameter(step, "uid")
    token = text_parameter(step, "token")

    def patch(node: Mapping[str, Any]) -> dict[str, Any] | None:
        is_same(node, uid)
        if is_cordoned(node):
            return None
        return {"metadata": {"annotations": {MARK: token}}, "spec": {"unschedulable": True}}

    cluster = need(context.cluster)
    if cluster.change(name, patch, context.deadline_s(PATCH_S)):
        return {"said": f"cordoned {name}"}
    # Done by a request whose answer was lost, or somebody else was faster: the mark tells.
    return {"said": f"{name} is cordoned"}


def undo(before: Mapping[str, Any], context: StepContext) -> list[str]:
    """Uncordon it, if it is still our cordon."""
    name, uid, token = (str(before[key]) for key in ("node", "uid", "token"))
    if before["cordoned"]:
        return [f"{printable(name)} was cordoned before: left so"]
    said: list[str] = []

    def patch(node: Mapping[str, Any]) -> dict[str, Any] | None:
        said.clear()
        if metadata(node, "uid") != uid:
            said.append(f"not restored: {printable(name)} was created anew since")
            return None
        if part(node, "metadata", "annotations").get(MARK) != token:
            said.append(f"not cordoned by this plan: {printable(name)} left as it is")
            return None
        gone = {"metadata": {"annotations": {MARK: None}}}
        if not is_cordoned(node):
            said.append(f"{printable(name)} was uncordoned by others since")
            return gone
        said.append(f"uncordoned {printable(name)}")
        return {**gone, "spec": {"unschedulable": None}}

    need(context.cluster).change(name, patch, context.deadline_s(PATCH_S))
    return said

"""The steps of a plan that concern a Node of a cluster: cordon, taint, drain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sexton.cure.nodes import (
    EVICT,
    LIST_PODS,
    NO_CREDENTIAL,
    PATCH_NODES,
    RIGHTS,
    Cluster,
    NodeState,
    Right,
    leaving,
)
from sexton.cure.remedies import cordon_node, drain_node, taint_node
from sexton.errors import SourceError
from sexton.model.plan import Refusal, Step
from sexton.model.text import count

CORDON, TAINT, DRAIN = "cordon", "taint", "drain"


@dataclass(frozen=True, slots=True)
class NodeWishes:
    """What is wanted: some of cordon, taint and drain, and which pods a drain may evict."""

    wanted: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    deadline_s: float = drain_node.DEADLINE_S

    @property
    def rights(self) -> tuple[Right, ...]:
        """What RBAC must grant for them, beside reading the Node."""
        if DRAIN in self.wanted:
            return (PATCH_NODES, LIST_PODS, EVICT)
        return (PATCH_NODES,) if self.wanted else ()


@dataclass(frozen=True, slots=True)
class NodeView:
    """The Node as it was read for a plan; `None`: it could not be read, and `why_not`."""

    wishes: NodeWishes = NodeWishes()
    state: NodeState | None = None
    why_not: str = NO_CREDENTIAL


def read_view(cluster: Cluster | None, name: str, wishes: NodeWishes) -> NodeView:
    """The Node as it is now; a view that says why not, if it cannot be read."""
    if cluster is None:
        return NodeView(wishes)
    try:
        return NodeView(wishes, cluster.state(name, wishes.rights))
    except SourceError as error:
        return NodeView(wishes, why_not=str(error))


@dataclass(slots=True)
class NodeSteps:
    """What becomes of the wishes."""

    steps: list[Step]
    refusals: list[Refusal]
    notes: list[str]


def node_steps(view: NodeView, boot_id: str) -> NodeSteps:
    """Steps on the Node, which come before all others. A drain that is refused cordons nothing."""
    wishes, state = view.wishes, view.state
    found = NodeSteps([], [], [])
    if not wishes.wanted:
        return found
    found.refusals = list(_refusals(view, boot_id))
    if found.refusals or state is None:
        return found

    def identity(word: str) -> str:
        return f"{len(found.steps) + 1}-{word}"

    after = ""
    if state.cordoned:
        found.notes.append(f"{state.name} is cordoned already, and stays so after a rollback")
    elif wishes.wanted & {CORDON, DRAIN}:
        found.steps.append(cordon_node.propose(identity("cordon"), state))
        after = found.steps[-1].id
    if TAINT in wishes.wanted:
        if state.tainted:
            found.notes.append(f"{state.name} has Sexton's taint already")
        else:
            found.steps.append(taint_node.propose(identity("taint"), state))
    if DRAIN in wishes.wanted:
        if leaving(state.pods):
            found.steps.append(
                drain_node.propose(
                    identity("drain"), state, wishes.allowed, wishes.deadline_s, after
                )
            )
        else:
            left = count(len(state.pods), "pod")
            found.notes.append(f"nothing to drain from {state.name}: {left} that stay")
    if found.steps:
        found.notes.append(
            f"{state.name} stays out of service after apply: sexton fix rollback undoes everything;"
            f" kubectl uncordon {state.name} only returns it to service"
        )
        found.notes.append("apply and rollback reach the API server by the same --kubeconfig")
    return found


def _refusals(view: NodeView, boot_id: str) -> Iterator[Refusal]:
    what = ", ".join(word for word in (CORDON, TAINT, DRAIN) if word in view.wishes.wanted)
    state = view.state
    if state is None:
        yield Refusal(what, view.why_not)
    elif state.boot_id != boot_id:
        yield Refusal(
            what,
            f"Node {state.name} is another machine, or its kubelet has not reported this boot: its"
            f" boot ID is {state.boot_id[:8] or 'unknown'}, this is {boot_id[:8]}",
        )
    elif state.missing:
        yield Refusal(what, f"the credential lacks: {', '.join(state.missing)}; {RIGHTS} grants it")
    elif DRAIN in view.wishes.wanted:
        yield from drain_node.refusals(state, view.wishes.allowed)

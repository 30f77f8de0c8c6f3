"""Drain the Node: ask the API server to evict its pods, and wait until they are gone.

Every eviction goes through the Eviction API. While a PodDisruptionBudget forbids one, the server
answers 429, and it is asked again later. Pods of DaemonSets, static and finished pods stay. Nothing
is deleted or forced: at the deadline the step fails, and what could not leave is named.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from sexton.cluster.client import Answer
from sexton.cluster.pacing import BackOff
from sexton.cure.node_steps import node_conditions
from sexton.cure.nodes import (
    EMPTYDIR,
    RIGHTS,
    UNMANAGED,
    Cluster,
    NodeState,
    Pod,
    blockers,
    leaving,
    need,
)
from sexton.cure.remedy import StepContext, nothing_to_undo, text_parameter
from sexton.errors import CommandError, SourceTimeout
from sexton.model.plan import Condition, Criterion, Refusal, Step
from sexton.model.text import count, printable
from sexton.model.text import seconds as duration

RECLAIMS = False
undo = nothing_to_undo
DEADLINE_S = 900.0
#: Between two looks at the pods that are ending, and the longest pause before asking again.
_LOOK_S, _MOST_PAUSE_S = 1.0, 30.0
_SHOWN = 5


def refusals(state: NodeState, allowed: frozenset[str]) -> list[Refusal]:
    """One line for each reason not to drain."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for pod, why, option in blockers(state.pods, allowed):
        by_reason.setdefault((why, option), []).append(pod.label)
    return [
        Refusal(f"draining {state.name}", f"{_named(pods)}: {why}", option)
        for (why, option), pods in by_reason.items()
    ]


def propose(
    identity: str, state: NodeState, allowed: frozenset[str], deadline_s: float, after: str
) -> Step:
    """`after` is the step that cordons the Node; "" if it is cordoned already."""
    name = state.name
    going = [pod for pod in leaving(state.pods) if not pod.ending]
    staying = [pod for pod in state.pods if pod.stays]
    lost = [pod for pod in going if pod.emptydir]
    words = " ".join(sorted(allowed))
    options = "".join(
        f" {option}"
        for word, option in ((EMPTYDIR, "--delete-emptydir-data"), (UNMANAGED, "--force"))
        if word in allowed
    )
    cannot = f"{count(len(going), 'pod')} started anew elsewhere, which do not come back"
    if lost:
        cannot += f"; the data in the emptyDir of {_named([pod.label for pod in lost])}"
    return Step(
        id=identity,
        remedy="drain_node",
        title=f"drain {name}",
        target=f"node/{name}",
        risk="medium",
        risk_why=f"ends {count(len(going), 'pod')} here"
        + (f": {_named([pod.label for pod in going])}" if going else "")
        + "; their controllers start others where there is room",
        preconditions=(
            *node_conditions(state),
            Condition(f"Node {name} is cordoned", "spec.unschedulable", "yes",
                      "evicted pods would come back", f"node.cordoned {name}", after=after),
            Condition("pods that may not be evicted", "their annotations, owners and volumes", "",
                      "the plan did not list them", f"node.blockers {name} {words}".rstrip()),
        ),
        effect="POST an eviction of each pod, which PodDisruptionBudgets may delay, with its own"
        f" grace period, until they are gone: at most {duration(deadline_s)};"
        f" {count(len(staying), 'pod')} of DaemonSets, static or finished left",
        cannot_undo=cannot if going else "",
        undo="none: evicted pods run elsewhere by then",
        proof=(Criterion("pods that had to go", "pods of the node", "<=", 0, "pods",
                         f"node.pods {name}"),),
        commands=(f"kubectl drain {quote(name)} --ignore-daemonsets{options}"
                  f" --timeout={deadline_s:.0f}s",),
        parameters={"node": name, "uid": state.uid, "allowed": words, "deadline_s": deadline_s},
    )  # fmt: skip


def _named(pods: list[str]) -> str:
    more = f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else ""
    return ", ".join(pods[:_SHOWN]) + more


def prepare(step: Step, context: StepContext) -> dict[str, Any]:
    name = text_parameter(step, "node")
    pods = leaving(need(context.cluster).pods(name))
    return {"node": name, "pods": [pod.label for pod in pods]}


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    name = text_parameter(step, "node")
    allowed = frozenset(str(step.parameters.get("allowed", "")).split())
    deadline_s = step.parameters.get("deadline_s")
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float):
        raise CommandError(f"step {step.id}: parameter deadline_s is missing")
    cluster = need(context.cluster)
    drain = _Drain(name, cluster, allowed, context)
    if context.dry:
        return drain.rehearse()
    drain.run(time.monotonic() + context.deadline_s(deadline_s))
    gone = count(len(drain.evicted), "pod")
    return {"said": f"evicted {gone} from {name}", "told": list(drain.told)}


@dataclass(slots=True)
class _Asked:
    """A pod that the server would not let go yet: why, and when to ask again."""

    pause: BackOff = field(default_factory=BackOff)
    why: str = ""
    next_s: float = 0.0


@dataclass(slots=True)
class _Drain:
    """A drain in progress. Pods are known by UID: one of the same name may follow."""

    name: str
    cluster: Cluster
    allowed: frozenset[str]
    context: StepContext
    evicted: set[str] = field(default_factory=set)
    asked: dict[str, _Asked] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    away: BackOff = field(default_factory=BackOff)
    why_away: str = ""

    def run(self, end_s: float) -> None:
        """Until no pod is left that has to go; `CommandError` at the deadline."""
        while True:
            if why := self.context.stop() or self.context.forbidden():
                raise CommandError(f"stopped while draining: {why}")
            pause_s = _LOOK_S
            try:
                waiting = leaving(self.cluster.pods(self.name))
                if not waiting:
                    return
                self._pass(waiting)
                self.away.succeeded()
                self.why_away = ""
            except SourceTimeout as error:  # the server is away or busy: what is asked for stays so
                pause_s = self.away.failed()
                self.why_away = error.detail
                waiting = []
            if time.monotonic() >= end_s:
                raise SourceTimeout(f"draining {self.name}", self._why_late(waiting))
            self._wait(min(pause_s, _MOST_PAUSE_S, max(0.0, end_s - time.monotonic())))

    def _wait(self, seconds: float) -> None:
        """In short pieces, so that a reason to stop is noticed."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and not self.context.stop():
            time.sleep(min(left_s, 0.2))

    def _pass(self, waiting: list[Pod]) -> None:
        """Ask for each pod whose time it is."""
        if blocked := blockers(tuple(waiting), self.allowed):
            pod, why, _ = blocked[0]
            raise CommandError(f"{pod.label} came to the node since: {why}")
        for pod in waiting:
            asked = self.asked.setdefault(pod.uid, _Asked())
            if pod.ending or pod.uid in self.evicted or time.monotonic() < asked.next_s:
                continue
            if why := self.context.stop():
                raise CommandError(f"stopped while draining: {why}")
            self._evict(pod, asked)

    def _evict(self, pod: Pod, asked: _Asked) -> None:
        answer = self.cluster.evict(pod)
        why = _why_not_yet(pod, answer)
        if not why:
            if answer.status < 300:
                self.evicted.add(pod.uid)
                self.context.progress(f"evicted {pod.label}")
                if asked.why:
                    self.told.append(f"{pod.label} had to wait: {asked.why}")
            return
        if asked.why != why:
            self.context.progress(f"{pod.label} has to wait: {why}")
        asked.why = why
        pause_s = min(max(asked.pause.failed(answer.asked_s), _LOOK_S), _MOST_PAUSE_S)
        asked.next_s = time.monotonic() + pause_s

    def _why_late(self, waiting: list[Pod]) -> str:
        if self.why_away:
            return f"out of time; {self.why_away}"
        asked = [(pod.label, self.asked[pod.uid].why) for pod in waiting if pod.uid in self.asked]
        named = [f"{label} ({why})" if why else f"{label} (ending)" for label, why in asked]
        return f"out of time; still here: {_named(named)}"

    def rehearse(self) -> dict[str, Any]:
        """One dry-run eviction of each pod: the server says what would have to wait."""
        said = []
        for pod in leaving(self.cluster.pods(self.name)):
            why = _why_not_yet(pod, self.cluster.evict(pod))
            if why:
                said.append(f"{pod.label} would have to wait: {why}")
                self.context.progress(said[-1])
        return {"said": "dry run", "told": said}


def _why_not_yet(pod: Pod, answer: Answer) -> str:
    """Why to ask again later; empty if it is evicted or gone. `CommandError` if it is in vain."""
    message = printable(answer.message)[:300]
    match answer.status:
        case 200 | 201 | 404:
            return ""
        case 429:
            return message or "too many requests"
        case 409:  # another pod of this name: the next look shows it
            return "changed meanwhile"
        case 403 if "because it is being terminated" in answer.message:
            return "its namespace is being deleted"
        case 403:
            raise CommandError(
                f"may not evict {pod.label}: {message} ({RIGHTS} grants what is needed)"
            )
        case 500 if "PodDisruptionBudget" in answer.message:  # two budgets for one pod
            raise CommandError(f"{pod.label} cannot be evicted: {message}")
        case 502 | 503 | 504 | 500:
            return f"{answer.status} {message}"
    raise CommandError(f"may not evict {pod.label}: {answer.status} {message}")

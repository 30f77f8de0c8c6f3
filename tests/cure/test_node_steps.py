"""Cordon, taint and drain: what they change, what they leave, and what makes them wait or stop."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sexton.cluster.client import Answer
from sexton.cure.node_plan import CORDON, DRAIN, TAINT, NodeWishes, node_steps, read_view
from sexton.cure.nodes import EMPTYDIR, UNMANAGED, Cluster
from sexton.cure.plan import PlanContext, make_plan
from sexton.cure.preconditions import Probes, why_unmet
from sexton.cure.remedies import cordon_node, drain_node, taint_node
from sexton.cure.remedy import StepContext
from sexton.cure.writer import DryWriter
from sexton.errors import CommandError, SourceError
from sexton.host.host import open_host
from sexton.model.window import Window
from tests.cure.auto.test_proposal import diagnosis
from tests.support.fake_kubernetes import AWAY, NODE, FakeKubernetes, node, pod

BOOT = "boot-1"
DENIED = Answer(429, {"message": "would violate the pod's disruption budget"}, 0.0)


@pytest.fixture(autouse=True)
def fast(monkeypatch) -> None:
    monkeypatch.setattr(drain_node, "_LOOK_S", 0.01)


def steps_for(fake: FakeKubernetes, *wanted: str, allowed: tuple[str, ...] = (), limit_s=30.0):
    wishes = NodeWishes(frozenset(wanted), frozenset(allowed), limit_s)
    return node_steps(read_view(fake.cluster(), NODE, wishes), BOOT)


def context(fake: FakeKubernetes, **more) -> StepContext:
    said: list[str] = more.pop("said", [])
    cluster = more.pop("cluster", None) or fake.cluster()
    stop = more.pop("stop", lambda: "")
    host = open_host()
    probes = Probes(host, (), cluster)
    return StepContext(
        host, DryWriter(), probes, stop, said.append, lambda: 60.0, cluster=cluster, **more
    )


def do(fake: FakeKubernetes, found) -> list[tuple[str, dict]]:
    """Carries the steps out; each with what its undo needs, as it is read from a journal."""
    done = []
    for step in found.steps:
        module = {"cordon_node": cordon_node, "taint_node": taint_node, "drain_node": drain_node}[
            step.remedy
        ]
        before = json.loads(json.dumps(module.prepare(step, context(fake))))
        module.carry_out(step, context(fake))
        done.append((module, before))
    return done


def test_a_node_is_cordoned_tainted_and_given_back_as_it_was():
    other = {"key": "gpu", "effect": "NoSchedule"}
    fake = FakeKubernetes(node(taints=[other]))
    before = (fake.node()["spec"], fake.node()["metadata"].get("annotations", {}))
    found = steps_for(fake, CORDON, TAINT)
    assert [step.id for step in found.steps] == ["1-cordon", "2-taint"]
    done = do(fake, found)
    assert fake.node()["spec"]["unschedulable"] is True
    assert fake.node()["spec"]["taints"][0] == other
    assert len(fake.node()["spec"]["taints"]) == 2
    said = [line for module, kept in reversed(done) for line in module.undo(kept, context(fake))]
    assert said == [f"removed the taint sexton.dev/fix from {NODE}", f"uncordoned {NODE}"]
    assert (fake.node()["spec"], fake.node()["metadata"]["annotations"]) == before
    again = [line for module, kept in reversed(done) for line in module.undo(kept, context(fake))]
    assert again == [f"not cordoned by this plan: {NODE} left as it is"]


def test_a_cordon_by_somebody_else_stays():
    fake = FakeKubernetes(node(unschedulable=True))
    found = steps_for(fake, CORDON, DRAIN)
    assert found.steps == []
    assert "cordoned already, and stays so" in " ".join(found.notes)
    # Between prepare and the patch, and after it.
    fake = FakeKubernetes()
    (step,) = steps_for(fake, CORDON).steps
    before = cordon_node.prepare(step, context(fake))
    fake.node()["spec"]["unschedulable"] = True
    cordon_node.carry_out(step, context(fake))
    assert fake.writes == []
    assert "left as it is" in " ".join(cordon_node.undo(before, context(fake)))
    assert fake.node()["spec"]["unschedulable"] is True


def test_an_undo_before_the_patch_was_sent_changes_nothing():
    fake = FakeKubernetes()
    found = steps_for(fake, CORDON, TAINT)
    for step, module in zip(found.steps, (cordon_node, taint_node), strict=True):
        before = module.prepare(step, context(fake))
        module.undo(before, context(fake))
    assert fake.writes == []


def test_an_uncordon_by_others_is_kept_and_said():
    fake = FakeKubernetes()
    ((module, before),) = do(fake, steps_for(fake, CORDON))
    del fake.node()["spec"]["unschedulable"]
    assert module.undo(before, context(fake)) == [f"{NODE} was uncordoned by others since"]
    assert "annotations" not in str(fake.node()["metadata"].get("annotations") or "")


def test_a_conflict_is_read_again_and_an_answer_that_was_lost_is_not_repeated():
    fake = FakeKubernetes()
    (step,) = steps_for(fake, CORDON).steps
    seen = []

    def on(verb: str, path: str) -> None:
        if verb == "PATCH" and not seen:
            seen.append("conflict")
            fake.put_thing(path, fake.node())  # the kubelet's heartbeat

    fake.on = on
    cordon_node.carry_out(step, context(fake))
    assert [call.split()[0] for call in fake.calls[-4:]] == ["GET", "PATCH", "GET", "PATCH"]
    fake = FakeKubernetes()
    (step,) = steps_for(fake, CORDON).steps
    fake.on = lambda verb, path: None
    patch, lost = fake.patch, []

    def patch_and_lose(path, body, kind):
        answer = patch(path, body, kind)
        if not lost:
            lost.append(1)
            raise AWAY
        return answer

    fake.patch = patch_and_lose  # type: ignore[method-assign]
    cordon_node.carry_out(step, context(fake))
    assert fake.node()["spec"]["unschedulable"] is True
    assert len(fake.writes) == 1


def test_a_node_that_was_created_anew_is_another_one():
    fake = FakeKubernetes()
    found = steps_for(fake, CORDON, TAINT)
    done = do(fake, found)
    fake.put_thing(f"/api/v1/nodes/{NODE}", node() | {"metadata": {"name": NODE, "uid": "new"}})
    for module, before in done:
        (line,) = module.undo(before, context(fake))
        assert line == f"not restored: {NODE} was created anew since"
    with pytest.raises(CommandError, match="created anew"):
        cordon_node.carry_out(found.steps[0], context(fake))
    probes = Probes(open_host(), (), fake.cluster())
    assert "metadata.uid" not in why_unmet(probes, found.steps[0].preconditions[1])
    assert "the plan expects uid-node-a" in why_unmet(probes, found.steps[0].preconditions[0])


def test_without_a_credential_the_plan_says_what_would_grant_it():
    wishes = NodeWishes(frozenset((DRAIN,)))
    (refusal,) = node_steps(read_view(None, NODE, wishes), BOOT).refusals
    assert "--kubeconfig FILE" in refusal.reason
    assert "deploy/kubernetes/fix-rbac.yaml" in refusal.reason
    fake = FakeKubernetes()
    fake.denied = {"create pods", "patch nodes"}
    (refusal,) = steps_for(fake, DRAIN).refusals
    assert refusal.reason.startswith("the credential lacks: patch nodes, create pods/eviction")
    fake.on = lambda verb, path: Answer(403, {"message": "nodes is forbidden"})
    (refusal,) = steps_for(fake, DRAIN).refusals
    assert "403 nodes is forbidden" in refusal.reason


def test_a_node_of_another_machine_is_refused():
    fake = FakeKubernetes()
    view = read_view(fake.cluster(), NODE, NodeWishes(frozenset((CORDON,))))
    found = node_steps(view, "boot-2")
    assert found.steps == []
    assert "is another machine" in found.refusals[0].reason


KEPT = {
    "karpenter.sh/do-not-disrupt": "true",
    "karpenter.sh/do-not-evict": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}


@pytest.mark.parametrize("key", KEPT)
def test_pods_that_must_not_be_evicted_refuse_the_drain(key: str):
    fake = FakeKubernetes()
    fake.add_pod(pod("kept", annotations={key: KEPT[key]}))
    found = steps_for(fake, DRAIN, allowed=(EMPTYDIR, UNMANAGED))
    assert found.steps == [], "not even the cordon"
    assert [each.reason for each in found.refusals] == [
        f"prod/kept: its annotation {key} forbids it"
    ]
    assert found.refusals[0].override == ""


def test_data_and_pods_that_nothing_starts_again_are_refused_unless_allowed():
    fake = FakeKubernetes()
    fake.add_pod(pod("data", emptydir=True))
    fake.add_pod(pod("alone", owner=""))
    found = steps_for(fake, DRAIN)
    assert {each.override for each in found.refusals} == {
        "--delete-emptydir-data",
        "--evict-unmanaged",
    }
    found = steps_for(fake, DRAIN, allowed=(EMPTYDIR, UNMANAGED))
    assert found.refusals == []
    assert "prod/data" in found.steps[1].cannot_undo
    do(fake, found)
    assert fake.pods == []


def test_a_drain_leaves_daemonsets_static_and_finished_pods():
    fake = FakeKubernetes()
    fake.add_pod(pod("agent", owner="DaemonSet", emptydir=True))
    fake.add_pod(pod("static", owner="Node", annotations={"kubernetes.io/config.mirror": "x"}))
    fake.add_pod(pod("finished", owner="Job", phase="Succeeded"))
    fake.add_pod(pod("elsewhere", node="node-b"))
    fake.add_pod(pod("app"))
    do(fake, steps_for(fake, DRAIN))
    assert sorted(fake.pods) == ["agent", "elsewhere", "finished", "static"]
    assert [call for call in fake.writes if "eviction" in call] == [
        "POST /api/v1/namespaces/prod/pods/app/eviction"
    ]


def test_a_budget_is_waited_for():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    fake.budgets["app"] = [DENIED, Answer(201, {})]
    found = steps_for(fake, DRAIN)
    cordon, drain = found.steps
    cordon_node.carry_out(cordon, context(fake))
    said: list[str] = []
    outcome = drain_node.carry_out(drain, context(fake, said=said))
    assert fake.pods == []
    assert said == [f"prod/app has to wait: {DENIED.message}", "evicted prod/app"]
    assert outcome["told"] == [f"prod/app had to wait: {DENIED.message}"]


def test_at_the_deadline_it_fails_and_names_what_is_left():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    fake.budgets["app"] = [DENIED]
    drain = steps_for(fake, DRAIN, limit_s=1.0).steps[1]
    with pytest.raises(SourceError, match=r"still here: prod/app \(would violate"):
        drain_node.carry_out(drain, context(fake))
    assert fake.pods == ["app"]


def test_two_budgets_for_one_pod_are_in_vain():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    fake.budgets["app"] = [Answer(500, {"message": "more than one PodDisruptionBudget"})]
    drain = steps_for(fake, DRAIN).steps[1]
    with pytest.raises(CommandError, match="cannot be evicted"):
        drain_node.carry_out(drain, context(fake))


def test_a_server_that_comes_back_is_asked_on_and_one_that_does_not_is_named():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    drain = steps_for(fake, DRAIN).steps[1]
    away = [1, 1]

    def on(verb: str, path: str) -> None:
        if away:
            away.pop()
            raise AWAY

    fake.on = on
    drain_node.carry_out(drain, context(fake))
    assert fake.pods == []
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    drain = steps_for(fake, DRAIN, limit_s=1.0).steps[1]
    away = [1] * 1000
    fake.on = on
    with pytest.raises(SourceError, match="connection refused"):
        drain_node.carry_out(drain, context(fake))


def test_a_pod_of_the_same_name_is_not_the_one_to_evict():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    drain = steps_for(fake, DRAIN).steps[1]

    def on(verb: str, path: str) -> None:
        if verb == "POST":
            again = pod("app", annotations={"karpenter.sh/do-not-disrupt": "true"})
            again["metadata"]["uid"] = "other"
            fake.add_pod(again)

    fake.on = on
    with pytest.raises(CommandError, match="prod/app came to the node since"):
        drain_node.carry_out(drain, context(fake))
    assert fake.pods == ["app"]


def test_it_stops_between_two_pods():
    fake = FakeKubernetes()
    for name in ("one", "two"):
        fake.add_pod(pod(name))
    drain = steps_for(fake, DRAIN).steps[1]
    with pytest.raises(CommandError, match="pressure"):
        drain_node.carry_out(
            drain, context(fake, stop=lambda: "" if len(fake.pods) == 2 else "pressure")
        )
    assert len(fake.pods) == 1
    with pytest.raises(CommandError, match="kill switch"):
        drain_node.carry_out(drain, context(fake, forbidden=lambda: "the kill switch is on"))
    assert len(fake.pods) == 1


def test_a_dry_run_asks_the_server_and_changes_nothing():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    fake.budgets["app"] = [DENIED]
    cordon, drain = steps_for(fake, DRAIN).steps
    said: list[str] = []
    dry = Cluster(lambda: fake, dry=True)  # type: ignore[arg-type, return-value]
    cordon_node.carry_out(cordon, context(fake, cluster=dry, dry=True))
    drain_node.carry_out(drain, context(fake, cluster=dry, dry=True, said=said))
    assert said == [f"prod/app would have to wait: {DENIED.message}"]
    assert fake.writes[0].endswith("?dryRun=All")
    assert not fake.node()["spec"].get("unschedulable")
    assert fake.pods == ["app"]


def test_names_and_annotations_of_others_do_not_reach_the_terminal():
    fake = FakeKubernetes()
    hostile = pod("app", annotations={"karpenter.sh/do-not-disrupt": "\x1b[2J"})
    hostile["metadata"]["namespace"] = "a\u202eb\nc"
    fake.things["/api/v1/namespaces/x/pods/app"] = hostile
    (refusal,) = steps_for(fake, DRAIN).refusals
    assert (refusal.target + refusal.reason).isprintable()


@pytest.mark.parametrize(
    "thing",
    [
        {},
        {"metadata": None, "spec": [], "status": 7},
        {"metadata": {"annotations": [], "ownerReferences": {}, "name": 7}},
        {"spec": {"volumes": [None, 3]}, "metadata": {"ownerReferences": ["x"]}},
    ],
)
def test_a_pod_that_is_not_understood_is_not_evicted(thing):
    fake = FakeKubernetes()
    fake.on = lambda verb, path: (
        Answer(200, {"items": [thing], "metadata": {}}) if "/api/v1/pods" in path else None
    )
    found = steps_for(fake, DRAIN)
    assert found.steps == []
    assert "no controller" in found.refusals[0].reason


def test_every_step_has_risk_undo_proof_and_preconditions():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    for step in steps_for(fake, CORDON, TAINT, DRAIN).steps:
        assert step.risk_why
        assert step.undo
        assert step.commands
        assert step.proof[0].probe.startswith("node.")
        assert {"node.uid node-a", "node.boot_id node-a"} <= {c.probe for c in step.preconditions}


def test_the_proof_is_what_the_server_says():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    found = steps_for(fake, CORDON, TAINT, DRAIN)
    probes = Probes(open_host(), (), fake.cluster())
    read = [probes.read(step.proof[0].probe) for step in found.steps]
    assert read == ["no", "no", "1"]
    do(fake, found)
    assert [probes.read(step.proof[0].probe) for step in found.steps] == ["yes", "yes", "0"]
    assert why_unmet(Probes(open_host()), found.steps[0].preconditions[0]).count("--kubeconfig")


def test_they_come_before_all_other_steps_of_a_plan_and_only_where_there_is_a_problem():
    fake = FakeKubernetes()
    fake.add_pod(pod("app"))
    found = diagnosis()
    assert found.node is not None
    fake.node()["status"]["nodeInfo"]["bootID"] = found.node.boot_id
    view = read_view(fake.cluster(), NODE, NodeWishes(frozenset((DRAIN, TAINT))))
    context = PlanContext(open_host(), node=view)
    made = make_plan(found, Window({}), context)
    assert [step.id for step in made.steps][:3] == ["1-cordon", "2-taint", "3-drain"]
    assert f"{NODE} stays out of service after apply" in " ".join(made.notes)
    healthy = replace(found, findings=(), chains=())
    assert make_plan(healthy, Window({}), context).steps == ()


def test_an_undo_that_cannot_reach_the_server_says_so():
    fake = FakeKubernetes()
    ((module, before),) = do(fake, steps_for(fake, CORDON))
    with pytest.raises(CommandError, match="--kubeconfig"):
        module.undo(before, SimpleNamespace(cluster=None, deadline_s=lambda most: most))

    def on(verb: str, path: str) -> None:
        raise AWAY

    fake.on = on
    with pytest.raises(SourceError, match="connection refused"):
        module.undo(before, SimpleNamespace(cluster=fake.cluster(), deadline_s=lambda most: 0.0))

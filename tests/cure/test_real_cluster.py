"""With a real API server: cordon, taint, drain, their rollback, and `fix auto` with its rights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sexton.cluster.client import Answer, ApiServer
from sexton.cure.apply import apply
from sexton.cure.auto.lease import Lease
from sexton.cure.auto.policy import Named, policy_of
from sexton.cure.auto.proposal import Proposal
from sexton.cure.auto.unattended import Unattended
from sexton.cure.journal import check_log, read_run
from sexton.cure.node_plan import CORDON, DRAIN, TAINT, NodeWishes, node_steps, read_view
from sexton.cure.nodes import MERGE
from sexton.cure.remedies import cordon_node
from sexton.cure.rollback import choose, rollback
from tests.cure.real_cluster import ACCOUNT, BOOT, MANIFESTS, RUN, Site
from tests.cure.test_killed_half_way import _PATCH, KILLED, POINTS
from tests.deploy.peers import until
from tests.model.test_plan import plan
from tests.support.kubernetes import Cluster, running_cluster

pytestmark = [pytest.mark.whole, pytest.mark.root]

POLICY = """
dry_run = false
enforce_after = 2020-01-01T00:00:00Z
[[rule]]
root = "crash_looping_unit"
symptom = "zombie_memcgs"
steps = ["cordon_node", "taint_node", "drain_node"]
[pool]
selector = "pool={}"
max_nodes = 1
[lease]
seconds = 3
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        for name in ("fix-rbac.yaml", "fix-policy.yaml"):
            made.kubectl("apply", "--validate=strict", "-f", MANIFESTS / name)
        yield made


@pytest.fixture
def site(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[5:50].strip("-")
    made = Site(cluster, name, tmp_path)
    yield made
    made.kubectl("delete", "pdb", "-A", "--all")
    made.kubectl("delete", "pods", "-A", "--all", "--force", "--grace-period=0")
    made.kubectl("delete", "nodes", "--all")
    made.kubectl("-n", "sexton", "patch", "configmap", "sexton-fix", "-p", '{"data":{"stop":""}}')
    made.lease({"holderIdentity": ""})


def test_a_drain_waits_for_a_budget_and_rollback_gives_the_node_back(site: Site):
    taint = {"key": "gpu", "value": "a", "effect": "NoSchedule"}
    site.kubectl("patch", "node", site.name, "-p", json.dumps({"spec": {"taints": [taint]}}))
    before = site.spec
    site.add_pod("app")
    site.add_pod("guarded")
    site.add_pod("agent", owner="DaemonSet")
    site.add_pod("static", owner="Node", annotations={"kubernetes.io/config.mirror": "x"})
    site.budget("guarded", 0)
    made = site.plan(CORDON, TAINT, DRAIN)
    waited: list[str] = []

    def progress(line: str) -> None:
        if "guarded has to wait" in line:
            waited.append(line)
            site.budget("guarded", 1)

    done = apply(made, site.fix(progress=progress), 60)
    assert (done.exit, done.why) == (0, "")
    assert "Cannot evict pod as it would violate the pod's disruption budget" in waited[0]
    assert site.pods == ["agent", "static"]
    shown = site.kubectl("describe", "node", site.name)
    assert re.search(r"Unschedulable:\s+true", shown)
    assert "sexton.dev/fix=in-progress:NoSchedule" in shown
    back = site.sexton("fix", "rollback", *site.options)
    assert back.returncode == 0, back.stderr
    assert f"uncordoned {site.name}" in back.stdout
    assert site.spec == before


def test_a_budget_that_never_allows_it_ends_at_the_deadline(site: Site):
    site.add_pod("guarded")
    site.budget("guarded", 0)
    done = apply(site.plan(DRAIN, seconds=3.0), site.fix(), 60)
    assert done.exit == 1
    assert "still here: default/guarded (Cannot evict pod" in done.why
    assert site.pods == ["guarded"]


def test_a_dry_run_asks_the_server_and_changes_nothing(site: Site):
    site.add_pod("app")
    site.add_pod("guarded")
    site.budget("guarded", 0)
    before = site.spec
    ended = site.sexton(*site.save(site.plan(CORDON, TAINT, DRAIN)), "--dry-run")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "default/guarded would have to wait" in ended.stderr
    assert site.pods == ["app", "guarded"]
    assert site.spec == before


def test_a_pod_that_ends_slowly_is_waited_for(site: Site):
    """Its grace period runs; what a kubelet would do at its end is done here."""
    site.add_pod("slow", grace_s=30)
    made = site.plan(DRAIN)
    seen = threading.Event()

    def kubelet() -> None:
        seen.wait(60)
        until(lambda: site.cluster.get("pod", "slow")["metadata"].get("deletionTimestamp"), "it")
        site.kubectl("delete", "pod", "slow", "--force", "--grace-period=0")

    thread = threading.Thread(target=kubelet)
    thread.start()
    done = apply(made, site.fix(progress=lambda line: seen.set()), 60)
    thread.join()
    assert done.exit == 0, done.why
    assert site.pods == []


def test_a_patch_in_conflict_is_made_again_on_what_others_wrote(site: Site):
    answers: list[int] = []

    class Meddled(ApiServer):
        """Somebody else changes the Node between our look and our patch, once."""

        def patch(self, path: str, body: Any, kind: str = MERGE) -> Answer:
            if not answers:
                site.kubectl("label", "node", site.name, "theirs=1")
            answer = super().patch(path, body, kind)
            answers.append(answer.status)
            return answer

    done = apply(site.plan(CORDON), site.fix(site.api(kind=Meddled)), 60)
    assert done.exit == 0, done.why
    assert answers == [409, 200]
    node = site.cluster.get("node", site.name)
    assert node["metadata"]["labels"]["theirs"] == "1"
    assert node["spec"]["unschedulable"] is True


def test_an_api_server_that_goes_away_in_the_middle_of_a_drain_and_comes_back(site: Site):
    site.add_pod("slow", grace_s=30)
    argv = site.argv(*site.save(site.plan(DRAIN, seconds=300.0)))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, **pipes) as draining:
        assert draining.stderr is not None
        assert draining.stdout is not None
        assert any("evicted default/slow" in line for line in draining.stderr)
        site.cluster.stop_api()
        site.cluster.start_api()
        assert draining.poll() is None
        site.kubectl("delete", "pod", "slow", "--force", "--grace-period=0")
        said = draining.stdout.read()
        assert draining.wait(300) == 0, said
    assert "evicted 1 pod" in said
    assert site.pods == []


def test_one_that_stays_away_fails_the_drain_which_is_undone_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    before = site.spec
    site.add_pod("one", grace_s=30)

    def progress(line: str) -> None:
        if line.startswith("evicted"):
            site.cluster.stop_api()

    try:
        done = apply(site.plan(DRAIN, seconds=3.0), site.fix(progress=progress), 300)
        assert "out of time" in done.why
        assert "refused" in done.why
        with monkeypatch.context() as patched:
            patched.setattr(cordon_node, "PATCH_S", 1.0)
            failed = rollback(choose(site.state, None), site.fix()).failed
        assert [step for step, _ in failed] == ["1-cordon"]
    finally:
        site.cluster.start_api()
    assert rollback(choose(site.state, None), site.fix()).failed == []
    assert site.spec == before


@pytest.mark.parametrize("step", ["1-cordon", "2-taint", "3-drain"])
@pytest.mark.parametrize(
    "point", ["after the journal", "after the action", "in the middle of a line of the journal"]
)
def test_killed_anywhere_rollback_restores_exactly(site: Site, point: str, step: str):
    taint = {"key": "gpu", "value": "a", "effect": "NoExecute"}
    site.kubectl("patch", "node", site.name, "-p", json.dumps({"spec": {"taints": [taint]}}))
    before = site.spec
    site.add_pod("app")
    arguments = site.save(site.plan(CORDON, TAINT, DRAIN))
    ended = site.sexton(*arguments, code=_PATCH.format(step=step, point=POINTS[point]) + RUN)
    assert ended.returncode in (KILLED, -9), ended.stderr
    assert (site.pods == []) == (step == "3-drain" and point == "after the action")
    back = site.sexton("fix", "rollback", *site.options)
    assert back.returncode == 0, back.stdout + back.stderr
    assert site.spec == before
    assert site.sexton("audit-log", "verify", "--state", site.state.directory).returncode == 0


@pytest.mark.parametrize("value", ["true", "\x1b[2J\nyes", "x" * 10_000, "\u202e"])
def test_annotations_of_hostile_pods_keep_them_and_reach_no_terminal(site: Site, value: str):
    site.add_pod("hostile", annotations={"karpenter.sh/do-not-disrupt": value})
    wishes = NodeWishes(frozenset((DRAIN,)))
    found = node_steps(read_view(site.api(), site.name, wishes), BOOT)
    assert found.steps == []
    words = " ".join(each.target + each.reason for each in found.refusals)
    assert words.isprintable()
    assert len(words) < 500


def test_a_pod_that_only_says_it_is_of_a_daemonset_is_not_left(site: Site):
    site.add_pod("liar", owner="DaemonSet", controller=False)
    wishes = NodeWishes(frozenset((DRAIN,)))
    found = node_steps(read_view(site.api(), site.name, wishes), BOOT)
    assert "no controller" in found.refusals[0].reason


def test_a_drain_of_more_pods_than_a_page_has(site: Site):
    things = []
    for number in range(120):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "1"}
        owners = [{**owner, "controller": True}]
        about = {"name": f"p{number}", "namespace": "default", "ownerReferences": owners}
        spec = {
            "nodeName": site.name, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none"}],
        }  # fmt: skip
        things.append({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    listed = {"apiVersion": "v1", "kind": "List", "items": things}
    site.kubectl("create", "-f", "-", given=json.dumps(listed))
    done = apply(site.plan(DRAIN), site.fix(), 120)
    assert done.exit == 0, done.why
    assert site.pods == []


def unattended(site: Site, kubeconfig: Path | None = None, progress=None) -> Unattended:
    def judge() -> Proposal:
        now = time.time()
        made = plan(boot_id=BOOT, evidence_until_unix=now, made_unix=now, steps=())
        ends = ("crash_looping_unit", "zombie_memcgs", "proven", "a.service restarts")
        return Proposal(1, "", *ends, made, ())

    fix = site.fix(site.api(kubeconfig), progress)
    return Unattended(site.name, policy_of(POLICY.format(site.name)), fix, judge)


def test_auto_acts_with_the_rights_of_its_account_and_is_undone_with_them(site: Site):
    site.add_node(f"{site.name}-2", "z2")
    site.kubectl("patch", "node", site.name, "--type=merge", "-p", '{"spec":{"taints":null}}')
    site.add_pod("app")
    before = site.spec
    assert before[0] == {}, "nothing in it: a policy must allow to leave it so"
    config = site.token()
    decision = unattended(site, config).run()
    assert (decision.how, decision.why) == ("done", "")
    assert "app" not in site.pods
    assert rollback(choose(site.state, None), site.fix(site.api(config))).failed == []
    assert site.spec == before
    assert check_log(site.state).damage == []


def test_auto_as_it_is_typed_watches_this_machine_and_logs_its_decision(site: Site):
    """What it decides depends on the machine. Its rule concerns a chain that is not found here."""
    policy = site.folder / "policy.toml"
    policy.write_text(POLICY.format(site.name).replace("zombie_memcgs", "nic_resets"))
    policy.chmod(0o600)
    arguments = ("--policy", str(policy), "--node", site.name, "--seconds", "1", "--json")
    ended = site.sexton("fix", "auto", *arguments, *site.options)
    said = json.loads(ended.stdout)
    assert said["how"] in ("nothing to do", "did not act"), said
    assert (ended.returncode == 0) == (said["how"] == "nothing to do")
    assert said["why"]
    shown = site.sexton("audit-log", "show", "--state", site.state.directory).stdout
    assert "auto_start" in shown
    assert f"how: {said['how']}" in shown


def test_auto_does_not_act_while_another_node_of_the_pool_is_out(site: Site):
    site.add_node(f"{site.name}-2", "z2")
    site.kubectl("cordon", f"{site.name}-2")
    before = site.spec
    decision = unattended(site).run()
    assert (decision.how, "max_nodes is 1" in decision.why) == ("did not act", True)
    assert site.spec == before


def test_the_kill_switch_thrown_half_way_stops_auto(site: Site):
    site.add_pod("app")

    def progress(line: str) -> None:
        if line.startswith("2-taint"):
            on = '{"data":{"stop":"true"}}'
            site.kubectl("-n", "sexton", "patch", "configmap", "sexton-fix", "-p", on)

    decision = unattended(site, progress=progress).run()
    assert decision.how == "stopped"
    assert "the kill switch is on" in decision.why
    (spec, _) = site.spec
    assert spec.get("unschedulable") is True, "what was done stays"
    assert "sexton.dev/fix" not in str(spec["taints"])
    assert site.pods == ["app"]
    assert read_run(site.state, decision.run).state == "stopped"
    assert "sexton fix rollback" in unattended(site).run().why


NAMED = Named("sexton", "sexton-fix")


@pytest.mark.parametrize("turn", range(3))
def test_two_agents_race_for_one_lease(site: Site, turn: int):
    both = threading.Barrier(2)
    got: dict[str, str] = {}

    class Together(ApiServer):
        """Both have read it before either writes."""

        def put(self, path: str, body: Any) -> Answer:
            both.wait(30)
            return super().put(path, body)

    def run(holder: str) -> None:
        got[holder] = Lease(site.api(kind=Together), NAMED, holder, 3).acquire()

    threads = [threading.Thread(target=run, args=(holder,)) for holder in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    held = site.cluster.get("-n", "sexton", "lease", "sexton-fix")["spec"]["holderIdentity"]
    assert [holder for holder, why in got.items() if not why] == [held]
    assert "another node took the Lease" in "".join(got.values())


_HOLDER = """
import sys, time
from sexton.cluster.access import from_kubeconfig
from sexton.cluster.client import ApiServer
from sexton.cure.auto.lease import Lease
from sexton.cure.auto.policy import Named
from sexton.cure.nodes import Cluster
access = from_kubeconfig(sys.argv[1])
lease = Lease(Cluster(lambda: ApiServer(access)), Named("sexton", "sexton-fix"), "dead", 3)
assert lease.acquire() == ""
with lease:
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lease_of_a_holder_that_was_killed_is_taken_after_its_duration(site: Site):
    argv = [sys.executable, "-c", _HOLDER, str(site.kubeconfig)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        ours = Lease(site.api(), NAMED, "ours", 3)
        assert "dead is at work" in ours.acquire(), "while it lives it renews"
        holder.kill()
        holder.wait()
        began_s = time.monotonic()
        assert ours.acquire() == ""
        assert time.monotonic() - began_s >= 3.0, "not sooner than it was granted"
    with ours:
        assert ours.why_not_ours() == ""


@pytest.mark.parametrize("year", [2001, 2099])
def test_a_clock_that_jumps_neither_keeps_nor_loses_a_lease(site: Site, year: int):
    stamp = f"{year}-01-01T00:00:00.000000Z"
    granted = {"holderIdentity": "jumped", "leaseDurationSeconds": 3, "renewTime": stamp}
    site.lease(granted)
    began_s = time.monotonic()
    ours = Lease(site.api(), NAMED, "ours", 3)
    assert ours.acquire() == ""
    assert time.monotonic() - began_s >= 3.0
    spec = site.cluster.get("-n", "sexton", "lease", "sexton-fix")["spec"]
    assert spec["holderIdentity"] == "ours"


CAN = {
    ("get", "nodes", ""), ("list", "nodes", ""), ("patch", "nodes", ""),
    ("list", "pods", ""), ("create", "pods/eviction", ""),
    ("get", "leases.coordination.k8s.io", "sexton"),
    ("update", "leases.coordination.k8s.io", "sexton"), ("get", "configmaps", "sexton"),
}  # fmt: skip


def test_the_account_has_exactly_these_rights(cluster: Cluster):
    who = f"--as=system:serviceaccount:sexton:{ACCOUNT}"
    found = set()
    for space in ("default", "sexton", "kube-system"):
        listed = cluster.kubectl("auth", "can-i", "--list", who, "-n", space, "--no-headers")
        for line in listed.splitlines():
            resource, verbs = line.split()[0], line.rpartition("[")[2].rstrip("] ").split()
            if resource.startswith(("self", "[")):  # what everybody may: ask about itself
                continue
            of = "" if resource.startswith(("nodes", "pods")) else space
            found |= {(verb, resource, of) for verb in verbs}
    assert found == CAN


def test_the_policy_has_no_type_errors(cluster: Cluster):
    assert cluster.checked_policies() == [{"observedGeneration": 1, "typeChecking": {}}]


REFUSED = {
    "its own node": {"spec": {"unschedulable": True}},
    "its own taint": {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
    "its own annotation": {"metadata": {"annotations": {"x": "y"}}},
    "labels": {"metadata": {"labels": {"x": "y"}}},
    "nothing else of a node": {"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}},
}


@pytest.mark.parametrize("words", REFUSED)
def test_the_policy_refuses(site: Site, words: str):
    other = f"{site.name}-2"
    site.add_node(other)
    config = site.token()
    target = other if words == "its own node" else site.name

    def answer(name: str, body: dict) -> Answer:
        path = f"/api/v1/nodes/{name}"
        return site.api(config).call(lambda server: server.patch(path, body, MERGE))

    until(lambda: answer(other, {"spec": {"unschedulable": True}}).status == 403, "the policy")
    refused = answer(target, REFUSED[words])
    assert refused.status == 403, refused.body
    assert words in refused.message
    assert answer(site.name, {"spec": {"unschedulable": True}}).status == 200

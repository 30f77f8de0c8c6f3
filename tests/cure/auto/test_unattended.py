"""A pass acts, or it does not and says why; either way it is in the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sexton.cluster.client import Answer
from sexton.cure.apply import FixContext
from sexton.cure.auto.policy import policy_of
from sexton.cure.auto.proposal import Proposal
from sexton.cure.auto.unattended import Decision, Unattended
from sexton.cure.journal import State, all_runs, audit_log, check_log, log_event, open_run
from sexton.cure.remedies import drain_node
from sexton.cure.rollback import choose, rollback
from sexton.cure.writer import DryWriter
from sexton.errors import SourceError
from tests.cure.auto.test_lease import PATH as LEASE
from tests.cure.auto.test_lease import held
from tests.cure.auto.test_limits import PATH as SWITCH
from tests.cure.test_apply import Calm
from tests.model.test_plan import plan
from tests.support.fake_kubernetes import NODE, FakeKubernetes, node, pod
from tests.support.trees import plant

POLICY = """
dry_run = false
enforce_after = 2020-01-01T00:00:00Z
[[rule]]
root = "crash_looping_unit"
symptom = "zombie_memcgs"
steps = ["cordon_node", "taint_node", "drain_node"]
[pool]
selector = "pool=gpu"
max_nodes = 1
[lease]
seconds = 2
"""


class Scene(SimpleNamespace):
    fake: FakeKubernetes
    state: State
    auto: Unattended

    def run(self, **changes: object) -> Decision:
        policy = replace(self.auto.policy, **changes)
        return replace(self.auto, policy=policy).run()

    def decisions(self) -> list[tuple[str, str]]:
        return [
            (line["how"], line.get("why", ""))
            for line in audit_log(self.state)
            if line["event"] == "auto"
        ]

    @property
    def unchanged(self) -> bool:
        spec = self.fake.node()["spec"]
        return not spec.get("unschedulable") and not spec.get("taints") and "app" in self.fake.pods


@pytest.fixture
def scene(tmp_path, monkeypatch) -> Scene:
    monkeypatch.setattr(drain_node, "_LOOK_S", 0.01)
    host = plant(
        tmp_path / "root",
        {"/proc/sys/kernel/random/boot_id": "boot-1\n", "/proc/sys/kernel/hostname": "node-1\n"},
    )
    fake = FakeKubernetes(node(), node("node-b", zone="z2"))
    fake.add_pod(pod("app"))
    state = State(str(tmp_path / "fix"))
    fix = FixContext(
        host, DryWriter(), state, progress=lambda line: None, watch=lambda *_: Calm(),
        cluster=fake.cluster(),
    )  # fmt: skip
    made = Scene(fake=fake, state=state)

    def judge() -> Proposal:
        steps = plan(boot_id="boot-1", evidence_until_unix=time.time(), steps=())
        ends = ("crash_looping_unit", "zombie_memcgs", "proven", "a.service restarts")
        return Proposal(1, "", *ends, replace(steps, made_unix=time.time()), ())

    made.judge = judge
    made.auto = Unattended(NODE, policy_of(POLICY), fix, lambda: made.judge())
    return made


def test_it_acts_proves_and_gives_the_lease_back(scene: Scene):
    decision = scene.run()
    assert (decision.how, decision.exit) == ("done", 0)
    assert scene.fake.node()["spec"]["unschedulable"] is True
    assert scene.fake.pods == []
    assert scene.fake.things[LEASE]["spec"]["holderIdentity"] == ""
    assert [how for how, _ in scene.decisions()] == ["acts", "done"]
    assert check_log(scene.state).damage == []
    fix = scene.auto.fix
    assert rollback(choose(scene.state, None), fix).failed == []
    assert scene.fake.node()["spec"] == {}


def test_nothing_is_done_twice(scene: Scene):
    scene.run()
    writes = list(scene.fake.writes)
    again = scene.run()
    assert again.how == "did not act"
    assert "cool-down after apply" in again.why
    later = scene.run(cool_down_s=0.0)
    assert later.how == "did not act"
    assert "cordoned already" in later.why
    assert scene.fake.writes == writes


@pytest.mark.parametrize(
    "changes",
    [{"dry_run": True, "enforce_after": None}, {"enforce_after": None}, {"enforce_after": 4e9}],
)
def test_a_dry_run_changes_nothing_and_says_what_it_would_do(scene: Scene, changes: dict):
    decision = scene.run(**changes)
    assert (decision.how, decision.exit) == ("would act", 1)
    assert "steps: 1-cordon, 2-taint, 3-drain" in decision.why
    assert scene.unchanged
    assert LEASE not in scene.fake.things
    assert all_runs(scene.state) == []
    assert scene.decisions() == [("would act", decision.why)]


def test_the_week_begins_with_the_first_pass_that_the_log_has(scene: Scene):
    scene.state.make()
    log_event(scene.state, "auto_start", node="another")
    assert scene.run(enforce_after=None).how == "would act"
    (line,) = [
        line for line in audit_log(scene.state)
        if line["event"] == "auto_start" and line["node"] == NODE
    ]  # fmt: skip
    assert abs(line["unix"] - time.time()) < 60


def _cordoned(scene: Scene) -> None:
    scene.fake.put_thing("/api/v1/nodes/node-b", node("node-b", zone="z2", unschedulable=True))


def _switched(scene: Scene) -> None:
    scene.fake.put_thing(SWITCH, {"data": {"stop": "true"}})


def _clock(scene: Scene) -> None:
    scene.fake.ahead_s = 86_400.0 * 8


def _leased(scene: Scene) -> None:
    def on(verb: str, path: str) -> None:
        if path == LEASE:
            held(scene.fake, "node-b")

    held(scene.fake, "node-b")
    scene.fake.on = on


def _interrupted(scene: Scene) -> None:
    scene.state.make()
    open_run(scene.state, plan(), {})


def _stopped(scene: Scene) -> None:
    scene.state.make()
    open_run(scene.state, plan(), {}).write("end", how="stopped", why="pressure")


def _kept(scene: Scene) -> None:
    scene.fake.add_pod(pod("kept", annotations={"karpenter.sh/do-not-disrupt": "true"}))


def _another_machine(scene: Scene) -> None:
    scene.fake.node()["status"]["nodeInfo"]["bootID"] = "boot-2"


def _denied(scene: Scene) -> None:
    scene.fake.denied = {"create pods"}


def _damaged(scene: Scene) -> None:
    scene.state.make()
    for _ in range(2):
        log_event(scene.state, "x")
    with open(f"{scene.state.directory}/audit.log.jsonl", "r+b") as log:
        log.write(b"!")


def _future(scene: Scene) -> None:
    scene.state.make()
    made = open_run(scene.state, plan(), {})
    name = f"{scene.state.directory}/runs/{made.run}.jsonl"
    with open(name, "a") as stream:
        stream.write('{"kind":"end","unix":9999999999,"how":"complete","why":""}\n')


def _renamed(scene: Scene) -> None:
    thing = scene.fake.things.pop(f"/api/v1/nodes/{NODE}")
    thing["metadata"]["name"] = "renamed"
    scene.fake.put_thing("/api/v1/nodes/renamed", thing)
    scene.fake.put_thing(f"/api/v1/nodes/{NODE}-2", node(f"{NODE}-2"))


WHY_NOT: dict[str, Callable[[Scene], None]] = {
    "max_nodes is 1": _cordoned,
    "the kill switch is on": _switched,
    "this clock is": _clock,
    "node-b is at work": _leased,
    "was interrupted: sexton fix rollback": _interrupted,
    "stopped (pressure): sexton fix rollback": _stopped,
    "karpenter.sh/do-not-disrupt forbids it": _kept,
    "is another machine": _another_machine,
    "the credential lacks: create pods/eviction": _denied,
    "the audit log is damaged": _damaged,
    "is in the future": _future,
    "Node node-a: 404": _renamed,
}


@pytest.mark.parametrize("words", WHY_NOT)
def test_it_does_not_act_and_says_why(scene: Scene, words: str):
    WHY_NOT[words](scene)
    decision = scene.run()
    assert (decision.how, decision.exit) == ("did not act", 1)
    assert words in decision.why
    assert decision.why.isprintable()
    if words != "Node node-a: 404":
        assert scene.unchanged
    assert not [call for call in scene.fake.writes if "/leases" not in call]
    assert scene.decisions()[-1] == ("did not act", decision.why)


def test_an_api_server_that_is_away_is_a_decision_too(scene: Scene):
    scene.fake.on = lambda verb, path: Answer(503, {"message": "starting"})
    decision = scene.run()
    assert decision.how == "did not act"
    assert "503 starting" in decision.why
    scene.fake.on = lambda verb, path: (
        Answer(429, {"message": "slow down"}) if "leases" in path else None
    )
    decision = scene.run()
    assert (decision.how, decision.exit) == ("did not act", 2)
    assert "429 slow down" in decision.why
    assert scene.unchanged


def test_a_healthy_node_asks_the_server_nothing_and_says_so_once(scene: Scene):
    scene.judge = lambda: Proposal(0, "no problem")
    for _ in range(3):
        assert scene.run().exit == 0
    assert scene.fake.calls == []
    assert scene.decisions() == [("nothing to do", "no problem")]
    scene.judge = lambda: Proposal(3, "cannot tell: dying memory cgroups")
    assert (scene.run().exit, scene.run().exit) == (3, 3)
    assert [how for how, _ in scene.decisions()] == ["nothing to do", "did not act", "did not act"]


@pytest.mark.parametrize(("age_s", "words"), [(900.0, "15 min 0 s old"), (-900.0, "in the future")])
def test_old_evidence_is_no_reason_to_act(scene: Scene, age_s: float, words: str):
    good = scene.judge()
    old = replace(good.plan, evidence_until_unix=time.time() - age_s)
    scene.judge = lambda: replace(good, plan=old)
    decision = scene.run()
    assert decision.how == "did not act"
    assert words in decision.why
    assert scene.unchanged


def test_a_judge_that_fails_is_a_decision(scene: Scene):
    def judge() -> Proposal:
        raise SourceError("judging", "exit 2")

    scene.judge = judge
    assert (scene.run().how, scene.run().exit) == ("did not act", 2)


def test_the_kill_switch_thrown_half_way_stops_before_the_next_step(scene: Scene):
    def on(verb: str, path: str) -> None:
        if verb == "PATCH" and "nodes" in path:
            scene.fake.put_thing(SWITCH, {"data": {"stop": "now"}})

    scene.fake.on = on
    decision = scene.run()
    assert (decision.how, decision.exit) == ("stopped", 1)
    assert "the kill switch is on" in decision.why
    assert scene.fake.node()["spec"].get("unschedulable") is True, "what was done stays"
    assert scene.fake.node()["spec"].get("taints") is None
    assert "app" in scene.fake.pods
    assert scene.fake.things[LEASE]["spec"]["holderIdentity"] == ""
    scene.fake.on = lambda verb, path: None
    scene.fake.put_thing(SWITCH, {"data": {"stop": ""}})
    assert "sexton fix rollback" in scene.run().why


def test_ended_by_a_signal_it_gives_the_lease_back_and_waits_for_a_person(scene: Scene):
    def progress(line: str) -> None:
        if line.startswith("2-taint"):
            raise SystemExit(143)  # what main makes of SIGTERM

    scene.auto.fix.progress = progress
    with pytest.raises(SystemExit):
        scene.run()
    assert scene.fake.things[LEASE]["spec"]["holderIdentity"] == ""
    scene.auto.fix.progress = lambda line: None
    assert "interrupted by the user): sexton fix rollback" in scene.run().why


def test_a_lease_that_is_lost_half_way_stops_it(scene: Scene):
    def on(verb: str, path: str) -> None:
        if verb == "PATCH" and "nodes" in path:
            held(scene.fake, "node-b")

    scene.fake.on = on
    decision = scene.run()
    assert decision.how == "stopped"
    assert "somebody else has the Lease" in decision.why
    assert scene.fake.things[LEASE]["spec"]["holderIdentity"] == "node-b"


def test_a_proposal_cannot_widen_the_policy(scene: Scene):
    """It comes from a process that reads what others wrote."""
    good = scene.judge()
    scene.judge = lambda: replace(good, root="nic_resets")
    assert "that no rule allows" in scene.run().why
    from tests.model.test_plan import step

    more = plan(boot_id="boot-1", evidence_until_unix=time.time(), steps=(step(),))
    scene.judge = lambda: replace(good, plan=more, only=("1-stop",))
    assert "its rule does not allow" in scene.run().why
    assert scene.unchanged


@pytest.mark.parametrize(("change", "words"), [(_cordoned, "max_nodes is 1"), (_switched, "is on")])
def test_what_changed_before_it_had_the_lease_is_seen(
    scene: Scene, change: Callable[[Scene], None], words: str
):
    """Another node acted, or a person threw the switch, while it waited."""

    def on(verb: str, path: str) -> None:
        if verb == "POST" and path.endswith("/leases"):
            change(scene)

    scene.fake.on = on
    decision = scene.run()
    assert decision.how == "did not act"
    assert words in decision.why
    assert scene.unchanged
    assert all_runs(scene.state) == []
    assert scene.fake.things[LEASE]["spec"]["holderIdentity"] == ""


def test_two_nodes_at_once_one_acts(scene: Scene, tmp_path):
    """Both saw a free pool before either had the Lease."""
    scene.auto.fix.state.make()
    order = []

    def on(verb: str, path: str) -> None:
        if verb == "POST" and path.endswith("/leases") and not order:
            order.append(1)
            _cordoned(scene)  # the other one had it, acted, and gave it back
            held(scene.fake, "")

    scene.fake.on = on
    first = scene.run()
    assert first.how == "did not act"
    assert "at the same moment" in first.why
    second = scene.run()
    assert "max_nodes is 1" in second.why
    assert scene.unchanged

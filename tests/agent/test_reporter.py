"""What is written when, against a fake API server: changes, heartbeats, failures, other writers."""

from __future__ import annotations

import random

import pytest

from sexton.agent import reporter as module
from sexton.agent.condition import State
from sexton.agent.events import AGAIN_S, MOST_AN_HOUR, MOST_KNOWN, REFRESH_S
from sexton.agent.reporter import HEARTBEAT_S, SPREAD_S, Reporter
from sexton.agent.verdict import Cause
from sexton.cluster.client import Answer, Unreachable
from sexton.cluster.pacing import MOST_S
from tests.agent.fake import NODE, FakeServer, node

FINE = State("True", "Healthy", "no problem found")
CHAIN = Cause("crash_looping_unit", "zombie_memcgs", "a.service", "proven", "a → b")
ILL = State("False", "CrashLoopingUnit", "a → b (proven)")


class Scene:
    """A reporter and its server, with a clock that only tests move. The wall clock is apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = FakeServer()
        self.said: list[str] = []
        self.now = 1000.0
        self.wall = 1_740_000_000.0
        monkeypatch.setattr(module.time, "time", lambda: self.wall)
        self.reporter = self.new_reporter()

    def new_reporter(self) -> Reporter:
        return Reporter(NODE, lambda: self.server, self.said.append, random.Random(7))

    def see(self, state: State = FINE, *causes: Cause) -> None:
        self.reporter.see(state, causes, self.now)

    def pass_s(self, seconds: float, step_s: float = 1.0) -> None:
        for _ in range(int(seconds / step_s)):
            self.now += step_s
            self.wall += step_s
            self.reporter.report(self.now)

    def status(self) -> tuple[str, str]:
        found = self.server.condition
        assert found is not None
        return found["status"], found["lastTransitionTime"]


@pytest.fixture
def scene(monkeypatch) -> Scene:
    return Scene(monkeypatch)


def test_nothing_is_written_before_there_is_a_verdict(scene):
    scene.pass_s(1000)
    assert scene.server.calls == []


def test_a_condition_is_written_soon_and_then_as_a_heartbeat_only(scene):
    scene.see()
    scene.pass_s(SPREAD_S + 1)
    first = scene.server.condition
    assert first["status"] == "True"
    assert first["lastHeartbeatTime"] == first["lastTransitionTime"]
    assert len(scene.server.writes) == 1
    for _ in range(60):
        scene.see()
        scene.pass_s(60, step_s=5)
    beats = len(scene.server.writes) - 1
    assert 3600 / HEARTBEAT_S[1] - 1 <= beats <= 3600 / HEARTBEAT_S[0] + 1
    last = scene.server.condition
    assert last["lastTransitionTime"] == first["lastTransitionTime"]
    assert last["lastHeartbeatTime"] > first["lastHeartbeatTime"]
    assert scene.server.node["status"]["conditions"][0]["type"] == "Ready"


def test_a_change_is_written_soon_and_keeps_the_time_of_a_transition(scene):
    scene.see()
    scene.pass_s(20)
    healthy = scene.status()
    scene.see(ILL, CHAIN)
    scene.pass_s(SPREAD_S + 1)
    ill = scene.status()
    assert ill[0] == "False"
    assert ill[1] > healthy[1]
    scene.see(ILL._replace(reason="OtherRoot"), CHAIN)
    scene.pass_s(SPREAD_S + 1)
    assert scene.status() == ill
    assert scene.server.condition["reason"] == "OtherRoot"


def test_a_restarted_agent_keeps_the_time_of_the_transition(scene):
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    before = scene.status()
    scene.reporter = scene.new_reporter()
    scene.pass_s(600)
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    assert scene.status() == before
    assert scene.said == []


def test_an_event_for_each_chain_once_and_counted_up_while_it_goes_on(scene):
    for _ in range(int(2.5 * REFRESH_S / 60)):
        scene.see(ILL, CHAIN)
        scene.pass_s(60, step_s=5)
    (event,) = scene.server.events.values()
    assert event["involvedObject"]["uid"] == "uid-1"
    assert event["reason"] == "CrashLoopingUnit"
    assert event["count"] == 3
    assert event["lastTimestamp"] > event["firstTimestamp"]
    assert sum("events" in call for call in scene.server.writes) == 3


def test_a_chain_that_comes_and_goes_is_not_an_event_each_time(scene):
    for _ in range(30):
        scene.see(ILL, CHAIN)
        scene.pass_s(30)
        scene.see(FINE)
        scene.pass_s(30)
    (event,) = scene.server.events.values()
    assert event["count"] <= 30 * 60 / AGAIN_S + 1


def test_a_restarted_agent_goes_on_with_the_event(scene):
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    scene.reporter = scene.new_reporter()
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    (event,) = scene.server.events.values()
    assert event["count"] == 1
    scene.pass_s(REFRESH_S)
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    assert event["count"] == 2


def test_an_event_that_the_server_forgot_is_created_again(scene):
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    scene.server.events.clear()
    scene.pass_s(REFRESH_S)
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    assert len(scene.server.events) == 1


def test_new_names_all_the_time_make_few_events(scene):
    for number in range(200):
        scene.see(ILL, CHAIN._replace(culprit=f"{number}.service"))
        scene.pass_s(30)
    hours = 200 * 30 / 3600
    assert len(scene.server.events) <= MOST_AN_HOUR * (hours + 1)
    assert len(scene.reporter._book._entries) <= MOST_KNOWN
    assert scene.said == ["over 10 new cause chains in an hour: not all are events"]


@pytest.mark.parametrize(
    "failing",
    [Unreachable("10.0.0.1:443: timed out"), Answer(503, {}), Answer(500, {"message": "etcd"})],
)
def test_a_server_that_is_gone_for_an_hour_gets_the_latest_and_what_happened(scene, failing):
    scene.see()
    scene.pass_s(20)
    scene.server.failing = failing
    began = len(scene.server.calls)
    for number in range(60):
        if number < 30:
            scene.see(ILL, CHAIN)
        else:
            scene.see(FINE)
        scene.pass_s(60)
    calls = len(scene.server.calls) - began
    assert 5 <= calls <= 60, "back-off"
    assert len(scene.said) == 1
    scene.server.failing = None
    scene.pass_s(MOST_S + 1)
    assert scene.status()[0] == "True"
    (event,) = scene.server.events.values()
    assert event["lastTimestamp"] > event["firstTimestamp"]
    assert scene.said[1:] == ["the API server is reached again"]


def test_it_waits_as_long_as_the_server_asks(scene):
    scene.see()
    scene.server.failing = Answer(429, {"message": "too many requests"}, 120.0)
    scene.pass_s(SPREAD_S + 1)
    assert len(scene.server.calls) == 1
    scene.pass_s(105)
    assert len(scene.server.calls) == 1
    scene.server.failing = None
    scene.pass_s(30)
    assert scene.status()[0] == "True"


def test_5000_agents_do_not_come_back_at_the_same_moment(monkeypatch):
    dues = []
    for seed in range(5000):
        reporter = Reporter(NODE, FakeServer, lambda words: None, random.Random(seed))
        reporter.see(FINE, (), 0.0)
        dues.append(reporter.due_s)
    assert max(dues) <= SPREAD_S
    most = max(sum(second <= due < second + 1 for due in dues) for second in range(10))
    assert most <= 700


@pytest.mark.parametrize("status", [403, 404, 422])
def test_what_the_server_refuses_is_one_line_and_tried_again_slowly(scene, status):
    scene.see()
    scene.server.failing = Answer(status, {"message": "nodes is\nforbidden"})
    scene.pass_s(3600, step_s=5)
    assert len(scene.said) == 1
    assert f"get nodes/{NODE}: {status} nodes is" in scene.said[0]
    assert len(scene.server.calls) <= 1 + 3600 / (MOST_S / 2)
    scene.server.failing = None
    scene.pass_s(MOST_S + 1)
    assert scene.status()[0] == "True"


def test_an_expired_token_is_tried_again_soon(scene):
    """Each attempt is a new connection, which reads the token again: see test_access."""
    scene.see()
    scene.server.failing = Answer(401, {"message": "Unauthorized"})
    scene.pass_s(SPREAD_S + 1)
    scene.server.failing = None
    scene.pass_s(30)
    assert scene.status()[0] == "True"


def test_a_conflicting_patch_is_tried_again_soon(scene):
    scene.see()
    scene.server.failing_calls["PATCH"] = Answer(409, {"message": "the object has been modified"})
    scene.pass_s(SPREAD_S + 1)
    scene.server.failing_calls.clear()
    scene.pass_s(60)
    assert scene.status()[0] == "True"


def test_without_the_right_to_create_events_the_condition_goes_on(scene):
    scene.server.failing_calls["POST"] = Answer(403, {"message": "cannot create events"})
    scene.see(ILL, CHAIN)
    scene.pass_s(3600, step_s=5)
    patches = [call for call in scene.server.calls if call.startswith("PATCH")]
    assert 3600 / (HEARTBEAT_S[1] + MOST_S) <= len(patches) <= 3600 / HEARTBEAT_S[0] + 1
    assert len(scene.said) == 1


def test_an_event_that_is_not_valid_does_not_hold_up_the_others(scene, monkeypatch):
    plain = scene.server.post

    def post(path, body):
        if "bad" in body["message"]:
            return Answer(422, {"message": "invalid"})
        return plain(path, body)

    monkeypatch.setattr(scene.server, "post", post)
    bad = CHAIN._replace(culprit="bad", sentence="bad")
    scene.see(ILL, bad, CHAIN)
    scene.pass_s(SPREAD_S + 1)
    assert len(scene.server.events) == 1
    scene.pass_s(1000)
    assert len(scene.said) == 1


def test_a_node_that_was_created_anew_gets_its_own_condition_and_events(scene):
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    scene.server.node = node("uid-2")
    scene.pass_s(HEARTBEAT_S[1] + 1)
    assert scene.status()[0] == "False"
    uids = [event["involvedObject"]["uid"] for event in scene.server.events.values()]
    assert uids == ["uid-1", "uid-2"]
    assert "created anew" in scene.said[0]


def test_a_condition_that_was_removed_is_written_again(scene):
    scene.see()
    scene.pass_s(20)
    scene.server.node = node("uid-1")
    scene.pass_s(HEARTBEAT_S[1] + 1)
    assert scene.status()[0] == "True"


def test_a_second_agent_is_noticed_once(scene):
    scene.see()
    scene.pass_s(20)
    for _ in range(3):
        scene.server.condition["lastHeartbeatTime"] = "2025-01-01T00:00:00Z"
        scene.pass_s(HEARTBEAT_S[1] + 1)
    assert [words for words in scene.said if "second agent" in words] == scene.said
    assert len(scene.said) == 1


def test_a_patch_that_was_carried_out_but_not_answered_is_our_own(scene, monkeypatch):
    scene.see()
    scene.pass_s(20)
    plain, lost = scene.server.patch, []

    def patch(path, body):
        plain(path, body)
        if not lost:
            lost.append(path)
            raise Unreachable("timed out")
        return plain(path, body)

    monkeypatch.setattr(scene.server, "patch", patch)
    scene.see(ILL)
    scene.pass_s(60)
    assert scene.status()[0] == "False"
    assert [words for words in scene.said if "second agent" in words] == []


@pytest.mark.parametrize("jump_s", [-1e6, 1e6, 1e12])
def test_a_wall_clock_that_jumps_changes_no_schedule(scene, jump_s):
    scene.see(ILL, CHAIN)
    scene.pass_s(20)
    calls = len(scene.server.calls)
    scene.wall += jump_s
    scene.pass_s(100)
    assert len(scene.server.calls) == calls
    scene.pass_s(HEARTBEAT_S[1])
    assert len(scene.server.calls) == calls + 2
    assert scene.status()[0] == "False"


def test_hostile_answers_are_no_crash(scene):
    for body in ({}, {"status": []}, {"metadata": 7}, {"status": {"conditions": [1, {}, None]}}):
        scene.server.node = body
        scene.see(ILL)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(scene.server, "patch", lambda path, patch: Answer(200, {}))
            scene.pass_s(HEARTBEAT_S[1] + 1)
    assert not [words for words in scene.said if "Error" in words]

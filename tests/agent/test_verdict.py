"""The verdict in few words: the exporter's, stable, and escaped."""

from __future__ import annotations

import json
import re

import pytest

from lab.incident import incidents
from sexton.agent.condition import MOST_MESSAGE, condition, state_of
from sexton.agent.judging import verdict_of
from sexton.agent.verdict import MOST_CAUSES, Cause, NodeVerdict, from_json
from sexton.errors import SourceMalformed
from sexton.export import families as f
from sexton.export.judged import judged
from sexton.export.work import Judged
from sexton.model.diagnosis import Exit
from sexton.replay.span import Span

STATUS = {0: "True", 1: "False", 3: "Unknown"}


@pytest.mark.parametrize("incident", incidents(), ids=lambda incident: incident.name)
def test_a_recorded_incident_has_the_same_verdict_as_its_metrics(incident):
    window, diagnosis = incident.replay.window, incident.diagnosis
    samples = judged(window, diagnosis)
    span = Span("boot", (0.0, 0.0), (10.0, 20.0))
    verdict = from_json(verdict_of(Judged(span, window, diagnosis)).to_json())
    assert int(verdict.exit) == samples.value(f.VERDICT)
    state = state_of(verdict)
    assert state.status == STATUS[int(verdict.exit)]
    assert re.fullmatch("[A-Za-z][A-Za-z0-9]*", state.reason)
    chains = [cause for cause in verdict.causes if cause.strength]
    shown = {labels for labels, _ in samples.of(f.CHAIN)}
    assert {(c.root, c.symptom, c.strength) for c in chains} <= shown
    if verdict.exit is Exit.PROBLEM:
        assert verdict.causes, "a problem has a cause, or is one"
        assert state.message.startswith(verdict.causes[0].words[:100])
    else:
        assert not verdict.causes


def verdict(exit_: Exit = Exit.PROBLEM, *causes: Cause, unknown: tuple[str, ...] = ()):
    return NodeVerdict(exit_, "boot", 1.0, 2.0, 300.0, causes, unknown)


HOSTILE = "a\x1b[2J\n\u202e<script>\udcff" + "\U0001f4a5" * 2000


def test_hostile_names_are_escaped_and_bounded_in_valid_utf_8():
    cause = Cause("x", "y", HOSTILE, "likely", HOSTILE)
    found = from_json(verdict(Exit.PROBLEM, *[cause] * 9).to_json())
    assert len(found.causes) == MOST_CAUSES
    state = state_of(found)
    assert len(state.message.encode()) <= MOST_MESSAGE
    assert state.message.startswith("a\\x1b[2J\\n\\u202e<script>\\xff")


def test_what_is_unknown_is_named():
    state = state_of(verdict(Exit.CANNOT_TELL, unknown=("a", "b")))
    assert (state.status, state.message) == ("Unknown", "not known here: a, b")


def test_a_problem_without_words_is_not_healthy():
    assert state_of(verdict()).status == "Unknown"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"exit": 9}', "[" * 100_000, "\x00"])
def test_what_is_no_verdict_is_refused(text):
    with pytest.raises(SourceMalformed):
        from_json(text)


def test_values_of_the_wrong_type_are_refused():
    plain = json.loads(verdict().to_json())
    for name, value in (("exit", "1"), ("mono_s", "x"), ("causes", 7), ("causes", [[1]])):
        with pytest.raises(SourceMalformed):
            from_json(json.dumps({**plain, name: value}))


def test_a_transition_of_an_unreadable_condition_is_now():
    state = state_of(verdict(Exit.HEALTHY))
    for before in (None, {}, {"status": "True"}, {"status": "True", "lastTransitionTime": 7}):
        assert condition(state, before, "now")["lastTransitionTime"] == "now"

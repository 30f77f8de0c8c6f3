"""A plan keeps its meaning through a file, and one that was changed is none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.plan import (
    Condition,
    Criterion,
    Plan,
    PlanError,
    Refusal,
    Step,
    as_json,
    canonical,
    from_json,
)


def step(**changes) -> Step:
    made = Step(
        id="1-stop",
        remedy="stop_unit",
        title="stop a.service",
        target="a.service",
        risk="low",
        risk_why="it dies anyway",
        preconditions=(Condition("LoadState", "systemd", "loaded", "why", "unit.load_state a"),),
        effect="stops it",
        cannot_undo="",
        undo="starts it",
        proof=(Criterion("it runs", "systemd", "<=", 0, "", "unit.running a"),),
        commands=("systemctl stop a.service",),
        parameters={"unit": "a.service", "number": 3, "share": 0.5, "yes": True},
    )
    return replace(made, **changes)


def plan(**changes) -> Plan:
    made = Plan(
        node="node-1",
        boot_id="b" * 36,
        made_unix=1.5,
        evidence_until_unix=1.0,
        diagnosis_root="a.service restarts",
        steps=(step(),),
        refusals=(Refusal("kubelet.service", "protected", "--accept-collateral"),),
        notes=("a note",),
        baseline={"dying": 12.0, "cores": "5 7"},
    )
    return replace(made, **changes)


def kept(made: Plan) -> dict:
    return json.loads(json.dumps(as_json(made)))


def test_it_comes_back_from_a_file_as_it_was():
    assert from_json(kept(plan())) == plan()
    assert from_json(kept(plan())).hash == plan().hash


def test_names_that_are_no_utf_8_survive_in_the_parameters_and_are_escaped_in_the_texts():
    raw = b"/top/\xff\x1b[2J".decode("utf-8", "surrogateescape")
    made = plan(steps=(step(target=raw, parameters={"parent": raw}),))
    back = from_json(kept(made))
    assert back.steps[0].parameters["parent"] == raw
    assert back.steps[0].target == "/top/\\xff\\x1b[2J"
    assert canonical(back).isascii()


@pytest.mark.parametrize(
    "changed",
    [
        {"node": "node-2"},
        {"boot_id": "c" * 36},
        {"evidence_until_unix": 2.0},
        {"steps": (step(parameters={"unit": "b.service"}),)},
        {"steps": (step(), step(id="2-stop"))},
        {"refusals": ()},
    ],
)
def test_every_change_is_another_hash(changed):
    assert plan(**changed).hash != plan().hash


def test_a_file_that_was_edited_is_refused():
    told = kept(plan())
    told["steps"][0]["parameters"]["unit"] = "sshd.service"
    with pytest.raises(PlanError, match="changed after it was made"):
        from_json(told)
    told = kept(plan())
    del told["hash"]
    with pytest.raises(PlanError, match="changed after it was made"):
        from_json(told)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "sexton.plan/2"),
        (("steps",), {}),
        (("steps", 0, "risk"), "negligible"),
        (("steps", 0, "automatic"), "yes"),
        (("steps", 0, "parameters"), {"unit": ["a"]}),
        (("steps", 0, "proof", 0, "value"), True),
        (("steps", 0, "commands"), [1]),
        (("steps", 0, "more"), 1),
        (("made_unix",), "now"),
        (("notes",), [None]),
        (("refusals",), [7]),
    ],
)
def test_what_is_not_of_its_shape_is_refused_with_a_word(path, value):
    told = kept(plan())
    place = told
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(PlanError):
        from_json(told)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(kept(plan()))), _JSON)
def test_junk_in_any_place_is_no_plan_and_no_crash(name: str, junk):
    told = kept(plan())
    if told[name] == junk:
        return
    told[name] = junk
    with pytest.raises(PlanError):
        from_json(told)


@given(st.sampled_from(sorted(kept(plan())["steps"][0])), _JSON)
def test_junk_in_a_step_is_no_plan_and_no_crash(name: str, junk):
    told = kept(plan())
    if told["steps"][0][name] == junk:
        return
    told["steps"][0][name] = junk
    with pytest.raises(PlanError):
        from_json(told)

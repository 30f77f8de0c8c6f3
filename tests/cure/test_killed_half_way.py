"""`kill -9` at every point of apply and rollback; then rollback leaves the node as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cure.fixing import (
    APPLY,
    UNIT,
    apply,
    fix,
    fixable,
    picture,
    plan_for,
    plant_loop,
    running,
    uproot,
)
from tests.yard.yard import Yard

pytestmark = [pytest.mark.root, pytest.mark.systemd]

STEPS = (
    pytest.param("1-stop", marks=pytest.mark.whole),
    "2-disable",
    pytest.param("3-mask", marks=pytest.mark.whole),
)
#: Where in a step it is killed, as a piece of Python around the real thing.
POINTS = {
    "before the journal": """
def write(self, kind, **told):
    if (kind, told.get("step")) == ("before", STEP): die()
    real(self, kind, **told)
""",
    "in the middle of a line of the journal": """
def write(self, kind, **told):
    if (kind, told.get("step")) == ("before", STEP):
        whole = json.dumps({"kind": kind, **told}).encode()
        name = f"{self._state.directory}/runs/{self.run}.jsonl"
        with open(name, "ab") as stream:
            stream.write(whole[: len(whole) // 2])
        die()
    real(self, kind, **told)
""",
    "after the journal": """
def write(self, kind, **told):
    real(self, kind, **told)
    if (kind, told.get("step")) == ("before", STEP): die()
""",
    "after the action": """
def write(self, kind, **told):
    if (kind, told.get("step")) == ("done", STEP): die()
    real(self, kind, **told)
""",
    "after its end was journalled": """
def write(self, kind, **told):
    real(self, kind, **told)
    if (kind, told.get("step")) == ("done", STEP): die()
""",
}
#: The two that leave most behind; `make test` kills at these, `make check` at all of them.
_WORST = ("in the middle of a line of the journal", "after the action")
_PATCH = """
import json, os, signal
def die():
    os.kill(os.getpid(), signal.SIGKILL)
STEP = {step!r}
from sexton.cure.journal import Journal
real = Journal.write
{point}
Journal.write = write
"""
#: In the middle of an action: the link is made or gone and systemd does not know of it yet.
_HALF = """
import os, signal
from sexton.cure.writer import LiveWriter
def systemctl(self, verb, *rest, **more):
    if verb == "daemon-reload":
        calls.append(verb)
        if len(calls) == {call}: os.kill(os.getpid(), signal.SIGKILL)
    return real(self, verb, *rest, **more)
calls, real = [], LiveWriter.systemctl
LiveWriter.systemctl = systemctl
"""
_UNDO = """
import os, signal
from sexton.cure.journal import Journal
real = Journal.write
def write(self, kind, **told):
    if {when} == "before": kill(kind, told)
    real(self, kind, **told)
    if {when} == "after": kill(kind, told)
def kill(kind, told):
    if (kind, told.get("step")) == ({kind!r}, {step!r}):
        os.kill(os.getpid(), signal.SIGKILL)
Journal.write = write
"""
KILLED = 137


@pytest.fixture(scope="module")
def ground() -> Iterator[Yard]:
    with fixable() as up:
        yield up


@pytest.fixture
def place(ground: Yard) -> Iterator[Yard]:
    plant_loop(ground)
    yield ground
    uproot(ground, UNIT)


def rolled_back(yard: Yard, before: object) -> None:
    """Whatever state it is in: the way back."""
    back = fix(yard, "rollback")
    assert back.returncode == 0, back.stdout + back.stderr
    yard.wait("it loops again", lambda: running(yard))
    assert picture(yard) == before


def test_what_was_cut_off_is_shown_and_undone_before_anything_else(place: Yard):
    before = picture(place)
    point = POINTS["after the journal"]
    code = _PATCH.format(step="2-disable", point=point) + APPLY
    assert apply(place, plan_for(place), code=code).returncode == KILLED
    status = fix(place, "status")
    assert status.returncode == 1
    assert "INTERRUPTED" in status.stdout
    refused = apply(place, plan_for(place))
    assert refused.returncode == 1
    assert "was interrupted" in " ".join(refused.stdout.split())
    rolled_back(place, before)
    assert fix(place, "status").returncode == 0
    assert apply(place, plan_for(place)).returncode == 0, "and it can be applied again"
    assert not running(place)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=() if point in _WORST else pytest.mark.whole) for point in POINTS],
)
def test_killed_in_a_step_and_rolled_back_it_is_as_it_was(place: Yard, point: str, step: str):
    before = picture(place)
    code = _PATCH.format(step=step, point=POINTS[point]) + APPLY
    assert apply(place, plan_for(place), code=code).returncode == KILLED
    rolled_back(place, before)


@pytest.mark.parametrize(
    "call", [pytest.param(1, id="disable"), pytest.param(2, id="mask", marks=pytest.mark.whole)]
)
def test_killed_before_systemd_knows_of_a_change_it_is_undone_all_the_same(place: Yard, call: int):
    before = picture(place)
    code = _HALF.format(call=call) + APPLY
    assert apply(place, plan_for(place), code=code).returncode == KILLED
    rolled_back(place, before)


@pytest.mark.whole
def test_killed_before_its_first_line_it_never_began(place: Yard):
    before = picture(place)
    point = """
def write(self, kind, **told):
    with open(f"{self._state.directory}/runs/{self.run}.jsonl", "ab") as stream:
        stream.write(b'{"kind": "beg')
    die()
"""
    code = _PATCH.format(step="", point=point) + APPLY
    assert apply(place, plan_for(place), code=code).returncode == KILLED
    assert picture(place) == before
    assert apply(place, plan_for(place)).returncode == 0
    assert fix(place, "rollback").returncode == 0
    place.wait("it loops again", lambda: running(place))
    assert picture(place) == before


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("when", "kind"),
    [
        ("after", "undoing"),
        pytest.param("before", "undone", marks=pytest.mark.whole),
        pytest.param("after", "undone", marks=pytest.mark.whole),
    ],
)
def test_a_rollback_that_is_killed_can_be_run_again(place: Yard, when: str, kind: str, step: str):
    before = picture(place)
    assert apply(place, plan_for(place)).returncode == 0
    code = _UNDO.format(when=repr(when), kind=kind, step=step) + APPLY
    assert fix(place, "rollback", code=code).returncode == KILLED
    back = fix(place, "rollback")
    assert back.returncode == 0, back.stdout + back.stderr
    place.wait("it loops again", lambda: running(place))
    assert picture(place) == before

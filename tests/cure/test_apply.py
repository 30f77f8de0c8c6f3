"""One step at a time, journalled first, stopped by the first thing that is not as it should be."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sexton.cure import apply as applying
from sexton.cure import preconditions, rollback
from sexton.cure.apply import DONE, FAILED, REFUSED, SKIPPED, WOULD, FixContext, Refused, apply
from sexton.cure.journal import COMPLETE, ROLLED_BACK, STOPPED, State, audit_log, read_run
from sexton.cure.preconditions import Probes
from sexton.cure.reclaim.count import NODE
from sexton.cure.writer import DryWriter
from sexton.errors import CommandError, SourceTimeout
from sexton.host.host import open_host
from sexton.model.plan import Condition, Criterion
from sexton.reports.text.fix import applied_json, applied_text
from tests.model.test_plan import plan, step
from tests.support.trees import plant

BOOT = "0f0f0f0f-1111-2222-3333-444444444444"


class Calm:
    """A watchdog that barks when it is told to."""

    reason = ""
    watches = "nothing"
    end_s = 1e18

    def settle(self, seconds: float) -> None: ...

    def reclaiming(self, on: bool) -> None: ...

    def close(self) -> None: ...


class Acts:
    """Remedies that write down what is asked of them."""

    RECLAIMS = False

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.outcome: dict[str, object] = {}
        self.after = lambda step: None

    def prepare(self, step, context):
        self.calls.append(f"prepare {step.id}")
        return {"kept": step.id}

    def carry_out(self, step, context):
        self.calls.append(f"do {step.id}")
        if step.id in self.fails:
            raise self.fails[step.id]
        self.after(step)
        return {"said": f"did {step.id}", **self.outcome}

    def undo(self, before, context):
        self.calls.append(f"undo {before['kept']}")
        if f"undo {before['kept']}" in self.fails:
            raise self.fails[f"undo {before['kept']}"]
        return ["put back"]


@pytest.fixture
def scene(tmp_path, monkeypatch):
    host = plant(
        tmp_path / "root",
        {"/proc/sys/kernel/random/boot_id": f"{BOOT}\n", "/proc/sys/kernel/hostname": "node-1\n"},
    )
    acts = Acts()
    for module in (applying, rollback):
        monkeypatch.setattr(module, "remedy", lambda name: acts)
    watch = Calm()
    said: list[str] = []
    fix = FixContext(
        host, DryWriter(), State(str(tmp_path / "fix")), (), said.append, watch=lambda *_: watch
    )
    return SimpleNamespace(
        fix=fix, acts=acts, watch=watch, said=said, root=tmp_path / "root",
        plan=plan(
            boot_id=BOOT, evidence_until_unix=time.time(),
            steps=tuple(step(id=f"{n}-x", preconditions=(), proof=()) for n in (1, 2, 3)),
        ),
    )  # fmt: skip


def condition(expected: str = "node-1", **more) -> Condition:
    return Condition("the name", "hostname", expected, "why", "hostname", **more)


def test_every_step_is_journalled_before_it_is_done(scene):
    seen: list[list[str]] = []

    def look(step) -> None:
        (run,) = scene.fix.state.runs()
        seen.append([record.step for record in read_run(scene.fix.state, run).records])

    scene.acts.after = look
    applied = apply(scene.plan, scene.fix, 60)
    assert seen == [["1-x"], ["1-x", "2-x"], ["1-x", "2-x", "3-x"]]
    assert [item.state for item in applied.steps] == [DONE] * 3
    told = read_run(scene.fix.state, applied.run)
    assert told.state == COMPLETE
    assert [record.outcome["said"] for record in told.records] == ["did 1-x", "did 2-x", "did 3-x"]
    events = [item["event"] for item in audit_log(scene.fix.state)]
    assert events == ["apply_begin", "apply_step", "apply_step", "apply_step", "apply_end"]


def test_a_step_that_fails_ends_it_and_what_was_done_stays(scene):
    scene.acts.fails["2-x"] = CommandError("systemctl said no")
    applied = apply(scene.plan, scene.fix, 60)
    assert [item.state for item in applied.steps] == [DONE, FAILED, SKIPPED]
    assert applied.how == STOPPED
    assert "systemctl said no" in applied.why
    done = rollback.rollback(rollback.choose(scene.fix.state, None), scene.fix)
    assert scene.acts.calls[-2:] == ["undo 2-x", "undo 1-x"], "the failed one may have done half"
    assert not done.failed
    assert read_run(scene.fix.state, applied.run).state == ROLLED_BACK


def test_a_precondition_that_an_earlier_step_broke_refuses_the_next(scene):
    steps = (scene.plan.steps[0], step(id="2-x", preconditions=(condition(),), proof=()))
    scene.acts.after = lambda _: (scene.root / "proc/sys/kernel/hostname").write_text("other\n")
    applied = apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert [item.state for item in applied.steps] == [DONE, REFUSED]
    assert "the name: now other" in applied.why
    assert "prepare 2-x" not in scene.acts.calls


def test_a_condition_that_a_step_makes_true_is_not_asked_for_before_it(scene):
    later = condition("other", after="1-x")
    steps = (scene.plan.steps[0], step(id="2-x", preconditions=(later,), proof=()))
    scene.acts.after = lambda _: (scene.root / "proc/sys/kernel/hostname").write_text("other\n")
    applied = apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert [item.state for item in applied.steps] == [DONE, DONE]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"boot_id": "another"}, "booted since"),
        ({"evidence_until_unix": 1.0}, "limit 1 h"),
        ({"evidence_until_unix": 9e9}, "in the future"),
        ({"steps": ()}, "has no step that Sexton applies"),
        ({"steps": (step(preconditions=(condition("node-2"),)),)}, "the name: now node-1"),
        (
            {"steps": (step(preconditions=(replace(condition(), probe="nothing x"),)),)},
            "unknown reading",
        ),
    ],
)
def test_it_refuses_before_anything_is_touched_and_says_why(scene, changes, said: str):
    with pytest.raises(Refused) as refused:
        apply(replace(scene.plan, **changes), scene.fix, 60)
    assert said in str(refused.value)
    assert refused.value.exit_code == 1
    assert scene.acts.calls == []
    assert scene.fix.state.runs() == []
    assert [item["event"] for item in audit_log(scene.fix.state)] == ["apply_refused"]


def test_every_reason_is_told_and_not_only_the_first(scene):
    steps = (step(id="1-x", preconditions=(condition("a"),)),
             step(id="2-x", preconditions=(condition("b"),)))  # fmt: skip
    with pytest.raises(Refused) as refused:
        apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert len(refused.value.reasons) == 2


def test_a_watchdog_that_barks_stops_it_after_the_step(scene):
    def bark(done) -> None:
        scene.watch.reason = "eth0 total_resets rose"

    scene.acts.after = bark
    applied = apply(scene.plan, scene.fix, 60)
    assert [item.state for item in applied.steps] == [DONE, SKIPPED, SKIPPED]
    assert applied.why == "eth0 total_resets rose"


def test_a_watchdog_that_barks_at_once_lets_nothing_happen(scene):
    scene.watch.reason = "io pressure"
    applied = apply(scene.plan, scene.fix, 60)
    assert [item.state for item in applied.steps] == [REFUSED, SKIPPED, SKIPPED]
    assert scene.acts.calls == []


def test_a_proof_that_is_missing_stops_it(scene):
    promised = Criterion("its name", "hostname", ">=", 1, "", "hostname")
    steps = (step(id="1-x", preconditions=(), proof=(promised,)), scene.plan.steps[1])
    applied = apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert [item.state for item in applied.steps] == [DONE, SKIPPED]
    assert "its name: node-1" in applied.why


def test_freeing_that_freed_nothing_stops_nothing_but_is_not_proven(scene):
    scene.acts.RECLAIMS = True
    promised = Criterion("zombies", "census", "<", 1, "", "hostname")
    steps = (step(id="1-x", preconditions=(), proof=(promised,)), scene.plan.steps[1])
    applied = apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert [item.state for item in applied.steps] == [DONE, DONE]
    assert applied.steps[0].proofs == (("zombies", False, "node-1"),)
    assert (applied.exit, applied.unproven) == (1, ["1-x: zombies: node-1"])
    text = applied_text(scene.plan, applied, 100)
    assert text.startswith("DONE, NOT PROVEN")
    assert "no effect: 1-x: zombies: node-1." in text
    assert applied_json(scene.plan, applied)["exit"] == 1


@pytest.mark.parametrize(
    ("outcome", "holds", "reading"),
    [
        ({"freed": 1_400, "dying_after": 132}, True, "1,532 before, 132 after"),
        ({"freed": 1, "dying_after": 1_531}, False, "1,532 before, 1,531 after"),  # noise
        (
            {"freed": 40, "dying_after": 1_492, "scope": NODE, "parent": "/a",
             "held_before_bytes": 12 << 20, "held_after_bytes": 12 << 20},
            False,
            "1,532 before, 1,492 after, but none under /a",
        ),
        (
            {"freed": 40, "dying_after": 1_492, "scope": NODE, "parent": "/a",
             "held_before_bytes": 12 << 20, "held_after_bytes": 1 << 20},
            True,
            "1,532 before, 1,492 after",
        ),
        ({"freed": None, "dying_after": 3}, None, ""),
    ],
)  # fmt: skip
def test_freeing_is_proven_by_more_than_what_comes_and_goes(scene, outcome, holds, reading):
    scene.acts.RECLAIMS, scene.acts.outcome = True, outcome
    promised = Criterion("zombies", "counted before and after", "<", 1_532, "")
    steps = (step(id="1-x", preconditions=(), proof=(promised,)),)
    applied = apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert applied.steps[0].proofs == (("zombies", holds, reading),)
    assert applied.exit == {True: 0, False: 1, None: 3}[holds]


@pytest.mark.parametrize(("proven", "code"), [([True, "3 of 3"], 0), ([False, "1 of 3"], 1)])
def test_a_step_may_measure_its_own_proof_and_what_it_could_not_do_stops_nothing(
    scene, proven, code
):
    scene.acts.outcome = {"proven": proven}
    promised = Criterion("each is gone", "their directories", "<=", 0, "left")
    steps = tuple(step(id=f"{n}-x", preconditions=(), proof=(promised,)) for n in (1, 2))
    applied = apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert [item.state for item in applied.steps] == [DONE, DONE]
    assert applied.steps[0].proofs == (("each is gone", *proven),)
    assert applied.exit == code


def test_a_proof_that_cannot_be_read_is_not_a_proof(scene):
    promised = Criterion("it runs", "systemd", "<=", 0, "", "unit.running a")
    steps = (step(id="1-x", preconditions=(), proof=(promised,)),)
    applied = apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert (applied.why, applied.exit) == ("", 3)
    assert applied_text(scene.plan, applied, 100).startswith("DONE, NOT CHECKED")


def test_one_step_is_applied_alone_and_the_others_later(scene):
    first = apply(scene.plan, scene.fix, 60, ["2-x"])
    assert [item.step.id for item in first.steps] == ["2-x"]
    told = read_run(scene.fix.state, first.run)
    assert [item.id for item in told.steps] == ["2-x"]
    with pytest.raises(Refused, match="step 2-x of this plan was already applied"):
        apply(scene.plan, scene.fix, 60, ["2-x", "3-x"])
    with pytest.raises(Refused, match="this plan was already applied"):
        apply(scene.plan, scene.fix, 60)
    second = apply(scene.plan, scene.fix, 60, ["3-x", "1-x"])
    assert [item.step.id for item in second.steps] == ["1-x", "3-x"], "in the plan's order"


def test_a_step_alone_needs_what_the_step_before_it_would_have_done(scene):
    later = condition("other", after="1-x")
    steps = (scene.plan.steps[0], step(id="2-x", preconditions=(later,), proof=()))
    with pytest.raises(Refused, match="step 2-x: the name"):
        apply(replace(scene.plan, steps=steps), scene.fix, 60, ["2-x"])
    assert scene.acts.calls == []


def test_a_step_that_is_not_in_the_plan_is_an_error_that_names_those_that_are(scene):
    with pytest.raises(CommandError, match=r"no step '9-y'.*1-x, 2-x, 3-x"):
        apply(scene.plan, scene.fix, 60, ["9-y"])


def test_a_dry_run_asks_for_everything_and_journals_nothing(scene):
    scene.fix.dry = True
    later = condition("other", after="1-x")
    steps = (scene.plan.steps[0], step(id="2-x", preconditions=(later,), proof=()))
    applied = apply(replace(scene.plan, steps=steps), scene.fix, 60)
    assert [item.state for item in applied.steps] == [WOULD, WOULD]
    assert scene.fix.state.runs() == []
    assert "dry_run_begin" in [item["event"] for item in audit_log(scene.fix.state)]


def test_a_plan_is_applied_once_and_again_only_after_its_undo(scene):
    first = apply(scene.plan, scene.fix, 60)
    with pytest.raises(Refused) as refused:
        apply(scene.plan, scene.fix, 60)
    assert refused.value.reasons == [refused.value.reasons[0]]
    assert f"already applied as {first.run}" in str(refused.value)
    rollback.rollback(rollback.choose(scene.fix.state, None), scene.fix)
    assert not apply(scene.plan, scene.fix, 60).why


def test_what_was_cut_off_comes_first(scene):
    scene.acts.fails["2-x"] = MemoryError("killed")
    with pytest.raises(MemoryError):
        apply(scene.plan, scene.fix, 60)
    with pytest.raises(Refused, match="was interrupted"):
        apply(scene.plan, scene.fix, 60)
    rollback.rollback(rollback.choose(scene.fix.state, None), scene.fix)
    del scene.acts.fails["2-x"]
    assert not apply(scene.plan, scene.fix, 60).why


def test_ctrl_c_is_written_down_and_can_be_undone(scene):
    scene.acts.fails["2-x"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        apply(scene.plan, scene.fix, 60)
    told = rollback.choose(scene.fix.state, None)
    assert (told.state, told.ended_why) == (STOPPED, "interrupted by the user")
    assert [item.step for item in told.undoable] == ["2-x", "1-x"]


def test_an_undo_that_fails_does_not_keep_the_others_from_it_and_can_be_tried_again(scene):
    applied = apply(scene.plan, scene.fix, 60)
    scene.acts.fails["undo 2-x"] = CommandError("not now")
    done = rollback.rollback(rollback.choose(scene.fix.state, None), scene.fix)
    assert done.failed == [("2-x", "not now")]
    assert scene.acts.calls[-3:] == ["undo 3-x", "undo 2-x", "undo 1-x"]
    assert read_run(scene.fix.state, applied.run).state == COMPLETE
    del scene.acts.fails["undo 2-x"]
    again = rollback.rollback(rollback.choose(scene.fix.state, None), scene.fix)
    assert [item for item, _ in again.lines] == ["2-x"], "what is undone stays so"
    assert read_run(scene.fix.state, applied.run).state == ROLLED_BACK


def test_an_older_apply_of_the_same_is_not_undone_past_a_newer(scene):
    first = apply(scene.plan, scene.fix, 60)
    second = apply(replace(scene.plan, made_unix=2.0), scene.fix, 60)
    older, newer = sorted([first.run, second.run])
    with pytest.raises(CommandError, match="roll that back first"):
        rollback.choose(scene.fix.state, older)
    rollback.rollback(rollback.choose(scene.fix.state, newer), scene.fix)
    assert rollback.choose(scene.fix.state, older).id == older


def test_nothing_to_undo_is_said_and_is_no_crash(scene):
    scene.fix.state.make()
    with pytest.raises(CommandError, match="nothing to roll back"):
        rollback.choose(scene.fix.state, None)


def test_a_systemd_that_does_not_answer_is_asked_once_per_check(monkeypatch):
    """Each question takes its whole deadline, and a step has several preconditions."""
    asked = []

    def silent(_host: object, name: str) -> None:
        asked.append(name)
        raise SourceTimeout("D-Bus", "no reply")

    monkeypatch.setattr(preconditions, "unit_status", silent)
    probes = Probes(open_host())
    for probe in ("unit.load_state a.service", "unit.masked a.service"):
        with pytest.raises(SourceTimeout):
            probes.read(probe)
    assert asked == ["a.service"]
    probes.forget()
    with pytest.raises(SourceTimeout):
        probes.read("unit.running a.service")
    assert len(asked) == 2

"""The journal says enough, however it was cut off; the state directory trusts nobody else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.cure.journal import (
    AUDIT_LOG,
    COMPLETE,
    ROLLED_BACK,
    RUNNING,
    RUNS,
    STOPPED,
    NeverStarted,
    State,
    audit_log,
    latest_run,
    log_event,
    open_run,
    read_run,
    unfinished_runs,
)
from sexton.errors import CommandError
from tests.model.test_plan import plan


@pytest.fixture
def state(tmp_path) -> State:
    made = State(str(tmp_path / "fix"))
    made.make()
    return made


def journal_of(state: State, *written: tuple[str, dict]):
    journal = open_run(state, plan(), {"dying": 7})
    for kind, value in written:
        journal.write(kind, **value)
    return journal


BEFORE = ("before", {"step": "1-stop", "before": {"unit": "a"}})
DONE = ("done", {"step": "1-stop", "outcome": {"said": "stopped"}})
END = ("end", {"how": COMPLETE, "why": ""})


def test_it_comes_back_with_its_plan_and_its_steps(state: State):
    journal = journal_of(state, BEFORE, DONE, END)
    run = read_run(state, journal.run)
    assert (run.plan, run.start, run.state, run.torn) == (plan(), {"dying": 7}, COMPLETE, 0)
    (record,) = run.records
    assert (record.step, record.before, record.outcome) == ("1-stop", {"unit": "a"}, {"said": "stopped"})  # noqa: E501  # fmt: skip


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ((), RUNNING),
        ((BEFORE,), RUNNING),
        ((BEFORE, DONE), RUNNING),
        ((BEFORE, DONE, END), COMPLETE),
        ((BEFORE, ("end", {"how": STOPPED, "why": "x"})), STOPPED),
        ((BEFORE, ("undoing", {"step": "1-stop"})), RUNNING),
        ((BEFORE, ("undone", {"step": "1-stop"}), ("rolled_back", {})), ROLLED_BACK),
    ],
)
def test_its_state_is_what_its_last_lines_say(state: State, written, expected: str):
    journal = journal_of(state, *written)
    assert read_run(state, journal.run).state == expected
    assert bool(unfinished_runs(state)) == (expected == RUNNING)


def test_a_step_that_began_is_undone_and_one_that_never_did_is_not(state: State):
    journal = journal_of(state, BEFORE, DONE, ("before", {"step": "2-mask", "before": {}}))
    assert [record.step for record in read_run(state, journal.run).undoable] == ["2-mask", "1-stop"]
    journal.write("undone", step="2-mask")
    assert [record.step for record in read_run(state, journal.run).undoable] == ["1-stop"]


@given(cut=st.integers(min_value=2, max_value=400))
def test_a_line_that_was_cut_off_is_no_line_and_what_follows_it_is(tmp_path_factory, cut: int):
    state = State(str(tmp_path_factory.mktemp("cut") / "fix"))
    state.make()
    journal = journal_of(state, BEFORE)
    path = f"{state.directory}/{RUNS}/{journal.run}.jsonl"
    size = os.path.getsize(path)
    first = Path(path).read_bytes().index(b"\n") + 1
    os.truncate(path, max(size - cut, first))
    journal.write("end", how=STOPPED, why="x")
    run = read_run(state, journal.run)
    assert run.state == STOPPED
    assert len(run.records) == 0
    assert run.torn == int(size - cut > first)


def test_a_journal_without_its_first_line_never_began(state: State):
    state.append(f"{RUNS}/20260101T000000Z-00000000.jsonl", b'{"kind": "beg')
    with pytest.raises(NeverStarted):
        read_run(state, "20260101T000000Z-00000000")
    assert latest_run(state) is None
    assert unfinished_runs(state) == []


def test_two_applies_in_one_second_have_two_journals(state: State):
    assert journal_of(state).run != journal_of(state).run
    assert len(state.runs()) == 2


@pytest.mark.parametrize("run", ["../lock", "a/b", ".hidden", "nothing"])
def test_an_id_is_no_path(state: State, run: str):
    with pytest.raises(CommandError):
        read_run(state, run)


def test_a_directory_that_others_may_write_to_is_not_trusted(state: State):
    os.chmod(state.directory, 0o777)
    for use in (lambda: state.append("x", b"y"), lambda: state.read("x")):
        with pytest.raises(CommandError, match="cannot be trusted"):
            use()


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "fix").symlink_to(tmp_path / "real")
    with pytest.raises(CommandError):
        State(str(tmp_path / "fix")).append("x", b"y")
    assert not list((tmp_path / "real").iterdir())


def test_a_link_in_the_place_of_the_log_is_not_followed(state: State, tmp_path):
    target = tmp_path / "elsewhere"
    target.write_text("kept")
    os.symlink(target, f"{state.directory}/audit.log.jsonl")
    with pytest.raises(CommandError):
        log_event(state, "x")
    assert target.read_text() == "kept"


def test_what_is_written_is_for_its_owner_alone(state: State):
    journal = journal_of(state)
    log_event(state, "x")
    places = (state.directory, f"{state.directory}/{RUNS}")
    assert all(os.stat(place).st_mode & 0o777 == 0o700 for place in places)
    files = (f"{state.directory}/{RUNS}/{journal.run}.jsonl", f"{state.directory}/audit.log.jsonl")
    assert all(os.stat(file).st_mode & 0o777 == 0o600 for file in files)


def test_the_log_is_appended_to_and_a_torn_line_of_it_is_skipped(state: State):
    log_event(state, "first", run="1")
    with open(f"{state.directory}/audit.log.jsonl", "ab") as stream:
        stream.write(b'{"event": "to')
    log_event(state, "second", reasons=["a"])
    told = list(audit_log(state))
    assert [entry["event"] for entry in told] == ["first", "second"]
    assert all(entry["schema"] == "sexton.fix_log/1" and entry["who"] for entry in told)
    raw = Path(f"{state.directory}/audit.log.jsonl").read_bytes().split(b"\n")
    assert json.loads(raw[0])["event"] == "first", "nothing that was written is written again"


def test_a_full_disk_ends_it_before_anything_is_done(state: State, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CommandError, match="without a journal"):
        open_run(state, plan(), {})


@pytest.mark.parametrize(
    "line",
    [
        ("before", {"step": ["1-stop"], "before": {}}),
        ("before", {"step": "1-stop", "before": [1]}),
        ("done", {"step": "1-stop", "outcome": True}),
        ("done", {"step": "1-stop", "outcome": {"said": {}}}),
        ("undone", {"step": {}}),
        ("end", {"how": {}, "why": ""}),
        ("end", {"how": COMPLETE, "why": 5}),
        ("end", {"how": COMPLETE, "why": "", "unix": float("inf")}),
    ],
)
def test_a_line_of_another_shape_is_one_line_of_error(state: State, line):
    kind, value = line
    run = journal_of(state, BEFORE).run
    text = json.dumps({"kind": kind, "unix": 1.0, **value})
    state.append(f"{RUNS}/{run}.jsonl", text.encode())
    with pytest.raises(CommandError, match="malformed journal"):
        read_run(state, run)


@pytest.mark.parametrize("when", ["x", None, [1], float("nan"), 1e300, 1 << 64, True])
def test_a_line_of_the_audit_log_without_a_time_is_skipped(state: State, when):
    log_event(state, "plan made")
    state.append(AUDIT_LOG, json.dumps({"event": "x", "unix": when}).encode())
    assert [line["event"] for line in audit_log(state)] == ["plan made"]


def test_a_line_too_deep_to_parse_is_skipped(state: State):
    log_event(state, "plan made")
    state.append(AUDIT_LOG, b"[" * 100_000)
    assert [line["event"] for line in audit_log(state)] == ["plan made"]

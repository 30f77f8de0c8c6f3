"""`sexton fix` as it is typed: mistakes are one line, and a plan is read before it is applied."""

from __future__ import annotations

import json
import os

import pytest

from sexton.cli.commands.fix import WHATS
from sexton.cli.main import main
from sexton.cure.journal import State, log_event, open_run
from tests.model.test_plan import plan
from tests.support.cli import one_line, sexton
from tests.support.fixtures import FIXTURES


def kept(tmp_path, **changes):
    from sexton.model.plan import as_json

    made = plan(**changes)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(as_json(made)))
    return path, made


@pytest.mark.parametrize("what", WHATS)
def test_every_help_teaches_and_says_what_the_exit_status_means(what: str):
    text = sexton("fix", what, "--help").stdout.decode()
    assert "Exit: 0" in text
    assert len(text.splitlines()) > 10


def test_without_a_word_it_lists_the_words():
    ended = sexton("fix")
    assert ended.returncode == 2
    assert "COMMAND" in one_line(ended.stderr)


@pytest.mark.root
def test_a_hash_that_is_not_the_plans_is_refused(tmp_path):
    path, made = kept(tmp_path)
    for given in (made.hash[:15], "f" * 64, "", made.hash + "0"):
        ended = sexton("fix", "apply", path, "--confirm", given, "--state", tmp_path / "fix")
        assert ended.returncode == 2
        assert "does not match this plan" in one_line(ended.stderr)
    assert not (tmp_path / "fix").exists()


@pytest.mark.root
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "schema"),
        (b"[1]", "plan is missing or not an object"),
        (json.dumps({"schema": "sexton.plan/1"}).encode(), "steps is not a list"),
    ],
)
def test_a_file_that_is_no_plan_is_one_line(tmp_path, content: bytes, said: str):
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    ended = sexton("fix", "apply", path, "--confirm", "0" * 16, "--state", tmp_path / "fix")
    assert ended.returncode == 2
    assert said in one_line(ended.stderr)


@pytest.mark.root
def test_a_plan_of_another_boot_is_refused_on_both_outputs(tmp_path):
    path, made = kept(tmp_path)
    arguments = ("fix", "apply", path, "--confirm", made.hash[:16], "--state", tmp_path / "fix")
    ended = sexton(*arguments)
    assert ended.returncode == 1
    assert ended.stdout.startswith(b"REFUSED")
    assert b"booted since" in ended.stdout.replace(b"\n  ", b"")
    document = json.loads(sexton(*arguments, "--json").stdout)
    assert (document["schema"], document["how"]) == ("sexton.applied/1", "refused")
    log = sexton("fix", "log", "--state", tmp_path / "fix").stdout.decode()
    assert log.count("apply_refused") == 2


@pytest.mark.root
def test_status_and_log_tell_what_was_done_in_text_and_json(tmp_path):
    state = State(str(tmp_path / "fix"))
    state.make()
    journal = open_run(state, plan(), {})
    journal.write("before", step="1-stop", before={})
    log_event(state, "apply_begin", run=journal.run, why="\x1b[2J")
    cut = sexton("fix", "status", "--state", state.directory)
    assert cut.returncode == 1
    assert b"INTERRUPTED" in cut.stdout
    assert f"sexton fix rollback {journal.run}".encode() in cut.stdout
    (told,) = json.loads(sexton("fix", "status", "--state", state.directory, "--json").stdout)[
        "runs"
    ]
    assert told["state"] == "unfinished"
    assert told["steps"] == [{"id": "1-stop", "done": False, "undone": False, "said": ""}]
    log = sexton("fix", "log", "--state", state.directory)
    assert b"apply_begin" in log.stdout
    assert b"\x1b" not in log.stdout
    line = json.loads(sexton("fix", "log", "--state", state.directory, "--json").stdout)
    assert line["schema"] == "sexton.fix_log/1"


def test_nothing_was_ever_done_is_an_answer(tmp_path):
    for what in ("status", "log"):
        ended = sexton("fix", what, "--state", tmp_path / "none")
        assert ended.returncode == 0
        assert b"nothing has been" in ended.stdout
    assert not (tmp_path / "none").exists()


@pytest.mark.root
def test_verify_judges_this_very_node_and_logs_what_it_found(tmp_path):
    state = State(str(tmp_path / "fix"))
    state.make()
    journal = open_run(state, plan(baseline={}), {"dying": 3})
    run = journal.run
    cut = sexton("fix", "verify", "--seconds", "2", "--state", state.directory)
    assert f"was interrupted: undo it first (sexton fix rollback {run})" in one_line(cut.stderr)
    journal.write("end", how="complete", why="")
    ended = sexton("fix", "verify", "--seconds", "2", "--json", "--state", state.directory)
    document = json.loads(ended.stdout)
    assert (document["schema"], document["run"], document["exit"]) == (
        "sexton.verified/1",
        run,
        ended.returncode,
    )
    assert document["seconds"] >= 1.5
    assert document["zombies"]["before"] == 3
    assert {item["met"] for item in document["criteria"]} <= {"met", "not met", "unknown"}
    assert b"verified" in sexton("fix", "log", "--state", state.directory).stdout
    journal.write("rolled_back")
    undone = sexton("fix", "verify", run, "--state", state.directory)
    assert "was rolled back" in one_line(undone.stderr)


@pytest.mark.root
def test_nothing_to_verify_and_nothing_to_undo_are_said(tmp_path):
    for what in ("verify", "rollback"):
        ended = sexton("fix", what, "--state", tmp_path / "none")
        assert ended.returncode in (1, 2)
        assert f"nothing to {what[:4]}" in one_line(ended.stderr)


@pytest.mark.parametrize("what", ["apply", "verify", "rollback"])
def test_what_changes_or_judges_needs_root_and_says_the_line(what: str, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    more = ["plan.json", "--confirm", "0" * 16] if what == "apply" else []
    assert main(["fix", what, *more]) == 2
    assert capsys.readouterr().err == f"sexton: {what} needs root: sudo sexton fix {what}\n"


def test_a_list_of_protected_units_that_cannot_be_read_is_a_failure(tmp_path):
    ended = sexton("fix", "plan", "--seconds", "1", "--protected", tmp_path / "none")
    assert ended.returncode == 2
    assert "no such file" in one_line(ended.stderr)
    bad = tmp_path / "bad.toml"
    bad.write_text("[[protect]]\nname = 'x'")
    ended = sexton("fix", "plan", "--seconds", "1", "--protected", bad)
    assert ended.returncode == 2
    assert "needs name and why" in one_line(ended.stderr)


@pytest.mark.parametrize(
    "given",
    [
        ("--window", "1..2"),
        ("--from", "live", "--around", "10:00"),
        ("--json", "--shell"),
        ("--from", "/nonexistent", "--seconds", "3"),
    ],
)
def test_options_that_exclude_each_other_are_one_line(given):
    ended = sexton("fix", "plan", *given)
    assert ended.returncode == 2
    one_line(ended.stderr)


def test_a_recording_of_another_node_is_no_ground_for_a_plan():
    recording = FIXTURES.parent / "incidents" / "zombies_only-6.18-v1" / "recording"
    ended = sexton("fix", "plan", "--from", recording)
    assert ended.returncode == 2
    assert "make the plan on that node" in one_line(ended.stderr)


def test_a_live_plan_is_json_with_its_own_hash_and_kept_for_its_owner(tmp_path):
    from sexton.model.plan import from_json

    out = tmp_path / "plan.json"
    ended = sexton("fix", "plan", "--seconds", "1", "--json", "--out", out)
    assert ended.returncode in (0, 1, 3), ended.stderr
    document = json.loads(ended.stdout)
    assert from_json(document).hash == document["hash"]
    assert json.loads(out.read_text()) == document
    assert out.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    full = sexton("fix", "plan", "--seconds", "1", "--out", tmp_path / "no" / "plan.json")
    assert full.returncode == 2
    assert "No such file" in one_line(full.stderr)

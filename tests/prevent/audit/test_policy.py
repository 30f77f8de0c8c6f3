"""Owners and expiries, and what changed since the last time."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from datetime import date

import pytest

from sexton.errors import CommandError
from sexton.model.audit import Audit, EnabledUnit, Enabling, Fault, Need, RestartPolicy, Subject
from sexton.prevent.audit import changes, policy
from sexton.reports.text.audit import audit_json

TODAY = date(2026, 11, 15)
POLICY = """
schema = "sexton.audit-policy/1"
[[agent]]
unit = "good*.service"
owner = "ops"
expires = 2027-01-01
[[agent]]
unit = "old.service"
owner = "ops"
expires = 2026-11-14
[[agent]]
unit = "orphan.service"
owner = ""
[[agent]]
unit = "gone.service"
owner = "ops"
"""


def unit(name: str, verdict: Need = Need.UNKNOWN, **more) -> Subject:
    return Subject(name, verdict, **more)


def audit(*subjects: Subject) -> Audit:
    return Audit("node", True, 1000.0, subjects)


def test_each_complaint_is_made_and_no_other():
    found = policy.check_policy(
        audit(
            unit("good-1.service"),
            unit("old.service"),
            unit("orphan.service"),
            unit("new.service"),
            unit("kubelet.service", Need.PROTECTED),
            unit("cron.service", agent="base"),
        ),
        policy.parse(POLICY, "p"),
        TODAY,
    )
    complaints = {subject.unit: subject.policy for subject in found.subjects}
    assert complaints == {
        "good-1.service": "",
        "old.service": "expired",
        "orphan.service": "no owner",
        "new.service": "not in the policy",
        "kubelet.service": "",
        "cron.service": "",
    }
    assert found.subjects[0].owner == "ops"
    assert found.subjects[0].expires == "2027-01-01"
    assert found.notes == ("policy entries that match nothing here: gone.service",)
    assert {item.unit for item in found.found} == {"old.service", "orphan.service", "new.service"}


def test_it_holds_on_its_last_day():
    entries = policy.parse(POLICY.replace("2026-11-14", "2026-11-15"), "p")
    (found,) = policy.check_policy(audit(unit("old.service")), entries, TODAY).subjects
    assert found.policy == ""


def test_what_is_written_is_read_again_and_keeps_what_people_wrote():
    before = policy.parse(POLICY, "p")
    strange = 'a"b\\c\x1b.service'
    text = policy.policy_text(
        audit(unit("new.service"), unit("good-1.service"), unit(strange)), before, TODAY
    )
    again = policy.parse(text, "q")
    assert again[: len(before)] == before
    assert [item.unit for item in again[len(before) :]] == ["new.service", 'a"b\\c\\x1b.service']
    assert again[-1].owner == ""
    assert again[-1].expires == date(2027, 2, 14)
    assert policy.parse(policy.policy_text(audit(), again, TODAY), "r") == again
    assert tomllib.loads(text)["schema"] == policy.SCHEMA


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[agent]\n", "p: "),
        ("a = " + "[" * 50_000, "p: invalid TOML"),
        ("a = " + "9" * 5_000, "p: invalid TOML"),
        ('schema = "x"\n', "schema is 'x'"),
        ("[[agents]]\nunit = 'a'\n", "unknown key 'agents'"),
        ("[[agent]]\nowner = 'a'\n", "agent 1 has no unit"),
        ("[[agent]]\nunit = 'a'\nowners = 'a'\n", "unknown key 'owners'"),
        ("[[agent]]\nunit = 'a'\nexpires = '2027-01-01'\n", "a date without quotes"),
        ("[[agent]]\nunit = 'a'\nexpires = 2027-01-01T00:00:00\n", "a date without quotes"),
        ("agent = 3\n", "a list of tables"),
        ("[[agent]]\nunit = 'a'\nowner = 3\n", "strings"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(text: str, words: str):
    with pytest.raises(CommandError, match=words):
        policy.parse(text, "p")


def enabled(restart: str = "no") -> EnabledUnit:
    written = () if restart == "no" else (f"Restart={restart}",)
    way = Enabling("wants", "multi-user.target", "/etc/x.wants/a.service")
    return EnabledUnit(
        "a.service", (way,), "/lib/a.service", restart=RestartPolicy(restart, written=written)
    )


def then(found: Audit) -> changes.Before:
    return changes.parse(json.dumps(audit_json(found)), "last.json")


def test_nothing_changed_is_nothing():
    found = audit(unit("a.service", enabled=enabled(), restarts=3))
    later = audit(unit("a.service", enabled=enabled(), restarts=900, state="failed (x)"))
    assert changes.changes(then(found), later) == ()


def test_new_gone_and_changed_are_told_apart():
    before = then(audit(unit("a.service", enabled=enabled()), unit("b.service")))
    fault = Fault("endless-restart", "x", "y", "/lib/a.service")
    now = audit(
        unit("a.service", Need.UNNEEDED, enabled=enabled("always"), faults=(fault,)),
        unit("c.service"),
    )
    told = {change.unit: change for change in changes.changes(before, now)}
    assert {name: value.kind for name, value in told.items()} == {
        "a.service": "changed",
        "b.service": "gone",
        "c.service": "new",
    }
    assert told["a.service"].what == (
        "verdict: unknown → unneeded",
        "faults: none → endless-restart",
        "restart policy: none → Restart=always",
    )
    assert [item.unit for item in told.values() if item.bad] == ["a.service"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "sexton.audit/1"}', "[" * 100_000])
def test_what_is_no_earlier_audit_is_refused(text: str):
    with pytest.raises(CommandError, match=r"last.json: not the output"):
        changes.parse(text, "last.json")


def test_another_schema_is_named():
    with pytest.raises(CommandError, match=r"sexton\.diagnosis/1"):
        changes.parse('{"schema": "sexton.diagnosis/1"}', "last.json")


def test_hostile_texts_of_an_earlier_audit_are_escaped():
    raw = audit_json(audit(unit("a.service", enabled=enabled())))
    raw["subjects"][0]["facts"]["program"] = "\x1b[2J"
    raw["subjects"].append({"unit": "\x1b]0;x\x07"})
    told = changes.changes(
        changes.parse(json.dumps(raw), "x"), audit(unit("a.service", enabled=enabled()))
    )
    assert not any("\x1b" in text for entry in told for text in (entry.unit, *entry.what))


def test_a_subject_escapes_what_it_is_given():
    assert "\x1b" not in replace(unit("a\x1b.service"), title="\x1b[2J").title

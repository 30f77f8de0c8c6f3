"""What an audit tells a person to do."""

from __future__ import annotations

import pytest

from sexton.model.audit import Audit, Fault, KubeletProblem, Need, Subject
from sexton.reports.text.audit import audit_text, status


def looping(name: str, protected: bool = False) -> Subject:
    plan = "" if protected else "\nsudo sexton fix plan  # changes nothing yet"
    fault = Fault("crash-loop", "4 restarts in 5 s", f"journalctl -u {name} -n 50{plan}", "D-Bus")
    return Subject(name, Need.PROTECTED if protected else Need.UNKNOWN, faults=(fault,))


def report(*subjects: Subject) -> list[str]:
    text = audit_text(Audit("n", True, 0.0, subjects), "5 s watched", 88)
    return text[text.index("DO NOW") :].splitlines()


def test_every_unit_that_loops_is_named_and_the_plan_said_once():
    lines = report(looping("a.service"), looping("b.service"))
    assert lines[0] == "DO NOW     find out why a.service, b.service fail:"
    assert [line.strip() for line in lines[1:4]] == [
        "journalctl -u a.service -n 50",
        "journalctl -u b.service -n 50",
        "sudo sexton fix plan  # changes nothing yet",
    ]


def test_of_many_some_are_named():
    lines = report(*(looping(f"{name}.service") for name in "abcde"))
    assert lines[0] == "DO NOW     find out why a.service, b.service, c.service and 2 more fail:"
    assert sum("journalctl" in line for line in lines) == 3


def test_one_that_the_node_lives_by_does_not_hide_the_plan_for_the_others():
    lines = report(looping("kubelet.service", protected=True), looping("b.service"))
    assert "sudo sexton fix plan" in "\n".join(lines)


@pytest.mark.parametrize(("level", "ended"), [("error", 1), ("warning", 3)])
def test_what_kubelet_is_told_is_reported_where_units_cannot_be_listed(level: str, ended: int):
    """As in a container, or under another init: only its process was found."""
    problem = KubeletProblem(level, "systemReserved: no memory is reserved", "/k.yaml")
    audit = Audit("n", True, 0.0, (), kubelet=(problem,), has_units=False)
    text = audit_text(audit, "5 s watched")
    assert f"{level}: systemReserved: no memory is reserved  [/k.yaml]" in text
    assert status(audit) == ended
    assert f" exit {ended}: " in text

"""No unit is enabled that nothing here needs.

`sexton audit` judges every unit that runs or will run. Only its verdict *unneeded* fails: what
would make the unit needed was checked and is not there. *Unknown* never fails, and protected units
are skipped. To keep such a unit, waive it, or list it in the policy file of `sexton audit`
(``--agents FILE``) with an owner and an expiry.
"""

from __future__ import annotations

from shlex import quote

from sexton.model.audit import Audit, Need, Subject
from sexton.model.text import count
from sexton.prevent.gate.model import Checked, Settings, Violation
from sexton.prevent.gate.target import Target, audit_of, unread_units


def check(target: Target, settings: Settings) -> Checked:  # noqa: ARG001 - same call for all rules
    audit = audit_of(target)
    if isinstance(audit, Checked):
        return audit
    numbers = ", ".join(f"{len(audit.of(need)):,} {need}" for need in Need)
    violations = tuple(_violation(subject, audit) for subject in audit.of(Need.UNNEEDED))
    units = count(len(audit.subjects), "unit")
    summary = f"{units}: {numbers}"
    return Checked(summary, violations, missing=unread_units(audit), notes=audit.unseen)


def _violation(subject: Subject, audit: Audit) -> Violation:
    unit = subject.unit
    how = subject.enabled.how if subject.enabled is not None else ()
    at = next((way.at for way in how if way.at), "")
    path = at or (subject.enabled.fragment if subject.enabled is not None else "") or unit
    why = f": {subject.reasons[0].what}: {subject.reasons[0].value}" if subject.reasons else ""
    facts = [
        f"{reason.what}: {reason.value} ({reason.read_from})" for reason in subject.reasons[1:4]
    ]
    if subject.wrong_if:
        facts.append(f"wrong if {subject.wrong_if}")
    name = f"{unit} ({subject.title})" if subject.title else unit
    state = "runs" if audit.live else "is enabled"
    quoted = quote(unit)  # an image may hold a file of any name, and this gets pasted into a shell
    remedy = (
        f"sudo systemctl disable --now {quoted} && sudo systemctl mask {quoted}"
        if audit.live
        else f"systemctl disable {quoted} && systemctl mask {quoted}  # in the image build"
    )
    message = f"{name} {state}, but nothing here needs it{why}"
    return Violation(unit, message, path, 0, tuple(facts), remedy)

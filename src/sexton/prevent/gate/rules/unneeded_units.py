"""No unit is enabled that nothing here needs.

`sexton audit` judges every unit that runs or will run. Only its *unneeded* fails: what would make
the unit needed was looked for where it shows, and is not there. *Unknown* never fails, and
protected units are left alone. A unit that is meant to be here all the same gets a waiver, or an
entry in the policy file of `sexton audit` (``--agents FILE``), with whose it is and until when.
"""

from __future__ import annotations

from shlex import quote

from sexton.model.audit import Audit, Need, Subject
from sexton.model.text import count
from sexton.prevent.gate.auditing import audited
from sexton.prevent.gate.model import Checked, Place, Settings, Violation


def check(place: Place, settings: Settings) -> Checked:  # noqa: ARG001 - rules are called alike
    found = audited(place)
    if isinstance(found, Checked):
        return found
    numbers = ", ".join(f"{len(found.of(need)):,} {need}" for need in Need)
    broken = tuple(_violation(each, found) for each in found.of(Need.UNNEEDED))
    units = count(len(found.subjects), "unit")
    return Checked(f"{units}: {numbers}", broken, notes=found.unseen)


def _violation(subject: Subject, found: Audit) -> Violation:
    unit = subject.unit
    how = subject.enabled.how if subject.enabled is not None else ()
    at = next((each.at for each in how if each.at), "")
    path = at or (subject.enabled.fragment if subject.enabled is not None else "") or unit
    why = f": {subject.reasons[0].what}: {subject.reasons[0].value}" if subject.reasons else ""
    facts = [f"{each.what}: {each.value} ({each.read_from})" for each in subject.reasons[1:4]]
    if subject.wrong_if:
        facts.append(f"wrong if {subject.wrong_if}")
    named = f"{unit} ({subject.title})" if subject.title else unit
    state = "runs and" if found.live else "is enabled and"
    typed = quote(unit)  # an image may hold a file of any name, and somebody will paste this
    commands = (
        f"sudo systemctl disable --now {typed} && sudo systemctl mask {typed}"
        if found.live
        else f"systemctl disable {typed} && systemctl mask {typed}  # in the image's build"
    )
    message = f"{named} {state} nothing here needs it{why}"
    return Violation(unit, message, path, 0, tuple(facts), commands)

"""No unit may restart for ever without backing off.

Every start makes a memory cgroup, and each may leave a dead one. systemd's start limit (5 starts
in 10 s) never trips for a unit that waits longer than that between its tries: ``RestartSec=10s``
alone, as in the deb package's ecs.service, comes to 8,640 starts a day. Fails where the unit files
allow more than ``starts_a_day``, those of a timer too; units a node lives by (kubelet, container
runtimes, sshd …) are meant to come back for ever and are left alone. What loops while it is watched
is the other rule's, ``crash_loops``.
"""

from __future__ import annotations

from shlex import quote

from sexton.model.audit import CRASH_LOOP, ENDLESS_RESTART, Fault, Need, Subject
from sexton.model.text import count
from sexton.prevent.gate.auditing import audited
from sexton.prevent.gate.model import Checked, Place, Settings, Violation


def check(place: Place, settings: Settings) -> Checked:
    found = audited(place)
    if isinstance(found, Checked):
        return found
    most = settings["starts_a_day"]
    broken, spared, slow = [], [], []
    for subject in found.subjects:
        for fault in subject.faults:
            if fault.starts_a_day is None or fault.id == CRASH_LOOP:  # that is another rule's
                continue
            if subject.verdict is Need.PROTECTED:
                spared.append(subject.unit)
            elif fault.starts_a_day <= most:
                slow.append(subject.unit)
            else:
                broken.append(_violation(subject, fault))
    notes = []
    if spared:
        notes.append(f"left alone, a node lives by them: {', '.join(dict.fromkeys(spared))}")
    if slow:
        notes.append(f"endless but slow enough: {', '.join(dict.fromkeys(slow))}")
    said = f"{count(len(found.subjects), 'unit')}, at most {most:,} starts a day each"
    return Checked(said, tuple(broken), notes=tuple(notes))


def _violation(subject: Subject, fault: Fault) -> Violation:
    path = fault.read_from or (subject.enabled.fragment if subject.enabled else "") or subject.unit
    fix = " ".join(fault.fix.split("\n"))
    written = subject.enabled.restart.written if subject.enabled is not None else ()
    facts = [f"as written: {', '.join(written)}"] if written else []
    message = f"{subject.unit}: {fault.detail}"
    if fault.id == ENDLESS_RESTART:
        facts.append(f"to mend it, a drop-in {subject.unit}.d/backoff.conf: {fix}")
        remedy = f"systemctl edit {quote(subject.unit)}  # with those lines; or disable it"
    else:
        facts.append(f"to mend it: {fix}")
        remedy = f"systemctl edit {quote(subject.unit)}  # a longer period; or disable it"
    return Violation(subject.unit, message, path, 0, tuple(facts), remedy)

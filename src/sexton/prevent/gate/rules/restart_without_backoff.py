"""No unit can restart forever without backoff.

Every start creates a memory cgroup and may leave a dying one behind. systemd's start limit (5
starts in 10 s) never trips for a unit that waits longer than that between attempts:
``RestartSec=10s`` alone, as in the deb package's ecs.service, allows 8,640 starts a day. Fails
where unit files allow more than ``starts_a_day``, timers included. Units the node depends on
(kubelet, container runtimes, sshd …) are meant to restart forever and are skipped. Units that loop
while watched are reported by ``crash_loops``.
"""

from __future__ import annotations

from shlex import quote

from sexton.model.audit import CRASH_LOOP, ENDLESS_RESTART, Fault, Need, Subject
from sexton.model.text import count
from sexton.prevent.gate.model import Checked, Settings, Violation
from sexton.prevent.gate.target import Target, audit_of, unread_units


def check(target: Target, settings: Settings) -> Checked:
    audit = audit_of(target)
    if isinstance(audit, Checked):
        return audit
    most = settings["starts_a_day"]
    violations, protected, slow = [], [], []
    for subject in audit.subjects:
        for fault in subject.faults:
            if fault.starts_a_day is None or fault.id == CRASH_LOOP:  # reported by crash_loops
                continue
            if subject.verdict is Need.PROTECTED:
                protected.append(subject.unit)
            elif fault.starts_a_day <= most:
                slow.append(subject.unit)
            else:
                violations.append(_violation(subject, fault))
    notes = []
    if protected:
        notes.append(f"skipped, the node depends on them: {', '.join(dict.fromkeys(protected))}")
    if slow:
        notes.append(f"endless, but below the limit: {', '.join(dict.fromkeys(slow))}")
    summary = f"{count(len(audit.subjects), 'unit')}, at most {most:,} starts a day each"
    return Checked(summary, tuple(violations), unread_units(audit), notes=tuple(notes))


def _violation(subject: Subject, fault: Fault) -> Violation:
    path = fault.read_from or (subject.enabled.fragment if subject.enabled else "") or subject.unit
    fix = " ".join(fault.fix.split("\n"))
    written = subject.enabled.restart.written if subject.enabled is not None else ()
    facts = [f"as written: {', '.join(written)}"] if written else []
    message = f"{subject.unit}: {fault.detail}"
    if fault.id == ENDLESS_RESTART:
        facts.append(f"a drop-in {subject.unit}.d/backoff.conf would limit it: {fix}")
        remedy = f"systemctl edit {quote(subject.unit)}  # add those lines; or disable it"
    else:
        facts.append(fix)
        remedy = f"systemctl edit {quote(subject.unit)}  # set a longer period; or disable it"
    return Violation(subject.unit, message, path, 0, tuple(facts), remedy)

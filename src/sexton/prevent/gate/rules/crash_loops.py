"""Nothing crash-loops while the node is watched.

Units by systemd's restart counter, and with ``churn = true`` also cgroups that are created and
removed over and over: an agent that keeps re-creating its container shows no restarts. A unit that
systemd gave up on does not count. Watch longer (``observe_seconds``, ``--seconds``) to catch slow
loops. kubelet restarts every 10 s on an image that has not joined a cluster yet: waive it there,
with an expiry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from sexton.detect.detectors.cgroups import cgroup_churn, crash_looping_unit
from sexton.detect.protected import protected
from sexton.detect.registry import all_detectors
from sexton.model.finding import Finding, Missing, Verdict
from sexton.model.text import seconds
from sexton.prevent.gate.model import Checked, Settings, Violation
from sexton.prevent.gate.target import NOT_BOOTED, Target

_UNITS, _CHURN = crash_looping_unit.NAME, cgroup_churn.NAME


def check(target: Target, settings: Settings) -> Checked:
    if not target.booted or target.window is None:
        return Checked(not_applicable=NOT_BOOTED)
    wanted = (_UNITS, _CHURN) if settings["churn"] else (_UNITS,)
    window = target.window
    chosen = [detector for detector in all_detectors() if detector.id in wanted]
    # A silence is about alarms; what a policy forbids needs a waiver.
    findings = [replace(detector.run(window), silenced=None) for detector in chosen]
    findings.sort(key=lambda finding: wanted.index(finding.id))
    violations = _without_unit_cgroups(
        [violation for finding in findings for violation in _violations(finding)]
    )
    unknown = [finding for finding in findings if finding.verdict is Verdict.UNKNOWN]
    if target.in_container:  # the node's service manager is not visible
        unknown += [finding for finding in findings if finding.verdict is Verdict.NOT_APPLICABLE]
    known = [
        finding for finding in findings if finding.verdict in (Verdict.ABSENT, Verdict.PRESENT)
    ]
    summary = f"watched for {seconds(window.seconds)}: " + "; ".join(name.summary for name in known)
    if violations or (known and not unknown):
        notes = tuple(f"{finding.id}: {finding.summary}" for finding in unknown)
        return Checked(summary, violations, notes=notes)
    if unknown:
        return Checked(summary if known else "", missing=tuple(_missing(unknown)))
    return Checked(not_applicable="; ".join(finding.summary for finding in findings))


def _violations(finding: Finding) -> Iterator[Violation]:
    if not finding.is_problem:
        return
    kind = "unit" if finding.id == _UNITS else "cgroup"
    names = finding.entities.get(kind, ()) or ("node",)
    for number, name in enumerate(names):
        evidence = [item for item in finding.evidence if name in item.what] or finding.evidence[:1]
        facts = tuple(f"{item.what}: {item.value} ({item.source})" for item in evidence[:3])
        message = finding.summary if number == 0 else f"{name} loops as well"
        source = evidence[0].source if evidence else ""
        yield Violation(name, message, source, 0, facts, _remedy(name))


def _without_unit_cgroups(found: list[Violation]) -> tuple[Violation, ...]:
    """Drop cgroups of units that are reported already: one loop must need only one waiver."""
    units = {violation.subject for violation in found if not violation.subject.startswith("/")}
    return tuple(
        violation
        for violation in found
        if not (violation.subject.startswith("/") and units & set(violation.subject.split("/")))
    )


def _remedy(name: str) -> str:
    if not name.endswith(".service"):
        return "sudo sexton diagnose  # names what creates and removes it"
    logs = f"journalctl -u {quote(name)} -n 50"
    if protected(name) is not None:
        return f"{logs}  # the node depends on it: fix it, do not disable it"
    return f"{logs}  # fix it, or disable and mask it in the image"


def _missing(findings: list[Finding]) -> Iterator[Missing]:
    for finding in findings:
        for lack in finding.missing or (
            Missing(finding.summary, "sudo sexton gate  # on the node"),
        ):
            yield Missing(lack.what, lack.grant.replace("sexton diagnose", "sexton gate"))

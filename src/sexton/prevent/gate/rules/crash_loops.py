"""Nothing restarts again and again while the node is watched.

Units by systemd's restart counter (`crash_looping_unit`), and with ``churn = true`` cgroups that
are made and unmade in turn (`cgroup_churn`): an agent that re-creates its container for ever shows
no restart at all. A unit that systemd gave up on is no loop. Watch longer (``observe_seconds``,
``--seconds``) to catch slow ones. kubelet itself restarts every 10 s on an image that has not
joined a cluster yet: waive it there, with a date.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from sexton.detect.detectors import cgroup_churn, crash_looping_unit
from sexton.detect.protected import protected
from sexton.detect.registry import all_detectors
from sexton.model.finding import Finding, Missing, Verdict
from sexton.model.text import seconds
from sexton.prevent.gate.auditing import inside_a_container
from sexton.prevent.gate.counting import UNBOOTED
from sexton.prevent.gate.model import Checked, Place, Settings, Violation

_UNITS, _CHURN = crash_looping_unit.NAME, cgroup_churn.NAME


def check(place: Place, settings: Settings) -> Checked:
    if not place.booted or place.window is None:
        return Checked(not_applicable=UNBOOTED)
    wanted = (_UNITS, _CHURN) if settings["churn"] else (_UNITS,)
    window = place.window
    findings = [each.run(window) for each in all_detectors() if each.id in wanted]
    findings.sort(key=lambda each: wanted.index(each.id))
    broken = _each_once([each for finding in findings for each in _violations(finding)])
    lacking = [each for each in findings if each.verdict is Verdict.UNKNOWN]
    if inside_a_container(place):  # the node's service manager cannot be seen from in here
        lacking += [each for each in findings if each.verdict is Verdict.NOT_APPLICABLE]
    told = [each for each in findings if each.verdict in (Verdict.ABSENT, Verdict.PRESENT)]
    watched = f"in {seconds(window.seconds)}: "
    said = watched + "; ".join(each.summary for each in told)
    if broken or (told and not lacking):
        notes = tuple(f"{each.id}: {each.summary}" for each in lacking)
        return Checked(said, broken, notes=notes)
    if lacking:
        return Checked(said if told else "", missing=tuple(_missing(lacking)))
    return Checked(not_applicable="; ".join(each.summary for each in findings))


def _violations(finding: Finding) -> Iterator[Violation]:
    if not finding.is_problem:
        return
    kind = "unit" if finding.id == _UNITS else "cgroup"
    names = finding.entities.get(kind, ()) or ("node",)
    for number, name in enumerate(names):
        mine = [each for each in finding.evidence if name in each.what] or finding.evidence[:1]
        facts = tuple(f"{each.what}: {each.value} ({each.source})" for each in mine[:3])
        message = finding.summary if number == 0 else f"{name} loops as well"
        yield Violation(name, message, mine[0].source if mine else "", 0, facts, _remedy(name))


def _each_once(found: list[Violation]) -> tuple[Violation, ...]:
    """Without the cgroups of units that are told already: one waiver must do for one loop."""
    units = {each.subject for each in found if not each.subject.startswith("/")}
    return tuple(
        each
        for each in found
        if not (each.subject.startswith("/") and units & set(each.subject.split("/")))
    )


def _remedy(name: str) -> str:
    if not name.endswith(".service"):
        return "sudo sexton diagnose  # names what makes and unmakes it"
    if protected(name) is not None:
        return f"journalctl -u {quote(name)} -n 50  # a node lives by it: mend it, never disable it"
    return f"journalctl -u {quote(name)} -n 50  # mend it, or disable and mask it in the image"


def _missing(findings: list[Finding]) -> Iterator[Missing]:
    for finding in findings:
        for lack in finding.missing or (
            Missing(finding.summary, "sudo sexton gate  # on the node"),
        ):
            yield Missing(lack.what, lack.grant.replace("sexton diagnose", "sexton gate"))

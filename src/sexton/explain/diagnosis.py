"""The diagnosis of a window: findings, chains, advice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sexton.detect.custom_patterns import flagged
from sexton.detect.registry import (
    Stage,
    all_detectors,
    detector_of,
    in_order,
    run_all,
    settings_in_force,
)
from sexton.detect.rows_read import witness
from sexton.explain.chains import find_chains, find_links, unexplained
from sexton.explain.registry import rule_of
from sexton.explain.rivals import coincide, contests
from sexton.explain.story import timeline
from sexton.model.chain import Link, Strength
from sexton.model.diagnosis import Cost, Diagnosis, Step
from sexton.model.finding import Finding, Verdict
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.net import Nic
from sexton.model.text import printable
from sexton.model.window import Window

#: Steps that say where to look closer, at most.
_MOST_LOOKS = 2
_ABSENT = (Verdict.ABSENT, Verdict.NOT_APPLICABLE)


def diagnose(window: Window, cost: Cost | None = None) -> Diagnosis:
    """Findings, the chains between them, evidence against those, the timeline, and
    what to do now."""
    window = witness(window)  # shared: it caches what was computed once
    findings = in_order((*run_all(window), *flagged(window)))
    links = find_links(findings, window)
    chains = find_chains(links)
    left = unexplained(findings, chains, links)
    census = window.latest(CgroupCensus)
    known = {finding.id: finding for finding in findings}
    return Diagnosis(
        node=window.node,
        start=window.start,
        end=window.end,
        findings=findings,
        chains=chains,
        unexplained=left,
        against=ruled_out(findings, window),
        plan=advise(findings, window, links),
        sources=tuple(window.states[name] for name in sorted(window.states)),
        nics=_nics(window),
        hierarchy=census[0].hierarchy if census else None,
        cost=cost,
        settings=settings_in_force(),
        contests=contests(links, chains),
        coincidences=coincide(findings, links),
        story=timeline(chains[0], known, window) if chains else (),
    )


def advise(
    findings: Iterable[Finding], window: Window, links: Sequence[Link] = ()
) -> tuple[Step, ...]:
    """What to do now, as commands for a person to read first. Nothing is run from here.

    Each detector and link has its own advice; the order is decided here: stop the source, free what
    it left, then look closer, and prove what is not proven yet. In a stage the worst come first.
    """
    problems = {finding.id: finding for finding in findings if finding.is_problem}
    proven = {link.effect for link in links if link.strength is Strength.PROVEN}
    # Do not look at a cause that lost against a proven one.
    weak = [link for link in links if link.strength is Strength.POSSIBLE]
    lost = {link.cause for link in weak if link.effect in proven}
    stages: dict[Stage, dict[Step, None]] = {stage: {} for stage in Stage}
    for name, finding in problems.items():
        detector = detector_of(name)
        if detector is None or detector.advice is None or detector.yields_to in problems:
            continue
        stage, steps = detector.advice
        if (stage is Stage.LOOK and name in lost) or (stage is Stage.PROVE and name in proven):
            continue
        stages[stage].update(dict.fromkeys(steps(finding, window)))
        if stage is Stage.STOP:
            mine = (rule_of(link.id) for link in links if link.cause == name)
            more = (rule.advice(window) for rule in mine if rule is not None and rule.advice)
            stages[stage].update(dict.fromkeys(step for some in more for step in some))
    looks = list(stages[Stage.LOOK])[:_MOST_LOOKS]
    return (*stages[Stage.STOP], *stages[Stage.FREE], *looks, *stages[Stage.PROVE])


def ruled_out(findings: Iterable[Finding], window: Window) -> tuple[str, ...]:
    """Other causes of the same symptoms that are absent, each by its own counters over the window.

    A cause whose counters moved, but not enough for a finding, is listed with how much they moved.
    """
    absent = {finding.id for finding in findings if finding.verdict in _ABSENT}
    phrases = (
        detector.ruled_out(window)
        for detector in all_detectors()
        if detector.ruled_out and detector.id in absent
    )
    return tuple(phrase for phrase in phrases if phrase)


def _nics(window: Window) -> tuple[str, ...]:
    return tuple(
        printable(" ".join(part for part in (nic.name, nic.driver, nic.driver_version) if part))
        for nic in window.latest(Nic) or ()
        if nic.physical
    )

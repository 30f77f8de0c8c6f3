"""A window goes in, the whole answer comes out."""

from __future__ import annotations

from collections.abc import Iterable

from sexton.detect.flagged import flagged
from sexton.detect.registry import all_detectors, in_order, run_all, settings_in_force
from sexton.detect.witness import witness
from sexton.explain.advice import advise
from sexton.explain.chains import find_chains, find_links, unexplained
from sexton.explain.story import tell
from sexton.explain.weigh import coincide, contests
from sexton.model.diagnosis import Cost, Diagnosis
from sexton.model.finding import Finding, Verdict
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.net import Nic
from sexton.model.text import printable
from sexton.model.window import Window

_ABSENT = (Verdict.ABSENT, Verdict.NOT_APPLICABLE)


def diagnose(window: Window, cost: Cost | None = None) -> Diagnosis:
    """Findings, the chains between them, what speaks against those, how a person would tell it, and
    what to do now."""
    window = witness(window)  # one for all: what was worked out once is kept with it
    findings = in_order((*run_all(window), *flagged(window)))
    links = find_links(findings, window)
    chains = find_chains(links)
    left = unexplained(findings, chains, links)
    census = window.latest(CgroupCensus)
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
        story=tell(chains[0], {finding.id: finding for finding in findings}, window)
        if chains
        else (),
    )


def ruled_out(findings: Iterable[Finding], window: Window) -> tuple[str, ...]:
    """Other causes of the same symptoms that are absent, each by its own counters over the window.

    A cause whose counters moved, but not enough to be a finding, is listed with what they moved by.
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

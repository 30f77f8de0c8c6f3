"""A window goes in, the whole answer comes out."""

from __future__ import annotations

from sexton.detect.registry import run_all
from sexton.explain.advice import advise
from sexton.explain.against import look_alikes
from sexton.explain.chains import find_chains, find_links, unexplained
from sexton.model.cgroup import CgroupCensus
from sexton.model.diagnosis import Cost, Diagnosis
from sexton.model.net import Nic
from sexton.model.text import printable
from sexton.model.window import Window


def diagnose(window: Window, cost: Cost | None = None) -> Diagnosis:
    """Findings, the chains between them, what speaks against those, and what to do now."""
    findings = run_all(window)
    chains = find_chains(find_links(findings, window))
    census = window.latest(CgroupCensus)
    return Diagnosis(
        node=window.node,
        start=window.start,
        end=window.end,
        findings=findings,
        chains=chains,
        unexplained=unexplained(findings, chains),
        against=look_alikes(window),
        plan=advise(findings, window),
        sources=tuple(window.states[name] for name in sorted(window.states)),
        nics=_nics(window),
        hierarchy=census[0].hierarchy if census else None,
        cost=cost,
    )


def _nics(window: Window) -> tuple[str, ...]:
    return tuple(
        printable(" ".join(part for part in (nic.name, nic.driver, nic.driver_version) if part))
        for nic in window.latest(Nic) or ()
        if nic.physical
    )

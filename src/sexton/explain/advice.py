"""What to do now, as commands to read before typing them. Nothing is run from here.

Each detector and link brings its own advice; this module decides the order: stop the source, free
what it left, then look closer, and prove what is not proven yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from sexton.detect.registry import Stage, detector_of
from sexton.explain.registry import rule_of
from sexton.model.chain import Link, Strength
from sexton.model.diagnosis import Step
from sexton.model.finding import Finding
from sexton.model.window import Window

_MOST_LOOKS = 2


def advise(
    findings: Iterable[Finding], window: Window, links: Iterable[Link] = ()
) -> tuple[Step, ...]:
    """Steps for the problems that are present, the gravest first within a stage."""
    problems = {finding.id: finding for finding in findings if finding.is_problem}
    links = tuple(links)
    proven = {link.effect for link in links if link.strength is Strength.PROVEN}
    # A cause that lost against a proven one is not where to look.
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

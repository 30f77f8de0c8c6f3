"""node-problem-detector's kernel log rules, evaluated over recorded lines.

A recording has only the lines that Sexton's catalogue recognises (hung tasks, OOM kills, lockups,
NICs, conntrack), not the whole log: rules about disks and hardware cannot match.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sexton.model.rows.event import KernelEvent
from sexton.model.window import Window

RULES = Path(__file__).parent / "rules" / "node_problem_detector.toml"


class Matched(NamedTuple):
    """A rule's reason, and when its first line appeared: seconds since the first reading."""

    reason: str
    after_s: float


@cache
def book() -> dict[str, Any]:
    """The rules with their source."""
    return tomllib.loads(RULES.read_text("utf-8"))


def matched(window: Window) -> list[Matched] | None:
    """Matching rules, earliest first; `None` if no log was recorded."""
    lines = window.all(KernelEvent)
    if lines is None:
        return None
    rules = [(rule["reason"], re.compile(rule["pattern"])) for rule in book()["rule"]]
    found: dict[str, float] = {}
    for line in lines:
        when = window.start_mono if line.mono_us is None else line.mono_us / 1e6
        for reason, pattern in rules:
            if pattern.search(line.message):
                after = max(when - window.start_mono, 0.0)
                found[reason] = min(after, found.get(reason, after))
    return sorted((Matched(*key) for key in found.items()), key=lambda match: match.after_s)

"""The explorer's benchmark on half a day of a large node, compared with the promises."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.programs import CHROMIUM, NO_CHROMIUM
from bench.recorder.plan import Plan
from bench.recorder.replay import generate
from bench.table import Measured, against_limit, log
from bench.web import lanes

#: The recorder's rate, for a tenth of the time: twelve hours of samples would take an hour to
#: generate, and a range of ten seconds is the same in both.
_STACKS = ("--stack-hertz", "97")
_SHARE = 10
#: Row label if there is no browser or no recording.
_PICTURE = "explorer: first picture and frames"


def measure(plan: Plan, take: Callable[[Measured], None]) -> None:
    """Each row goes to `take` as soon as it is known."""
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
        log(f"web: a recording of {plan.hours:g} h × {plan.cores} cores")
        for line in (*_drawn(Path(scratch, "hours"), plan), *_flame(Path(scratch, "stacks"), plan)):
            take(line)


def _drawn(directory: Path, plan: Plan) -> list[Measured]:
    plant = generate(directory, plan)
    if isinstance(plant, str):
        return [against_limit(_PICTURE, None, 1.5, "s", plant)]
    found = lanes.rows(lanes.rounds(directory))
    reason = _without_browser()
    if reason:
        return [*found, against_limit(_PICTURE, None, 1.5, "s", reason)]
    from bench.web import frames

    log("web: a real Chromium pans and zooms")
    return [*found, *frames.rows(frames.served(str(directory), cores=True))]


def _flame(directory: Path, plan: Plan) -> list[Measured]:
    """Rows from a recording with stacks."""
    plant = generate(directory, replace(plan, hours=plan.hours / _SHARE), _STACKS)
    if isinstance(plant, str):
        return [against_limit(lanes.FLAME, None, 0.3, "s", plant)]
    return [row for row in lanes.rows(lanes.rounds(directory)) if row.what == lanes.FLAME]


def _without_browser() -> str:
    """Why no page can be opened; empty if one can."""
    if importlib.util.find_spec("playwright") is None:
        return "needs playwright"
    return NO_CHROMIUM if CHROMIUM is None else ""

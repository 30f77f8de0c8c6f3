"""Half a day of a large node, synthetic: its size, and what a diagnosis of all of it takes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.recorder.account import Program, cost, size_of
from bench.recorder.plan import Plan
from bench.table import Measured, against_limit, spread, tell

_ROUNDS = 2
_FROM = "diagnose --from, all of it"
_VERDICTS = frozenset({0, 1, 3})  # healthy, a problem, could not tell: all of them have read it


def replay(plan: Plan) -> list[Measured]:
    what = f"synthetic recording of {plan.hours:g} h × {plan.cores} cores"
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
        directory = Path(scratch) / "recording"
        reason = _generate(directory, plan)
        size = None if reason else size_of(directory) / 1e6
        lines = [against_limit(f"{what}, size", size, 300, "MB", reason)]
        walls, processor, peaks = [], [], []
        for _ in range(0 if reason else _ROUNDS):
            argv = (plan.sexton, "diagnose", "--from", str(directory))
            taken = cost(Program("diagnose --from", argv, 0, patience_s=120, fine=_VERDICTS), 0)
            if taken.failure:
                reason = taken.failure
                break
            walls.append(taken.window_s)
            processor.append(taken.cpu_s)
            peaks.append(taken.peak_bytes / 1e6)
            tell(f"  diagnose --from: {walls[-1]:.1f} s ({processor[-1]:.1f} s of CPU)")
    # The slower and the larger of them: a promise holds for every run.
    wall, peak = (None, None) if reason else (max(walls), max(peaks))
    # How far the clock and the CPU lie apart shows how busy the machine was.
    took = f"diagnose --from, all of it ({spread(processor, 1)} s of CPU)" if processor else _FROM
    return [
        *lines,
        against_limit(took, wall, 5, "s", reason),
        against_limit("diagnose --from, peak memory", peak, 1000, "MB", reason),
    ]


def _generate(directory: Path, plan: Plan) -> str:
    """Makes the recording; says why where it could not."""
    if importlib.util.find_spec("lab.synthetic") is None:
        return "lab.synthetic is not there yet"
    began = time.monotonic()
    size = ["--cores", str(plan.cores), "--hours", f"{plan.hours:g}"]
    made = subprocess.run(
        [sys.executable, "-m", "lab.synthetic", str(directory), *size],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if made.returncode:
        return f"lab.synthetic failed: {' '.join(made.stderr.split()[-20:])}"
    tell(f"  generated in {time.monotonic() - began:.0f} s")
    return ""

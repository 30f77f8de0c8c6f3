"""Half a synthetic day of a large node: its size, and the cost of explaining it.

The whole chain is planted: a crash loop, its zombies, and eight walks over them that each hold a
core until the NIC is reset. `diagnose` reads all of it; `why` starts from a symptom: from the
interface (every reset is an event with its own control windows) and from one moment.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.recorder.account import Program, cost, size_of
from bench.recorder.plan import Plan
from bench.table import Measured, against_limit, log, spread

_ROUNDS = 2
_CHAIN = ("crash_loop", "zombie_walk", "nic_reset")
_TIMES = 8
_LIMIT_S = 3
#: A typo is reported before anything is judged: well under a second.
_TYPO_LIMIT_S = 1
_REFUSED = frozenset({2})
_VERDICTS = frozenset({0, 1, 3})  # healthy, problem, unknown: all have read the recording
_TYPO = "eht0"


def replay(plan: Plan) -> list[Measured]:
    what = f"synthetic recording of {plan.hours:g} h × {plan.cores} cores"
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
        directory = Path(scratch) / "recording"
        plant = generate(directory, plan)
        reason = plant if isinstance(plant, str) else ""
        size = None if reason else size_of(directory) / 1e6
        lines = [against_limit(f"{what}, size", size, 300, "MB", reason)]
        commands = {
            "diagnose --from, all of it": ("diagnose",),
            "why eth0 --from": ("why", "eth0"),
            "why TIME --from": ("why", "" if isinstance(plant, str) else _moment(plant)),
        }
        for name, words in commands.items():
            argv = (plan.sexton, *words, "--from", str(directory))
            lines += _taken(name, argv, reason)
        argv = (plan.sexton, "why", _TYPO, "--from", str(directory))
        lines += _taken(f"why {_TYPO} --from, a typo", argv, reason, _TYPO_LIMIT_S)
    return lines


def _taken(
    name: str, argv: tuple[str, ...], reason: str, limit_s: float = _LIMIT_S
) -> list[Measured]:
    """Time and memory of one command, run several times."""
    walls, processor, peaks = [], [], []
    for _ in range(0 if reason else _ROUNDS):
        statuses = _REFUSED if _TYPO in argv else _VERDICTS
        taken = cost(Program(name, argv, 0, deadline_s=120, ok_statuses=statuses), 0)
        if taken.failure:
            reason = taken.failure
            break
        walls.append(taken.window_s)
        processor.append(taken.cpu_s)
        peaks.append(taken.peak_bytes / 1e6)
        log(f"  {name}: {walls[-1]:.1f} s ({processor[-1]:.1f} s of CPU)")
    # The slowest and the largest: a promise holds for every run.
    wall, peak = (None, None) if reason else (max(walls), max(peaks))
    # The difference between wall and CPU time shows how busy the machine was.
    took = f"{name} ({spread(processor, 1)} s of CPU)" if processor else name
    return [
        against_limit(took, wall, limit_s, "s", reason),
        against_limit(f"{name}, peak memory", peak, 1000, "MB", reason),
    ]


def _moment(plant: dict[str, Any]) -> str:
    """The first NIC reset, as an argument of `why`."""
    found = min(fault["start"][1] for fault in plant["planted"] if fault["cause"] == "nic_reset")
    return f"@{found:.3f}"


def generate(directory: Path, plan: Plan, more: Sequence[str] = ()) -> dict[str, Any] | str:
    """Write the recording; returns its summary, or the reason why it failed."""
    if importlib.util.find_spec("lab.synthetic") is None:
        return "lab.synthetic is not there yet"
    began = time.monotonic()
    size = ["--cores", str(plan.cores), "--hours", f"{plan.hours:g}"]
    planted = ["--plant", ",".join(_CHAIN), "--walks", str(_TIMES)]
    made = subprocess.run(
        [sys.executable, "-m", "lab.synthetic", str(directory), *size, *planted, *more, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        return f"lab.synthetic failed: {' '.join(made.stderr.split()[-20:])}"
    log(f"  generated in {time.monotonic() - began:.0f} s")
    document: dict[str, Any] = json.loads(made.stdout)
    return document

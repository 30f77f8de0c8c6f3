"""perf script, and FlameScope if `FLAMESCOPE_DIR` points to a checkout of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.table import log

_RUNNER = Path(__file__).parent / "flamescope_run.py"
#: FlameScope searches a child among all its siblings: wide trees take very long.
MOST_S = 400.0


class FlameScope(NamedTuple):
    """Its times; `at_least` if it did not finish in time."""

    heatmap_s: float | None
    flame_s: float | None
    at_least: bool = False
    reason: str = ""

    @property
    def seconds(self) -> float | None:
        if self.heatmap_s is None or self.flame_s is None:
            return None
        return self.heatmap_s + self.flame_s


def perf_script(capture: Path, text: Path) -> float:
    """Seconds to turn a capture into text."""
    began = time.perf_counter()
    with text.open("wb") as out:
        subprocess.run(
            ["perf", "script", "-i", capture], stdout=out, stderr=subprocess.DEVNULL, check=True
        )
    return time.perf_counter() - began


def flamescope(text: Path) -> FlameScope:
    """Time its heatmap and its first flame graph of that text."""
    checkout = os.environ.get("FLAMESCOPE_DIR", "")
    if not checkout:
        return FlameScope(None, None, reason="FLAMESCOPE_DIR is not set")
    if not Path(checkout, "app", "perf", "heatmap.py").is_file():
        return FlameScope(None, None, reason="FLAMESCOPE_DIR is not a checkout of FlameScope")
    log(f"  FlameScope reads {text.stat().st_size / 1e6:.0f} MB (at most {MOST_S:.0f} s)")
    began = time.perf_counter()
    try:
        ended = subprocess.run(
            [sys.executable, _RUNNER, checkout, text],
            capture_output=True,
            text=True,
            timeout=MOST_S,
            check=False,
        )
        output, failed = ended.stdout, ended.stderr.strip()[-120:] if ended.returncode else ""
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode() if isinstance(late.stdout, bytes) else (late.stdout or "")
        failed = "" if "heatmap_s" in output else f"no heatmap in {MOST_S:.0f} s"
    times: dict[str, float] = {}
    for line in output.splitlines():
        times.update(json.loads(line))
    if failed or "heatmap_s" not in times:
        return FlameScope(None, None, reason=f"it failed: {failed}")
    if "flame_s" not in times:
        spent = time.perf_counter() - began - times["heatmap_s"]
        return FlameScope(times["heatmap_s"], spent, at_least=True)
    return FlameScope(times["heatmap_s"], times["flame_s"])

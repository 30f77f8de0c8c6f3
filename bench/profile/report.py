"""All parts of the profile engine's benchmark, compared with the promises."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.profile import recorded_stacks
from bench.profile.capture import captured, scratch_directory
from bench.profile.peers import FlameScope, flamescope, perf_script
from bench.table import Measured, against_limit, log, spread

_ROUNDS = 3
_LEAST_STACKS = 300_000
_WHAT = "heatmap and flame graph of a whole capture"


def measure(samples: int, take: Callable[[Measured], None]) -> list[str]:
    """Run everything on one capture; each row goes to `take` as soon as it is known."""
    notes: list[str] = []
    with scratch_directory() as scratch, captured(Path(scratch), samples) as capture:
        if capture.reason:
            take(against_limit(_WHAT, None, 0.5, "of perf script", capture.reason))
            return notes
        text = Path(scratch, "perf.txt")
        ours, peer = [], []
        for _ in range(_ROUNDS):  # in turn, so that a slower machine affects both
            peer.append(perf_script(capture.path, text))
            ours.append(run_ours(capture.path, Path(scratch), {}))
            log(f"  perf script {peer[-1]:.1f} s, ours {ours[-1]['wall_s']:.2f} s")
        first = ours[0]
        size = capture.path.stat().st_size
        notes.append(
            f"The capture: {first['samples']:,} samples in {size / 1e6:.0f} MB, "
            f"{first['stacks']:,} distinct stacks of named functions; "
            f"{text.stat().st_size / 1e6:.0f} MB as text. "
            f"Our first run, without a symbol cache, took {ours[0]['wall_s']:.2f} s. "
            f"Our peak memory was {max(run['peak_bytes'] for run in ours) / 1e6:.0f} MB."
        )
        take(_enough("samples in the capture", first["samples"], samples))
        take(_enough("distinct stacks in it", first["stacks"], _LEAST_STACKS))
        walls = [run["wall_s"] for run in ours]
        for line in _against(walls, peer, flamescope(text)):
            take(line)
        plain = run_ours(capture.path, Path(scratch), {"SEXTON_ENGINE": "numpy"})
        take(
            Measured(
                f"{_WHAT}, without the C file",
                f"{plain['wall_s']:.2f} s",
                f"perf script {statistics.median(peer):.2f} s",
                plain["wall_s"] / statistics.median(peer),
                None,
                "for comparison",
            )
        )
        log("profile: stacks within a recording")
        recorded_stacks.measure(Path(scratch), capture.path, take)
    return notes


def run_ours(capture: Path, out: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """One process: start-up, reading, symbols, heatmap and flame graph, both written."""
    began = os.times().elapsed
    ended = subprocess.run(
        [sys.executable, "-m", "bench.profile.ours", str(capture), str(out)],
        # Symbols cached by an earlier run would be an advantage.
        env={**os.environ, "XDG_CACHE_HOME": str(out / "cache"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return {**json.loads(ended.stdout), "wall_s": os.times().elapsed - began}


def _enough(what: str, found: int, least: int) -> Measured:
    """An easier capture than promised would favour Sexton."""
    return Measured(what, f"{found:,}", f"at least {least:,}", least / max(found, 1), 1, "≤ 1")


def _against(ours: list[float], peer: list[float], scope: FlameScope) -> list[Measured]:
    here, text = statistics.median(ours), statistics.median(peer)
    lines = [
        Measured(
            _WHAT, f"{spread(ours)} s", f"perf script {spread(peer)} s", here / text, 0.5, "≤ 1/2"
        )
    ]
    if scope.seconds is None:
        peer_text = f"perf script and FlameScope: not run: {scope.reason}"
        lines.append(Measured(_WHAT, f"{spread(ours)} s", peer_text, None, 1 / 40, "≤ 1/40"))
        return lines
    whole = text + scope.seconds
    more = "more than " if scope.at_least else ""
    peer_text = f"perf script {text:.1f} s, FlameScope {more}{scope.seconds:.0f} s"
    lines.append(Measured(_WHAT, f"{spread(ours)} s", peer_text, here / whole, 1 / 40, "≤ 1/40"))
    return lines

"""The explorer's server: reading, tiles, first flame graphs, long queries, memory.

    python -m bench.web.lanes RECORDING [--json]

Each round runs in a separate process that forks as the server does. Memory is the PSS of all its
processes (shared pages count once), sampled continuously. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from math import floor
from pathlib import Path
from typing import Any

from bench.table import HEAD, Measured, against_limit

_ROUNDS = 3
#: Promises in milliseconds, seconds and megabytes.
_TILE_MS, _FLAME_S, _MEMORY_MB = 5.0, 0.3, 500.0
FLAME = "explorer: flame graph of any span, first look"
#: Seconds; 0 is the whole recording.
_SPANS = (10.0, 60.0, 900.0, 3600.0, 0.0)
_INTERVAL_S = 0.03


def main() -> int:
    """Print the measurements as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(_measured(args.recording)))
        return 0
    result = rounds(args.recording)
    print(json.dumps(result) if args.json else "\n".join([HEAD, *(r.row() for r in rows(result))]))
    return 0


def rounds(recording: Path) -> dict[str, float]:
    """Medians over several rounds; for memory the maximum."""
    rounds_measured = [_in_subprocess(recording) for _ in range(_ROUNDS)]
    found = {
        name: statistics.median(item[name] for item in rounds_measured)
        for name in rounds_measured[0]
    }
    return {**found, "all_mb": max(item["all_mb"] for item in rounds_measured)}


def rows(result: dict[str, float]) -> list[Measured]:
    """Rows of the table."""
    reading = f"explorer: a tile out of memory ({result['read_s']:.1f} s to read all before)"
    lines = [
        against_limit(reading, result["tile_ms"], _TILE_MS, "ms", ""),
        against_limit(
            "explorer: memory of all its processes, all lanes and the longest questions",
            *(result["all_mb"], _MEMORY_MB, "MB", ""),
        ),
    ]
    if "flame_s" in result:
        lines.append(against_limit(FLAME, result["flame_s"], _FLAME_S, "s", ""))
    return lines


def _in_subprocess(recording: Path) -> dict[str, float]:
    argv = [sys.executable, "-m", "bench.web.lanes", str(recording), "--here"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _measured(recording: Path) -> dict[str, float]:
    from sexton.explorer.tiles.view import View

    found: dict[str, float] = {}

    def take(name: str, do: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        made = do()
        found[name] = max(time.perf_counter() - begun, found.get(name, 0.0))
        return made

    begun = time.perf_counter()
    view = View.open(recording)
    view.fork()
    with _Memory() as memory:
        view.warm()
        found["read_s"] = time.perf_counter() - begun
        found["tile_ms"] = _tile_ms(view)
        start, end = view.span
        if any(lane.id == "stacks" for lane in view.lanes()):
            _flames(view, take)
        take("explain_s", lambda: view.diagnosis(start, end))
        take("why_s", lambda: view.why("core 0"))
        found["server_mb"] = _pss_kb("self") / 1000
    view.close()
    return {**found, "lanes_mb": view.bytes / 1e6, "all_mb": memory.most_kb / 1000}


def _tile_ms(view: Any) -> float:
    """The median over all levels; those from 2 to 8 s are built on request."""
    spent = []
    for level in range(13):
        for at in range(4):
            begun = time.perf_counter()
            view.strip("cores", level, (floor(view.span[0]) >> level >> 8) + at, 1)
            spent.append(time.perf_counter() - begun)
    return statistics.median(spent) * 1000


def _flames(view: Any, take: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Flame graphs as sent; also one of a long span and a comparison, for their memory."""
    from sexton.explorer.server.documents import flame_document, json_bytes

    start, end = view.span
    for long in _SPANS:
        until = min(start + long, end) if long else end
        take(
            "flame_s",
            lambda until=until: json_bytes(
                flame_document(view.glimpse(start + 1.0, until).flame, None)
            ),
        )
    take("flame_whole_s", lambda: view.seen(start, min(start + 900.0, end)))
    half = min((end - start) / 2, 300.0)
    spans = (start, start + half), (start + half, start + 2 * half)
    take("difference_s", lambda: view.difference(spans[1], spans[0]))


class _Memory:
    """Peak PSS of this process and its descendants."""

    def __init__(self) -> None:
        self.most_kb = 0
        self._done = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Memory:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._done.wait(_INTERVAL_S):
            self.most_kb = max(self.most_kb, sum(map(_pss_kb, _family(os.getpid()))))


def _family(pid: int) -> Iterator[str]:
    yield str(pid)
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for part in children.read_text().split():
                yield from _family(int(part))
        except OSError:
            continue


def _pss_kb(pid: str) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # exited
        return 0
    return int(text.partition("\nPss:")[2].split()[0]) if "\nPss:" in text else 0


if __name__ == "__main__":
    sys.exit(main())

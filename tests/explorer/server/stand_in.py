"""STAND-IN for a recording's view: answers of any size, as late as a test wants, growing.

What a real view gives is tested with real recordings; this one shows what the server does when
answers are huge, hostile or late. ``python -m tests.explorer.server.stand_in OPTIONS`` serves it in
a process of its own, by the code that `sexton serve` runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from sexton.errors import CommandError, StoreError
from sexton.explain.diagnosis import diagnose
from sexton.explorer.tiles.flames import Seen
from sexton.explorer.tiles.time_order import Ordered
from sexton.model.diagnosis import Diagnosis
from sexton.model.lane import COLUMNS, Marked, Strip, Table
from sexton.model.profile import Flame, Frames, Kind, Tree
from tests.support.windows import make_window

START, END = 1_700_000_000.0, 1_700_043_200.0
HOSTILE = "/<script>alert(1)</script>\x1b[2J\udcff\u202e"
CHANNELS = ("user", "system", "softirq", "iowait_steal")


class StandIn:
    """A view in shape, with numbers of its own."""

    def __init__(self, cores: int = 4, live: bool = False, gated: bool = False) -> None:
        self.cores, self.live = cores, live
        self.explained = 0
        self.endless = False
        self.gate = threading.Event()  # slow answers wait for it; kind=go opens it
        if not gated:
            self.gate.set()
        self.end = END

    def about(self) -> dict[str, Any]:
        kinds = {"cores": "heat", "memcgs": "lines", "stacks": "stacks", "events": "marks"}
        series = {
            "cores": [f"core {cpu}" for cpu in range(self.cores)],
            "memcgs": [HOSTILE, "dead"],
        }
        return {
            "schema": "sexton.view/1",
            "node": {"host": HOSTILE, "kernel": "6.1", "cores": self.cores, "hierarchy": "v2"},
            "start": START,
            "end": self.end,
            "live": self.live,
            "gaps": [[START + 10, START + 20]],
            "explained": self.explained,
            "finding_lanes": {"saturated_core": ["cores"]},
            "lanes": [
                {
                    "id": name,
                    "title": name,
                    "kind": kind,
                    "unit": "%",
                    "about": "a stand-in",
                    "series": series.get(name, []),
                    "levels": [-1 if kind == "stacks" else 0, 12],
                    "limit": 90 if kind == "heat" else None,
                }
                for name, kind in kinds.items()
            ],
        }

    @property
    def recording(self) -> float:
        return self.end

    @property
    def span(self) -> tuple[float, float]:
        return START, self.end

    def warm(self, _crew: object = None) -> None:
        if self.endless:
            print("reading", file=sys.stderr, flush=True)
            threading.Event().wait()

    def refresh(self) -> bool:
        if self.live:
            self.end += 1.0
        return self.live

    def strip(self, lane: str, level: int, first: int, count: int) -> Strip:
        names = {"cores": self.about()["lanes"][0]["series"], "memcgs": [HOSTILE, "dead"]}
        rows = tuple(names.get(lane, [f"{20 * row} ms" for row in range(50)]))
        channels = CHANNELS if lane == "cores" else ("",)
        kinds = {"cores": np.uint8, "memcgs": np.float32}
        shape = (len(channels), len(rows), count * COLUMNS)
        numbers = (np.arange(np.prod(shape)) % 251).reshape(shape)
        mean = numbers.astype(kinds.get(lane, np.uint16))
        if lane == "memcgs":
            mean[0, 1, ::2] = np.nan
        return Strip(lane, level, first, count, rows, channels, {"mean": mean, "peak": mean})

    def marks(self, start: float, end: float, most: int = 2000) -> list[Marked]:
        text = HOSTILE + "x" * 1000
        one = Marked(start, None, "mark", text, "info", HOSTILE, "events")
        return [one] * most

    def marks_between(self, start: float, end: float) -> int:
        return 2500

    def table(self, lane: str, start: float, end: float, most: int = 200) -> Table:
        self.gate.wait()
        return Table(("time", "value"), ((HOSTILE, "y" * 10_000),) * most, 3)

    def flame(self, start: float, end: float, who: Any = None) -> Flame:
        if start > self.end:
            raise StoreError(f"nothing was recorded from {start} on")
        number = 20_000
        names = ("all", *(f"{HOSTILE}{node}" for node in range(1, number)))
        kinds = np.full(number, Kind.KERNEL, np.uint8)
        kinds[:2] = Kind.ROOT, Kind.TASK
        depth = np.ones(number, np.int32)
        depth[0] = 0
        ends = np.arange(1, number + 1, dtype=np.int32)
        ends[0] = number
        frames = Frames(names, ("",) * number, kinds)
        tree = Tree(np.arange(number, dtype=np.int32), depth, ends, frames)
        return Flame(tree, np.arange(number, dtype=np.int64), "cpu-clock", 1.0)

    def seen(self, start: float, end: float, who: Any = None, stop: Any = None) -> Seen:
        self.gate.wait()
        return Seen(self.flame(start, end, who))

    def glimpse(self, start: float, end: float, who: Any = None) -> Seen:
        return Seen(self.flame(start, end, who), "a preview", False)

    def ordered(self, start: float, end: float, who: Any = None, stop: Any = None) -> Ordered:
        flame = self.flame(start, end, who)
        return Ordered(flame, np.full(len(flame.tree), start))

    def diagnosis(self, start: float, end: float, _stop: object = None) -> Diagnosis:
        self.explained += 1
        self.gate.wait()
        return diagnose(make_window([(0.0, []), (1.0, [])]))

    def why(self, what: str | float, span: Any = None, stop: Any = None) -> Any:
        raise CommandError(f"no such name: {what!r}")

    def found(self, kind: str, after: float, backwards: bool = False) -> Marked | None:
        if kind == "bug":
            raise ZeroDivisionError("a bug\nin two lines")
        if kind == "go":
            self.gate.set()
        mark = Marked(after + 1, None, "mark", HOSTILE, "info", HOSTILE, "events")
        return mark if kind == "spike" else None


def main() -> int:
    from sexton.cli import main as cli
    from sexton.explorer.server import server

    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token")
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--gated", action="store_true")
    parser.add_argument("--endless", action="store_true", help="never done with reading")
    parser.add_argument("--live", action="store_true")
    args = parser.parse_args()
    view: Any = StandIn(args.cores, args.live, args.gated)
    view.endless = args.endless
    setup = server.Setup(Path("/nowhere"), args.host, args.port, args.token)
    with cli._unwinding_on_signals():
        return server.serve_view(view, setup)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # as `sexton` does: do not wait for threads

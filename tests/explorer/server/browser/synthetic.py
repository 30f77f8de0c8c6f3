"""A server of made-up numbers, for what no recording at hand has: 192 cores, one core, two boots
with a gap, nothing at all, names that would like to be scripts. All that it tells is synthetic.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import queue
import threading
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import sexton.explorer.server

PAGE = Path(sexton.explorer.server.__file__).parent / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}
TYPES |= {".svg": "image/svg+xml"}
START = 1_800_000_000.0
HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>'
CHANNELS = ["user", "system", "softirq", "iowait_steal"]


@dataclass
class Play:
    """What a test changes while somebody looks."""

    #: HTTP status to answer with, by address under `/api/`.
    faults: dict[str, int] = field(default_factory=dict)
    #: The next event of the stream, `None` ends it; without it the stream sends its end.
    events: queue.Queue[dict[str, Any] | None] | None = None
    is_live: bool | None = None
    #: Where the recording ends by now, in seconds from its start.
    seconds: float | None = None
    absent: set[str] = field(default_factory=set)
    marks: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def tell(self, seconds: float, *, live: bool = True, lanes: int = 5) -> None:
        assert self.events is not None
        self.seconds = seconds
        self.events.put({"end": START + seconds, "live": live, "lanes": lanes})


@dataclass(frozen=True)
class Machine:
    """`stalls` are (core, first second, last second), counted from the start."""

    cores: int = 4
    seconds: float = 600.0
    stalls: tuple[tuple[int, int, int], ...] = ((1, 300, 310),)
    gap: tuple[float, float] | None = None
    name: str = "synthetic"
    is_empty: bool = False
    grows_to: float | None = None
    explanation: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    play: Play = field(default_factory=Play)

    @property
    def end(self) -> float:
        return START + (self.play.seconds or self.seconds)

    def known(self, time: float) -> bool:
        if not START <= time < max(START + (self.grows_to or self.seconds), self.end):
            return False
        return self.gap is None or not self.gap[0] <= time - START < self.gap[1]

    def shares(self, core: int, time: float) -> tuple[int, int, int, int]:
        """Half percents of one second."""
        second = time - START
        if any(core == number and first <= second < last for number, first, last in self.stalls):
            return 0, 198, 2, 0
        return int(20 + 15 * math.sin(second / 40 + core)), 6, 1, 0

    def recording(self) -> dict[str, Any]:
        node = {"host": self.name, "kernel": "0.0-synthetic", "cores": self.cores}
        about: dict[str, Any] = {
            "schema": "sexton.view/1",
            "node": {**node, "hierarchy": "v2"},
            "start": None if self.is_empty else START,
            "end": None if self.is_empty else self.end,
            "live": self.grows_to is not None if self.play.is_live is None else self.play.is_live,
            "problems": list(self.problems),
            "gaps": [[START + value for value in self.gap]] if self.gap else [],
            "tour": False,
            "lanes": [],
        }
        if self.is_empty:
            return about
        names = [str(index) for index in range(self.cores)]
        for id_, title, kind, unit, series in (
            ("events", "Events", "marks", "", []),
            (
                "average",
                "Machine average",
                "lines",
                "% of all cores",
                ["user", "system", "softirq"],
            ),
            ("cores", "Cores", "heat", "% of a core", names),
            ("memcgs", self.name, "lines", "cgroups", ["live", f"dying {self.name}"]),
            ("stacks", "Stacks", "stacks", "samples in 20 ms", []),
        ):
            if id_ in self.play.absent:
                continue
            about["lanes"].append(
                {
                    "id": id_,
                    "title": title,
                    "kind": kind,
                    "unit": unit,
                    "about": f"made up for a test of {self.name}",
                    "series": series,
                    "levels": [-1, 12] if kind == "stacks" else [0, 12],
                    "limit": 90 if kind == "heat" else None,
                    "most_tiles": 1 if kind == "heat" else 8,
                }
            )
        return about

    def strip(self, lane: str, level: int, first: int, count: int) -> dict[str, Any]:
        column = 0.02 if level < 0 else float(2**level)
        times = [first * 256 * column + at * column for at in range(256 * count)]
        document = {"schema": "sexton.strip/1", "lane": lane, "level": level, "first": first}
        document |= {"count": count, "columns": len(times)}
        if lane == "cores":
            return {**document, **self._heat(times, column)}
        if lane == "stacks":
            return {**document, **self._stacks(times, level)}
        return {**document, **self._lines(lane, times)}

    def _heat(self, times: list[float], column: float) -> dict[str, Any]:
        rows = [[self._worst(core, time, column) for time in times] for core in range(self.cores)]
        cells = bytes(cell[channel] for channel in range(4) for row in rows for cell in row)
        text = base64.b64encode(cells).decode()
        names = [str(index) for index in range(self.cores)]
        planes = {"mean": text, "peak": text}
        return {"names": names, "channels": CHANNELS, "dtype": "uint8", "planes": planes}

    def _worst(self, core: int, time: float, column: float) -> tuple[int, int, int, int]:
        if not self.known(time):
            return 255, 255, 255, 255
        for number, first, last in self.stalls:
            if number == core and time < START + last and time + column > START + first:
                return self.shares(core, START + first)
        return self.shares(core, time)

    def _lines(self, lane: str, times: list[float]) -> dict[str, Any]:
        names = next(other["series"] for other in self.recording()["lanes"] if other["id"] == lane)
        values = array("f")
        for series in range(len(names)):
            for time in times:
                values.append(self._value(lane, series, time) if self.known(time) else math.nan)
        text = base64.b64encode(values.tobytes()).decode()
        planes = {"mean": text, "peak": text}
        return {"names": names, "channels": ["value"], "dtype": "float32", "planes": planes}

    def _value(self, lane: str, series: int, time: float) -> float:
        if lane == "memcgs":
            return 40.0 if series == 0 else time - START
        shares = [self.shares(core, time) for core in range(self.cores)]
        return sum(share[series] for share in shares) / 2 / self.cores

    def _stacks(self, times: list[float], level: int) -> dict[str, Any]:
        rows = 1 if level < 0 else 50
        cells = array("H")
        for row in range(rows):
            cells.extend((row % 5 if self.known(time) else 65535) for time in times)
        text = base64.b64encode(cells.tobytes()).decode()
        names = ["all cores"] if rows == 1 else [str(index * 20) for index in range(rows)]
        return {
            "names": names,
            "channels": ["samples"],
            "dtype": "uint16",
            "planes": {"mean": text, "peak": text},
        }

    def marks(self, start: float, end: float) -> dict[str, Any]:
        reset = {"time": START + 308.0, "end": None, "kind": "nic_reset", "severity": "critical"}
        words = {"text": f"eth0 was reset {self.name}", "entity": "eth0", "lane": "events"}
        there = [{**reset, **words}, *self.play.marks]
        seen = [mark for mark in there if start <= mark["time"] <= end]
        return {"schema": "sexton.marks/1", "marks": seen, "left_out": 0}

    def flame(self, compared: bool, in_order: bool = False) -> dict[str, Any]:
        names = ["all", f"task {self.name}", "mem_cgroup_iter", "idle"]
        nodes: dict[str, Any] = {"parent": [-1, 0, 1, 0], "name": [0, 1, 2, 3]}
        nodes |= {"samples": [100, 80, 60, 20], "kind": ["other", "task", "kernel", "kernel"]}
        nodes["own"] = [0, 20, 60, 20]
        if in_order:
            nodes = {"parent": [-1, 0, 0, 1, 0], "name": [0, 3, 1, 2, 3], "own": [0] * 5}
            nodes |= {"samples": [100, 5, 80, 60, 15], "kind": ["other", *["kernel"] * 4]}
            nodes |= {
                "start": [START + at for at in (0, 0, 10, 10, 20)],
                "parent": [-1, 0, 0, 2, 0],
            }
        if compared:
            nodes["before"] = [100, 20, 5, 80]
        document = {"schema": "sexton.flame/1", "names": names, "nodes": nodes, "total": 100}
        return {**document, "core_seconds": 10.0, "pruned": 0}

    def answer(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        if path == "recording":
            return self.recording()
        if path.startswith("strip/"):
            asked = (int(query[name]) for name in ("level", "first", "count"))
            return self.strip(unquote(path[6:]), *asked)
        if path.startswith("table/"):
            cells = [[f"row {at}", self.name, str(at)] for at in range(3)]
            return {"headings": ["time", "what", "value"], "rows": cells, "left_out": 7}
        if path == "functions":
            counts = (("mem_cgroup_iter", 60, 60), (self.name, 20, 80), ("idle", 20, 20))
            rows = [
                {"name": name, "self": own, "total": total, "share": own / 100}
                for name, own, total in counts
            ]
            return {"rows": rows, "samples": 100, "left_out": 7}
        if path == "next":
            time = None if not self.stalls else START + self.stalls[0][1]
            after, back = float(query["after"]), query.get("back") == "1"
            is_there = time is not None and ((time < after) if back else (time > after))
            return {"time": time if is_there else None, "text": f"a stall {self.name}"}
        if path == "marks":
            return self.marks(float(query["from"]), float(query["to"]))
        documents = {
            "flame": self.flame("baseline_from" in query, "order" in query),
            "explain": {
                "exit": 0,
                "word": "HEALTHY",
                "findings": [],
                "chains": [],
                **self.explanation,
            },
        }
        return documents[path]


@contextlib.contextmanager
def served(machine: Machine) -> Iterator[str]:
    """The page over these numbers, on a port of its own; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            machine.play.asked.append(self.path)
            fault = machine.play.faults.get(split.path.removeprefix("/api/"))
            if fault is not None:
                self._send(json.dumps({"error": "it is broken"}).encode(), ".json", fault)
                return
            if split.path == "/api/live":
                self._live()
                return
            if split.path.startswith("/api/"):
                query = {name: values[0] for name, values in parse_qs(split.query).items()}
                self._send(json.dumps(machine.answer(split.path[5:], query)).encode(), ".json")
                return
            wanted = PAGE / (split.path.lstrip("/") or "index.html")
            if wanted.is_file() and wanted.is_relative_to(PAGE):
                self._send(wanted.read_bytes(), wanted.suffix)
            else:
                self.send_error(404)

        def _live(self) -> None:
            """The recorder went on, once; the browser asks again when it has waited."""
            text = json.dumps({"end": START + (machine.grows_to or machine.seconds)})
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            events = machine.play.events
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while events is not None and (event := events.get()) is not None:
                    self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                if events is None:
                    self.wfile.write(f"retry: 60000\ndata: {text}\n\n".encode())

        def _send(self, body: bytes, suffix: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", TYPES.get(suffix, "application/json"))
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()

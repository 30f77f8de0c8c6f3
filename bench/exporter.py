"""The exporter beside node_exporter: both are scraped every 15 s, in the same minutes.

What is measured is the exporter's own processes: scrapes, refreshes and verdicts. The recorder is
not part of it; it has rows of its own. A node without a problem is judged every `Pace.calm_s`, one
with a problem more often, so it is measured over that time, and the row says how many verdicts were
made in it.
"""

from __future__ import annotations

import gzip
import http.client
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.recorder import ours
from bench.recorder.account import Account, EndedEarly, Program, account, running
from bench.recorder.peers import Run, RunSpec, free_port, node_exporter
from bench.table import Measured, against_limit, log
from sexton.export.pace import JUDGED_S, Pace
from sexton.model.text import count

PEER = "node_exporter +3"
#: As Prometheus is set up in most places, and how often while both are measured.
_EVERY_S = 15.0
_SCRAPES = round(Pace().calm_s / _EVERY_S)
#: Scrapes one after another, so that the cost of one is not lost in that of refreshing.
_IN_A_ROW = 300
_CPU = "export without its recorder, CPU at a scrape every 15 s: refreshes and verdicts"
_ONE = "export, CPU of one scrape"
_SERIES = "export, series of this node"
_VERDICT = re.compile(rb"^sexton_verdict_timestamp_seconds (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Target:
    """What is scraped."""

    port: int
    account: Account

    def get(self, **headers: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/metrics", headers=headers)
            return connection.getresponse().read()
        finally:
            connection.close()

    def scrape(self) -> bytes:
        """As Prometheus does."""
        return self.get(**{"Accept-Encoding": "gzip"})

    def series(self) -> int:
        return sum(not line.startswith(b"#") for line in self.get().splitlines())


def measure(sexton: str, take: Callable[[Measured], None]) -> None:
    """Each row goes to `take`; in the crowd of the caller."""
    log(f"exporter: beside {PEER}, {JUDGED_S / 60:.0f} min to warm up")
    try:
        rows = _measured(sexton)
    except (EndedEarly, OSError) as failed:
        rows = _not_run(str(failed))
    for row in rows:
        take(row)


def _measured(sexton: str) -> list[Measured]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sexton-bench-")))
        peer = node_exporter("processes", "interrupts", "ethtool")(RunSpec(scratch, 0))
        reason = peer if isinstance(peer, str) else ours.absent(sexton)
        if reason:
            return _not_run(reason)
        assert isinstance(peer, Run)
        assert peer.scraper is not None
        beside = Target(peer.scraper.port, stack.enter_context(account("peer")))
        stack.enter_context(running(peer.program, beside.account))
        recorder = stack.enter_context(account("recorder"))
        recording = scratch / "recording"
        argv = sexton, "record", str(recording), *ours.PLAIN
        stack.enter_context(running(Program("sexton record", argv, 0), recorder))
        _wait(lambda: (recording / "status.json").exists())
        here = Target(free_port(), stack.enter_context(account("exporter")))
        listen = f"127.0.0.1:{here.port}"
        argv = sexton, "export", "--from", str(recording), "--listen", listen
        stack.enter_context(running(Program("sexton export", argv, 0), here.account))
        _wait(lambda: _answers(here))
        return _rows(here, beside)


def _rows(here: Target, beside: Target) -> list[Measured]:
    """Once as many minutes are recorded as are judged."""
    _scraped((here, beside), int(JUDGED_S / _EVERY_S))
    before = here.account.cpu_s(), beside.account.cpu_s()
    began = time.monotonic()
    pages = _scraped((here, beside), _SCRAPES)
    seconds = time.monotonic() - began
    mine, theirs = here.account.cpu_s() - before[0], beside.account.cpu_s() - before[1]
    shares = [f"{100 * spent / seconds:.2f} %" for spent in (mine, theirs)]
    times = {found for page in pages for found in _VERDICT.findall(gzip.decompress(page))}
    verdicts = count(max(len(times) - 1, 0), "verdict")
    series = here.series(), beside.series()
    return [
        Measured(
            _CPU, f"{shares[0]}, {verdicts}", f"{PEER} {shares[1]}", mine / theirs, 0.5, "≤ 1/2"
        ),
        against_limit(_ONE, 1000 * _of_one(here), 5, "ms", ""),
        against_limit(_SERIES, series[0], 400, "series", ""),
        Measured(
            _SERIES, str(series[0]), f"{PEER} {series[1]:,}", series[0] / series[1], None,
            "for comparison",
        ),
    ]  # fmt: skip


def _scraped(targets: Sequence[Target], times: int) -> list[bytes]:
    """Scrape each so often; the pages of the first."""
    pages = []
    began = time.monotonic()
    for number in range(1, times + 1):
        time.sleep(max(0.0, began + number * _EVERY_S - time.monotonic()))
        pages += [target.scrape() for target in targets][:1]
    return pages


def _of_one(target: Target) -> float:
    """CPU seconds of one of many scrapes, with what is refreshed meanwhile."""
    before = target.account.cpu_s()
    for _ in range(_IN_A_ROW):
        target.scrape()
    return (target.account.cpu_s() - before) / _IN_A_ROW


def _answers(target: Target) -> bool:
    try:
        return b"sexton_verdict " in target.get()
    except OSError:
        return False


def _wait(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not ready():
        if time.monotonic() > until:
            raise EndedEarly("sexton does not answer")
        time.sleep(0.5)


def _not_run(reason: str) -> list[Measured]:
    return [
        Measured(_CPU, f"not run: {reason}", PEER, None, 0.5, "≤ 1/2"),
        against_limit(_ONE, None, 5, "ms", reason),
        against_limit(_SERIES, None, 400, "series", reason),
    ]

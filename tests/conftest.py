"""What every test shares: markers, the order of files, and a list of what was skipped."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import USUAL, examples

# No test asserts a time, so hypothesis must not either; CI repeats the same examples, so that it
# fails for a change and not by chance.
settings.register_profile(
    "sexton",
    deadline=None,
    max_examples=examples(USUAL),
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("sexton")

# `make test &` in a script hands down an ignored SIGINT, `nohup make test` an ignored SIGHUP, and
# children would inherit both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

#: Why a test may have been deselected: the first that fits.
KINDS = ("lab", "alone", "whole", "fuzz", "browser", "systemd", "root", "oracle")
#: The markers of slow tests, slowest first: their files start first and quick ones fill the end.
SLOW = ("systemd", "browser", "fuzz", "root", "oracle")
#: Which of these mostly wait for the kernel or for systemd, and over which part of a run they are
#: spread.
WAITING, SPREAD = (SLOW.index("systemd"), SLOW.index("root")), 0.85
NOTHING_LEFT_OUT = os.environ.get("SEXTON_NOTHING_LEFT_OUT") == "1"
DESELECTED: Counter[str] = Counter()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than cores, since many tests wait, and at most four."""
    return min(len(os.sched_getaffinity(0)) + 1, 4)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root") or item.get_closest_marker("systemd"):
                item.add_marker(pytest.mark.skip(reason="needs root: sudo make test"))
    # A worker takes whole files, in this order (--dist loadfile --no-loadscope-reorder).
    ranks: dict[Path, int] = {}
    for item in items:
        rank = next((i for i, kind in enumerate(SLOW) if item.get_closest_marker(kind)), len(SLOW))
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    place = {path: at for at, path in enumerate(_spread(ranks))}
    items.sort(key=lambda item: place[item.path])


def _spread(ranks: dict[Path, int]) -> list[Path]:
    """Files in the order of their ranks, but those that mostly wait evenly among the others: three
    workers that wait at the same time leave the cores idle."""
    slow_first = sorted(ranks, key=lambda path: ranks[path])
    waiting = [path for path in slow_first if ranks[path] in WAITING]
    busy = [path for path in slow_first if ranks[path] not in WAITING]
    every = SPREAD * len(busy) / max(len(waiting), 1)
    keys = {path: at * every for at, path in enumerate(waiting)}
    keys |= {path: float(at) for at, path in enumerate(busy)}
    return sorted(keys, key=lambda path: keys[path])


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    DESELECTED.update(
        next((kind for kind in KINDS if item.get_closest_marker(kind)), "other") for item in items
    )


def pytest_testnodedown(node, error: object) -> None:
    """The workers collect, each of them the same: the counts of one are enough."""
    if not DESELECTED:
        DESELECTED.update(getattr(node, "workeroutput", {}).get("deselected", {}))


def _left_out(terminal) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for report in terminal.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")].append(report.nodeid)
    return reasons


def pytest_terminal_summary(terminalreporter, exitstatus: int) -> None:
    if DESELECTED:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in DESELECTED.most_common())
        terminalreporter.write_line(f"not in this run: {DESELECTED.total():,} tests ({kinds})")
    reasons = _left_out(terminalreporter)
    if not reasons:
        terminalreporter.write_line("left out: nothing")
        return
    terminalreporter.section("left out, and why")
    for reason, names in sorted(reasons.items()):
        terminalreporter.write_line(f"{len(names)} x {reason}")
        for name in names:
            terminalreporter.write_line(f"    {name}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """`make check` leaves nothing out: there a skip is a failure."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["deselected"] = dict(DESELECTED)
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if NOTHING_LEFT_OUT and exitstatus == 0 and terminal and _left_out(terminal):
        session.exitstatus = 1

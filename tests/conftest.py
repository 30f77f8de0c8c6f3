"""What every test shares: markers that mean something, and an honest list of what was left out."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Sequence

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

#: Why a test may have been deselected, the first that fits; `make check` deselects the last alone.
KINDS = ("systemd", "root", "oracle", "fuzz", "browser", "whole", "lab")
NOTHING_LEFT_OUT = os.environ.get("SEXTON_NOTHING_LEFT_OUT") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root") or item.get_closest_marker("systemd"):
            item.add_marker(pytest.mark.skip(reason="needs root: sudo make test"))


def _left_out(terminal) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for report in terminal.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")].append(report.nodeid)
    return reasons


def _deselected(terminal, items: Sequence[pytest.Item]) -> None:
    """One line for all that was asked to be left out; of two halves the script makes it."""
    kinds = Counter(
        next((kind for kind in KINDS if each.get_closest_marker(kind)), "other") for each in items
    )
    if path := os.environ.get("SEXTON_DESELECTED"):
        with open(path, "a") as file:
            file.writelines(f"{kind} {number}\n" for kind, number in kinds.items())
        return
    told = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common())
    terminal.write_line(f"not in this run: {len(items):,} tests ({told})")


def pytest_terminal_summary(terminalreporter, exitstatus: int) -> None:
    if asked_for := terminalreporter.stats.get("deselected"):
        _deselected(terminalreporter, asked_for)
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
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if NOTHING_LEFT_OUT and exitstatus == 0 and terminal and _left_out(terminal):
        session.exitstatus = 1

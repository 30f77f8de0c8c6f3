"""What every test shares: markers that mean something, and an honest list of what was left out."""

from __future__ import annotations

import os
import signal
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time, so hypothesis must not either; CI repeats the same examples, so that it
# fails for a change and not by chance.
settings.register_profile(
    "sexton",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("sexton")

# `make test &` in a script hands down an ignored SIGINT, `nohup make test` an ignored SIGHUP, and
# children would inherit both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

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


def pytest_terminal_summary(terminalreporter, exitstatus: int) -> None:
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

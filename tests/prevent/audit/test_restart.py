"""Policies under which a unit never stays down, and those under which it does."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.host.host import open_host
from sexton.model.audit import RestartPolicy
from sexton.prevent.audit.enabled import Enabled
from sexton.prevent.audit.restart import (
    endless_restart,
    frequent_timer,
    policy_of,
    systemd_version,
    timer_period,
)
from sexton.prevent.audit.unit_files import Settings, UnitTree, calendar_s, span_s


def policy(text: str) -> RestartPolicy:
    settings = Settings()
    settings.read(text, "/x.service")
    return policy_of(settings, RestartPolicy())


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("[Service]\nRestart=on-failure\nRestartSec=10s\n", 8640),  # the deb's ecs.service
        ("[Service]\nRestart=always\nRestartSec=2\n", 43200),  # 5 starts take 10 s: just too slow
        ("[Service]\nRestart=always\nRestartSec=1.9\n", None),
        ("[Service]\nRestart=always\n", None),  # 100 ms: the limit trips
        ("[Service]\nRestart=no\nRestartSec=10\n", None),
        ("[Service]\nRestartSec=10\n", None),
        ("[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\n", 864000),
        ("[Service]\nRestart=always\nStartLimitInterval=0\n", 864000),  # the old name and place
        ("[Unit]\nStartLimitBurst=0\n[Service]\nRestart=always\nRestartSec=30\n", 2880),
        ("[Unit]\nStartLimitIntervalSec=1h\n[Service]\nRestart=always\nRestartSec=10\n", None),
        ("[Unit]\nStartLimitIntervalSec=infinity\n[Service]\nRestart=always\nRestartSec=9\n", None),
        ("[Service]\nRestart=always\nRestartSec=15min\n", None),  # slow enough to bear
        # A back-off that ends at ten minutes, and one that ends too soon.
        ("[Service]\nRestart=always\nRestartSteps=6\nRestartMaxDelaySec=9min\n", None),
        ("[Service]\nRestart=always\nRestartSec=1\nRestartSteps=3\nRestartMaxDelaySec=20s\n", 4320),
        ("[Service]\nRestart=always\nRestartSec=10\nRestartMaxDelaySec=10min\n", 8640),  # no steps
    ],
)  # fmt: skip
def test_a_policy_is_endless_where_no_brake_can_trip(text: str, starts: int | None):
    found = endless_restart(policy(text))
    assert (None if found is None else found.starts_a_day) == starts


def test_the_fault_says_its_numbers_and_its_cure():
    found = endless_restart(policy("[Service]\nRestart=on-failure\nRestartSec=10s\n"), "/x.service")
    assert found is not None
    assert found.detail.startswith(
        "Restart=on-failure waits 10 s between attempts: 5 starts take 50 s, so the limit of 5 in"
        " 10 s never trips; up to 8,640 starts a day"
    )
    cured = policy(f"[Service]\nRestart=on-failure\nRestartSec=10s\n{found.fix}\n")
    assert endless_restart(cured) is None, "the cure it prints is one"


@pytest.mark.parametrize(
    ("told", "files", "version"),
    [
        ("252.22-1~deb12u1", [], 252),
        ("systemd 255 (255.4-1ubuntu8)", [], 255),
        ("v256.7", ["usr/lib/systemd/libsystemd-shared-249.so"], 256),
        (None, ["usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so"], 252),
        (None, ["usr/lib/systemd/libsystemd-shared-254.10-1.fc39.so"], 254),
        (None, ["lib/systemd/libsystemd-shared-245.so"], 245),
        (None, ["usr/lib/systemd/libsystemd-shared-252.so",
                "usr/lib/systemd/libsystemd-shared-256.so"], 252),
        (None, ["usr/lib/systemd/libsystemd-core-256.so"], None),
        ("unknown", [], None),
    ],
)  # fmt: skip
def test_only_what_this_systemd_knows_is_advised(
    tmp_path: Path, told: str | None, files: list[str], version: int | None
):
    for name in ("etc/os-release", *files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    unit = tmp_path / "etc/systemd/system/multi-user.target.wants/loop.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/x\nRestart=always\nRestartSec=10\n")
    (unit.parents[1] / "loop.service").write_text(unit.read_text())
    tree = UnitTree(open_host(str(tmp_path)).files)
    assert systemd_version(tree, told) == version
    (found,) = [one for one in Enabled(tree, told).units if one.name == "loop.service"]
    (fault,) = found.faults
    assert ("RestartSteps=" in fault.fix) is (version is not None and version >= 254)
    cured = policy(f"{unit.read_text()}{fault.fix}\n")
    assert endless_restart(cured) is None, "the cure is one on any version"


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("OnUnitActiveSec=10s", 10.0),
        ("OnBootSec=5", None),
        ("OnCalendar=*:*:0/15", 15.0),
        ("OnCalendar=*-*-* 06:00\nOnUnitInactiveSec=1h", 3600.0),
        ("OnCalendar=*-*-* 6,18:00", 43200.0),
        ("OnCalendar=Mon..Fri *-*-* 03:00:00 Europe/Berlin", 86400.0),
    ],
)
def test_a_timers_period_is_its_shortest(text: str, period: float | None):
    settings = Settings()
    settings.read(f"[Timer]\n{text}\n", "/x.timer")
    assert timer_period(settings) == period


def test_only_a_timer_of_less_than_a_minute_is_a_fault():
    assert frequent_timer(59.9) is not None
    assert frequent_timer(60.0) is None
    assert frequent_timer(None) is None


@given(st.text(max_size=300))
def test_junk_never_breaks_the_reading_of_a_unit(text: str):
    settings = Settings()
    settings.read(text, "/x")
    policy_of(settings, RestartPolicy())
    for value in (span_s(text), calendar_s(text)):
        assert value is None or 0 <= value <= inf

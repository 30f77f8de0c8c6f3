"""The audit's service and timer: as systemd reads them, and run by a real one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tools import need
from tests.yard.yard import PYTHON, REPOSITORY, SEEN, Yard, why_not

SYSTEMD = REPOSITORY / "deploy" / "systemd"
SERVICE = (SYSTEMD / "sexton-audit.service").read_text()
TIMER = (SYSTEMD / "sexton-audit.timer").read_text()
KEPT = "/var/lib/sexton-audit/audit.json"


def test_systemd_finds_nothing_wrong_with_them(tmp_path: Path):
    (tmp_path / "sexton-audit.service").write_text(SERVICE.replace("/usr/bin/sexton", "/bin/true"))
    (tmp_path / "sexton-audit.timer").write_text(TIMER)
    analyze = need("systemd-analyze", package="systemd")
    both = (tmp_path / "sexton-audit.timer", tmp_path / "sexton-audit.service")
    ended = subprocess.run(
        [analyze, "verify", "--man=no", *both],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "sexton-audit" not in ended.stderr


def test_it_never_restarts_and_the_timer_spreads_a_fleet():
    assert not re.search(r"^Restart", SERVICE, re.MULTILINE)
    assert "RandomizedDelaySec=6h\nFixedRandomDelay=yes\n" in TIMER
    assert "OnCalendar=daily\n" in TIMER


def test_it_keeps_nothing_where_the_recorder_keeps_its_recording():
    """A recording's verify calls whatever else lies in there foreign, and exits 1."""
    record = (SYSTEMD / "sexton-record.service").read_text()
    kept = [re.search(r"^StateDirectory=(.*)$", text, re.MULTILINE) for text in (SERVICE, record)]
    assert all(kept)
    assert len({amount[1] for amount in kept if amount}) == 2
    assert f"/var/lib/{kept[0][1]}/" in KEPT
    assert SERVICE.count(KEPT) == 2


@pytest.fixture
def yard() -> Iterator[Yard]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Yard() as up:
        up.run("mount", "-t", "tmpfs", "tmpfs", "/var/lib")
        text = SERVICE.replace("/usr/bin/sexton", f"{PYTHON} -B -m sexton")
        text = text.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n", 1)
        text = text.replace("After=multi-user.target\n", "")
        text = text.replace(
            "[Service]\n",
            f"[Service]\n{SEEN}StandardOutput=truncate:/run/said\nStandardError=file:/run/wrong\n",
        )
        up.install("sexton-audit.service", text)
        # Whom nobody mentions systemd forgets when it has ended, and its exit status with it.
        up.install("holder.target", "[Unit]\nDefaultDependencies=no\nAfter=sexton-audit.service\n")
        up.run("systemctl", "start", "holder.target")
        yield up


@pytest.mark.root
@pytest.mark.systemd
def test_the_first_run_tells_all_and_the_second_only_what_changed(yard: Yard):
    sleep = "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sleep 1000\n"
    yard.install("first.service", sleep)
    yard.run("systemctl", "start", "first.service")
    yard.run("systemctl", "start", "sexton-audit.service", deadline_s=90)
    said = yard.run("cat", "/run/said")
    assert "first.service: unknown" in said, said
    assert "descriptors" not in said, "its capabilities are enough to see whose they are"
    assert yard.run("stat", "-c", "%a", KEPT).strip() == "600"
    assert yard.show("sexton-audit.service", "Result")["Result"] == "success"
    yard.install("second.service", sleep)
    yard.run("systemctl", "start", "second.service")
    yard.run("systemctl", "start", "sexton-audit.service", deadline_s=90)
    said = yard.run("cat", "/run/said")
    assert "second.service: unknown" in said, said
    assert "first.service" not in said
    assert yard.run("cat", "/run/wrong", check=False) == ""

"""The systemd unit as text: what systemd thinks of it, and what must stay true of it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sexton.record.preflight import BITS
from tests.support.tools import need

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = SYSTEMD / "sexton-record.service"
DROP_INS = (SYSTEMD / "sys-admin.conf", SYSTEMD / "listen.conf")
#: Since 254; older ones say so and go on with RestartSec= and the start limit.
NEWER = {"RestartSteps", "RestartMaxDelaySec"}
#: In tenths, as `systemd-analyze security --threshold` counts; the unit is at 3.0.
EXPOSURE = 35


def settings(path: Path = UNIT) -> list[tuple[str, str]]:
    """Every assignment, in order."""
    lines = path.read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if re.match(r"[A-Za-z]+=", line)]


def value(key: str) -> str:
    (only,) = (found for name, found in settings() if name == key)
    return only


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command: Sequence[str | Path] = [need("systemd-analyze", package="systemd"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def runnable(tmp_path: Path) -> Path:
    """The same unit with a command that is there, so that only the unit itself is judged."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/sexton", "/bin/true"))
    return copy


def test_systemd_finds_nothing_wrong_but_keys_newer_than_itself(runnable: Path):
    ended = analyze("verify", "--man=no", runnable)
    assert ended.returncode == 0, ended.stderr
    said = {line for line in ended.stderr.splitlines() if runnable.name in line}
    unknown = {found[1] for line in said if (found := re.search(r"Unknown key '?(\w+)'?", line))}
    assert len(unknown) == len(said), said
    assert unknown <= NEWER


@pytest.mark.parametrize("drop_in", DROP_INS, ids=lambda path: path.stem)
def test_the_drop_ins_are_understood_too(runnable: Path, drop_in: Path):
    folder = runnable.with_name(f"{runnable.name}.d")
    folder.mkdir()
    text = drop_in.read_text().replace("/usr/bin/sexton", "/bin/true")
    (folder / drop_in.name).write_text(text)
    ended = analyze("verify", "--man=no", runnable)
    assert ended.returncode == 0, ended.stderr
    assert drop_in.name not in ended.stderr


def test_its_exposure_is_ok_by_systemds_own_measure(runnable: Path):
    ended = analyze("security", "--offline=yes", f"--threshold={EXPOSURE}", runnable)
    assert ended.returncode == 0, ended.stdout[-300:]
    strict = analyze("security", "--offline=yes", "--threshold=5", runnable)
    assert strict.returncode != 0  # the measure measures


def test_what_is_left_open_is_what_must_be_read_and_no_more(runnable: Path):
    ended = analyze("security", "--offline=yes", "--json=short", runnable)
    open_ones = {load["json_field"] for load in json.loads(ended.stdout) if load["set"] is False}
    assert open_ones == {
        "CapabilityBoundingSet_CAP_BPF",
        "CapabilityBoundingSet_CAP_SYSLOG",
        "DeviceAllow",
        "PrivateDevices",
        "PrivateNetwork",
        "PrivateUsers",
        "ProcSubset",
        "ProtectKernelLogs",
        "ProtectKernelTunables",
        "ProtectProc",
        "RestrictAddressFamilies_AF_INET_INET6",
        "RestrictAddressFamilies_AF_UNIX",
        "RootDirectoryOrRootImage",
        "SystemCallFilter_debug",
        "SystemCallFilter_privileged",
        "SystemCallFilter_resources",
        "UserOrDynamicUser",
    }


def test_every_capability_is_named_with_its_reason():
    lines = UNIT.read_text().splitlines()
    given = []
    for number, line in enumerate(lines):
        if line.startswith("CapabilityBoundingSet=") and line != "CapabilityBoundingSet=":
            (name,) = line.partition("=")[2].split()
            assert lines[number - 1].startswith("# "), name
            given.append(name)
    assert given == ["CAP_SYSLOG", "CAP_BPF", "CAP_PERFMON"]
    assert set(given) <= set(BITS)  # the preflight asks for the same
    assert settings(DROP_INS[0])[0] == ("CapabilityBoundingSet", "CAP_SYS_ADMIN")


def test_our_own_agent_can_never_be_the_leaker():
    assert value("Restart") == "on-failure"
    assert int(value("StartLimitBurst")) <= 10
    assert value("StartLimitIntervalSec") == "1h"
    assert int(value("RestartSec").removesuffix("s")) >= 5
    # On an old systemd, without growing pauses, the limit must still be reached within its hour.
    assert int(value("StartLimitBurst")) * int(value("RestartSec").removesuffix("s")) < 3600
    assert value("RestartPreventExitStatus") == "2"


def test_it_is_bounded_in_everything_a_node_can_run_out_of():
    bounds = ("MemoryHigh", "MemoryMax", "CPUQuota", "TasksMax", "LimitNOFILE", "IOSchedulingClass")
    assert [value(name) for name in bounds] == ["250M", "300M", "50%", "128", "4096", "idle"]
    assert (value("StateDirectory"), value("StateDirectoryMode")) == ("sexton", "0700")


def test_the_readme_tells_of_every_file_here():
    text = (SYSTEMD.parent / "README.md").read_text()
    for path in SYSTEMD.iterdir():
        assert f"systemd/{path.name}" in text

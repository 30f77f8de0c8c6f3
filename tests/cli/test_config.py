"""`sexton config`, and a diagnosis with a configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sexton.cli.configuration import read_settings
from sexton.errors import CommandError
from sexton.explorer.server.tour import INCIDENT
from tests.support.cli import one_line, quiet, sexton


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(
        "[thresholds]\nsaturated_core.held = 4\n"
        '[detectors]\noff = ["tcp_loss"]\n'
        '[[silence]]\ndetector = "nic_resets"\nuntil = 2020-01-01\nreason = "old driver"\n'
    )
    return path


def test_config_says_what_differs_and_where_it_comes_from(file: Path) -> None:
    ended = sexton("config", "--config", file)
    quiet(ended)
    text = ended.stdout.decode()
    for words in (
        f"{file} is valid; it changes:",
        "saturated_core.held 4 s in a row (default 2); also used by page_fault_storm",
        "off        tcp_loss",
        "expired    nic_resets, 2020-01-02 00:00: old driver",
    ):
        assert words in text
    everything = sexton("config", "--all", env={"SEXTON_CONFIG": str(file)}).stdout.decode()
    lines = [line.split() for line in everything.splitlines()]
    assert ["saturated_core.held", "4", "s", "in", "a", "row", str(file)] in lines
    assert ["zombie_memcgs.many", "500", "dying", "default"] in lines


def test_every_threshold_fits_on_a_terminal_of_80_columns() -> None:
    ended = sexton("config", "--all", env={"SEXTON_CONFIG": "", "COLUMNS": "80"})
    lines = ended.stdout.decode().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.endswith("  default") for line in lines) > 100


def test_config_for_machines_has_every_threshold(file: Path) -> None:
    document = json.loads(sexton("config", "--config", file, "--json").stdout)
    assert (document["schema"], document["path"]) == ("sexton.config/1", str(file))
    core = next(one for one in document["detectors"] if one["id"] == "saturated_core")
    held = next(limit for limit in core["thresholds"] if limit["name"] == "held")
    assert (held["value"], held["default"], held["from"]) == (4, 2, str(file))
    loss = next(one for one in document["detectors"] if one["id"] == "tcp_loss")
    assert loss["off"]
    assert document["expired"][0]["reason"] == "old driver"


def test_without_a_file_everything_is_the_default() -> None:
    ended = sexton("config", env={"SEXTON_CONFIG": ""})
    quiet(ended)
    assert ended.stdout.startswith(b"no configuration file")


def test_a_verdict_carries_what_was_in_force(file: Path) -> None:
    arguments = ("diagnose", "--seconds", "0.2", "--config", file)
    text = " ".join(sexton(*arguments).stdout.decode().split())
    assert f"CONFIG {file}: saturated_core.held 4 s in a row (default 2); tcp_loss off;" in text
    assert "silence of nic_resets ended 2020-01-02 00:00" in text
    document = json.loads(sexton(*arguments, "--json").stdout)
    assert document["config"]["off"] == ["tcp_loss"]
    assert document["config"]["thresholds"][0]["value"] == 4
    loss = next(found for found in document["findings"] if found["id"] == "tcp_loss")
    assert loss["verdict"] == "unknown"
    assert loss["summary"] == f"switched off in {file}"
    plain = json.loads(sexton("diagnose", "--seconds", "0.2", "--json").stdout)
    assert plain["config"] is None


def test_a_silenced_problem_is_shown_and_costs_no_exit_status(tmp_path: Path) -> None:
    """The shipped incident; every problem of it is silenced, one after the other."""
    arguments = ("diagnose", "--from", INCIDENT / "recording")
    before = json.loads(sexton(*arguments, "--json").stdout)
    problems = [
        found["id"]
        for found in before["findings"]
        if found["verdict"] == "present" and found["severity"] != "info"
    ]
    assert before["exit"] == 1
    file = tmp_path / "config.toml"
    entries = [
        f'[[silence]]\ndetector = "{name}"\nuntil = {_soon()}\nreason = "known {name}"\n'
        for name in problems
    ]
    file.write_text("".join(entries[1:]))
    some = json.loads(sexton(*arguments, "--json", "--config", file).stdout)
    assert some["exit"] == 1
    file.write_text("".join(entries))
    ended = sexton(*arguments, "--config", file)
    assert ended.returncode in (0, 3)
    text = " ".join(ended.stdout.decode().split())
    for name in problems:
        assert f"known {name})" in text
    assert "as of now, not of the recording" in text
    document = json.loads(sexton(*arguments, "--json", "--config", file).stdout)
    silenced = {found["id"] for found in document["findings"] if found["silenced"]}
    assert silenced == set(problems)


def _soon() -> str:
    from datetime import date, timedelta

    return (date.today() + timedelta(days=30)).isoformat()


def test_a_mistake_is_one_line_and_exit_2_before_anything_is_watched(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[thresholds]\nsaturated_core.helt = 4\n")
    ended = sexton("diagnose", "--config", file)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert one_line(ended.stderr).startswith(f"sexton: {file}: thresholds.saturated_core.helt: no")


def test_a_file_that_cannot_be_trusted_is_refused(tmp_path: Path) -> None:
    def refused(path: Path | str) -> str:
        with pytest.raises(CommandError) as raised:
            read_settings(str(path))
        return str(raised.value).removeprefix(f"{path}: ")

    assert refused(tmp_path / "none") == "no such file"
    assert refused(tmp_path) == "not a regular file"
    os.mkfifo(tmp_path / "fifo")
    assert refused(tmp_path / "fifo") == "not a regular file"
    assert refused("/dev/zero") == "not a regular file"
    shared = tmp_path / "shared.toml"
    shared.write_text("")
    shared.chmod(0o666)
    assert refused(shared).startswith("writable by everyone")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (256 << 10) + b"#")
    assert refused(large) == "larger than 256 KiB"
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"a = '\xff'")
    assert refused(binary) == "not UTF-8 at byte 5"


@pytest.mark.root
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.toml"
    theirs.write_text("")
    os.chown(theirs, 12345, 12345)
    with pytest.raises(CommandError, match="belongs to user 12345; must be root's or yours"):
        read_settings(str(theirs))


def test_a_directory_of_patterns_that_is_named_must_exist(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'[patterns]\ndirectory = "{tmp_path}/patterns"\n')
    ended = sexton("config", "--config", file)
    message = f"sexton: {file}: patterns.directory: {tmp_path}/patterns: no such directory"
    assert (one_line(ended.stderr), ended.returncode) == (message, 2)
    (tmp_path / "patterns").mkdir()
    assert sexton("config", "--config", file).returncode == 0


def test_a_log_pattern_of_ones_own_is_a_finding(tmp_path: Path) -> None:
    root, patterns = tmp_path / "root", tmp_path / "patterns.d"
    (root / "var/log").mkdir(parents=True)
    patterns.mkdir()
    (root / "var/log/dmesg").write_text(
        "[   12.500000] ipmi_si IPI0001:00: IPMI message handler: BMC returned incorrect response\n"
    )
    (patterns / "site.toml").write_text(
        '[[pattern]]\nname = "bmc"\nseverity = "warning"\nmeaning = "BMC confused"\n'
        "regex = 'ipmi_si \\S{1,40}: IPMI message handler: BMC returned'\n"
        'example = "ipmi_si IPI0001:00: IPMI message handler: BMC returned x"\n'
    )
    file = tmp_path / "c.toml"
    file.write_text(f'[patterns]\ndirectory = "{patterns}"\n')
    shown = sexton("config", "--config", file).stdout.decode()
    assert "patterns   bmc (from" in shown
    arguments = ("diagnose", "--root", root, "--seconds", "0.2", "--json", "--config")
    document = json.loads(sexton(*arguments, file).stdout)
    found = next(one for one in document["findings"] if one["id"] == "pattern_bmc")
    assert found["summary"].startswith("BMC confused: 1 log line, the last ")
    assert document["config"]["patterns"] == ["bmc"]
    without = json.loads(sexton(*arguments, "").stdout)
    assert "pattern_bmc" not in {one["id"] for one in without["findings"]}

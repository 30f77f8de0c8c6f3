"""The result file and the plug-ins that read it: `sexton npd`, and the script without Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from sexton.agent.condition import State
from sexton.agent.result import parse, read_in_time, result_of, unknown, uptime_s, write
from tests.support.cli import sexton
from tests.support.hung import hung_mount

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/node-problem-detector"
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
FINE = State("True", "Healthy", "no problem found")
ILL = State("False", "CrashLoopingUnit", "crash loop a.service → dying memory cgroups (proven)")
DARK = State("Unknown", "RecorderStalled", "no new reading for over 1 min")


def plug_ins(path: Path) -> tuple[int, str]:
    """Exit status and line, which are the same from both."""
    ours = sexton("npd", path)
    script = subprocess.run(
        ["/bin/sh", FOLDER / "sexton-npd.sh", path],
        env={"PATH": "/nowhere"},  # nothing but the shell itself
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert ours.stderr == script.stderr == b""
    assert (ours.returncode, ours.stdout) == (script.returncode, script.stdout)
    lines = ours.stdout.decode("ascii").splitlines()
    assert len(lines) == 1
    assert len(lines[0]) <= 400
    assert lines[0].isprintable()
    return ours.returncode, lines[0]


@pytest.mark.parametrize(
    ("state", "status", "line"),
    [
        (FINE, 0, "OK: no problem found"),
        (ILL, 1, "PROBLEM: crash loop a.service -> dying memory cgroups (proven)"),
        (DARK, 2, "UNKNOWN: no new reading for over 1 min"),
    ],
)
def test_each_verdict_has_its_exit_status_and_a_line(tmp_path, state, status, line):
    place = tmp_path / "sexton" / "npd"
    write(str(place), result_of(state), 60.0, BOOT)
    assert plug_ins(place) == (status, line)
    assert len(line[:80]) > 15
    assert os.listdir(place.parent) == ["npd"]
    assert place.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("lasts_s", "boot", "words"),
    [
        (-10.0, BOOT, "too old"),
        (1e6, BOOT, "too old"),
        (60.0, "00000000-0000-0000-0000-000000000000", "another boot"),
    ],
)
def test_what_does_not_count_any_more_is_unknown(tmp_path, lasts_s, boot, words):
    write(str(tmp_path / "npd"), result_of(FINE), lasts_s, boot)
    status, line = plug_ins(tmp_path / "npd")
    assert status == 2
    assert line.startswith("UNKNOWN: ")
    assert words in line


def head(status: object = 0) -> bytes:
    return f"sexton-npd/1 {status} {int(uptime_s()) + 60} {BOOT}\n".encode()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n\n", b"OK\n", head(), head(3) + b"OK: x\n", head("0 0") + b"OK: x\n",
        head("$(touch /tmp/x)") + b"OK: x\n", head("-0") + b"OK: x\n", head(0) + b"\x1b[2J\n",
        head(0) + b"OK: \xff\n", head(0) + b"OK: x\nmore\n", head(0) + b"OK: x",
        head(0) + b"x" * 401 + b"\n", b"x" * (1 << 20), b"\0" * 100,
        head(0).replace(b"npd/1", b"npd/2") + b"OK: x\n",
        b"sexton-npd/1 0 99999999999999999999 " + BOOT.encode() + b"\nOK: x\n",
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_damaged_or_hostile_is_unknown(tmp_path, content):
    place = tmp_path / "npd"
    place.write_bytes(content)
    assert plug_ins(place)[0] == 2


def test_what_a_message_may_hold_is_only_printed(tmp_path):
    place = tmp_path / "npd"
    words = "$(exit 7) `true` \\n %s *  \"'"
    place.write_bytes(head(1) + f"PROBLEM: {words}\n".encode())
    assert plug_ins(place) == (1, f"PROBLEM: {words}")


def test_no_file_a_directory_a_pipe_and_a_link_to_nowhere(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("nothing", "pipe", "link", "."):
        assert plug_ins(tmp_path / name)[0] == 2


def test_a_message_of_any_length_and_alphabet_is_one_line_that_is_read_back():
    for words in ("→" * 3000, "\n\x1b", "é…", " "):
        result = result_of(State("False", "X", words))
        line = result.line
        assert line.isascii()
        content = head(1) + line.encode() + b"\n"
        assert parse(content, uptime_s(), BOOT) == result


@pytest.mark.root
def test_a_disk_that_hangs_is_unknown_in_time(tmp_path):
    with hung_mount(tmp_path) as place:
        began = time.monotonic()
        found = read_in_time(f"{place}/npd", 0.5)
        assert time.monotonic() - began < 4
    assert found.status == 2
    assert found.line.endswith("does not answer")


def test_its_configuration_is_what_node_problem_detector_reads():
    found = json.loads((FOLDER / "sexton.json").read_text())
    assert found["plugin"] == "custom"
    (rule,) = found["rules"]
    (condition,) = found["conditions"]
    assert rule["condition"] == condition["type"]
    assert rule["type"] == "permanent"
    seconds = float(re.fullmatch(r"([0-9]+)s", found["pluginConfig"]["timeout"])[1])
    assert seconds >= 5
    assert found["pluginConfig"]["enable_message_change_based_condition_update"] is False
    assert rule["args"] == ["/run/sexton/npd"]
    assert unknown("x").status == 2

"""`make demo`: the verdict turns on real zombies, names their parent, and turns back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.demo import AFTER, BEFORE, DURING, RECORDING, THE_END
from sexton.host.host import open_host
from sexton.sources.cgroupfs.layout import read_layout

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "lab.demo"]


def leftovers() -> set[str]:
    """Cgroups and mounts of demos: another checkout's may be there too."""
    top = read_layout(open_host()).mount_point
    cgroups = set() if top is None else {path.name for path in Path(top).glob("sexton-demo-*")}
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return cgroups | {line for line in mounts if "sexton-demo" in line}


def number_in(text: str) -> int:
    return int(re.search(r"([\d,]+) (?:dying|dead)", text)[1].replace(",", ""))


@pytest.mark.whole
@pytest.mark.alone
@pytest.mark.root
def test_the_verdict_turns_names_the_parent_and_turns_back():
    there = leftovers()
    ended = subprocess.run(DEMO, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    parts = re.split(r"^── .*$", ended.stdout, flags=re.MULTILINE)
    _, before, digging, diagnosis, after = parts
    parent = re.search(r"under (/sexton-demo-\S+) restarts", ended.stdout)[1]
    assert re.search(r"^SICK", digging, re.MULTILINE)
    assert diagnosis.strip().startswith("SICK")
    assert number_in(diagnosis) >= 2_000
    # Known are those that died while it was traced, of all that are dead.
    said = rf"known for \d+ of [\d,]+: cgroups removed under {parent} are the ones that stay"
    assert re.search(rf"(likely, {said})|(proven[^:]*: cgroups removed under {parent} are)",
                     " ".join(diagnosis.split()))  # fmt: skip
    assert f"{parent}/memory." in diagnosis, "the cure is offered on the owning parent"
    left = number_in(after) - number_in(before)
    assert left < 500, "others' zombies come and go; ours must be gone"
    if max(number_in(before), number_in(after)) < 450:
        assert before.strip().startswith("HEALTHY")
        assert after.strip().startswith("HEALTHY")
    assert leftovers() <= there


@pytest.mark.root
def test_ctrl_c_in_the_middle_leaves_nothing_behind():
    there = leftovers()
    child = subprocess.Popen(
        DEMO, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    for line in child.stdout:
        if line.startswith("SICK"):
            break
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to the whole group
    rest = child.communicate(timeout=120)[0]
    assert child.returncode == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert leftovers() <= there


def test_without_root_a_recorded_run_is_shown_and_said_to_be_one():
    ended = subprocess.run(
        [*DEMO, "--replay"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0
    assert ended.stdout.startswith("RECORDED RUN")
    assert ended.stdout.endswith(json.loads(RECORDING.read_text().splitlines()[-1])["text"])


def test_the_recorded_run_is_what_the_demo_and_the_verdict_say_today():
    shown = "".join(json.loads(line)["text"] for line in RECORDING.read_text().splitlines())
    assert re.findall("^── (.*?) ─+$", shown, re.MULTILINE)[::2] == [BEFORE, DURING]
    assert re.findall("^── (.*?) ─+$", shown, re.MULTILINE)[-1] == AFTER
    assert shown.endswith(f"{THE_END}\n")
    assert "CAUSE CHAIN (every link proven)" in shown

"""`lab.freeing`, here on whatever hierarchy memory is on, and on real kernels of either in a VM."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lab import freeing
from lab.vm import runs
from lab.vm.payload import Job
from lab.vm.tools import search_path


@pytest.mark.whole
@pytest.mark.alone
@pytest.mark.root
def test_every_expectation_holds_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    status = freeing.main(["--number", "300", "--out", str(tmp_path)])
    captured = capsys.readouterr()
    if status == freeing.UNFIT:
        pytest.skip(captured.err)
    assert status == 0, captured.out
    found = json.loads((tmp_path / "freeing.json").read_text())["experiments"]
    assert set(found) == {"ours", "thorough", "blunt", "stuck"}
    # The neighbour keeps more of its cache than it would by the blunt way.
    assert found["ours"]["neighbour_after_bytes"][0] > found["blunt"]["neighbour_after_bytes"][0]


@pytest.mark.lab
@pytest.mark.skipif(
    shutil.which("qemu-system-x86_64", path=search_path()) is None,
    reason="needs QEMU: apt-get install qemu-system-x86",
)
@pytest.mark.parametrize(
    ("kernel", "hierarchy"), [("6.1", "v2"), ("6.1", "v1"), ("5.10", "v1"), ("6.12", "v2")]
)
def test_every_expectation_holds_in_a_machine(tmp_path: Path, kernel: str, hierarchy: str):
    run = runs.plan(kernel, hierarchy, Job(("check_freeing",)), tmp_path)
    (outcome,) = runs.play(run)
    assert outcome.good, outcome.status
    folder = tmp_path / f"check_freeing-{kernel}-{hierarchy}"
    whole = json.loads((folder / "freeing.json").read_text())
    assert whole["kernel"].startswith(f"{kernel}.")
    assert whole["experiments"]["ours"]["version"] == int(hierarchy.removeprefix("v"))
    assert whole["failed"] == {}

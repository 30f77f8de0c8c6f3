"""A job dies, somebody says so to a recorder at work, and the recording's diagnosis tells of it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from sexton.model.rows.recorder import Mark
from sexton.store.recording import Recording
from tests.kernel.conftest import until
from tests.support.cli import ENVIRONMENT, SEXTON, sexton


def marks(directory: Path) -> list[str]:
    found = Recording(directory).segments
    return [row.text for segment in found for batch in segment.batches(Mark) for row in batch.rows]


@pytest.mark.root
def test_a_death_that_was_marked_is_a_finding_of_its_second(tmp_path: Path):
    directory = tmp_path / "recording"
    argv = [*SEXTON, "record", str(directory), "--no-probe"]
    recorder = subprocess.Popen(
        argv, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        assert until(lambda: (directory / "status.json").exists())
        job = subprocess.Popen(["sleep", "600"])
        job.kill()
        said = sexton("recording", "mark", directory, f"job {job.pid} died: {job.wait()}")
        assert said.returncode == 0, said.stderr
    finally:
        recorder.send_signal(signal.SIGTERM)
        _, complaint = recorder.communicate(timeout=60)
    assert recorder.returncode == 0, complaint
    assert marks(directory) == [f"job {job.pid} died: -9"]
    found = json.loads(sexton("diagnose", "--from", directory, "--json").stdout)["findings"]
    (death,) = [finding for finding in found if finding["id"] == "job_deaths"]
    print(death["summary"])
    assert death["verdict"] == "present"
    assert death["entities"] == {"job": [f"job {job.pid} died: -9"]}
    assert death["start"] == death["end"]

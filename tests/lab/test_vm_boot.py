"""One real machine: a kernel of Debian's boots, plays a scene, and its recording comes home."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from lab.vm import rootfs, runs
from lab.vm.cache import cache_folder
from lab.vm.payload import Job
from lab.vm.tools import search_path

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        shutil.which("qemu-system-x86_64", path=search_path()) is None,
        reason="needs QEMU: apt-get install qemu-system-x86",
    ),
]


def _built() -> bool:
    return (cache_folder() / f"root-{rootfs.image_key()}.img").exists()


@pytest.mark.skipif(
    "os.geteuid() != 0 and not _built()", reason="building the root file system needs root"
)
def test_a_scene_is_played_on_a_real_kernel_and_comes_home(tmp_path: Path):
    run = runs.plan("6.1", "v2", Job(("idle",)), tmp_path)
    (outcome,) = runs.play(run)
    assert outcome.good, f"{outcome.status}\n{run.console.read_text(errors='replace')[-2000:]}"
    scene = json.loads((tmp_path / "idle-6.1-v2/scene.json").read_text())
    assert scene["id"] == "idle"
    assert scene["kernel"].startswith("6.1.")
    assert scene["hierarchy"] == "v2"
    # systemd was there, and nothing of the machine is left but its recording and its console.
    assert "systemd[1]" in run.console.read_text(errors="replace")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"idle-6.1-v2", run.console.name}
    assert os.listdir(tmp_path / "idle-6.1-v2")

"""Every scene keeps its contract, and some are played for real, in short."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import ena, play
from lab.recorder import FACILITY, LabRecogniser
from lab.scenes import FOLDER, NAMES, load
from lab.stage import ACTORS, CannotPlay, SceneFailed, Stage
from lab.veth import cpu_mask
from sexton.detect.registry import all_detectors
from sexton.sources.kmsg.catalogue import recognise
from sexton.sources.kmsg.records import LogLine
from tests.kernel.conftest import until
from tests.support.cli import sexton
from tests.support.tools import need
from tests.support.zombies import zombies

SECTIONS = (
    "What happens",
    "What is real",
    "What is injected or substituted",
    "Expected diagnosis",
    "Must not be diagnosed",
    "By hand",
)
KEYS = {"root", "chain", "present", "absent", "exit"}
NEEDS = {"root", "systemd", "runc", "v1", "v2", "cable"}


def test_every_folder_is_a_scene_and_every_scene_has_a_folder():
    folders = {path.name for path in FOLDER.iterdir() if (path / "scene.py").exists()}
    assert folders == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_scene_says_what_it_is_what_it_needs_and_what_must_be_diagnosed(name: str):
    scene = load(name)
    assert name == scene.ID
    assert scene.TITLE
    assert 60 <= scene.SECONDS <= 180
    assert scene.NEEDS <= NEEDS
    assert callable(scene.play)
    expected = scene.EXPECTED
    assert set(expected) - {"named", "possible"} == KEYS
    known = {detector.id for detector in all_detectors()}
    assert {*expected["present"], *expected["absent"], *expected["chain"]} <= known
    assert set(expected.get("possible", ())) <= known - {*expected["present"], *expected["absent"]}
    assert set(expected["chain"]) <= set(expected["present"])
    assert not set(expected["present"]) & set(expected["absent"])
    assert expected["root"] == (expected["chain"][0] if expected["chain"] else None)
    assert (expected["exit"] == 1) == bool(expected["present"])
    # The end of a chain may be all that is left of it when the scene is over.
    assert getattr(scene, "LIVE", expected["root"]) in {expected["root"], *expected["chain"]}


@pytest.mark.parametrize("name", NAMES)
def test_a_scene_owns_up_to_what_is_not_real(name: str):
    readme = (FOLDER / name / "README.md").read_text()
    headings = [line[3:] for line in readme.splitlines() if line.startswith("## ")]
    assert headings == list(SECTIONS)
    substituted = readme.split(f"## {SECTIONS[2]}")[1].split("## ")[0].strip()
    code = (FOLDER / name / "scene.py").read_text()
    assert ("/dev/kmsg" in substituted) == ("ena." in code)
    if "substitute(" in code:
        assert substituted != "Nothing."


def test_lines_that_are_injected_are_lines_the_catalogue_knows():
    for line in (*ena.starved("eth0", 5, 6.596), *ena.silent_device("eth0")):
        assert recognise(line) is not None, line
    (paused, *_) = ena.starved("eth0", 5, 6.596)
    assert recognise(paused).fields["napi_us"] == 6_596_000


def test_the_labs_recorder_believes_what_was_typed_since_it_began_and_nothing_older():
    (line, *_) = ena.silent_device("eth0")
    recogniser = LabRecogniser(since_us=2_000_000)
    assert recogniser.event(LogLine(2_000_001, None, line, FACILITY)) is not None
    assert recogniser.event(LogLine(1_999_999, None, line, FACILITY)) is None
    assert recogniser.event(LogLine(2_000_001, None, line, 1)) is None
    assert recogniser.event(LogLine(1_999_999, None, line, 0)) is not None


def test_a_core_beyond_the_first_32_has_its_bit_in_a_word_of_its_own():
    assert int(cpu_mask(5), 16) == 1 << 5
    assert cpu_mask(64) == "00000001,00000000,00000000"


def test_what_was_made_is_put_away_in_reverse_also_after_a_failure(tmp_path: Path):
    done: list[int] = []
    stage = Stage(tmp_path, {})

    def fail() -> None:
        with stage:
            for number in range(3):
                stage.at_end(done.append, number)
            stage.until("never", lambda: False, within_s=0)

    with pytest.raises(SceneFailed, match="never"):
        fail()
    assert done == [2, 1, 0]
    assert not stage.folder.exists()


def test_what_the_actors_of_a_failed_scene_said_is_kept_beside_its_recording(tmp_path: Path):
    def fail() -> None:
        with Stage(tmp_path, {}) as stage:
            (stage.folder / "actors.log").write_text("no route to host")
            stage.until("never", lambda: False, within_s=0)

    with pytest.raises(SceneFailed):
        fail()
    assert (tmp_path / "actors.log").read_text() == "no route to host"
    with Stage(tmp_path / "fine", {}):
        pass
    assert not (tmp_path / "fine").exists()


def test_a_process_that_had_to_live_and_died_fails_the_scene(tmp_path: Path):
    need("setpriv", package="util-linux")
    with Stage(tmp_path, {}) as stage:
        stage.spawn("sh", "-c", "exit 7")
        with pytest.raises(SceneFailed, match="7"):
            stage.wait(30)


def test_a_spawned_process_ends_with_the_stage(tmp_path: Path):
    need("setpriv", package="util-linux")
    with Stage(tmp_path, {}) as stage:
        child = stage.spawn("sleep", "1000")
        assert child.poll() is None
    assert child.returncode == -signal.SIGKILL


@pytest.mark.root
def test_the_substitute_walker_ends_by_itself_and_leaves_every_limit_as_it_was():
    with zombies(40) as maker:
        names = ("memory.limit_in_bytes", "memory.high", "memory.max")
        limits = [maker.parent / name for name in names if (maker.parent / name).exists()]
        before = [limit.read_text() for limit in limits]
        walker = [sys.executable, "-I", "-S", str(ACTORS / "walker.py"), str(maker.parent), "0.2"]
        subprocess.run(walker, check=True, timeout=60)
        assert before == [limit.read_text() for limit in limits]
        assert limits


def test_what_a_live_diagnosis_must_say_is_told_and_hides_nothing_of_the_stage(tmp_path: Path):
    with Stage(tmp_path, {}) as stage:
        stage.live_root = "cgroup_churn"
        assert stage.live_cgroups() >= 0


def test_an_expectation_that_was_adapted_says_why_and_leaves_the_scenes_own_alone(tmp_path: Path):
    scene = load("whole_chain")
    with Stage(tmp_path, scene.EXPECTED) as stage:
        stage.adapt("no systemd here", root="cgroup_churn")
        assert stage.expected["root"] == "cgroup_churn"
        assert stage.adapted == ["no systemd here"]
    assert scene.EXPECTED["root"] == "crash_looping_unit"


def test_a_scene_that_cannot_be_played_here_says_why(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert play.main(["idle", "--out", str(tmp_path / "out")]) == 3
    assert "idle cannot be played here: it needs root" in capsys.readouterr().err


@pytest.mark.root
def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path):
    (tmp_path / "mine").touch()
    with pytest.raises(CannotPlay, match="not empty"):
        play.play(load("idle"), tmp_path)


@pytest.mark.root
@pytest.mark.whole
def test_interrupted_it_puts_everything_away(tmp_path: Path):
    command = [sys.executable, "-m", "lab.play", "zombies_only", "--out", str(tmp_path / "out")]
    with subprocess.Popen([*command, "--seconds", "8"], stderr=subprocess.PIPE, text=True) as it:
        assert any("keeps restarting every" in line for line in it.stderr)
        it.send_signal(signal.SIGINT)
        said = it.stderr.read()
    assert it.returncode == 130, said
    hierarchies = [path for path in Path("/sys/fs/cgroup").iterdir() if path.is_dir()]
    left = [path for top in (Path("/sys/fs/cgroup"), *hierarchies) for path in top.glob(
        f"sexton-lab-{it.pid}*")]  # fmt: skip
    assert not left
    assert until(lambda: not [pid for pid in _processes() if str(tmp_path) in _command(pid)])


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def played(name: str, out: Path, seconds: float) -> tuple[dict, dict]:
    """`scene.json` and the diagnosis of a short rehearsal."""
    need("perf", package="linux-perf")
    began = time.time()
    command = [sys.executable, "-m", "lab.play", name, "--out", str(out)]
    ended = subprocess.run(
        [*command, "--seconds", str(seconds)], capture_output=True, text=True, check=False
    )
    if ended.returncode == 3:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 0, ended.stderr
    document = json.loads((out / "scene.json").read_text())
    assert document["id"] == name
    assert document["kernel"] == os.uname().release
    assert (
        began <= document["began"] <= document["moments"][0]["at"] <= document["moments"][-1]["at"]
    )
    diagnosis = json.loads(sexton("diagnose", "--from", out, "--json").stdout)
    return document, {finding["id"]: finding for finding in diagnosis["findings"]}


@pytest.mark.root
@pytest.mark.whole
def test_zombies_that_are_left_in_a_scene_are_in_its_recording(tmp_path: Path):
    told, findings = played("zombies_only", tmp_path / "out", 30)
    assert told["injected"] == []
    if told["adapted"]:
        pytest.skip(told["adapted"][0])
    for name in told["expected"]["present"]:
        assert findings[name]["verdict"] == "present", findings[name]


@pytest.mark.root
@pytest.mark.whole
def test_a_hog_in_user_mode_is_blamed_for_nothing(tmp_path: Path):
    _, findings = played("pinned_hog", tmp_path / "out", 30)
    blamed = [
        finding for finding in findings.values() if "lab-hog" in json.dumps(finding["entities"])
    ]
    assert not blamed


@pytest.mark.root
@pytest.mark.whole
def test_a_quota_that_throttles_is_in_its_recording(tmp_path: Path):
    _, findings = played("cfs_quota", tmp_path / "out", 40)
    assert findings["quota_throttling"]["verdict"] == "present", findings["quota_throttling"]

"""Following a machine to its end, its deadline or its death, and taking what it left."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from lab.vm import results, runs
from lab.vm.__main__ import main
from lab.vm.machine import GuestTimeout, Machine
from lab.vm.payload import Job
from lab.vm.tools import LabError

SLOT_MB = 1


def _run(tmp_path: Path, *scenes: str) -> runs.Run:
    return runs.plan("6.1", "v2", Job(scenes, 60, slot_mb=SLOT_MB), tmp_path)


def _follow(script: str, run: runs.Run) -> runs.Progress:
    """A shell in the place of QEMU: what it prints is what the guest says."""
    with Machine(["sh", "-c", script], run.out / "errors") as machine:
        return runs.follow(machine, run)


def _tar(**files: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(_folder("."))
        for name, text in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def _folder(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE
    return info


def _disk(tmp_path: Path, *slots: bytes) -> Path:
    disk = tmp_path / "results.img"
    results.make_disk(disk, len(slots), SLOT_MB)
    with disk.open("r+b") as file:
        for number, content in enumerate(slots):
            file.seek(number * SLOT_MB * results.MEGABYTE)
            file.write(content)
    return disk


def test_a_machine_that_plays_all_and_turns_off_had_no_trouble(tmp_path: Path):
    progress = _follow(
        "printf 'ready 6.1.0 30\r\nscene idle\r\nplayed idle 0 41\r\nover\r\n'",
        _run(tmp_path, "idle"),
    )
    assert progress.trouble == ""
    assert progress.played == {"idle": (0, 41)}


def test_a_machine_that_dies_while_playing_names_the_scene_and_the_panic(tmp_path: Path):
    run = _run(tmp_path, "idle", "busy")
    run.console.write_text("[ 1.0] fine\n[ 9.0] Kernel panic - not syncing: oh no\n")
    progress = _follow("printf 'ready 6.1.0 30\nscene idle\nplayed idle 0 9\nscene busy\n'", run)
    assert progress.trouble.startswith("while playing busy: the machine went off: ")
    assert progress.trouble.endswith("Kernel panic - not syncing: oh no")


def test_a_qemu_that_cannot_start_is_told_by_its_own_words(tmp_path: Path):
    progress = _follow("echo 'qemu: no such cpu' >&2; exit 1", _run(tmp_path, "idle"))
    assert progress.trouble == "while booting: the machine went off: qemu: no such cpu"


def test_a_machine_that_hangs_at_boot_is_given_up_and_killed(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(runs, "BOOT_S", 0.05)
    run = _run(tmp_path, "idle")
    with Machine(["sleep", "1000"], tmp_path / "errors") as machine:
        progress = runs.follow(machine, run)
        process = machine._process
    assert progress.trouble == "while booting: not done within 0 s"
    assert process.returncode == -9


def test_a_guest_that_freezes_is_given_up_before_its_scenes_deadline(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(runs, "BEAT_S", 0.5)
    progress = _follow(
        "printf 'ready 6.1 1\\nscene idle\\nbeat\\n'; exec sleep 1000", _run(tmp_path, "idle")
    )
    assert progress.trouble == "while playing idle: nothing heard for 0 s"


def test_a_beat_is_no_answer_and_does_not_move_a_deadline(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(runs, "BOOT_S", 0.5)
    progress = _follow("while :; do echo beat; sleep 0.05; done", _run(tmp_path, "idle"))
    assert progress.trouble == "while booting: not done within 0 s"


def test_a_guest_that_gives_up_by_itself_is_believed(tmp_path: Path):
    progress = _follow("echo failed no results disk; sleep 1000", _run(tmp_path, "idle"))
    assert progress.trouble == "no results disk"


def test_noise_on_the_line_is_told_and_passed_over(tmp_path: Path, capsys):
    progress = _follow(
        r"printf 'played idle x y\n\033[31mboo\nready 6.1 1\nover\n'", _run(tmp_path, "idle")
    )
    assert progress.ready
    assert progress.played == {}
    assert "\\x1b[31mboo" in capsys.readouterr().err


def test_a_line_may_come_in_pieces_and_a_silence_ends_the_waiting(tmp_path: Path):
    script = "printf rea; sleep 0.1; printf 'dy\\nnext\\nhalf'; exec sleep 1000"
    with Machine(["sh", "-c", script], tmp_path / "errors") as machine:
        assert machine.line(60) == "ready"
        assert machine.line(60) == "next"
        with pytest.raises(GuestTimeout):
            machine.line(0.05)


@pytest.mark.root
def test_the_machine_goes_before_other_work_on_the_host(tmp_path: Path):
    with Machine(["nice"], tmp_path / "errors") as machine:
        assert machine.line(60) == str(max(-20, os.nice(0) - 10))


def test_each_scene_comes_out_of_its_own_slot(tmp_path: Path):
    disk = _disk(tmp_path, _tar(a="first"), _tar(a="second"))
    run = _run(tmp_path / "out", "idle", "busy")
    run.folder("busy", good=False).mkdir(parents=True)
    progress = runs.Progress(True, None, {"idle": (0, 10), "busy": (0, 20)})
    outcomes = runs._collect(run, progress, disk)
    assert [one.good for one in outcomes] == [True, True]
    assert (tmp_path / "out/idle-6.1-v2/a").read_text() == "first"
    assert (tmp_path / "out/busy-6.1-v2/a").read_text() == "second"
    assert not run.folder("busy", good=False).exists()


def test_a_failed_scene_is_kept_apart_and_told_by_its_last_line(tmp_path: Path):
    disk = _disk(tmp_path, _tar(**{"play.log": "going\nno runc here\n"}), b"")
    run = _run(tmp_path / "out", "churn", "idle")
    progress = runs.Progress(True, None, {"churn": (2, 5)}, "between scenes: the machine went off")
    first, second = runs._collect(run, progress, disk)
    assert first.status == "failed with status 2: no runc here"
    assert first.folder == tmp_path / "out/churn-6.1-v2.failed"
    assert not first.good
    assert second.status == "between scenes: the machine went off"


def test_a_scene_that_has_no_place_there_is_no_failure_and_leaves_no_folder(tmp_path: Path):
    disk = _disk(tmp_path, _tar(**{"play.log": "lab: it needs a systemd\n"}), _tar(a="1"))
    progress = runs.Progress(True, None, {"churn": (3, 1), "idle": (0, 9)})
    outcomes = runs._collect(_run(tmp_path / "out", "churn", "idle"), progress, disk)
    assert outcomes[0].status == "cannot be played here: lab: it needs a systemd"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["idle-6.1-v2"]
    assert runs.exit_status(outcomes) == 3
    assert runs.exit_status(outcomes[1:]) == 0
    failed = results.Outcome("busy", "6.1", "v2", "failed with status 2: no")
    assert runs.exit_status([*outcomes, failed]) == 1


def test_what_follows_a_killed_scene_is_not_called_played(tmp_path: Path):
    disk = _disk(tmp_path, _tar(**{"play.log": "going\n"}), b"")
    progress = runs.Progress(True, None, {"busy": (124, 60)})
    first, second = runs._collect(_run(tmp_path / "out", "busy", "idle"), progress, disk)
    assert first.status.startswith("did not end in time")
    assert second.status.startswith("not played")


@pytest.mark.parametrize(
    "content",
    [b"", b"junk" * 1000, _tar(a="x" * 5000)[:3000]],
    ids=["never written", "no tar", "torn"],
)
def test_a_slot_without_a_whole_tar_is_an_error_and_leaves_no_folder(tmp_path: Path, content):
    disk = _disk(tmp_path, content)
    with disk.open("r+b") as file:
        file.truncate(max(len(content), 1024))
    with pytest.raises(LabError):
        results.unpack(disk, 0, SLOT_MB, tmp_path / "out/scene")
    assert not (tmp_path / "out/scene").exists()
    assert list((tmp_path / "out").iterdir()) == []


def test_a_scene_that_runs_over_its_slot_is_an_error(tmp_path: Path):
    disk = _disk(tmp_path, _tar(a="x" * (SLOT_MB * results.MEGABYTE)), b"", b"")
    with pytest.raises(LabError, match="exceed 1 MB"):
        results.unpack(disk, 0, SLOT_MB, tmp_path / "scene")


def test_nothing_leaves_the_folder_and_links_do_not_come_out(tmp_path: Path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("../escaped", "/escaped", "fine"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    disk = _disk(tmp_path, out.getvalue())
    results.unpack(disk, 0, SLOT_MB, tmp_path / "out/scene")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["scene", "fine"]


def test_an_older_recording_is_replaced_whole(tmp_path: Path):
    (tmp_path / "scene").mkdir()
    (tmp_path / "scene/old").touch()
    results.unpack(_disk(tmp_path, _tar(new="1")), 0, SLOT_MB, tmp_path / "scene")
    assert [path.name for path in (tmp_path / "scene").iterdir()] == ["new"]


@pytest.mark.parametrize("scene", ["../x", "a b", "$(x)", "", "A"])
def test_a_scenes_name_is_a_word_since_a_shell_reads_it(tmp_path: Path, scene: str):
    with pytest.raises(LabError, match="invalid scene name"):
        _run(tmp_path, scene)


def test_a_scene_named_twice_is_refused(tmp_path: Path):
    with pytest.raises(LabError, match="twice"):
        _run(tmp_path, "idle", "idle")


def test_the_matrix_can_be_asked_for_some_of_it(tmp_path: Path, monkeypatch, capsys):
    booted: list[str] = []

    def play(run: runs.Run) -> list[results.Outcome]:
        booted.append(f"{run.name}: {' '.join(run.job.scenes)}")
        words = "failed with status 2: no"
        return [results.Outcome(scene, run.name, "v2", words) for scene in run.job.scenes]

    monkeypatch.setattr(runs, "play", play)
    wanted = ["matrix", "idle", "busy", "--on", "6.1-v2", "5.10-v1", "--out", str(tmp_path)]
    assert main([*wanted, "--boot-each"]) == 1
    assert booted == ["6.1-v2: idle", "6.1-v2: busy", "5.10-v1: idle", "5.10-v1: busy"]
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert main(["matrix", "idle", "--on", "6.12-v1", "--out", str(tmp_path)]) == 2


def test_a_wrong_kernel_is_one_line_and_status_2(tmp_path: Path, capsys):
    assert main(["run", "4.4", "v2", "idle", "--out", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("lab: unknown kernel '4.4'")


def test_without_qemu_a_run_builds_nothing_and_tells_the_apt_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lab.vm.tools.search_path", lambda: "/nonexistent")
    monkeypatch.setenv("SEXTON_LAB_CACHE", str(tmp_path / "cache"))
    assert main(["run", "6.1", "v2", "idle", "--out", str(tmp_path / "out")]) == 2
    assert "apt-get install --no-install-recommends qemu-system-x86" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_table_has_a_row_for_every_scene():
    shown = results.table(
        [
            results.Outcome("idle", "6.1", "v2", "played", 41, Path("x")),
            results.Outcome("busy", "6.1", "v2", "while booting: nothing heard for 300 s"),
        ]
    )
    rows = [line.split() for line in shown.splitlines()]
    assert rows[0][3:] == ["seconds", "top", "cause", "live", "right", "outcome"]
    assert rows[1] == ["idle", "6.1", "v2", "41", "-", "-", "-", "played"]
    assert rows[2][:8] == ["busy", "6.1", "v2", "-", "-", "-", "-", "while"]

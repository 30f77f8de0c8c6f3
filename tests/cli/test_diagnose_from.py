"""`sexton diagnose --from DIR`: what a person types, and what they are told."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.synthetic import Plan, write
from sexton.cli.main import main
from sexton.model.text import local_time

START = 1_740_000_000.0
WALK_S = 200.0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("node") / "recording"
    causes = ("zombie_walk", "nic_reset")
    plan = Plan(cores=4, hours=0.2, processes=40, cgroups=40, queues=4, units=40, plant=causes,
                start=START, walks_at=(WALK_S,))  # fmt: skip
    write(place, plan, compacted=False)  # several segments, of which one may be damaged
    return place


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["diagnose", *arguments])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_the_verdict_says_that_it_is_a_replay_and_of_which_span(
    recorded: Path, capsys: pytest.CaptureFixture[str]
):
    status, out, err = told(capsys, "--from", str(recorded))
    assert (status, err) == (1, "")
    head = out.split("\n\n")[0]
    assert "REPLAY" in head
    assert str(recorded) in head.replace("\n            ", "")
    assert "(11 min 59 s)" in head.replace("\n            ", " ")
    assert "replayed from a recording" in out
    assert "watched ·" not in out
    assert "core 0" in out or "core 1" in out or "core 2" in out or "core 3" in out


def test_local_times_name_their_zone_because_the_timeline_is_in_utc(
    recorded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TZ", "PST8")
    time.tzset()
    try:
        _, out, _ = told(capsys, "--from", str(recorded))
        assert "2025-02-19 13:20:00 to 2025-02-19 13:31:59 PST" in " ".join(out.split())
        status, _, err = told(capsys, "--from", str(recorded), "--around", "21:25")
        assert status == 2
        assert err.endswith("covers 2025-02-19 13:20:00 to 2025-02-19 13:31:59 PST\n")
        assert local_time(START, "%H:%M") == "13:20 PST"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_json_names_the_recording(recorded: Path, capsys: pytest.CaptureFixture[str]):
    _, out, _ = told(capsys, "--from", str(recorded), "--json")
    answer = json.loads(out)
    assert answer["replayed"] == {"recording": str(recorded), "condensed": False, "notes": []}
    assert answer["window"]["start"] == pytest.approx(START, abs=1)
    assert answer["window"]["end"] == pytest.approx(START + 719, abs=1)
    assert answer["cost"]["touched"] == "replayed from a recording"


def verdicts(out: str) -> dict[str, str]:
    return {finding["id"]: finding["verdict"] for finding in json.loads(out)["findings"]}


@pytest.mark.parametrize(
    ("arguments", "held"),
    [
        (("--around", f"@{START + WALK_S}"), "present"),
        (("--around", f"{START + WALK_S:.0f}"), "present"),
        (("--window", f"@{START}..@{START + 150}"), "absent"),
        (("--window", "5m.."), "absent"),
        (("--window", f"..@{START + 300}"), "present"),
    ],
)
def test_a_part_of_it_is_judged_by_itself(
    recorded: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], held: str
):
    _, out, _ = told(capsys, "--from", str(recorded), "--json", *arguments)
    assert verdicts(out)["saturated_core"] == held


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--around", "25:99"), "the recording covers"),
        (("--around", "yesterday"), "the recording covers"),
        (("--around", "@5"), "nothing was recorded"),
        (("--window", "10:00"), "A..B"),
        (("--window", "1m..5m"), "ends before it begins"),
        (("--seconds", "5"), "--seconds"),
        (("--root", "/tmp"), "--root"),
        (("--stacks",), "--stacks"),
        (("some.tar",), "archive"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_2(
    recorded: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
):
    status, out, err = told(capsys, "--from", str(recorded), *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("sexton")
    assert err.count("\n") == 1
    assert says in err


def test_around_a_time_before_a_reboot_judges_the_boot_that_holds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    plan = Plan(cores=4, hours=0.3, processes=40, cgroups=40, queues=4, units=40, start=START,
                plant=("zombie_walk", "nic_reset"), walks_at=(WALK_S,),
                reboot_at=WALK_S + 60)  # fmt: skip
    write(tmp_path / "node", plan)
    place = str(tmp_path / "node")
    _, out, _ = told(capsys, "--from", place, "--json", "--around", f"@{START + WALK_S + 6}")
    assert json.loads(out)["window"]["end"] < START + WALK_S + 61
    assert verdicts(out)["saturated_core"] == "present"
    assert "the one running at that time is judged" in json.loads(out)["replayed"]["notes"][0]


def test_around_and_window_exclude_each_other(recorded: Path, capsys: pytest.CaptureFixture[str]):
    status, _, err = told(capsys, "--from", str(recorded), "--around", "5m", "--window", "5m..")
    assert status == 2
    assert "not allowed with" in err


def test_a_time_without_a_recording_says_nothing(capsys: pytest.CaptureFixture[str]):
    status, _, err = told(capsys, "--around", "10:00")
    assert status == 2
    assert "--from DIR" in err


@pytest.mark.parametrize("made", ["missing", "file", "other", "empty"])
def test_a_directory_that_is_no_recording_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: str
):
    place = tmp_path / "somewhere\x1b[2J"
    if made == "file":
        place.write_text("")
    elif made != "missing":
        (place / ("segments" if made == "empty" else "photos")).mkdir(parents=True)
    status, out, err = told(capsys, "--from", str(place))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "\x1b" not in err


def test_without_pyarrow_it_says_what_to_install(recorded: Path):
    hide = "import sys; sys.modules['pyarrow'] = None\n"
    code = f"{hide}from sexton.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "diagnose", "--from", str(recorded)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "sexton[recorder]" in done.stderr


def test_a_damaged_segment_is_named_and_the_rest_judged(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    import shutil

    copy = shutil.copytree(recorded, tmp_path / "copy")
    manifest = sorted((copy / "segments").iterdir())[-1] / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-7])
    status, out, _ = told(capsys, "--from", str(copy))
    assert status == 1
    assert f"sexton recording verify {copy}" in " ".join(out.split())


def test_an_archive_is_judged_by_either_name(capsys: pytest.CaptureFixture[str]):
    archive = str(Path(__file__).parents[1] / "fixtures" / "nodes" / "6.1-v2-crash.tar.gz")
    said = [
        json.loads(told(capsys, *words, "--json")[1]) for words in ((archive,), ("--from", archive))
    ]
    assert said[0]["chains"] == said[1]["chains"] != []
    status, out, err = told(capsys, "--from", archive, "--around", "5m")
    assert (status, out) == (2, "")
    assert "--from DIR" in err

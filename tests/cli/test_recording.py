"""``sexton recording info | verify | export | mark``, as a person types it."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from sexton.cli.main import main
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.node import Node
from sexton.model.rows.recorder import Alarm, Mark, RecorderCost, RecorderNote
from sexton.model.settings import Changed, Settings
from sexton.model.window import Batch
from sexton.store.pins import Pin, add_pin, pins_in
from sexton.store.recording import Recording
from tests.cli.test_imports import imported
from tests.support.annexes import with_stacks
from tests.support.cli import one_line, quiet, sexton
from tests.support.recordings import (
    BOOT,
    HEADER,
    WALL_S,
    cores,
    damage_table,
    write_open,
    write_sealed,
)

UTC = {"TZ": "UTC0"}
NODE = Node("node-7", "6.12.9", 96, BOOT, 9.0, *[None] * 8)


def batch(mono_s: float, *rows, ahead_s: float = 0.0) -> Batch:
    return Batch(mono_s, WALL_S + mono_s + ahead_s, rows)


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """A recording with everything in it that `info` tells about."""
    place = tmp_path / "rec"
    first = {
        CoreTimes: [cores(100.0), cores(101.0), cores(102.0)],
        Node: [batch(100.0, NODE)],
        Alarm: [batch(101.0, Alarm("held_core", "cpu 5", "94 % system for 2 s", 0.0, 200.0))],
        RecorderCost: [
            batch(100.0, RecorderCost(100, 0, 0, 60 << 20, 0, 1000, 0)),
            batch(102.0, RecorderCost(110, 10, 2, 70 << 20, 1 << 20, 5000, 0)),
        ],
        RecorderNote: [batch(101.5, RecorderNote("shed", "procfs.processes rested: 2 %"))],
    }
    write_sealed(place, [first], 1)
    write_sealed(place, [{Mark: [batch(103.0, Mark("job 17 \x1b[2Jdied"))]}], 2)
    write_sealed(place, [{CoreTimes: [cores(400.0), cores(401.0)]}], 3)
    later = {**HEADER, "boot_id": "another-boot"}
    write_open(place, [{CoreTimes: [cores(50.0), cores(51.0)]}], 4, later)
    add_pin(place, Pin("p1", "held_core", "cpu 5", "", BOOT, 0.0, 200.0, WALL_S + 101))
    return place


def test_info_tells_who_when_how_much_and_what_happened_in_forty_lines(night: Path):
    ended = sexton("recording", "info", night, env=UTC)
    quiet(ended)
    text = ended.stdout.decode()
    assert len(text.splitlines()) <= 40
    for words in (
        "node-7, Linux 6.12.9, 96 cores; not being recorded now",
        "2023-11-14 22:15:00 to 2023-11-14 22:14:11 UTC",
        "2 boots, 2 gaps",
        "3 sealed segments, 1 open",
        "held core cpu 5: 94 % system for 2 s",
        "mark: job 17 \\x1b[2Jdied",
        "gap of 4 min 57 s",
        "reboot",
        "1 pin kept beyond retention, the last: p1",
        "1.00% of one core, 0.10% in kernel probes, 71.0 MiB peak memory, 3.9 KiB written",
        "shed: procfs.processes rested: 2 %",
        "core_times",
    ):
        assert words in text, f"{words!r} is not in\n{text}"


@pytest.mark.parametrize(("decoded", "lead"), [(False, "Stacks: "), (True, "   and ")])
def test_info_says_that_stacks_were_recorded_and_are_not_decoded_yet(
    tmp_path: Path, decoded: bool, lead: str
):
    place = tmp_path / "r"
    if decoded:
        with_stacks(place)
    else:
        write_sealed(place, [{CoreTimes: [cores(100.0), cores(101.0)]}])
    (place / "stacks").mkdir(exist_ok=True)
    (place / "stacks/perf.data.20250220050000123").write_bytes(bytes(3 << 20))
    lines = sexton("recording", "info", place).stdout.decode().splitlines()
    assert f"{lead}1 file recorded and not decoded yet, 3.0 MiB" in lines
    assert any(" samples from " in line for line in lines) == decoded


def test_notes_of_captured_rings_do_not_hide_what_was_paused(tmp_path: Path):
    ring = "event ring captured in 5.0 s: x.parquet"
    notes = [batch(100.0, RecorderNote("shed", "stack decoding paused; samples kept"))]
    notes += [batch(101.0 + number, RecorderNote("detail", ring)) for number in range(5)]
    write_sealed(tmp_path / "r", [{CoreTimes: [cores(100.0), cores(110.0)], RecorderNote: notes}])
    text = sexton("recording", "info", tmp_path / "r").stdout.decode()
    assert "shed: stack decoding paused" in text
    assert "3 other notes" in text


def test_info_for_machines_has_all_of_it(night: Path):
    document = json.loads(sexton("recording", "info", "--json", night).stdout)
    assert document["schema"] == "sexton.recording.info/1"
    assert document["node"]["hostname"] == "node-7"
    assert document["segments"] == {"sealed": 3, "open": 1}
    assert document["boots"] == [BOOT, "another-boot"]
    assert [(gap["seconds"], gap["reboot"]) for gap in document["gaps"]] == [
        (297.0, False),
        (None, True),
    ]
    assert document["tables"]["core_times"]["rows"] == 3 * 2 + 4 + 4
    assert document["tables"]["core_times"]["period_s"] == 1.0
    assert document["alarms"][0]["wall_s"] == WALL_S + 101
    assert document["marks"][0]["text"] == "job 17 \\x1b[2Jdied"
    assert document["cost"]["cpu_share"] == pytest.approx(0.01)
    assert document["pins"][0]["id"] == "p1"
    assert document["sources"][0]["segments"] == {"ok": 4}
    assert document["problems"] == []


HELD = Changed(("saturated_core",), "held", 4.0, 2.0, "s in a row")
MINE = Settings("/etc/sexton/config.toml", (HELD,), ("tcp_loss",))


def configured(place: Path) -> Path:
    """Three recorders, one after the other: an older one, one with a file, one without."""
    without = {**HEADER, "config": Settings().document}
    write_sealed(place, [{CoreTimes: [cores(100.0), cores(101.0)]}], 1)
    write_sealed(place, [{CoreTimes: [cores(102.0)]}], 2, {**HEADER, "config": MINE.document})
    write_sealed(place, [{CoreTimes: [cores(103.0)]}], 3, {**HEADER, "config": MINE.document})
    write_open(place, [{CoreTimes: [cores(104.0)]}], 4, without)
    return place


def test_info_tells_which_configuration_was_in_force_and_since_when(tmp_path: Path):
    place = configured(tmp_path / "rec")
    text = sexton("recording", "info", place, env={**UTC, "COLUMNS": "120"}).stdout.decode()
    assert "Configuration: not recorded by older versions" in text
    assert (
        "since 2023-11-14 22:15:02: /etc/sexton/config.toml: saturated_core.held 4 s in a row"
        in text
    )
    assert "since 2023-11-14 22:15:04: defaults" in text
    document = json.loads(sexton("recording", "info", "--json", place).stdout)
    assert document["configs"] == [
        {"since": WALL_S + 100, "recorded": False, "config": None},
        {"since": WALL_S + 102, "recorded": True, "config": MINE.document},
        {"since": WALL_S + 104, "recorded": True, "config": None},
    ]


def test_a_verdict_says_where_the_configuration_differs_from_that_of_then(tmp_path: Path):
    place = configured(tmp_path / "rec")
    mine = tmp_path / "mine.toml"
    mine.write_text('[thresholds]\nsaturated_core.held = 4\n[detectors]\noff = ["tcp_loss"]\n')

    def notes(*config: str) -> str:
        ended = sexton("diagnose", "--from", place, "--json", *config, env=UTC)
        return "\n".join(json.loads(ended.stdout)["replayed"]["notes"])

    then = "recorded with another configuration: saturated_core.held was"
    off = f"from 2023-11-14 22:15:02 on, {then} 4 s in a row (now 2); tcp_loss was off (now on)"
    on = f"from 2023-11-14 22:15:04 on, {then} 2 s in a row (now 4); tcp_loss was on (now off)"
    default = notes("--config", "")
    assert off in default
    assert on not in default
    assert on in (same := notes("--config", str(mine)))
    assert off not in same


@pytest.mark.parametrize("config", [5, [], {"path": 1}, {**MINE.document, "off": 3}, "x"])
def test_a_configuration_that_is_none_counts_as_not_recorded(tmp_path: Path, config):
    write_sealed(tmp_path, [{CoreTimes: [cores(9.0)]}], 1, {**HEADER, "config": config})
    assert Recording(tmp_path).segments[0].settings is None


def test_info_tells_what_was_skipped_and_that_a_recorder_runs(night: Path):
    (night / "segments" / "\x1bjunk").write_text("")
    with (night / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = sexton("recording", "info", night).stdout.decode()
    assert "being recorded now" in text
    assert "segments/\\x1bjunk: not a segment, skipped" in text


def test_info_tells_when_the_clock_was_moved(tmp_path: Path):
    place = tmp_path / "rec"
    write_sealed(place, [{Mark: [batch(100.0, Mark("a"))]}], 1)
    write_sealed(place, [{Mark: [batch(101.0, Mark("b"), ahead_s=-7200.0)]}], 2)
    text = sexton("recording", "info", place).stdout.decode()
    assert "1 clock jump" in text
    assert "clock jumped by -2 h 0 min" in text


def test_info_on_a_recording_without_a_reading_says_so(tmp_path: Path):
    (tmp_path / "segments").mkdir()
    ended = sexton("recording", "info", tmp_path)
    quiet(ended)
    assert b"Nothing recorded yet." in ended.stdout


@pytest.mark.parametrize("what", ["info", "verify", "export", "mark"])
def test_what_is_no_recording_is_one_line_and_exit_2(tmp_path: Path, what: str):
    more = {"export": ["--out", tmp_path / "x"], "mark": ["words"]}.get(what, [])
    for place in (tmp_path, tmp_path / "none", "/etc/passwd", "\x1b[2J"):
        ended = sexton("recording", what, place, *more)
        assert ended.returncode == 2
        assert one_line(ended.stderr).isprintable()
        assert ended.stdout == b""


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("info",),
        ("export", "DIR"),
        ("export", "DIR", "--out", "x", "--format", "xml"),
        ("export", "DIR", "--out", "x", "--table", "no_such"),
        ("export", "DIR", "--out", "x", "--around", "yesterday"),
        ("export", "DIR", "--out", "x", "--around", "25:00"),
        ("export", "DIR", "--out", "x", "--window", "10:15"),
        ("export", "DIR", "--out", "x", "--window", "@20..@10"),
        ("export", "DIR", "--out", "x", "--window", "@10..@20"),
        ("export", "DIR", "--out", "x", "--around", "1", "--window", "@1..@2"),
        ("export", "DIR", "--out", "x", "--pin", "none"),
        ("export", "DIR", "--out", "x", "--format", "recording", "--table", "mark"),
        ("export", "DIR", "--out", "/proc/x"),
        ("mark", "DIR"),
        ("mark", "DIR", " \n"),
        ("mark", "DIR", "x" * 501),
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_bad_usage_is_one_line_and_nothing_is_written(
    night: Path, arguments, tmp_path: Path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    status = main(
        ["recording", *[str(night) if argument == "DIR" else argument for argument in arguments]]
    )
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    assert one_line(shown.err.encode()).startswith("sexton")
    assert set(tmp_path.rglob("*")) == before


def test_help_teaches_each_of_them():
    for what in ("info", "verify", "export", "mark"):
        ended = sexton("recording", what, "--help")
        quiet(ended, (0,))
        assert len(ended.stdout.splitlines()) > 8


def test_verify_answers_by_its_exit_status(night: Path):
    ended = sexton("recording", "verify", night)
    quiet(ended, (0,))
    assert ended.stdout.startswith(b"intact: 4 segments")
    (night / "foreign").write_text("")
    ended = sexton("recording", "verify", night)
    assert ended.returncode == 1
    assert ended.stdout.startswith(b"1 foreign: 4 segments")
    document = json.loads(sexton("recording", "verify", "--json", night).stdout)
    assert document["schema"] == "sexton.recording.verify/1"
    assert (document["whole"], document["troubles"][0]["place"]) == (False, "foreign")


def test_export_takes_a_window_and_tells_what_it_made(night: Path, tmp_path: Path):
    span = f"@{WALL_S + 100}..@{WALL_S + 101}"
    ended = sexton("recording", "export", night, "--out", tmp_path / "out", "--window", span,
                   "--table", "core_times", "--format", "jsonl")  # fmt: skip
    quiet(ended, (0,))
    assert ended.stdout.decode() == f"{tmp_path}/out/core_times.jsonl: 4 rows\n"


def test_export_around_a_time_of_day_is_in_this_machines_zone(night: Path, tmp_path: Path):
    ended = sexton("recording", "export", night, "--out", tmp_path / "out", "--around", "22:15:02",
                   "--table", "alarm", env=UTC)  # fmt: skip
    assert ended.stdout.decode() == f"{tmp_path}/out/alarm.parquet: 1 row\n"


def test_export_of_a_pin_is_a_recording_to_send(night: Path, tmp_path: Path):
    ended = sexton("recording", "export", night, "--out", tmp_path / "part", "--pin", "p1",
                   "--format", "recording")  # fmt: skip
    quiet(ended, (0,))
    assert len(Recording(tmp_path / "part").segments) == 2
    assert [pin.id for pin in pins_in(tmp_path / "part")[0]] == ["p1"]


def test_export_without_what_is_damaged_exits_1(night: Path, tmp_path: Path):
    damage_table(sorted((night / "segments").iterdir())[0], "alarm")
    ended = sexton("recording", "export", night, "--out", tmp_path / "out")
    assert ended.returncode == 1
    assert "alarm.parquet" in one_line(ended.stderr)


def test_a_mark_waits_for_the_recorder_that_runs(night: Path):
    with (night / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = sexton("recording", "mark", night, "job 17\n\x1b died")
    quiet(ended, (0,))
    (path,) = (night / "marks").iterdir()
    document = json.loads(path.read_bytes())
    assert document["text"] == "job 17 \\x1b died"
    assert document["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [pin.id for pin in pins_in(night)[0]] == ["p1"]
    from sexton.store.pins import take_marks

    assert take_marks(night) == ["job 17 \\x1b died"]


def test_a_mark_where_no_recorder_runs_pins_at_once(night: Path):
    ended = sexton("recording", "mark", night, "job 17 died")
    quiet(ended, (0,))
    (pin,) = [pin for pin in pins_in(night)[0] if pin.kind == "mark"]
    assert (pin.about, pin.end_s - pin.start_s) == ("job 17 died", pytest.approx(420.0))
    assert pin.id in ended.stdout.decode()
    assert list((night / "marks").iterdir()) == []


def test_a_mark_needs_nothing_that_is_not_always_installed(night: Path):
    names = imported("recording", "mark", str(night), "job 17 died")
    assert "sexton.store.pins" in names
    assert not names & {"pyarrow", "numpy"}


def test_a_mark_and_an_export_for_machines(night: Path, tmp_path: Path):
    marked = json.loads(sexton("recording", "mark", night, "job 18 died", "--json").stdout)
    assert marked["schema"] == "sexton.recording.mark/1"
    assert (marked["text"], marked["recording_now"]) == ("job 18 died", False)
    assert marked["pin"] in {pin.id for pin in pins_in(night)[0]}
    out = tmp_path / "tables"
    made = sexton("recording", "export", night, "--out", out, "--table", "core_times", "--json")
    document = json.loads(made.stdout)
    assert document["schema"] == "sexton.recording.export/1"
    assert document["tables"] == [{"path": str(out / "core_times.parquet"), "rows": 14}]
    assert (document["files"], document["skipped"]) == (1, [])
    copied = sexton("recording", "export", night, "--out", tmp_path / "c", "--format", "recording",
                    "--json")  # fmt: skip
    document = json.loads(copied.stdout)
    assert document["tables"] is None
    assert document["bytes"] > 0


def test_an_export_ends_where_it_is_too_large_for_its_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that take no space in a recording take some in an export."""
    recording = tmp_path / "recording"
    recording.mkdir()
    write_sealed(recording, [{CoreTimes: [cores(100.0), cores(101.0)]}])
    monkeypatch.setattr("sexton.sandbox.most_written", lambda: 10)
    assert main(["recording", "export", str(recording), "--out", str(tmp_path / "out")]) == 2
    assert "too large for its recording" in capsys.readouterr().err

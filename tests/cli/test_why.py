"""`sexton why`: what a person types, and what they are told."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest

from lab.synthetic import Plan, write
from sexton.cli.main import main
from sexton.cli.window import watch as watch_node
from sexton.explain.subject import names_of
from sexton.model.diagnosis import Cost
from sexton.model.window import Window
from sexton.replay.span import between, everything
from sexton.replay.window import window
from sexton.store.recording import Recording
from tests.cli.test_imports import NEVER, imported
from tests.support.cli import one_line, quiet, sexton

START = 1_740_000_000.0
WALK_S = 400.0
CAUSES = ("crash_loop", "zombie_walk", "nic_reset")


def recording(place: Path, *plant: str, **more: object) -> Path:
    plan = Plan(cores=4, hours=0.2, processes=40, cgroups=40, queues=4, units=40, plant=plant,
                start=START, walks_at=(WALK_S,), **more)  # fmt: skip
    write(place, plan)
    return place


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recording(tmp_path_factory.mktemp("sick") / "recording", *CAUSES)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("healthy") / "recording"
    write(
        place, Plan(cores=4, hours=0.1, processes=40, cgroups=40, queues=4, units=40, start=START)
    )
    return place


Told = tuple[int, str, str]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Told:
    status = main(["why", *arguments])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def answer(capsys: pytest.CaptureFixture[str], place: Path, *words: str) -> dict:
    status, out, err = told(capsys, *words, "--from", str(place), "--json")
    assert err == ""
    found = json.loads(out)
    assert found["exit"] == status
    return found


@pytest.fixture(scope="module")
def held(sick: Path) -> str:
    """The core that the planted walk held."""
    ended = sexton("diagnose", "--from", sick, "--json")
    found = {finding["id"]: finding for finding in json.loads(ended.stdout)["findings"]}
    return str(found["saturated_core"]["entities"]["core"][0])


@pytest.mark.parametrize(
    ("words", "concerned"),
    [
        (("core", "CORE"), "saturated_core"),
        (("coreCORE",), "saturated_core"),
        (("cpu", "CORE"), "saturated_core"),
        (("eth0",), "nic_resets"),
        (("ecs",), "crash_looping_unit"),
        (("ecs.service",), "crash_looping_unit"),
        (("/system.slice/ecs.service",), "crash_looping_unit"),
        (("kubelet",), "saturated_core"),
        ((f"@{START + WALK_S + 6}",), "nic_resets"),
        (("nic_resets",), "nic_resets"),
    ],
)
def test_the_planted_incident_is_told_from_each_of_its_ends(
    sick: Path,
    held: str,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    concerned: str,
):
    found = answer(capsys, sick, *(word.replace("CORE", held) for word in words))
    assert found["schema"] == "sexton.why/1"
    assert found["exit"] == 1
    assert concerned in found["concerned"]
    assert found["chain"]["root"] == "crash_looping_unit"
    effects = [link["effect"] for link in found["chain"]["links"]]
    assert {"zombie_memcgs", "saturated_core", "nic_resets"} <= {*effects}


def test_the_seconds_before_are_compared_and_one_event_proves_nothing(
    sick: Path, held: str, capsys: pytest.CaptureFixture[str]
):
    found = answer(capsys, sick, "core", held)
    aligned = found["aligned"]
    assert len(aligned["events"]) == 1
    assert aligned["events"][0] == pytest.approx(START + WALK_S + 6, abs=2)
    assert aligned["significant"] == 0
    assert aligned["smallest_p"] > 0
    told_of = {item["about"] for item in aligned["ranked"]}
    assert {f"core {held}", "kubelet[2113]"} <= told_of
    status, out, err = told(capsys, "core", held, "--from", str(sick))
    assert "is possible" in out, (status, err)
    assert "significant" not in out


def test_every_end_of_a_restart_loop_is_an_event_and_not_one_long_episode(
    sick: Path, capsys: pytest.CaptureFixture[str]
):
    aligned = answer(capsys, sick, "ecs")["aligned"]
    assert len(aligned["events"]) == 24
    assert aligned["before_s"] == pytest.approx(10.2 / 4, abs=0.1)
    assert any(note.startswith("a loop, every 10") for note in aligned["notes"])


def test_a_bystander_did_nothing_unusual(sick: Path, held: str, capsys: pytest.CaptureFixture[str]):
    other = str((int(held) + 1) % 4)
    status, out, err = told(capsys, "core", other, "--from", str(sick))
    assert (status, err) == (0, "")
    assert f"Nothing unusual was found about core {other} in 11 min 59 s." in out


@pytest.mark.parametrize("words", [("core", "1"), ("eth0",), (f"@{START + 200}",)])
def test_on_a_healthy_node_everything_is_calm(
    healthy: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
):
    status, out, err = told(capsys, *words, "--from", str(healthy))
    assert (status, err) == (0, "")
    assert out.startswith("CALM")
    assert "CAUSE CHAIN" not in out


def test_a_time_is_judged_by_the_minutes_around_it(sick: Path, capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, sick, f"@{START + WALK_S + 6}")
    assert found["window"]["start"] == pytest.approx(START + WALK_S + 6 - 300, abs=2)
    assert found["about"] == {
        "kind": "moment",
        "name": f"@{START + WALK_S + 6}",
        "words": f"@{START + WALK_S + 6}",
        "time": START + WALK_S + 6,
        "also": [],
    }


def test_a_minute_is_taken_as_what_happened_in_it(sick: Path, capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, sick, "2025-02-19T21:26Z")  # 360 s after the start; the walk is at 400
    assert "eth0 was reset" in found["occasions"]["note"]
    assert found["occasions"]["times"][0] == pytest.approx(START + WALK_S + 6.6, abs=1.5)


def test_a_time_before_a_reboot_is_judged_and_compared_in_its_own_boot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    plan = Plan(cores=4, hours=0.3, processes=40, cgroups=40, queues=4, units=40, start=START,
                plant=CAUSES, walks_at=(WALK_S,), reboot_at=600.0)  # fmt: skip
    write(tmp_path / "recording", plan)
    found = answer(capsys, tmp_path / "recording", f"@{START + WALK_S + 6.5}")
    assert found["exit"] == 1
    assert "saturated_core" in found["concerned"]
    assert found["window"]["end"] < START + 600
    assert found["aligned"]["events"] == [pytest.approx(START + WALK_S + 6.5, abs=0.1)]
    later = answer(capsys, tmp_path / "recording", "eth0")
    assert later["window"]["start"] > START + 600


def test_a_name_of_another_boot_is_said_to_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    place = tmp_path / "recording"
    write(place, Plan(cores=4, hours=0.2, processes=40, cgroups=40, queues=4, units=40, start=START,
                      reboot_at=300.0))  # fmt: skip
    kept = Recording(place)
    tasks = [
        {*names_of(window(kept, span).window)["task"]}
        for span in (between(kept, START, START + 200), everything(kept))
    ]
    gone = min(tasks[0] - tasks[1])
    status, out, err = told(capsys, gone, "--from", str(place))
    assert (status, out) == (2, "")
    assert f"{gone!r} is not in the window that was judged" in err
    span = err.strip().rpartition("--window ")[2]
    assert answer(capsys, place, gone, "--window", span)["about"]["name"] == gone


def test_a_typo_is_answered_before_anything_is_judged(sick: Path):
    loaded = imported("why", "eth00", "--from", str(sick))
    assert "sexton.explain.subject" in loaded
    assert "sexton.detect.detectors.network.conntrack_full" not in loaded
    ended = sexton("why", "eth00", "--from", sick)
    assert "no such name: 'eth00'; similar: " in one_line(ended.stderr)


NODE = Path(__file__).parents[1] / "fixtures" / "nodes" / "6.1-v2-crash.tar.gz"


def test_an_archive_is_explained_like_a_short_look(capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, NODE, "core", "0")
    assert found["about"]["name"] == "0"
    assert found["aligned"] is None
    assert answer(capsys, NODE, "demo-crash")["concerned"]
    status, out, err = told(capsys, "core", "700", "--from", str(NODE))
    assert (status, out) == (2, "")
    assert "no such name: 'core 700'" in err
    for more in (("--window", "5m.."), ("--root", "/tmp"), ("--seconds", "3")):
        status, out, err = told(capsys, "core", "0", "--from", str(NODE), *more)
        assert (status, out, err.count("\n")) == (2, "", 1)


def test_an_archive_or_recording_after_the_name_is_answered_with_the_option(
    sick: Path, capsys: pytest.CaptureFixture[str]
):
    """`diagnose` and `zombies` take an archive in this place."""
    for place, kind in ((NODE, "a file"), (sick, "a recording")):
        status, out, err = told(capsys, "task", "demo-crash", str(place))
        assert (status, out, err.count("\n")) == (2, "", 1)
        words = f"is {kind}, not part of a name: sexton why task demo-crash --from"
        assert f"{words} {shlex.quote(str(place))}\n" in err


INCIDENTS = Path(__file__).parents[1] / "incidents"


@pytest.mark.parametrize("name", ["cpu_starved-5.10-v1", "cpu_starved-6.1-v2"])
def test_the_neighbours_workers_are_not_calm(name: str, capsys: pytest.CaptureFixture[str]):
    """The recorder got so little time that it read few of them, and no cgroup of theirs."""
    found = answer(capsys, INCIDENTS / name / "recording", "lab-hog")
    assert (found["exit"], found["concerned"]) == (1, ["cpu_pressure"])


def test_a_window_without_it_is_calm(sick: Path, held: str, capsys: pytest.CaptureFixture[str]):
    status, out, _ = told(
        capsys, "core", held, "--from", str(sick), "--window", f"@{START}..@{START + 300}"
    )
    assert status == 0
    assert "Nothing unusual was found" in out
    assert "not compared: no stall" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("esc",), "similar: ecs.service"),
        (("core", "500"), "core 0 to core 3"),
        (("nothing-like-this-at-all",), "there are core 0 to core 3"),
        (("\x1b[2J\nsecond",), "no such name"),
        (("@5",), "nothing was recorded"),
        (("at", "noon"), "invalid time 'noon'"),
        (("99:99",), "invalid time '99:99'"),
        ((f"@{START + 5}", "--window", "5m.."), "is not in the window"),
        (("core", "0", "--window", "5"), "A..B"),
        (("core", "0", "--seconds", "5"), "--seconds"),
        (("core", "0", "--root", "/tmp"), "--root"),
        (("core", "0", "--around", "5m"), "no option"),
        ((), "WHAT"),
    ],
)
def test_what_cannot_be_answered_is_one_line_and_exit_2(
    sick: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
):
    status, out, err = told(capsys, "--from", str(sick), *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("sexton")
    assert err.count("\n") == 1
    assert err.removesuffix("\n").isprintable()
    assert says in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("03:12",), "--from DIR"),
        (("20m",), "--from DIR"),
        (("eth0", "--window", "5m.."), "--from"),
    ],
)
def test_a_time_without_a_recording_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
):
    status, out, err = told(capsys, *arguments)
    assert (status, out) == (2, "")
    assert says in err


def test_a_directory_that_is_no_recording_is_one_line(tmp_path: Path):
    ended = sexton("why", "core", "0", "--from", tmp_path / "none\x1b[2J")
    assert one_line(ended.stderr).isprintable()
    assert (ended.returncode, ended.stdout) == (2, b"")


def test_live_it_watches_and_says_what_a_recording_would_add():
    ended = sexton("why", "core", "0", "--seconds", "0.5", "--no-trace")
    quiet(ended)
    assert b"core 0" in ended.stdout.splitlines()[0]
    assert b"sexton why core 0 --from DIR" in ended.stdout
    found = json.loads(sexton("why", "cpu0", "--seconds", "0.5", "--no-trace", "--json").stdout)
    assert found["aligned"] is None
    assert found["replayed"] is None


def test_live_it_loads_no_store():
    names = imported("why", "core", "0", "--seconds", "0.2", "--no-trace")
    assert "sexton.explain.why" in names
    assert not names & NEVER


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("no-such-unit-here",),
            "(to wait for a task of that name: sexton why task no-such-unit-here)",
        ),
        (("core", "70000"), "there are core 0 to core "),
        (("/no/such/cgroup",), "no such name: '/no/such/cgroup'"),
        (("zombie_memcg",), "similar: zombie_memcgs"),
        (("pid", "4999999"), "no such name"),
        (("unit", "no-such.service"), "no such name"),
    ],
)
def test_live_an_unknown_name_is_answered_before_anything_is_watched(
    words: tuple[str, ...], says: str
):
    """An hour would be watched: the test does not end if it is."""
    ended = sexton("why", *words, "--seconds", "3600")
    assert f"no such name: {' '.join(words)!r}" in (line := one_line(ended.stderr))
    assert says in line
    assert (ended.returncode, ended.stdout) == (2, b"")


def test_live_a_typo_loads_no_detector_and_traces_nothing():
    loaded = imported("why", "eth00", "--seconds", "3600")
    assert "sexton.explain.subject" in loaded
    # The folders are packages, and empty: ids are known by the files in them.
    assert not {name for name in loaded if re.match(r"sexton\.detect\.detectors\.\w+\.", name)}


@pytest.mark.parametrize("words", [("task", "no-such-task"), ("cgroup", "/no/such")])
def test_live_what_comes_and_goes_is_waited_for(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    watched = []

    def watch(args: argparse.Namespace, verb: str) -> tuple[Window, Cost]:
        watched.append(verb)
        return watch_node(args, verb)

    monkeypatch.setattr("sexton.cli.commands.why.watch", watch)
    status, out, err = told(capsys, *words, "--seconds", "0.2", "--no-trace")
    assert (status, out, watched) == (2, "", ["why"])
    assert "no such name" in err


def test_the_planted_incident_on_a_page(
    sick: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for width in ("80", "120"):
        monkeypatch.setenv("COLUMNS", width)
        status, out, _ = told(capsys, "eth0", "--from", str(sick))
        assert status == 1
        for part in ("SICK  eth0", "REPLAY", "WHEN", "CAUSE CHAIN", "BEFORE IT", "DO NOW", "NEXT"):
            assert part in out, part

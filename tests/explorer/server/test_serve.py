"""`sexton serve` over real recordings: what it says, refuses, answers and follows."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexton.explorer.server.documents import MOST_BYTES
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir, CgroupEvent, CgroupEventGap
from sexton.model.rows.recorder import Mark
from sexton.model.window import Batch
from tests.explorer.server.asking import ROOT, STAND_IN, Running, serving
from tests.record.running import wait_until
from tests.support.cli import ENVIRONMENT, SEXTON, one_line, sexton
from tests.support.recordings import WALL_S, cores, write_sealed

INCIDENT = Path(__file__).parents[2] / "incidents" / "whole_chain-6.1-v2" / "recording"
SCRIPT = "/system.slice/<script>alert(1)</script>"


@pytest.fixture(scope="module")
def incident() -> Iterator[Running]:
    with serving(str(INCIDENT)) as running:
        yield running


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """192 cores for five minutes, and names that would like to be scripts."""
    place = tmp_path_factory.mktemp("wide")
    times = [100.0 + second for second in range(300)]
    marks = [Batch(150.0, WALL_S + 150, tuple(Mark(f"{SCRIPT} {n}") for n in range(3000)))]
    write_sealed(place, [{type(cores(0.0).rows[0]): [cores(at, 192) for at in times], Mark: marks}])
    with serving(str(place)) as running:
        yield running


def paths(running: Running) -> list[str]:
    """One question of every kind, about the whole recording, at the finest level that shows it."""
    about = running.get("/api/recording").json
    start, end = about["start"], about["end"]
    span = f"from={start}&to={end}"
    lines = [f"/api/{what}?{span}" for what in ("marks", "explain")]
    lines += ["/api/recording", f"/api/next?kind=spike&after={start}", "/openapi.json"]
    for lane in about["lanes"]:
        lines.append(f"/api/table/{lane['id']}?{span}")
        if lane["kind"] == "stacks":
            lines += [f"/api/flame?{span}", f"/api/functions?{span}"]
        if lane["kind"] != "marks":
            for level in (0, 4, 12):
                first = int(start // (256 * 2**level))
                lines.append(f"/api/strip/{lane['id']}?level={level}&first={first}&count=8")
    return lines


@pytest.mark.parametrize("which", ["incident", "wide"])
def test_every_question_is_answered_within_a_megabyte(
    which: str, request: pytest.FixtureRequest
) -> None:
    running: Running = request.getfixturevalue(which)
    lines = paths(running)
    assert len(lines) > 10
    for path in lines:
        answer = running.get(path)
        assert (answer.status, path) == (200, path), answer.body
        assert len(answer.sent) <= MOST_BYTES
        assert "cut_at" not in answer.json
        assert "error" not in answer.json


def test_the_line_is_where_it_is(incident: Running) -> None:
    assert incident.line == f"http://127.0.0.1:{incident.port}/"


def test_cores_of_a_strip_are_the_nodes(wide: Running) -> None:
    first = int((WALL_S + 100) // 256)
    told = wide.get(f"/api/strip/cores?level=0&first={first}&count=2").json
    assert (told["dtype"], len(told["names"]), told["count"]) == ("uint8", 192, 1)
    mean = np.frombuffer(base64.b64decode(told["planes"]["mean"]), "u1")
    assert mean.shape == (4 * 192 * 256,)
    assert set(mean.tolist()) - {255}, "something was recorded then"


def test_a_mark_called_script_is_text_and_too_many_are_counted(wide: Running) -> None:
    told = wide.get(f"/api/marks?from={WALL_S}&to={WALL_S + 1000}").json
    texts = [mark["text"] for mark in told["marks"] if mark["kind"] == "mark"]
    assert any(SCRIPT in text for text in texts)
    assert len(told["marks"]) == 2000
    assert told["left_out"] >= 1000


def test_the_explanation_is_what_diagnose_says(incident: Running) -> None:
    about = incident.get("/api/recording").json
    start, end = about["start"], about["end"]
    told = incident.get(f"/api/explain?from={start}&to={end}").json
    ended = sexton("diagnose", "--from", str(INCIDENT), "--window", f"@{start}..@{end}", "--json")
    said = json.loads(ended.stdout)
    for part in ("schema", "exit", "chains", "story", "contests", "plan", "node"):
        assert told[part] == said[part], part
    assert told["story"]
    assert told["marks"]


@pytest.mark.parametrize("span", [(5, 12), (60, 90), (100, 140)])
def test_whatever_span_is_brushed_the_unit_of_the_lane_is_named(
    incident: Running, span: tuple[int, int]
) -> None:
    """In two of these the unit ran again when the cgroups were read."""
    first = incident.get("/api/recording").json["start"]
    start, end = (first + second for second in span)
    headings = incident.get(f"/api/table/memcgs?from={start}&to={end}").json["headings"]
    assert "from lab-agent.service (cgroups)" in headings
    told = incident.get(f"/api/explain?from={start}&to={end}").json
    (zombies,) = (found for found in told["findings"] if found["id"] == "zombie_memcgs")
    assert "left under /node.slice/lab-agent.service/task*" in zombies["summary"]


def test_the_explanation_of_a_span_names_the_owner_that_its_lane_shows(tmp_path: Path) -> None:
    """They died before the brushed minute: the lane remembers who left them, and so must it."""
    census = CgroupCensus("v2", 2, "/sys/fs/cgroup", "node", 960, 60, 900, "cgroup.stat", None)
    died = [
        CgroupEvent("rmdir", 5000 + n, f"/batch.slice/run-{n}", int((110 + n / 10) * 1e9))
        for n in range(800)
    ]
    freed = [CgroupEvent("release", 5000 + n, f"/batch.slice/run-{n}", int(195e9 + n))
             for n in range(300)]  # fmt: skip

    def events(at: float) -> tuple[CgroupEvent, ...]:
        return tuple(e for e in (*died, *freed) if at - 10 < e.mono_ns / 1e9 <= at)

    times = [100.0 + 10 * step for step in range(60)]
    tables = {
        CgroupCensus: [Batch(at, WALL_S + at, (census,)) for at in times],
        CgroupDir: [Batch(at, WALL_S + at, (CgroupDir("/batch.slice", 9, 0),)) for at in times],
        CgroupEvent: [Batch(at, WALL_S + at, events(at)) for at in times],
        CgroupEventGap: [Batch(at, WALL_S + at, ()) for at in times],
    }
    write_sealed(tmp_path, [tables])
    with serving(str(tmp_path)) as running:
        start, end = WALL_S + 400, WALL_S + 460
        strip = running.get(f"/api/strip/memcgs?level=0&first={int(start // 256)}&count=2").json
        assert any("run-*" in name for name in strip["names"]), strip["names"]
        told = running.get(f"/api/explain?from={start}&to={end}").json
    (found,) = [one for one in told["findings"] if one["id"] == "zombie_memcgs"]
    assert "500 of them left under /batch.slice/run-*" in found["summary"]
    assert found["entities"]["cgroup"] == ["/batch.slice"]
    (owned,) = [one for one in found["evidence"] if one["what"].startswith("left under")]
    assert owned["value"] == 500
    assert owned["source"] == "traced before this window: removed, not released"


def test_why_answers_for_a_thing_and_for_a_moment(incident: Running) -> None:
    about = incident.get("/api/explain?from=1&to=2")
    assert about.status == 404, "nothing was recorded then"
    whole = incident.get("/api/recording").json
    told = incident.get("/api/why?what=eth0").json
    assert (told["schema"], told["about"]["kind"]) == ("sexton.why/1", "nic")
    moment = (whole["start"] + whole["end"]) / 2
    assert incident.get(f"/api/why?what=@{moment:.3f}").json["about"]["kind"] == "moment"
    nothing = incident.get("/api/why?what=no-such-thing-at-all")
    assert nothing.status == 422
    assert "no such name" in nothing.json["error"]


def test_the_next_reset_is_found_and_there_is_none_after_the_last(incident: Running) -> None:
    whole = incident.get("/api/recording").json
    reset = incident.get(f"/api/next?kind=reset&after={whole['start']}").json
    assert whole["start"] <= reset["time"] <= whole["end"]
    assert reset["text"]
    after = incident.get(f"/api/next?kind=reset&after={whole['end']}").json
    assert (after["time"], after["mark"]) == (None, None)
    back = incident.get(f"/api/next?kind=reset&after={whole['end']}&back=1").json
    assert back["time"] is not None


def failed(*arguments: str) -> str:
    ended = sexton("serve", *arguments)
    assert (ended.returncode, ended.stdout) == (2, b"")
    return one_line(ended.stderr)


def test_a_directory_without_a_recording_is_one_line(tmp_path: Path) -> None:
    assert "not a recording" in failed(str(tmp_path))
    assert "no such directory" in failed(str(tmp_path / "none"))
    assert "Not a directory" in failed("/etc/hostname")
    (tmp_path / "a\x1bb").mkdir()
    assert "\\x1b" in failed(str(tmp_path / "a\x1bb"))


def test_a_port_in_use_is_one_line() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        line = failed(str(INCIDENT), "--port", str(taken.getsockname()[1]))
    assert "Address already in use" in line
    assert "port 0" in line


@pytest.mark.parametrize("port", ["-1", "65536", "x", "", "1e3", "٣", "9" * 99])
def test_a_port_that_is_none_is_one_line(port: str) -> None:
    assert "invalid port" in failed(str(INCIDENT), f"--port={port}")


@pytest.mark.parametrize(
    "host", ["", "256.1.1.1", "192.0.2.1", "no such host", "x" * 300, "\udcff"]
)
def test_a_host_that_is_not_ours_is_one_line(host: str) -> None:
    failed(str(INCIDENT), "--host", host, "--port", "0")


def test_a_token_file_locks_loopback_too(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    with serving(str(INCIDENT), "--token-file", str(file)) as running:
        assert "token" not in running.line
        assert running.get("/api/recording").status == 401
        bearer = {"Authorization": "Bearer 0123456789abcdef"}
        assert running.ask("/api/recording", bearer).status == 200


@pytest.mark.parametrize(
    "content", [b"", b"short", b"two words of a token", b"\xff" * 20, b"a;" * 20]
)
def test_a_token_that_is_none_is_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    said = failed(str(INCIDENT), "--token-file", str(file))
    assert "token must be" in said or "token cannot contain" in said


def test_a_token_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in failed(str(INCIDENT), "--token-file", str(tmp_path / "none"))
    failed(str(INCIDENT), "--token-file", str(tmp_path))


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "pyarrow"])
def test_without_the_web_extra_it_is_one_line(missing: str) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from sexton.cli.main import main\n"
        f"sys.exit(main(['serve', {str(INCIDENT)!r}]))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == 2
    assert "pip install 'sexton[web]'" in one_line(ended.stderr)


def test_the_description_is_printed_without_a_server_or_a_recording() -> None:
    ended = sexton("serve", "--openapi")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads(ended.stdout)["openapi"].startswith("3.")


def test_without_a_desktop_open_says_so_and_serves() -> None:
    with serving(str(INCIDENT), "--open") as running:
        assert running.get("/").status == 200
        running.process.terminate()
        complaint = running.process.communicate(timeout=120)[1]
    assert "no desktop" in one_line(complaint)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_exit_0(number: signal.Signals) -> None:
    with serving(str(INCIDENT)) as running:
        assert running.get("/api/recording").status == 200
        running.process.send_signal(number)
        assert running.process.communicate(timeout=120) == (b"", b"")
    assert running.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_still_reads_ends_it_without_an_address(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [*STAND_IN, "--endless"],
        cwd=ROOT,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == b"reading\n"
        process.send_signal(number)
        assert process.communicate(timeout=120) == (b"", b"")
        assert process.returncode == 0
    finally:
        process.kill()


def test_the_default_is_where_the_recorder_is_deployed_to() -> None:
    from sexton.cli.commands.serve import DEFAULT

    units = Path(__file__).parents[3] / "deploy"
    assert any(DEFAULT in path.read_text() for path in units.rglob("*.service"))


def test_nothing_that_writes_is_loaded_by_a_server_that_has_answered_everything() -> None:
    """What the import contract says of modules holds of the running process, too."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from sexton.explorer.tiles.view import View\n"
        "from sexton.explorer.server import server\n"
        "from sexton.explorer.server.api import ENDPOINTS, Site\n"
        f"view = View.open({str(INCIDENT)!r})\n"
        "start, end = view.span\n"
        "values = dict(lane='cores', level=0, first=1, count=1, of=None, to=end, cpu=None,\n"
        "    task=None, cgroup=None, baseline_from=None, baseline_to=None, what='eth0',\n"
        "    function=None, order=None, kind='spike', after=start, back=0, quick=0,\n"
        "    **{'from': start})\n"
        "for each in ENDPOINTS[:-1]:\n"
        "    each.answer(Site(view, '0'), values)\n"
        "print([name for name in sys.modules if name.startswith('sexton.cure')\n"
        "    or name in ('sexton.store.writer', 'sexton.record.recorder')])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.stdout, ended.stderr) == (b"[]\n", b"")


@pytest.mark.root
def test_a_running_recorder_is_followed_until_it_ends(tmp_path: Path) -> None:
    place = tmp_path / "recording"
    recorder = subprocess.Popen(
        [*SEXTON, "record", str(place), "--no-probe", "--no-ring", "--no-trace"],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: sexton("recording", "info", str(place)).returncode == 0, 60)
        with serving(str(place)) as running:
            wait_until(lambda: running.get("/api/recording").json["end"] is not None)
            about = running.get("/api/recording").json
            assert about["live"] is True
            assert {"cores", "events"} <= {lane["id"] for lane in about["lanes"]}
            with contextlib.closing(running.connection(120)) as connection:
                connection.request("GET", "/api/live")
                events = connection.getresponse()
                seen: list[dict[str, Any]] = []
                while len(seen) < 2:
                    line = events.readline()
                    if line.startswith(b"data: "):
                        seen.append(json.loads(line[6:]))
                ends = [item["end"] for item in seen]
                assert ends == sorted(set(ends))
                assert ends[-1] > about["end"]
                assert running.get("/api/recording").json["end"] >= ends[-1]
                known = _known_columns(running, ends[-1])
                recorder.terminate()
                recorder.wait(60)
                last = [json.loads(line[6:]) for line in events if line.startswith(b"data: ")][-1]
            assert last["live"] is False
            assert known > 0
            assert _known_columns(running, last["end"]) >= known
            assert running.get("/api/live").status == 404
            assert running.get("/api/recording").json["live"] is False
            running.process.terminate()
            assert running.process.communicate(timeout=120) == (b"", b"")
    finally:
        recorder.kill()
        recorder.wait()


def _known_columns(running: Running, end: float) -> int:
    told = running.get(f"/api/strip/cores?level=0&first={int(end // 256) - 1}&count=2").json
    cells = np.frombuffer(base64.b64decode(told["planes"]["mean"]), "u1")
    shape = (4, len(told["names"]), told["columns"])
    return int((cells.reshape(shape)[1, 0] != 255).sum())

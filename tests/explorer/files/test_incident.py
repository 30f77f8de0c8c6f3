"""`sexton diagnose --html`: one file with the verdict and its pictures, whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sexton.explain.diagnosis import diagnose
from sexton.explorer import bundle
from sexton.explorer.bundle import joined
from sexton.explorer.files.incident import event_of, incident_html, page_data, shortfall
from sexton.explorer.tiles import flames
from sexton.explorer.tiles.view import View
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.lane import COLUMNS, Strip
from sexton.replay.span import everything
from sexton.replay.window import window
from sexton.store.recording import Recording
from sexton.store.writer import write_window
from tests.support.cli import sexton

#: What a ticket accepts.
MOST_BYTES = 3_000_000
INCIDENTS = Path(__file__).parents[2] / "incidents"
WHOLE = INCIDENTS / "whole_chain-6.1-v2" / "recording"
OTHER = INCIDENTS / "whole_chain-6.18-v1" / "recording"
IDLE = INCIDENTS / "idle-6.1-v2" / "recording"
HOSTILE = "</script><script>window.pwned=1</script><!--\x1b]0;x\x07\udcff\u202e&lt;"


def diagnosed(recording: Path) -> Diagnosis:
    found = Recording(recording)
    return diagnose(window(found, everything(found)).window)


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="sexton-data">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def numbers(lane: dict, key: str, plane: str = "mean") -> np.ndarray:
    packed = lane["tiles"][key]
    raw = zlib.decompress(base64.b64decode(packed.get(plane, packed["mean"])))
    flat = np.frombuffer(raw, np.dtype(lane["dtype"]).newbyteorder("<"))
    return flat.reshape(len(lane["channels"]), -1, COLUMNS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "incident.html"
    ran = sexton("diagnose", "--from", str(WHOLE), "--html", str(out), text=True)
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.startswith("SICK")
    assert ran.stderr.startswith(f"sexton: {out}, ")
    assert out.stat().st_mode & 0o777 == 0o600
    return out.read_text()


def test_the_verdict_is_text_at_the_top_and_whole_below(made: str):
    diagnosis = diagnosed(WHOLE)
    text = html.unescape(made)
    assert text.index(diagnosis.story[0]) < text.index('<div id="explorer" hidden>')
    for sentence in diagnosis.story:
        assert sentence in text
    assert "CAUSE CHAIN" in text
    assert "systemctl disable --now lab-agent.service" in text


def test_the_pictures_numbers_are_those_of_the_recording(made: str):
    data = data_of(made)
    view = View.open(WHOLE)
    view.warm()
    assert {lane["id"] for lane in data["recording"]["lanes"] if lane["kind"] != "marks"} == set(
        data["lanes"]
    )
    compared = 0
    for name, lane in data["lanes"].items():
        for key in lane["tiles"]:
            level, tile = map(int, key.split("/"))
            strip: Strip = view.strip(name, level, tile, 1)
            assert list(strip.names) == lane["names"]
            for plane in ("mean", "peak"):
                assert np.array_equal(
                    numbers(lane, key, plane), strip.planes[plane], equal_nan=True
                )
                compared += 1
    assert compared > 20
    assert data["explain"]["chains"][0]["root"] == "crash_looping_unit"
    assert [mark["text"] for mark in data["marks"]["marks"] if mark["kind"] == "mark"]
    assert data["moments"]["reset"]
    assert {"from", "to", "document", "cpu", "baseline"} <= set(data["flames"][0])
    assert any(flame["baseline"] for flame in data["flames"])
    assert any(flame["cpu"] == 1 for flame in data["flames"])


ASK = """
import {EmbeddedSource} from "./data/embedded.js";
const told = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const source = new EmbeddedSource(told.data);
(async () => {
  const out = [];
  for (const [lane, level, first, count] of told.asked) {
    const strip = await source.strip(lane, level, first, count);
    const planes = {};
    for (const [name, values] of Object.entries(strip.planes)) {
      planes[name] = Buffer.from(values.buffer).toString("base64");
    }
    out.push({ ...strip, planes });
  }
  console.log(JSON.stringify(out));
})();
"""


def embedded_strips(data: dict, asked: list[tuple[str, int, int, int]]) -> list[dict]:
    return answered(ASK, data, asked)


def answered(script: str, data: dict, asked: list) -> list:
    """What the page's own source answers, in node."""
    page = Path(bundle.__file__).parent / "server" / "page"
    names = ("source", "packed", "tiles", "embedded")
    needed = ("words.js", *(f"data/{name}.js" for name in names))
    parts = {name: (page / name).read_text() for name in needed}
    ran = subprocess.run(
        ["node", "-e", joined({**parts, "ask.js": script})],
        input=json.dumps({"data": data, "asked": asked}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def same(told: dict, strip: Strip) -> bool:
    """Does the page say what the view says, cell by cell?"""
    assert told["names"] == list(strip.names)
    assert told["columns"] == strip.columns
    kind = np.dtype(told["dtype"]).newbyteorder("<")
    return all(
        np.array_equal(
            np.frombuffer(base64.b64decode(told["planes"][name]), kind).reshape(array.shape),
            array,
            equal_nan=True,
        )
        for name, array in strip.planes.items()
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node: apt-get install nodejs")
def test_the_page_answers_for_tiles_as_the_server_would(made: str):
    data = data_of(made)
    view = View.open(WHOLE)
    view.warm()
    start = data["recording"]["start"]
    asked = [
        (lane, level, int(start // (COLUMNS * 2**level)) - 1, 3)
        for lane in data["lanes"]
        for level in range(data["top"] + 1)
    ]
    held = data["event"][0]
    asked.append(("stacks", -1, int(held // (COLUMNS / 50)) - 1, 8))
    answers = embedded_strips(data, asked)
    for (lane, level, first, count), answer in zip(asked, answers, strict=True):
        assert same(answer, view.strip(lane, level, first, count)), (lane, level)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node: apt-get install nodejs")
def test_a_tile_that_was_left_out_is_drawn_from_a_coarser_one(made: str):
    data = data_of(made)
    tile = int(data["recording"]["start"] // COLUMNS)
    lane = data["lanes"]["cores"]
    lane["tiles"] = {key: value for key, value in lane["tiles"].items() if key.startswith("1/")}
    (told,) = embedded_strips(data, [("cores", 0, tile, 1)])
    fine = np.frombuffer(base64.b64decode(told["planes"]["peak"]), np.uint8)
    coarse = numbers(lane, f"1/{tile // 2}", "peak")
    half = slice(128, 256) if tile % 2 else slice(0, 128)
    assert np.array_equal(fine.reshape(4, 2, COLUMNS), coarse[:, :, half].repeat(2, axis=2))


ASK_NOTES = """
import {EmbeddedSource} from "./data/embedded.js";
const told = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const source = new EmbeddedSource(told.data);
(async () => {
  const out = [];
  for (const [kind, query] of told.asked) out.push((await source[kind](query)).note);
  console.log(JSON.stringify(out));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node: apt-get install nodejs")
def test_a_long_spans_flame_graph_and_functions_say_of_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
):
    for name, value in (("LONGEST_S", 30.0), ("SLICES", 4), ("SLICE_S", 2.0), ("COMPARED_S", 3.0)):
        monkeypatch.setattr(flames, name, value)
    diagnosis = diagnosed(WHOLE)
    data = page_data(View.open(WHOLE), diagnosis)
    whole = {"from": diagnosis.start, "to": diagnosis.end}
    half = {"from": diagnosis.start, "to": (diagnosis.start + diagnosis.end) / 2}
    compared = next(item for item in data["flames"] if item["baseline"] and item["cpu"] is None)
    against = {"from": compared["from"], "to": compared["to"], "baseline_from": 1.0}
    asked = [("flame", whole), ("functions", whole), ("flame", half), ("flame", against)]
    flame, functions, other, difference = answered(ASK_NOTES, data, asked)
    assert re.fullmatch(r"a sample: 4 times 2 s of \d.*, evenly spread", flame)
    assert functions == flame
    assert other.startswith("this file holds ")
    assert other.endswith(f" only, not the chosen span · {flame}")
    assert difference.startswith("compared: the 3.0 s of each span")
    assert " · compared with " in difference


def test_only_its_own_script_and_style_may_run_and_nothing_may_be_fetched(made: str):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', made)[1]
    script = re.search(r"<script>(.*)</script></body>", made, re.DOTALL)[1]
    style = re.search(r"<style>(.*?)</style>", made, re.DOTALL)[1]
    for name, text in (("script", script), ("style", style)):
        message = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{message}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r'(?:src|href)="(?!#)', made.replace(script, ""))
    assert made.count("<script") == 2


@pytest.mark.parametrize("recording", [WHOLE, OTHER, IDLE], ids=lambda path: path.parent.name)
def test_every_incident_has_a_page_below_the_limit(recording: Path):
    diagnosis = diagnosed(recording)
    page = incident_html(diagnosis, page_data(View.open(recording), diagnosis))
    assert len(page.encode()) < MOST_BYTES


def test_names_cannot_leave_the_place_they_stand_in():
    diagnosis = diagnosed(WHOLE)
    bad = Finding("nic_resets", Verdict.PRESENT, Severity.CRITICAL, HOSTILE, {"unit": (HOSTILE,)})
    node = replace(diagnosis.node, hostname=HOSTILE)
    hostile = replace(
        diagnosis, node=node, findings=(bad, *diagnosis.findings), story=(HOSTILE,), chains=()
    )
    data = page_data(View.open(WHOLE), hostile)
    data["marks"]["marks"][0]["text"] = HOSTILE.replace("\udcff", "")
    data["recording"]["node"]["host"] = HOSTILE.replace("\udcff", "")
    page = incident_html(hostile, data)
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<script>window" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert data_of(page)["marks"]["marks"][0]["text"] == HOSTILE.replace("\udcff", "")


def test_without_numbers_it_is_the_text_and_says_why():
    page = incident_html(diagnosed(WHOLE), None, ("Without pictures: no <pyarrow>.",))
    assert "Without pictures: no &lt;pyarrow&gt;." in page
    assert 'id="explorer"' not in page
    assert "CAUSE CHAIN" in page


def test_the_event_is_where_the_chain_has_moments():
    diagnosis = diagnosed(WHOLE)
    event = event_of(diagnosis)
    assert event.start == min(
        diagnosis.by_id[name].start for name in ("saturated_core", "starved_napi", "tcp_loss")
    )
    assert event.end == diagnosis.by_id["job_deaths"].end
    calm = diagnosed(IDLE)
    assert tuple(event_of(calm)) == (calm.start, calm.end)


class Long:
    """Stands in for the view of ten hours of 96 cores in numbers that do not compress."""

    def __init__(self, real: View, start: float, end: float) -> None:
        self._real, self._edges = real, (start, end)
        self._random = np.random.default_rng(1)
        self.asked: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def about(self) -> dict:
        about = self._real.about()
        (cores,) = (lane for lane in about["lanes"] if lane["id"] == "cores")
        return {**about, "lanes": [cores]}

    def strip(self, lane: str, level: int, first: int, count: int) -> Strip:
        self.asked.append((level, count))
        names = tuple(f"core {cpu}" for cpu in range(96))
        shape = (4, len(names), count * COLUMNS)
        planes = {
            name: self._random.integers(0, 40, shape, dtype=np.uint8) for name in ("mean", "peak")
        }
        kinds = ("user", "system", "softirq", "iowait_steal")
        return Strip(lane, level, first, count, names, kinds, planes)


def test_of_what_is_too_long_the_finest_columns_are_kept_around_the_event():
    diagnosis = diagnosed(WHOLE)
    early = diagnosis.start - 4 * 3600
    long = replace(diagnosis, start=early)
    data = page_data(Long(View.open(WHOLE), early, diagnosis.end), long)
    tiles = data["lanes"]["cores"]["tiles"]
    levels = {int(key.split("/")[0]) for key in tiles}
    assert 0 in levels
    seconds = [key for key in tiles if key.startswith("0/")]
    assert len(seconds) <= 5  # of fifty-seven
    assert data["finest"] > 0
    assert "column is" in shortfall(data)[0]
    assert len(json.dumps(data)) < MOST_BYTES
    assert shortfall({**data, "finest": 0}) == ()


def test_what_there_is_no_room_for_is_not_even_read():
    diagnosis = diagnosed(WHOLE)
    early = diagnosis.start - 10 * 3600
    view = Long(View.open(WHOLE), early, diagnosis.end)
    data = page_data(view, replace(diagnosis, start=early))
    assert data["finest"] > 2
    assert sum(count for level, count in view.asked if level == 0) <= 5  # of a hundred and forty
    levels = [level for level, _ in view.asked]
    again = {level for level in levels if levels.count(level) > 1}  # not around the event alone
    assert min(again) >= data["finest"] - 1


def test_the_held_cores_functions_are_in_it_too(made: str):
    held = [function for function in data_of(made)["functions"] if function["cpu"] == 1]
    (only,) = held
    names = [row["name"] for row in only["document"]["rows"]]
    assert "mem_cgroup_iter" in names
    assert {flame["cpu"] for flame in data_of(made)["flames"] if flame["baseline"]} == {None, 1}


def test_the_held_cores_samples_are_in_it_in_the_order_of_time(made: str):
    (only,) = (flame for flame in data_of(made)["flames"] if flame.get("order"))
    nodes = only["document"]["nodes"]
    assert (only["order"], only["cpu"], only["baseline"]) == ("time", 1, None)
    assert only["from"] <= nodes["start"][0] <= nodes["start"][-1] < only["to"]
    assert nodes["start"] == sorted(nodes["start"])


def test_a_window_that_was_only_watched_is_drawn_too(tmp_path: Path):
    found = Recording(WHOLE)
    seen = window(found, everything(found)).window
    write_window(seen, tmp_path / "kept")
    view = View.open(tmp_path / "kept")
    view.warm()
    real = View.open(WHOLE)
    real.warm()
    there = {lane["id"] for lane in real.about()["lanes"]} - {"stacks"}  # samples are no rows
    assert {lane["id"] for lane in view.about()["lanes"]} == there
    tile = int(seen.start // COLUMNS)
    one, other = (item.strip("cores", 0, tile, 1).planes["mean"] for item in (view, real))
    known = (one != 255) & (other != 255)
    assert known.sum() > 400
    assert np.array_equal(one[known], other[known])


def test_an_archive_gets_a_page_too(tmp_path: Path):
    archive = Path(__file__).parents[2] / "fixtures/nodes/5.10-v1-crash.tar.gz"
    out = tmp_path / "page.html"
    ran = sexton("diagnose", str(archive), "--html", str(out), text=True)
    assert ran.returncode == 1, ran.stderr
    page = out.read_text()
    assert 'id="explorer"' in page
    assert data_of(page)["recording"]["lanes"]

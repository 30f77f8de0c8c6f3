"""`sexton sources`: every source in its group, with the way to have it."""

from __future__ import annotations

import json

import pytest

from sexton.cli.main import main
from sexton.model.rows.cpu import CoreTimes, RunQueue
from sexton.model.rows.event import KernelEvent
from sexton.model.window import SourceState
from sexton.reports.text.sources import ROOT, SourceLine, in_words, sources_json, sources_text
from sexton.sources.registry import all_sources


def line(state: str, kind: type, detail: str = "", grant: str = "") -> SourceLine:
    source_state = SourceState(
        f"a.{state}", "/proc/x", state, detail, grant, int(state == "ok"), 0.002
    )
    return SourceLine(source_state, (kind,), 1.0, "what it gives")


LINES = [
    line("ok", CoreTimes),
    line("denied", KernelEvent, "Operation not permitted"),
    line("absent", RunQueue, "No such file", "a kernel built with CONFIG_SCHEDSTATS=y"),
    line("timeout", RunQueue, "no answer in 1 s; left alone"),
    line("asked", RunQueue, "opt-in: sexton diagnose --stacks"),
]


def test_the_first_line_sums_up():
    assert sources_text(LINES, 80).partition("\n\n")[0] == (
        "1 of 5 sources available, 1 needs permission, 1 is opt-in, 1 failed, 1 is\n"
        "unavailable; reading each once takes 2.0 ms."
    )


def test_each_group_has_its_sources_and_their_grants():
    text = sources_text(LINES)
    titles = ("AVAILABLE", "NO PERMISSION", "OPT-IN", "FAILED", "UNAVAILABLE")
    places = [text.index(f" {title} ") for title in titles]
    assert places == sorted(places)
    assert places[1] < text.index("a.denied") < text.index(f"→ {ROOT}") < places[2]
    assert "→ a kernel built with CONFIG_SCHEDSTATS=y" in text
    assert "/proc/x: No such file" in text
    assert "no answer in 1 s" in text


def test_colour_is_optional():
    assert "\x1b" not in sources_text(LINES)
    assert "\x1b[1mAVAILABLE\x1b[0m" in sources_text(LINES, colour=True)


def test_json_has_every_state_and_the_cost_of_a_read():
    found = sources_json(LINES)
    assert found["schema"] == "sexton.sources/1"
    assert [source["state"] for source in found["sources"]] == [
        "ok",
        "denied",
        "absent",
        "timeout",
        "asked",
    ]
    assert found["sources"][0]["read_s"] == 0.002
    assert found["sources"][2]["read_s"] is None
    assert found["sources"][0]["rows"] == ["core_times"]


@pytest.mark.parametrize("source", all_sources(), ids=lambda source: source.id)
def test_every_source_says_in_words_what_it_gives(source):
    words = in_words(source.page)
    assert len(words) > 10
    assert "`" not in words
    assert "\n" not in words


def test_the_command_lists_every_source(capsys: pytest.CaptureFixture[str]):
    assert main(["sources", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [source["id"] for source in found["sources"]] == [source.id for source in all_sources()]
    states = {source["id"]: source for source in found["sources"]}
    assert states["procfs.stat"]["state"] == "ok"
    assert not [source for source in found["sources"] if source["state"] == "failed"]


def test_where_process_1_is_not_systemd_its_units_are_not_here(tmp_path, capsys):
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/comm").write_text("runit\n")
    assert main(["sources", "--root", str(tmp_path), "--json"]) == 0
    by_id = {source["id"]: source for source in json.loads(capsys.readouterr().out)["sources"]}
    units = by_id["systemd.units"]
    assert (units["state"], units["detail"]) == ("absent", "no systemd: PID 1 is runit")
    assert units["grant"] == ""


def test_a_tree_names_no_file_of_an_archive_and_no_group_to_join(tmp_path, capsys):
    assert main(["sources", "--root", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.count("journal: not in this tree") == 2
    assert "/commands/" not in text
    assert "systemd-journal" not in text


def test_an_available_source_says_what_it_left_out():
    cut = "only 10,000 of 100,000 entries of /var/log/pods were read"
    assert cut in sources_text([line("ok", CoreTimes, cut)], 120)

"""What is missing from a picture, or added up in it, is said beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sexton.cli.main import main
from sexton.reports.text.profile_head import shortfalls
from tests.cli.profile.conftest import Made
from tests.cli.profile.made import capture

TWO_EVENTS = """\
app 7 [000] 1.000000: 10101010 {}:
\tffffffff81000010 vfs_read+0x1 ([kernel.kallsyms])

app 7 [000] 1.500000: 1 {}:
\tffffffff81000020 exc_page_fault+0x1 ([kernel.kallsyms])

"""


def out_of(capsys, *words: str | Path) -> str:
    main(["profile", *map(str, words)])
    return str(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words",
    [
        ("flame",),
        ("top",),
        ("timeline", "--task", "kubelet"),
        ("diff", "--before", "0..20", "--after", "20..40"),
    ],
)
def test_a_capture_that_was_cut_off_says_so_in_every_text(
    made: Made, tmp_path: Path, capsys, words: tuple[str, ...]
):
    whole = out_of(capsys, words[0], *made.words, *words[1:])
    assert "PROBLEMS" not in whole
    cut = tmp_path / "perf.data"
    content = made.path.read_bytes()
    cut.write_bytes(content[: len(content) * 3 // 4])
    text = out_of(capsys, words[0], cut, *made.words[1:], *words[1:])
    assert "PROBLEMS" in text


def test_lost_samples_are_told_below_a_picture_and_nothing_where_none_is_missing():
    here = capture()
    assert shortfalls(here, 88) == []
    gone = replace(here, facts=replace(here.facts, lost=12, throttled=3))
    lost = " LOST     12 samples lost, throttled 3 times"
    assert shortfalls(gone, 88) == ["", lost]


def test_events_that_are_added_up_are_named_unless_one_is_chosen(tmp_path: Path, capsys):
    text = tmp_path / "two.txt"
    text.write_text(TWO_EVENTS.format("cpu-clock", "page-faults"))
    assert "events cpu-clock + page-faults" in out_of(capsys, "flame", text)
    one = out_of(capsys, "flame", text, "--event", "page-faults")
    assert "cpu-clock" not in one
    text.write_text(TWO_EVENTS.format("cpu-clock", "cpu-clock"))
    assert "cpu-clock" not in out_of(capsys, "flame", text)


@pytest.mark.parametrize("what", ["spikes", "top", "heatmap"])
def test_that_events_are_added_up_is_a_problem_that_is_told(tmp_path: Path, capsys, what: str):
    text = tmp_path / "two.txt"
    text.write_text(TWO_EVENTS.format("cpu-clock", "page-faults"))
    together = "2 events added up: cpu-clock, page-faults; choose one with --event"
    assert together in " ".join(out_of(capsys, what, text).split())
    assert together not in " ".join(out_of(capsys, what, text, "--event", "cpu-clock").split())

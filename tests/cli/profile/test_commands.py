"""`sexton profile …` on a capture whose truth is known: what is printed, written and returned."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sexton.cli.commands.profile import WHATS
from sexton.cli.main import main
from tests.cli.profile.conftest import Made
from tests.support.cli import one_line, quiet, sexton, shell

UTC = {"TZ": "UTC"}


def run(capsys, *words: str | Path) -> tuple[int, str, str]:
    """In this process: exit status, output, errors."""
    status = main(["profile", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_file_alone_means_its_spikes(made: Made, capsys):
    status, out, err = run(capsys, *made.words)
    assert (status, err) == (1, "")
    assert out.startswith("1 SPIKE  node-7   8 cores")
    flat = " ".join(out.split())
    assert "Core 5 was 100 % busy (normally 17 %) for 5.4 s from 02:14:07.32" in flat
    assert "kubelet in mem_cgroup_css_rstat_flush, 0 % → 86.1 % of the time." in flat
    assert "core 2: every 10.0 s, 12 times" in flat
    assert run(capsys, "spikes", *made.words)[1] == out


def test_the_command_that_is_offered_next_works(made: Made, capsys):
    _, out, _ = run(capsys, *made.words)
    offered = " ".join(out.split("NEXT")[1].split("sexton profile report")[0].split())
    ended = shell(offered.replace("sexton", "$SEXTON", 1))
    assert b"mem_cgroup_css_rstat_flush" in ended.stdout


def test_spikes_as_json_keep_the_contract(made: Made, capsys):
    status, out, _ = run(capsys, *made.words, "--json")
    document = json.loads(out)
    assert document["schema"] == "sexton.spikes/1"
    assert (status, document["exit"]) == (1, 1)
    spike = document["spikes"][0]
    assert spike["cores"] == [5]
    assert spike["onset_s"] == pytest.approx(67.32, abs=0.03)
    assert spike["onset"] == pytest.approx(1_794_708_780 + 67.32, abs=0.03)
    assert spike["grew"][0]["name"] == "mem_cgroup_css_rstat_flush"
    assert spike["grew"][0]["kind"] == "kernel"
    assert document["capture"]["lost"] == 0
    assert document["recurring"][0]["interval_s"] == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize(
    "moment", ["71", "+71.0", "02:14:11", "2026-11-15T02:14:11Z", "@1794708851"]
)
def test_a_moment_may_be_said_in_many_ways(made: Made, capsys, moment: str):
    status, out, _ = run(capsys, *made.words, "--at", moment, "--json")
    spike = json.loads(out)["spikes"][0]
    assert status == 1
    assert spike["events_s"] == [pytest.approx(71.0, abs=0.001)]
    assert any("rstat" in item["name"] for item in spike["grew"])


def test_moments_come_from_a_file_too(made: Made, capsys, tmp_path: Path):
    listed = tmp_path / "events"
    listed.write_text("# resets\n02:14:08  # eth0\n\n68.5\n")
    _, out, _ = run(capsys, *made.words, "--events", listed, "--json")
    assert json.loads(out)["spikes"][0]["events_s"] == [68.0, 68.5]


def test_a_calm_capture_is_no_alarm_and_a_short_one_cannot_be_told(made: Made, capsys):
    status, out, _ = run(capsys, *made.words, "--cpu", "0,3,4", "--json")
    assert (status, json.loads(out)["spikes"]) == (0, [])
    status, out, _ = run(capsys, *made.words, "--from", "60", "--to", "64")
    assert status == 3
    assert out.startswith("INCONCLUSIVE")


def test_one_event_and_some_cores_can_be_searched(made: Made, capsys):
    whole = json.loads(run(capsys, *made.words, "--json")[1])["spikes"][0]
    some = run(capsys, *made.words, "--event", "cpu-clock", "--cpu", "4-6", "--json")
    assert json.loads(some[1])["spikes"][0]["onset"] == whole["onset"]
    status, out, _ = run(capsys, *made.words, "--cpu", "99")
    assert status == 3
    assert "no samples on the chosen cores" in out


def test_info_tells_what_it_is_and_always_what_was_lost(made: Made, capsys):
    status, out, _ = run(capsys, "info", *made.words)
    assert status == 0
    assert "cpu-clock, 49 Hz: 47,040 samples" in out
    assert "no samples lost, not throttled" in out
    _, out, _ = run(capsys, "info", *made.words, "--json")
    document = json.loads(out)
    assert document["schema"] == "sexton.profile/1"
    assert sum(core["samples"] for core in document["cores"]) == 47_040
    assert sum(task["samples"] for task in document["tasks"]) == 47_040


@pytest.mark.parametrize("kind", ["cores", "subsecond", "peaks"])
def test_a_heatmap_is_drawn_and_told(made: Made, capsys, kind: str):
    status, out, _ = run(capsys, "heatmap", *made.words, "--kind", kind)
    assert status == 0
    assert "02:13:00" in out
    document = json.loads(run(capsys, "heatmap", *made.words, "--kind", kind, "--json")[1])
    assert document["schema"] == "sexton.heatmap/1"
    assert document["kind"] == kind
    if kind == "cores":
        assert document["values"][5][68] == 49


def test_a_heatmap_of_a_function_is_where_it_ran(made: Made, capsys):
    document = json.loads(run(capsys, "heatmap", *made.words, "--grep", "rstat_flush", "--json")[1])
    hot = {
        (row, column)
        for row, values in enumerate(document["values"])
        for column, value in enumerate(values)
        if value
    }
    assert {row for row, _ in hot} == {5}
    assert {column for _, column in hot} == set(range(67, 73))


def test_a_flame_graph_can_be_had_in_every_format(made: Made, capsysbinary, tmp_path: Path):
    words = ["flame", *made.words, "--from", "02:14:07.32", "--to", "72", "--cpu", "5"]
    made_files = {
        "svg": b"<?xml",
        "html": b"<!doctype html>",
        "folded": b"ksoftirqd/5;",
        "speedscope.json": b"{",
        "pb.gz": b"\x1f\x8b",
        "json": b'{"schema": "sexton.flame/1"',
        "txt": b" node-7",
    }
    for ending, begin in made_files.items():
        out = tmp_path / f"flame.{ending}"
        assert main(["profile", *words, "--out", str(out)]) == 0
        told = out.read_bytes()
        assert told.startswith(begin)
        assert b"kubelet" in (gzip.decompress(told) if ending == "pb.gz" else told)
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
    folded = (tmp_path / "flame.folded").read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in folded) == pytest.approx(4.68 * 49, abs=1)
    assert capsysbinary.readouterr().out == b""


def test_the_tree_on_the_terminal_fits_80_columns(made: Made):
    ended = sexton("profile", "flame", *made.words, env={**UTC, "COLUMNS": "80"})
    quiet(ended)
    assert max(len(line) for line in ended.stdout.decode().splitlines()) <= 80


def test_interrupt_work_on_an_idle_core_is_no_idling(made: Made, capsys):
    _, out, _ = run(capsys, "flame", *made.words, "--task", "^swapper$", "--format", "folded")
    assert out.count("\n") == 1
    assert "do_idle" in out
    assert "__do_softirq " in out


def test_a_difference_names_what_grew_and_its_exit_says_so(made: Made, capsys, tmp_path: Path):
    words = ("diff", *made.words, "--cpu", "5", "--before", "..02:14:00", "--after")
    status, out, _ = run(capsys, *words, "67.4..72")
    assert status == 1
    assert "mem_cgroup_css_rstat_flush" in out
    assert run(capsys, *words, "10..40")[0] == 0
    document = json.loads(run(capsys, *words, "67.4..72", "--format", "json")[1])
    assert document["schema"] == "sexton.flame.difference/1"
    grown = [node for node in document["nodes"] if "css_rstat" in node["name"]]
    assert grown[0]["before"] == 0
    assert grown[0]["after"] > 200
    assert grown[0]["q"] < 0.001


def test_two_files_can_be_compared(made: Made, capsys, tmp_path: Path):
    parts = []
    for name, span in (("a", ("0", "60")), ("b", ("67.4", "72"))):
        parts.append(tmp_path / f"{name}.txt")
        words = [
            "export",
            *made.words,
            "--from",
            span[0],
            "--to",
            span[1],
            "--format",
            "perf-script",
        ]
        assert run(capsys, *words, "--out", parts[-1])[0] == 0
    status, out, _ = run(capsys, "diff", *parts)
    assert status == 1
    assert "a.txt → " in out


def test_functions_by_their_own_time_and_in_total(made: Made, capsys):
    words = ("top", *made.words, "--from", "67.4", "--to", "72", "--cpu", "5")
    _, out, _ = run(capsys, *words)
    assert "mem_cgroup_css_rstat_flush" in out.splitlines()[3]
    document = json.loads(run(capsys, *words, "--by", "total", "--json")[1])
    assert document["schema"] == "sexton.functions/1"
    totals = [function["total"] for function in document["functions"]]
    assert totals == sorted(totals, reverse=True)


def test_a_timeline_says_when(made: Made, capsys):
    _, out, _ = run(capsys, "timeline", *made.words, "--grep", "rstat_flush", "--column", "1")
    assert "peak at 02:14:08" in out
    words = (
        "timeline",
        *made.words,
        "--task",
        "logrotate",
        "--by-core",
        "--column",
        "10",
        "--json",
    )
    document = json.loads(run(capsys, *words)[1])
    assert document["cores"] == list(range(8))
    assert [sum(row) for row in document["samples"]][2] == document["samples"][2][0] * 12


@pytest.mark.parametrize("form", ["perf-script", "folded", "pprof", "speedscope"])
def test_what_is_exported_can_be_opened_again(made: Made, capsys, tmp_path: Path, form: str):
    out = tmp_path / "exported"
    words = ("export", *made.words, "--format", form, "--task", "kubelet", "--out", out)
    assert run(capsys, *words)[0] == 0
    if form == "speedscope":
        assert json.loads(out.read_text())["profiles"]
        return
    _, text, _ = run(capsys, "top", out, "--json")
    assert any("rstat" in function["name"] for function in json.loads(text)["functions"])


def test_a_capture_without_a_wall_clock_says_so_in_a_line(made: Made, capsys, tmp_path: Path):
    out = tmp_path / "text"
    run(capsys, "export", *made.words, "--format", "perf-script", "--out", out)
    status, shown, _ = run(capsys, out)
    assert status == 1
    assert "for 5.4 s from +67.3" in shown
    ended = sexton("profile", "flame", out, "--from", "02:14:07")
    assert ended.returncode == 2
    assert "has no wall clock; use seconds from its start" in one_line(ended.stderr)


def test_standard_input_is_read(made: Made):
    line = f"$SEXTON profile top - {' '.join(made.words[1:])} --number 1 < {made.path}"
    ended = shell(line)
    assert b"FUNCTION" in ended.stdout, ended.stderr


def test_whoever_stops_reading_is_not_complained_to(made: Made):
    command = f"$SEXTON profile export {' '.join(made.words)} --format perf-script"
    ended = shell(f"set -o pipefail; {command} | head -1")
    assert ended.returncode == 141
    assert ended.stderr == b""


BAD = [
    (["nothing-here"], "no such file"),
    (["spike", "x"], "did you mean `sexton profile spikes`?"),
    (["flame", "{file}", "--grep", "("], "invalid regular expression"),
    (["flame", "{file}", "--cpu", "3-1"], "use numbers and ranges, e.g. 0,3-5"),
    (["flame", "{file}", "--cpu", "0-99999999999"], "use numbers and ranges"),
    (["flame", "{file}", "--from", "soon"], "invalid time"),
    (["flame", "{file}", "--from", "5", "--to", "4"], "is not after"),
    (["flame", "{file}", "--event", "cycles"], "no event 'cycles'; the capture has: cpu-clock"),
    (["flame", "{file}", "--task", "nobody"], "no samples match; the capture covers"),
    (["flame", "{file}", "--out", "x.unknown"], "unknown extension; use --format text|folded"),
    (["flame", "{file}", "--out", "/nonexistent/x.svg"], "No such file or directory"),
    (["flame", "{file}", "--out", "/proc"], "unknown extension; use --format text|folded"),
    (["flame", "{file}", "--format", "svg", "--out", "/proc"], "Is a directory"),
    (["heatmap", "{file}", "--out", "x.png"], "must end in .svg, .html or .json"),
    (["heatmap", "{file}", "--from", "900"], "no samples match; the capture covers"),
    (["diff", "{file}"], "pass two files, or one with --before"),
    (["diff", "{file}", "--before", "1..2", "--after", "3"], "invalid span '3': use FROM..TO"),
    (["diff", "{file}", "--before", "9..2", "--after", "3..4"], "ends before it starts"),
    (["spikes", "{file}", "--events", "/nonexistent"], "No such file or directory"),
    (["spikes", "{file}", "--event", "cycles"], "no event 'cycles'"),
    (["spikes", "{file}", "--most", "0"], "must be a whole number from 1 to 1000"),
    (["top", "{file}", "--number", "x"], "must be a whole number"),
    (["info", "{file}", "--kallsyms", "/nonexistent"], "/nonexistent"),
    (["info", "/dev/null"], "/dev/null"),
    (["info", "{junk}"], "junk"),
    ([], "the following arguments are required: COMMAND"),
    (["export", "{file}"], "required: --format"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_line_and_exit_2(made: Made, tmp_path: Path, words: list[str], said: str):
    junk = tmp_path / "junk"
    junk.write_bytes(os.urandom(4096))
    given = [word.format(file=made.path, junk=junk) for word in words]
    ended = sexton("profile", *given, cwd=tmp_path)
    assert ended.returncode == 2, ended.stdout.decode() + ended.stderr.decode()
    assert said in one_line(ended.stderr)
    assert ended.stdout == b""
    assert [path.name for path in tmp_path.iterdir()] == ["junk"]


def test_a_file_that_was_there_is_replaced_whole_or_not_at_all(made: Made, tmp_path: Path):
    out = tmp_path / "flame.svg"
    out.write_text("mine")
    ended = sexton("profile", "flame", *made.words, "--task", "nobody", "--out", out)
    assert ended.returncode == 2
    assert out.read_text() == "mine"
    ended = sexton("profile", "flame", *made.words, "--out", out)
    assert out.read_text().startswith("<?xml")
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("what", WHATS)
def test_help_loads_no_numbers(what: str):
    code = (
        "import sys\nfrom sexton.cli.main import main\n"
        f"main(['profile', '{what}', '--help'])\n"
        "sys.exit('numpy' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == 0
    assert b"FILE" in ended.stdout


def test_a_hostile_capture_says_nothing_raw(capsys, tmp_path: Path):
    folded = tmp_path / "x.folded"
    folded.write_bytes(b"\x1b[2Jtask;</script><script>alert(1);\xff\xfe;\xe2\x80\xae 7\n")
    for words in (["info"], ["flame"], ["top"], ["flame", "--format", "svg"]):
        ended = sexton("profile", words[0], folded, *words[1:])
        quiet(ended)
        assert "\u202e" not in ended.stdout.decode()


def test_a_format_without_times_gives_what_it_can(made: Made, capsys, tmp_path: Path):
    folded = tmp_path / "it.folded"
    run(capsys, "export", *made.words, "--format", "folded", "--out", folded)
    assert "no timestamps" in run(capsys, "info", folded)[1]
    assert "python3" in run(capsys, "flame", folded)[1]
    status, out, _ = run(capsys, folded)
    assert status == 3
    assert "samples have no timestamps" in out
    status, out, _ = run(capsys, "diff", folded, folded)
    assert status == 3, "nothing was tested"
    assert "not tested (no timestamps)" in out
    picture = tmp_path / "diff.svg"
    assert run(capsys, "diff", folded, folded, "--out", picture)[0] == 3
    assert "not tested: no timestamps" in picture.read_text()
    page = tmp_path / "report.html"
    assert run(capsys, "report", folded, "--out", page)[0] == 3
    assert "INCONCLUSIVE" in page.read_text()
    for what in ("heatmap", "timeline"):
        ended = sexton("profile", what, folded)
        assert ended.returncode == 2
        assert "no times" in one_line(ended.stderr)

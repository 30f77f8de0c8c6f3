"""What hostile or unlucky users give to `sexton profile`: one line, exit 2, nothing left behind."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from sexton.errors import CommandError
from sexton.profile.select import time_limit
from tests.cli.profile.conftest import Made
from tests.cli.profile.test_commands import run
from tests.support import perf_bytes
from tests.support.cli import shell

SECOND = 1_000_000_000
USER = 2**64 - 512


def capture(path: Path, times: list[int], **more) -> Path:
    path.write_bytes(
        perf_bytes.perf_data(perf_bytes.sample(time, 5, [USER, 4096], **more) for time in times)
    )
    return path


def test_samples_of_impossible_times_are_left_out_and_told(tmp_path: Path, capsys):
    times = [SECOND, 2 * SECOND, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    path = capture(tmp_path / "perf.data", times)
    for what in ("info", "flame", "heatmap", "timeline", "spikes"):
        status, out, err = run(capsys, what, path)
        assert (status in (0, 3), err) == (True, ""), what
    out = " ".join(run(capsys, "info", path)[1].split())
    assert "2 samples" in out
    assert "4 malformed samples" in out


def test_a_text_with_a_time_that_no_clock_shows_is_refused(tmp_path: Path, capsys):
    path = tmp_path / "script"
    path.write_text(f"a 1 [000] {2**62 // SECOND + 1}.000000: cpu-clock: \n\tff b (c)\n\n")
    assert run(capsys, "info", path) == (2, "", f"sexton: {path}: sample timestamp out of range\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["top", "--cpu", "99"], "no samples match; the capture covers 02:13:00 to 02:15:00"),
        (["flame", "--cpu", "99"], "no samples match; the capture covers 02:13:00 to 02:15:00"),
        (
            ["export", "--format", "folded", "--cpu", "99"],
            "no samples match; the capture covers 02:13:00 to 02:15:00",
        ),
        (
            ["export", "--format", "pprof", "--cpu", "99"],
            "no samples match; the capture covers 02:13:00 to 02:15:00",
        ),
        (
            ["export", "--format", "perf-script", "--task", "^$"],
            "no samples match; the capture covers 02:13:00 to 02:15:00",
        ),
        (["heatmap", "--cpu", "99"], "no samples match; the capture covers 02:13:00 to 02:15:00"),
        (
            ["heatmap", "--json", "--cpu", "99"],
            "no samples match; the capture covers 02:13:00 to 02:15:00",
        ),
        (
            ["timeline", "--from", "9000"],
            "no samples match; the capture covers 02:13:00 to 02:15:00",
        ),
        (
            ["diff", "--before", "0..9", "--after", "9..", "--from", "3"],
            "cannot be combined with --from and --to",
        ),
        (["heatmap", "--json", "--out", "it.svg"], "--json conflicts with --out"),
        (["flame", "--from", "-5"], "invalid time '-5': use 12.5 (seconds from the start)"),
    ],
)
def test_a_choice_of_nothing_or_of_two_things_is_one_line(made: Made, capsys, words, said):
    status, out, err = run(capsys, words[0], *made.words, *words[1:])
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


@pytest.mark.parametrize("kind", ["perf-script", "folded", "pprof", "speedscope"])
def test_an_export_of_nothing_leaves_no_file(made: Made, capsys, tmp_path: Path, kind: str):
    out = tmp_path / "it"
    assert run(capsys, "export", *made.words, "--cpu", 99, "--format", kind, "--out", out)[0] == 2
    assert os.listdir(tmp_path) == []


def test_a_picture_on_standard_output_is_not_announced(made: Made, capsys):
    status, out, err = run(capsys, "heatmap", *made.words, "--out", "-", "--json")
    assert (status, err) == (0, "")
    assert out.startswith('{"schema": "sexton.heatmap/1"')


def test_an_expression_that_would_search_for_years_is_given_up():
    endless = re.compile("(.*.*)*x")
    with pytest.raises(CommandError, match="takes too long"), time_limit(endless, 0.05):
        endless.search("a" * 60)


def test_patience_leaves_no_timer_behind():
    import signal

    with time_limit(re.compile("a"), 50):
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL


def test_a_shells_pipe_is_read(tmp_path: Path):
    path = capture(tmp_path / "perf.data", [SECOND, 2 * SECOND])
    for word in (f"<(cat {path})", f"<(gzip -c {path})", f"/dev/stdin < <(cat {path})"):
        ended = shell(f"$SEXTON profile info {word}")
        assert (ended.returncode, ended.stderr) == (0, b""), word
        assert b"2 samples" in ended.stdout


def test_a_pipe_with_a_name_is_refused_with_what_to_do(tmp_path: Path, capsys):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert run(capsys, path)[::2] == (
        2,
        f"sexton: {path}: not a regular file; pass a pipe as - (standard input)\n",
    )


def test_a_recording_without_pyarrow_says_what_to_install(tmp_path: Path, capsys, monkeypatch):
    (tmp_path / "segments").mkdir()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, err = run(capsys, tmp_path)
    assert (status, err) == (2, "sexton: recordings need pyarrow: pip install 'sexton[recorder]'\n")


def test_more_cores_than_any_machine_has_are_not_searched(tmp_path: Path, capsys):
    path = tmp_path / "perf.data"
    path.write_bytes(
        perf_bytes.perf_data(
            perf_bytes.sample(SECOND + at, 5, [USER, 4096], cpu=at) for at in range(8193)
        )
    )
    status, out, _ = run(capsys, path)
    assert status == 3
    assert "8,193 core numbers, more than any machine has: use --cpu" in " ".join(out.split())


def test_a_moment_that_nothing_calm_is_beside_cannot_be_told(tmp_path: Path, capsys):
    times = [SECOND + at * 10_000_000 for at in range(200)]
    path = capture(tmp_path / "perf.data", times)
    status, out, _ = run(capsys, path, "--at", "1")
    assert status == 3
    assert out.startswith("INCONCLUSIVE")
    assert "too short" in out


def test_a_moment_outside_is_told_by_how_far(tmp_path: Path, capsys):
    path = capture(tmp_path / "perf.data", [50_000 * SECOND, 50_002 * SECOND])
    _, out, _ = run(capsys, path, "--at", "5000")
    said = "event outside the capture, 4,998 s after its end"
    assert said in " ".join(out.split())


def test_an_empty_call_chain_still_tells_where_it_was(tmp_path: Path, capsys):
    path = tmp_path / "perf.data"
    content = [perf_bytes.comm(5, 5, b"it"), perf_bytes.sample(SECOND, 5, [])]
    path.write_bytes(perf_bytes.perf_data(content))
    _, out, _ = run(capsys, "flame", path, "--format", "folded")
    assert out == "it;[unknown] 1\n"


def test_a_damaged_pipe_is_told_by_its_name(tmp_path: Path):
    path = tmp_path / "perf.data"
    path.write_bytes(b"PERFILE2" + bytes(200))
    ended = shell(f"gzip -c {path} | $SEXTON profile -")
    assert ended.returncode == 2
    assert ended.stderr == b"sexton: standard input: header size is 0 bytes, expected 104\n"

"""Real captures: a rotated set is one timeline, with the same counts as in perf script."""

from __future__ import annotations

import gzip
import itertools
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sexton.errors import SextonError
from sexton.profile.captures import Opened, open_profile
from sexton.profile.files import FilePiece
from sexton.profile.flame import tasks
from sexton.profile.select import Selection
from sexton.profile.symbols import SymbolOptions

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("perf") is None, reason="no perf here"),
]
EVERY = Selection(idle=True)
RECORD = (
    "perf",
    "record",
    "-q",
    "-F",
    "499",
    "-e",
    "cpu-clock",
    "-a",
    "-g",
    "-k",
    "CLOCK_MONOTONIC",
)
BURN = "while True: sum(range(1000))"
_HEADER = re.compile(r"^(.{1,16}?)\s+-?\d+\s+\[(\d+)\]\s+(\d+)\.\d+:", re.MULTILINE)


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few files that one perf wrote in turn, while something ran."""
    folder = tmp_path_factory.mktemp("rotated")
    command = [*RECORD, "--buildid-mmap", "--switch-output", "-o", str(folder / "perf.data")]
    burning = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        recording = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        # By signal: with a period, a perf that starts more slowly than that never rotates.
        until = time.monotonic() + 120
        while len(list(folder.glob("perf.data.*"))) < 3 and time.monotonic() < until:
            time.sleep(0.7)
            if (folder / "perf.data").exists():
                recording.send_signal(signal.SIGUSR2)
        recording.send_signal(signal.SIGINT)
        recording.wait(60)
    finally:
        burning.kill()
        burning.wait()
    assert len(list(folder.iterdir())) >= 3
    return folder


def said_by_perf(paths: list[Path]) -> list[tuple[str, int, int]]:
    """(comm, cpu, second) of every sample."""
    found = []
    for path in paths:
        command = ["perf", "script", "-F", "comm,tid,cpu,time", "-i", str(path)]
        text = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        found += [(comm.strip(), int(cpu), int(s)) for comm, cpu, s in _HEADER.findall(text)]
    return found


def opened(path: Path) -> Opened:
    return open_profile([path], SymbolOptions(cache=""))


@pytest.mark.alone  # other tests start processes with names that perf does not decode
def test_a_rotated_set_counts_what_perf_script_counts(rotated):
    said = said_by_perf(sorted(rotated.iterdir()))
    found = opened(rotated)
    assert found.samples == len(said) > 100
    flame = found.flame(EVERY)
    assert {task.name: task.total for task in tasks(flame)} == Counter(comm for comm, *_ in said)
    heat = found.heat()
    seconds = zip(heat.second.tolist(), heat.cpu.tolist(), heat.samples.tolist(), strict=True)
    counted = Counter((second, cpu) for _, cpu, second in said)
    assert {(second, cpu): number for second, cpu, number in seconds} == counted


def test_a_range_of_a_rotated_set_decodes_only_what_touches_it(rotated):
    found = opened(rotated)
    first = found.pieces[0].start_ns
    before = [piece.decoded for piece in found.pieces if isinstance(piece, FilePiece)]
    assert before == [True, *[False] * (len(before) - 1)]
    flame = found.flame(Selection(first, first + 200_000_000, idle=True))
    whole = [profile.time_ns for profile in found.profiles()]
    times = np.concatenate(whole)
    assert flame.samples == np.count_nonzero(times < first + 200_000_000)
    assert all(now[0] <= later[0] for now, later in itertools.pairwise(whole))


def test_wall_time_is_now(rotated):
    found = opened(rotated)
    assert found.span_ns is not None
    wall = found.wall_s(found.span_ns[1])
    assert wall is not None
    last = max(path.stat().st_mtime for path in rotated.iterdir())
    assert abs(wall - last) < 60, "perf may write late; another clock would be off by hours"
    assert found.time_ns(wall) == pytest.approx(found.span_ns[1], abs=1000)


def test_a_gzipped_perf_data_is_unpacked_and_standard_input_read(rotated, tmp_path):
    path = min(rotated.iterdir())
    number = opened(path).samples
    packed = tmp_path / "perf.data.gz"
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    assert opened(packed).samples == number
    code = (
        "import pathlib; from sexton.profile.captures import open_profile;"
        "print(open_profile([pathlib.Path('-')]).samples)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=packed.read_bytes(), capture_output=True, check=True
    )
    assert int(done.stdout) == number


def test_a_torn_file_of_a_set_is_left_out_and_the_others_are_read(rotated, tmp_path):
    paths = sorted(rotated.iterdir())[:2]
    numbers = [opened(path).samples for path in paths]
    whole, torn = (Path(shutil.copy(path, tmp_path)) for path in paths)
    torn.write_bytes(torn.read_bytes()[:60])
    found = opened(tmp_path)
    assert found.samples == numbers[0]
    assert [problem for problem in found.facts.problems if torn.name in problem]
    whole.unlink()
    with pytest.raises(SextonError, match=re.escape(torn.name)):
        opened(tmp_path)

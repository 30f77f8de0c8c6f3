"""The ring written by a child: the same events, privately, and nothing left where it fails."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from sexton.host.host import open_host
from sexton.record import ring_dump
from sexton.record.ring_dump import Dumping, write_dump
from sexton.sources.tracefs.ring import EventRing, events
from sexton.store.encoding import unescape
from tests.kernel.conftest import until
from tests.support.fixtures import kernels

pq = pytest.importorskip("pyarrow.parquet")


def instance(tmp_path):
    """A held instance as its files look."""
    for number, path in enumerate(kernels("tracefs.ring")):
        core = tmp_path / f"instance/per_cpu/cpu{number}"
        core.mkdir(parents=True)
        (core / "trace").write_bytes(path.read_bytes())
    return str(tmp_path / "instance")


def rows_of(path):
    found = pq.read_table(path).to_pylist()
    texts = ("comm", "event", "detail")
    return [
        tuple(unescape(value) if name in texts else value for name, value in row.items())
        for row in found
    ]


def test_every_core_is_in_the_file_in_the_order_of_time_with_its_names_whole(tmp_path):
    out = tmp_path / "out.parquet"
    path = instance(tmp_path)
    assert write_dump(path, str(out), 0) > 500
    rows = rows_of(out)
    assert rows == list(events(path))
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert {row[3] for row in rows} >= {"a -1 [0] .... 1", "a\nb: c", "\udcff\x1b[2J)"}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["instance", "out.parquet"]


def test_only_what_is_new_enough_is_written(tmp_path):
    out = tmp_path / "out.parquet"
    path = instance(tmp_path)
    every = list(events(path))
    middle = every[len(every) // 2][0]
    write_dump(path, str(out), middle)
    assert rows_of(out) == [row for row in every if row[0] >= middle]


def test_an_empty_ring_is_a_file_without_rows(tmp_path):
    (tmp_path / "instance/per_cpu/cpu0").mkdir(parents=True)
    assert write_dump(str(tmp_path / "instance"), str(tmp_path / "out"), 0) == 0
    assert rows_of(tmp_path / "out") == []


def test_a_ring_that_is_gone_leaves_no_half_file_and_says_so(tmp_path, capsys):
    assert ring_dump.main([str(tmp_path / "none"), str(tmp_path / "out"), "0"]) == 1
    assert "per_cpu" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.root
def test_a_child_dumps_the_ring_while_we_go_on_and_then_it_runs_again(tmp_path):
    out = tmp_path / "ring.parquet"
    program = "import os, time\nprint(os.getpid())\ntime.sleep(0.01)"
    with EventRing(open_host()) as ring:
        ring.arm()
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        dumping = Dumping(ring, str(out), seconds=60)
        with open(f"{ring.path}/tracing_on") as on:
            assert on.read() == "0\n"
        assert until(lambda: dumping.poll() is not None, 60)
        end = dumping.poll()
        assert (end.path, end.reason) == (str(out), "")
        with open(f"{ring.path}/tracing_on") as on:
            assert on.read() == "1\n"
    pid = int(ran.stdout)
    assert any(row[2] == pid and row[4] == "sched_switch" for row in rows_of(out))
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.root
def test_a_dump_that_fails_says_why_and_lets_the_ring_run_again(tmp_path):
    with EventRing(open_host()) as ring:
        ring.arm()
        dumping = Dumping(ring, str(tmp_path / "no/such/folder"))
        assert until(lambda: dumping.poll() is not None, 60)
        assert "No such file" in dumping.poll().reason
        given_up = Dumping(ring, str(tmp_path / "out"))
        given_up.close()
        assert given_up.poll().reason == "given up"
        with open(f"{ring.path}/tracing_on") as on:
            assert on.read() == "1\n"
    assert os.listdir(tmp_path) == []

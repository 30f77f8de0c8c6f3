"""CPU time, I/O and last log lines of services, on v1, v2 and this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.host.host import Host, open_host
from sexton.host.reader import RootedFiles
from sexton.model.audit import CgroupUsage
from sexton.sources.services import Usage, blkio_total, io_total, last_logged, parse_last_logged


def host(root: Path, mounts: str) -> Host:
    (root / "proc/1").mkdir(parents=True, exist_ok=True)
    (root / "proc/1/mountinfo").write_text(mounts)
    return Host(RootedFiles(str(root)), live=False, root=str(root))


def put(root: Path, path: str, text: str) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_v2_is_read_from_cpu_stat_and_io_stat(tmp_path: Path):
    top = "sys/fs/cgroup/system.slice"
    put(tmp_path, f"{top}/a.service/cpu.stat", "usage_usec 4380211\nuser_usec 1\n")
    put(tmp_path, f"{top}/a.service/io.stat", "8:0 rbytes=100 wbytes=50 rios=1\n")
    put(tmp_path, f"{top}/b.service/cpu.stat", "usage_usec 7\n")
    put(tmp_path, f"{top}/x.scope/cpu.stat", "usage_usec 7\n")
    mounts = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    rows = sorted(Usage(host(tmp_path, mounts)).collect(), key=lambda row: row.path)
    assert rows == [
        CgroupUsage("/system.slice/a.service", 4380211, 150),
        CgroupUsage("/system.slice/b.service", 7, None),
    ]


def test_v1_is_read_from_cpuacct_and_blkio(tmp_path: Path):
    put(tmp_path, "sys/fs/cgroup/cpu/system.slice/a.service/cpuacct.usage", "4380211999\n")
    block = "sys/fs/cgroup/blkio/system.slice/a.service/blkio.throttle.io_service_bytes"
    put(tmp_path, block, "8:0 Read 4096\n8:0 Total 4096\nTotal 4096\n")
    mounts = (
        "31 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 1 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
    )
    (row,) = Usage(host(tmp_path, mounts)).collect()
    assert row == CgroupUsage("/system.slice/a.service", 4380211, 4096)


def test_without_a_hierarchy_it_is_absent_and_not_zero(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        Usage(host(tmp_path, "")).collect()


def test_this_machine_answers_or_says_that_it_cannot():
    try:
        rows = list(Usage(open_host()).collect())
    except SourceAbsent:
        return
    assert all(row.path.endswith(".service") for row in rows)


@given(st.text(max_size=200))
def test_junk_makes_no_numbers_up(text: str):
    assert io_total(text) >= 0
    found = blkio_total(text)
    assert found is None or found >= 0


def line(unit: object, wall_us: object) -> str:
    return json.dumps({"_SYSTEMD_UNIT": unit, "__REALTIME_TIMESTAMP": wall_us})


def test_the_newest_line_of_each_unit_counts_in_any_order():
    lines = [
        line("a.service", "3000000"),
        line("a.service", "2000000"),
        line("b.service", "1000000"),
    ]
    assert parse_last_logged("\n".join(lines)) == {"a.service": 3.0, "b.service": 1.0}


@pytest.mark.parametrize(
    "junk", ["", "{}", "[]", "no", line(None, "1"), line("a", "x"), line("a", 5)]
)
def test_junk_lines_are_passed_over(junk: str):
    assert parse_last_logged(f"{junk}\n{line('b.service', '1000000')}") == {"b.service": 1.0}


def test_a_tree_without_a_journal_has_none(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        last_logged(Host(RootedFiles(str(tmp_path)), live=False, root=str(tmp_path)))


@given(st.text(max_size=300))
def test_junk_never_breaks_it(text: str):
    parse_last_logged(text)

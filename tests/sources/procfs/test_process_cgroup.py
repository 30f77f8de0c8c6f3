"""`/proc/PID/cgroup`."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.host.host import open_host
from sexton.host.reader import Directory
from sexton.sources.cgroupfs.census import Walked
from sexton.sources.procfs.process_cgroup import ProcessCgroups, parse
from tests.support.fixtures import kernel_text
from tests.support.trees import plant


def captured(kernel):
    """pid → file, out of one fixture that holds several: each after a line `pid N`."""
    found = {}
    for piece in kernel_text("procfs.process_cgroup", kernel).split("pid ")[1:]:
        pid, _, content = piece.partition("\n")
        found[int(pid)] = content
    return found


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.1-hybrid"])
def test_v1_v2_and_hybrid_say_the_same_of_a_service(kernel):
    files = captured(kernel)
    assert parse(1, files.pop(1)).path == "/init.scope"
    assert parse(2, files.pop(2)).path == "/", "kernel threads"
    ((pid, content),) = files.items()
    row = parse(pid, content)
    assert (row.path, row.deleted) == ("/system.slice/systemd-journald.service", False)


def test_the_memory_line_wins_over_the_unified_one():
    assert parse(7, "4:memory:/a\n0::/b\n").path == "/a"
    assert parse(7, "0::/b\n4:cpu,memory:/a\n").path == "/a"
    assert parse(7, "4:mymemory:/a\n0::/b\n").path == "/b"


def test_a_removed_cgroup_is_marked_and_its_path_kept():
    row = parse(7, "0::/system.slice/x.service (deleted)\n")
    assert (row.path, row.deleted) == ("/system.slice/x.service", True)


def test_hostile_paths_stay_whole():
    assert parse(7, "0::/a:b\x85\x1b[2J \udcff\n").path == "/a:b\x85\x1b[2J \udcff"


def test_a_process_in_no_hierarchy_gives_no_row():
    assert parse(7, "") is None
    assert parse(7, "3:pids:/x\n") is None


def test_a_broken_line_names_the_process():
    with pytest.raises(SourceMalformed, match="/proc/7/cgroup") as caught:
        parse(7, "3:pids:/\nnonsense\n")
    assert caught.value.line == 2


def test_processes_that_vanish_are_skipped(tmp_path):
    host = plant(tmp_path, {"/proc/7/cgroup": "0::/a\n", "/proc/8/cgroup": ""})
    (tmp_path / "proc/9").mkdir()
    assert [row.pid for row in ProcessCgroups(host).collect()] == [7]


def test_this_very_process_is_found_where_the_kernel_puts_it():
    rows = {row.pid: row for row in ProcessCgroups(open_host()).collect()}
    with open("/proc/self/cgroup") as own:
        paths = {line.rstrip("\n").split(":", 2)[2] for line in own}
    assert rows[os.getpid()].path in paths


@given(st.text(max_size=60))
def test_junk_is_a_row_or_malformed(content):
    with suppress(SourceMalformed):
        parse(7, content)


def census_of(*paths: str):
    """What the census leaves for others: here only its directories matter."""
    return (None, 0.0, (None, Walked(len(paths), [Directory(path, 1, 0) for path in paths])))


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/system.slice/cron.service", False),
        ("/process_api/2b0897b0e9de78ab455a4e882e9bad7a", False),
        ("/user.slice/session-3.scope", True),
        ("/docker/" + "a1" * 32, True),
        ("/kubepods/burstable/pod0a1b2c3d-1111-2222-3333-444455556666", True),
        ("/lxc.payload.web", True),
    ],
)
def test_who_lives_where_is_read_only_where_somebody_may_ask(path, read):
    host = open_host()
    host.memo["census"] = census_of("/", path)
    assert bool(list(ProcessCgroups(host).collect())) is read
    thorough = open_host(thorough=True)
    thorough.memo["census"] = census_of("/", path)
    assert list(ProcessCgroups(thorough).collect())
    assert list(ProcessCgroups(open_host()).collect()), "without a census it is read"

"""`/proc/self/mountinfo`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.mountinfo import parse
from tests.support.fixtures import kernel_text


def mounts(kernel):
    return list(parse(kernel_text("procfs.mountinfo", kernel)))


def test_a_v2_node_has_one_cgroup_mount():
    rows = [row for row in mounts("6.1") if "cgroup" in row.fstype]
    assert [(row.mount_point, row.fstype, row.root) for row in rows] == [
        ("/sys/fs/cgroup", "cgroup2", "/")
    ]
    assert "memory_recursiveprot" in rows[0].super_options


@pytest.mark.parametrize("kernel", ["6.1-hybrid", "5.10", "6.18"])
def test_v1_memory_is_found_by_its_super_options(kernel):
    (row,) = [row for row in mounts(kernel) if "memory" in row.super_options]
    assert (row.mount_point, row.fstype) == ("/sys/fs/cgroup/memory", "cgroup")


def test_only_what_we_use_is_kept():
    kinds = {row.fstype for row in mounts("6.1-hybrid")}
    assert kinds == {"tmpfs", "cgroup", "cgroup2", "debugfs", "tracefs"}
    assert [row.mount_point for row in mounts("6.1-hybrid") if row.fstype == "tmpfs"] == [
        "/sys/fs/cgroup"
    ]


def test_escapes_are_decoded_and_hostile_names_stay_whole():
    (row,) = parse(r"7 1 0:9 /a\040b /m\134\011\012\043x/é" + "\x85\x1b rw - cgroup2 none rw\n")
    assert row.root == "/a b"
    assert row.mount_point == "/m\\\t\n#x/é\x85\x1b"


@pytest.mark.parametrize("optional", ["", "shared:1 ", "shared:1 master:2 propagate_from:3 "])
def test_any_number_of_optional_fields(optional):
    (row,) = parse(f"7 1 0:9 / /t rw {optional}- tracefs tracefs rw\n")
    assert (row.mount_id, row.mount_point, row.source) == (7, "/t", "tracefs")


def test_an_empty_source_is_empty():
    (row,) = parse("7 1 0:9 / /t rw - cgroup  rw,memory\n")
    assert (row.source, row.super_options) == ("", ("rw", "memory"))


@pytest.mark.parametrize(
    "line",
    [
        "7 1 0:9 / /t rw cgroup cgroup rw",
        "7 1 0:9 / /t rw - cgroup x",
        "x 1 0:9 / /t rw - cgroup x rw",
    ],
)
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"22 27 0:21 / /proc rw - proc proc rw\n{line}\n"))
    assert caught.value.line == 2

"""`cgroup:cgroup_mkdir`, `cgroup_rmdir`, `cgroup_release`."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import open_host
from sexton.sources.tracefs.cgroup_events import CgroupEvents, parse
from tests.support.fixtures import kernel_text

HEAD = "a-1       [001] d..1.    46.486261: "


@pytest.mark.parametrize(("kernel", "root"), [("5.10", 11), ("6.1", 6), ("6.18", 4)])
def test_a_death_without_a_release_is_a_zombie(kernel, root):
    lines = kernel_text("tracefs.cgroup_events", kernel).split("\n")
    memory = "\n".join(line for line in lines if f" root={root} " in line)
    events = list(parse(memory))
    dead = [event.cgroup_id for event in events if event.kind == "rmdir"]
    released = {event.cgroup_id for event in events if event.kind == "release"}
    assert len(set(dead)) == len(dead) >= 3
    assert [one for one in dead if one not in released]
    assert all(
        later.mono_ns >= earlier.mono_ns
        for earlier, later in pairwise(events)
        if later.cgroup_id == earlier.cgroup_id
    )


def test_every_event_of_a_real_trace_is_read():
    text = kernel_text("tracefs.cgroup_events", "6.1")
    assert len(list(parse(text))) == text.count(": cgroup_") == 60


def test_a_path_may_hold_anything_but_a_newline():
    path = "/a b\x1b[2J\udcff\x0b\u2028 1.000000: cgroup_rmdir: root=4 id=5 level=1 path=/x"
    (event,) = parse(f"{HEAD}cgroup_release: root=4 id=7 level=2 path={path}\n")
    assert (event.kind, event.cgroup_id, event.path) == ("release", 7, path)


def test_a_process_name_may_hold_a_newline():
    text = f"     x [1] y:\nz{HEAD}cgroup_mkdir: root=4 id=7 level=2 path=/a\n"
    assert [event.path for event in parse(text)] == ["/a"]


def test_older_kernels_without_a_level_are_read():
    (event,) = parse(f"{HEAD}cgroup_mkdir: root=4 id=7 path=/a\n")
    assert event.cgroup_id == 7


def test_other_lines_are_skipped():
    text = f"# comment\nCPU:1 [LOST 55 EVENTS]\n{HEAD}cgroup_rename: root=4 id=7\n\n"
    assert list(parse(text)) == []


def test_a_broken_event_is_named():
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"# x\n{HEAD}cgroup_rmdir: root=4 id=x level=1 path=/a\n"))
    assert caught.value.line == 2


def test_another_hosts_tree_cannot_be_traced(tmp_path):
    with pytest.raises(SourceAbsent, match="only on the node itself"):
        list(CgroupEvents(open_host(str(tmp_path))).collect())

"""Where a unit lives while it has no cgroup."""

from __future__ import annotations

from dataclasses import replace

from sexton.model.rows.unit import Unit
from sexton.sources.systemd.place import Memory, locate, slice_path

RUNNING = Unit(
    "a.service", "loaded", "active", "running", None, 0, None, None,
    None, None, None, None, None, "/odd.slice/a.service", "systemd",
)  # fmt: skip


def test_the_last_known_place_beats_the_slice():
    memory = Memory()
    assert memory.apply(RUNNING) == RUNNING
    waiting = replace(RUNNING, cgroup="/system.slice/a.service", cgroup_origin="slice + name")
    seen = memory.apply(waiting)
    assert (seen.cgroup, seen.cgroup_origin) == ("/odd.slice/a.service", "last known")


def test_a_unit_never_seen_running_keeps_what_its_slice_says():
    waiting = replace(RUNNING, cgroup="/system.slice/a.service", cgroup_origin="slice + name")
    assert Memory().apply(waiting) == waiting


def test_a_unit_in_the_root_slice_is_at_the_top():
    assert slice_path("-.slice") == ""
    assert locate("", "-.slice", "a.service") == ("/a.service", "slice + name")


def test_nothing_known_is_no_place():
    assert locate("", None, "a.service") == (None, "")

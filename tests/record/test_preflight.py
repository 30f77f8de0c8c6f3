"""What a recorder would do, told before; and that telling it changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sexton.host.host import Host, open_host
from sexton.record import preflight as module
from sexton.record.preflight import (
    BITS,
    Parts,
    Preflight,
    Wanted,
    bytes_an_hour,
    has,
    preflight,
    rights,
    segment_bytes,
    why_not,
)
from sexton.record.schedule import recorded_sources
from sexton.sources.bpf import softirq_wait
from sexton.sources.tracefs import instance, ring
from sexton.store.layout import Lock, prepare
from sexton.store.retention import Limits
from tests.support.trees import plant

LIMITS = Limits(12 * 3600, 2 << 30)
ALL = Parts(stacks=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Preflight:
    place = tmp_path_factory.mktemp("preflight") / "not" / "made"
    return preflight(open_host(), Wanted(place, LIMITS, ALL))


def test_every_source_of_a_recorder_is_told_of_once(found):
    told = [item.id for item in found.reads]
    events = {"bpf.softirq_wait", "tracefs.cgroup_events"}
    assert sorted({*told, *events}) == sorted(source.id for source in recorded_sources())
    assert len(told) == len(set(told))
    assert not events & set(told)


def test_what_can_be_read_has_a_cost_and_the_rest_a_reason(found):
    by_id = {item.id: item for item in found.reads}
    assert by_id["procfs.stat"].read_s > 0
    assert by_id["procfs.stat"].period_s == 1.0
    assert by_id["procfs.stat"].share == by_id["procfs.stat"].read_s
    assert by_id["procfs.stat"].rows == (os.cpu_count() or 0) + 1  # and the tasks that are ready
    for item in found.reads:
        assert (item.read_s is None) == (item.state != "ok")
        assert item.state == "ok" or item.detail


def test_the_whole_is_the_sum_of_its_parts(found):
    parts = sum(item.read_s / item.period_s for item in found.reads if item.read_s is not None)
    assert found.share == pytest.approx(parts + found.written_share)
    assert found.written_share > 0
    assert found.kernel_bytes == sum(item.buffer_bytes for item in found.kernel if not item.problem)


def test_every_event_and_its_buffer_is_told_of(found):
    kernel = {item.what: item for item in found.kernel}
    assert set(kernel) == {"cgroup events", "event ring", "softirq probe", "stacks"}
    assert set(kernel["event ring"].events) == {name.replace("/", ":") for name in ring.EVENTS}
    cores = os.cpu_count()
    assert kernel["cgroup events"].buffer_bytes == instance.BUFFER_KB * 1024 * cores
    assert kernel["event ring"].buffer_bytes == ring.buffer_kb(cores) * 1024 * cores


def test_what_was_left_out_by_an_option_is_not_told_of(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "recorded_sources", lambda **_: ())
    bare = Parts(probe=False, trace=False, ring=False)
    told = preflight(open_host(), Wanted(tmp_path, LIMITS, bare))
    assert told.kernel == ()
    assert "perf" not in [program.name for program in told.programs]
    assert not any(
        right.needed for right in told.rights if right.name in ("CAP_BPF", "CAP_PERFMON")
    )


def test_nothing_is_armed_loaded_started_or_made(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a preflight must not")

    for place, name in (
        (instance.Instance, "__init__"),
        (softirq_wait.Probe, "__init__"),
        (ring.EventRing, "__init__"),
        (os, "mkdir"),
        (os, "makedirs"),
        (Lock, "__init__"),
    ):
        monkeypatch.setattr(place, name, refuse)
    before = sorted(os.listdir("/proc/self/fd"))
    target = tmp_path / "a" / "recording"
    told = preflight(open_host(), Wanted(target, LIMITS, ALL))
    assert told.problem == ""
    assert list(tmp_path.iterdir()) == []
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert told.room.place == str(tmp_path)


def test_a_directory_that_would_be_made_is_looked_for_upwards(tmp_path):
    assert why_not(open_host(), tmp_path / "x" / "y") == ""
    (tmp_path / "file").write_bytes(b"")
    assert why_not(open_host(), tmp_path / "file").endswith("file: not a directory")
    assert why_not(open_host(), tmp_path / "file" / "x").endswith("file: not a directory")


def test_the_kernels_own_trees_take_no_files():
    assert "cannot hold a recording" in why_not(open_host(), Path("/proc/sexton"))
    assert "cannot hold a recording" in why_not(open_host(), Path("/sys/kernel/sexton"))


def test_a_second_recorder_is_refused_by_the_pid_of_the_first(tmp_path):
    prepare(tmp_path)
    lock = Lock(tmp_path)
    try:
        told = why_not(open_host(), tmp_path)
        assert told == f"{tmp_path}: process {os.getpid()} is recording here already"
    finally:
        lock.release()
    assert why_not(open_host(), tmp_path) == ""


def test_another_hosts_tree_cannot_be_recorded(tmp_path):
    assert "--root" in why_not(plant(tmp_path, {}), tmp_path)


@pytest.mark.parametrize(
    ("held", "names", "answer"),
    [
        (("CAP_BPF", "CAP_PERFMON"), ("CAP_BPF", "CAP_PERFMON"), True),
        (("CAP_BPF",), ("CAP_BPF", "CAP_PERFMON"), False),
        (("CAP_SYS_ADMIN",), ("CAP_BPF", "CAP_PERFMON"), True),
        ((), ("CAP_PERFMON",), False),
    ],
)
def test_before_5_8_one_capability_stood_for_both(held, names, answer):
    assert has(sum(1 << BITS[name] for name in held), *names) is answer


class _Changed:
    """This machine's files but for some."""

    def __init__(self, host: Host, files: dict[str, str]) -> None:
        self._files, self._changed = host.files, files

    def read(self, path: str, limit: int = 8 << 20) -> bytes:
        if path in self._changed:
            return self._changed[path].encode()
        return self._files.read(path, limit)

    def __getattr__(self, name: str):
        return getattr(self._files, name)


def changed(files: dict[str, str]) -> Host:
    host = open_host()
    host.files = _Changed(host, files)
    return host


def told_right(name: str, files: dict[str, str], parts: Parts = ALL):
    return next(right for right in rights(changed(files), parts) if right.name == name)


def test_the_kernel_log_needs_a_right_only_where_it_is_restricted():
    none = {"/proc/self/status": "CapEff:\t0000000000000000\n"}
    plain = Parts()
    path = "/proc/sys/kernel/dmesg_restrict"
    open_to_all = told_right("CAP_SYSLOG", {**none, path: "0\n"}, plain)
    restricted = told_right("CAP_SYSLOG", {**none, path: "1\n"}, plain)
    assert (open_to_all.needed, restricted.needed) == (False, True)
    assert restricted.held is False
    assert told_right("CAP_SYSLOG", {path: "0\n"}, ALL).needed  # symbols of stacks


def test_hidden_processes_need_a_right_only_outside_of_group_root(monkeypatch):
    line = "23 1 0:22 / /proc rw - proc proc rw,hidepid={}\n"
    monkeypatch.setattr(os, "getgroups", list)
    for option, group, needed in (
        ("invisible", 99, True),
        ("2", 99, True),
        ("2", 0, False),
        ("off", 99, False),
    ):
        monkeypatch.setattr(os, "getegid", lambda group=group: group)
        files = {"/proc/self/mountinfo": line.format(option)}
        assert told_right("CAP_SYS_PTRACE", files).needed is needed, (option, group)


def test_an_estimate_grows_with_cores_and_with_how_often():
    small = bytes_an_hour({"core_times": 2}, {"core_times": 1.0})
    large = bytes_an_hour({"core_times": 96}, {"core_times": 1.0})
    seldom = bytes_an_hour({"core_times": 96}, {"core_times": 10.0})
    assert small < seldom < large
    assert bytes_an_hour({"walk_cost": 9}, {"walk_cost": 3600.0}) == bytes_an_hour({}, {})
    assert segment_bytes({}) == 0

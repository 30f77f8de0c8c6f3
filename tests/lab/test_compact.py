"""What `lab.compact` keeps of a recording, what it leaves out, and what it must not tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab.compact import add_incident, compact, differences, incident_name, main, size_of
from lab.compact_stacks import USER, slimmed, within
from lab.incident import SCENE, replayed
from lab.scrub import BOOT, Scrub, private_names
from sexton.explain.diagnosis import diagnose
from sexton.model.profile import Kind
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import Nic
from sexton.model.rows.node import Node
from sexton.model.rows.recorder import RecorderCost
from sexton.model.rows.task import Process
from sexton.model.rows.trace import StackCount
from sexton.model.window import Batch
from sexton.profile.heat import heat_of
from sexton.sources.kmsg.catalogue import Recogniser
from sexton.sources.kmsg.records import LogLine
from sexton.store.recording import Recording
from sexton.store.verify import verify
from tests.support.annexes import annex, samples
from tests.support.profiles import Sample, profile_of
from tests.support.recordings import HEADER, WALL_S, cores, manifest_of, table_of, write_sealed

SCENE_TOLD = {
    "id": "idle", "kernel": "6.1.0-37", "hierarchy": "v1", "seconds": 60, "injected": [],
    "expected": {"root": None, "chain": [], "present": [], "absent": [], "exit": 3},
    "somewhere": "/mnt/scenes/idle",
}  # fmt: skip
SECRET = "paydaemon"


def batch(mono_s, *rows):
    return Batch(mono_s, WALL_S + mono_s, rows)


def process(pid, comm, spent_ms, kernel=False, state="S"):
    return Process(pid, 1, comm, state, 5, spent_ms, 0, 0, 1, kernel)


def line(mono_s, message="eth0: NETDEV WATCHDOG"):
    return KernelEvent(
        "x", "nic_watchdog", message, int(mono_s * 1e6), WALL_S + mono_s, {"nic": "e"}
    )


@pytest.fixture
def source(tmp_path):
    """Two segments of a machine with a name, secrets, an old log and stacks."""
    place = tmp_path / "raw"
    node = Node(
        "box-17", "6.1.0-37", 2, "b", 9.0, "Debian", "z", "r", "t", "i", "QEMU", "ab12", None
    )
    for sequence, start in ((1, 100.0), (2, 110.0)):
        quiet, secret = process(7, "idler", 50), process(8, SECRET, int(start))
        rows = {
            CoreTimes: [cores(start), cores(start + 1)],
            Node: [batch(start, node)],
            Process: [batch(start, quiet, secret, process(9, "kswapd0", int(start), kernel=True)),
                      batch(start + 2, quiet, replace(secret, user_ms=int(start) + 900))],
            VmCounter: [batch(start, VmCounter("pgscan_direct", 5), VmCounter("nr_bounce", 1))],
            KernelLog: [batch(start, KernelLog(9, 0, 0, "/dev/kmsg"))],
            KernelEvent: [batch(start, line(40.0), line(start), line(start, f"held by {SECRET}"))],
            RecorderCost: [batch(start, RecorderCost(1, 2, 3, 4, 5, 6, 7))],
        }  # fmt: skip
        header = {**HEADER, "host": "box-17"}
        segment = write_sealed(place, [rows], sequence, header)
        stacks = [
            *samples(start),
            Sample(int((start + 5) * 1e9), 0, ("main", "secret_sauce"), SECRET, 8),
        ]
        annex(segment, profile_of(stacks), f"2026111513300{sequence:03d}")
    (place / "rings").mkdir(exist_ok=True)
    (place / "rings" / "1.parquet").write_bytes(b"x" * 10_000)
    (place / SCENE).write_text(json.dumps(SCENE_TOLD))
    return place


@pytest.fixture
def small(source, tmp_path):
    compact(source, tmp_path / "small")
    return tmp_path / "small"


def everything_in(place: Path) -> bytes:
    """All texts of all tables and manifests: Parquet compresses, so files say nothing."""
    parts = []
    for path in sorted((place / "segments").rglob("*")):
        if path.name == "tables.zip":
            for name in manifest_of(path.parent)["tables"]:
                table = pq.read_table(pa.BufferReader(table_of(path.parent, name)))
                parts.append(str(table.to_pylist()).encode())
        elif path.is_file():
            parts.append(path.read_bytes())
    return b"\n".join(parts)


def test_it_is_one_whole_segment_with_the_stacks_of_all(small):
    found = Recording(small)
    assert verify(small).troubles == []
    assert len(found.segments) == 1
    assert len(found.segments[0].annexes) == 2
    assert {path.name for path in small.iterdir()} == {"segments"}


def test_readings_stay_what_they_were_at_their_own_times(source, small):
    before, after = (replayed(place).window for place in (source, small))
    assert before.batches(CoreTimes) == after.batches(CoreTimes)
    assert (before.start, before.end) == (after.start, after.end)


def test_the_diagnosis_does_not_change(source, small):
    assert [*differences(source, small)] == []


def test_what_other_peoples_lines_said_is_no_difference(tmp_path):
    reset = "ena 0000:20:03.0 eth0: Trigger reset is on"
    event = Recogniser().event(LogLine(int(40e6), WALL_S + 40.0, reset, 0))
    rows = {
        KernelEvent: [batch(100.0, event)],
        KernelLog: [batch(100.0, KernelLog(9, 0, 0, "/dev/kmsg"))],
        Nic: [batch(100.0, Nic("eth0", True, "ena", "2.11", "0000:20:03.0", "up"))],
        CoreTimes: [cores(100.0), cores(101.0)],
    }
    write_sealed(tmp_path / "raw", [rows])
    compact(tmp_path / "raw", tmp_path / "small")
    raw, small = (diagnose(replayed(tmp_path / name).window).by_id for name in ("raw", "small"))
    assert raw["nic_resets"].verdict != small["nic_resets"].verdict
    assert [*differences(tmp_path / "raw", tmp_path / "small")] == []


def test_a_diagnosis_that_changed_is_told(source, small, tmp_path):
    other = tmp_path / "other"
    write_sealed(other, [{CoreTimes: [cores(100.0), cores(101.0)]}])
    assert any("nic_resets: verdict was" in difference for difference in differences(source, other))


def test_nothing_tells_whose_machine_it_was(source, small):
    words = everything_in(small)
    for secret in (b"box-17", SECRET.encode(), b"ab12", b"secret_sauce", b"QEMU", b"idler"):
        assert secret in everything_in(source), secret
        assert secret not in words, secret
    assert BOOT.encode() in words


def test_lines_from_before_the_scene_go_and_the_log_says_where_it_begins(small):
    window = replayed(small).window
    messages = [event.message for event in window.all(KernelEvent)]
    assert messages == ["eth0: NETDEV WATCHDOG", "held by other"] * 2
    assert {row.oldest_mono_us for row in window.all(KernelLog)} == {99_000_000}


def test_lines_that_tests_wrote_meanwhile_go_with_what_belongs_to_them(tmp_path):
    theirs = line(100.0, "oom-kill:constraint=X,oom_memcg=/sexton-test-12")
    also_theirs, ours = line(100.2, "Killed process 9"), line(109.0, "Killed process 10")
    rows = {KernelEvent: [batch(110.0, theirs, also_theirs, ours)]}
    write_sealed(tmp_path / "raw", [rows, {CoreTimes: [cores(100.0)]}])
    compact(tmp_path / "raw", tmp_path / "small")
    assert replayed(tmp_path / "small").window.all(KernelEvent) == (ours,)


def test_a_reading_of_which_all_rows_were_left_out_is_an_empty_one(tmp_path):
    rows = {KernelEvent: [batch(100.0, line(40.0))], CoreTimes: [cores(100.0), cores(101.0)]}
    write_sealed(tmp_path / "raw", [rows])
    compact(tmp_path / "raw", tmp_path / "small")
    assert replayed(tmp_path / "small").window.all(KernelEvent) == ()


def test_counters_and_processes_that_nobody_asks_for_go(small):
    window = replayed(small).window
    assert {row.name for row in window.all(VmCounter)} == {"pgscan_direct"}
    assert {row.comm for row in window.all(Process)} == {"other", "kswapd0"}
    assert window.batches(RecorderCost) is None


def test_a_dead_process_stays_with_its_parent(tmp_path):
    dead = replace(process(5, "sh", 3, state="Z"), ppid=4)
    rows = {Process: [batch(100.0, process(4, "sh", 3), dead, process(6, "sh", 3))]}
    write_sealed(tmp_path / "raw", [rows])
    compact(tmp_path / "raw", tmp_path / "small")
    assert {row.pid for row in replayed(tmp_path / "small").window.all(Process)} == {4, 5}


def test_kernel_stacks_are_the_same_but_for_the_names_of_tasks(source, small):
    def stacks(place):
        rows = replayed(place).window.all(StackCount)
        return [(row.second_mono, row.cpu, row.frames, row.samples) for row in rows]

    assert stacks(small) == stacks(source)
    assert any("mem_cgroup_iter" in frames for _, _, frames, _ in stacks(small))


def test_a_part_of_it_can_be_taken(source, tmp_path):
    compact(source, tmp_path / "part", (0.0, 4.0))
    window = replayed(tmp_path / "part").window
    assert window.end_mono - window.start_mono <= 4.0
    assert verify(tmp_path / "part").troubles == []


def test_user_frames_become_one_and_heat_stays():
    profile = profile_of([*samples(), Sample(10**12, 0, ("main", "helper"), "app", 9)])
    scrub = Scrub("x")
    small = slimmed(profile, scrub)
    kinds = small.tree.frames.kinds
    assert [n for n, k in zip(small.tree.frames.names, kinds, strict=True) if k == Kind.USER] == [
        USER
    ]
    before, after = heat_of(profile), heat_of(small)
    for name in ("second", "cpu", "samples", "busy", "kernel", "cells"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


def test_samples_between_two_moments():
    profile = profile_of(samples(100.0, seconds=3))
    part = within(profile, 101 * 10**9, 102 * 10**9)
    assert part.time_ns[0] >= 101 * 10**9
    assert part.time_ns[-1] < 102 * 10**9
    assert 0 < len(part) < len(profile)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/builds/next/.venv/bin/python: no", "/lab: no"),
        ("upperdir=/mnt/x,lower=/var", "upperdir=/lab,lower=/var"),
        ("/system.slice/mnt.service", "/system.slice/mnt.service"),
        ("/mntpoint/a", "/mntpoint/a"),
        ("/root/.cache/x", "/root"),
        ("/rootfs/x", "/rootfs/x"),
        ("box-17.example.com", "node.example.com"),
        ("outbox-17", "outbox-17"),
    ],
)
def test_paths_and_names_of_a_machine_are_replaced_and_nothing_else(text, wanted):
    assert Scrub("box-17")(text) == wanted


def test_a_program_called_mkdir_does_not_rename_the_creations_of_cgroups():
    names = {"kind": ["mkdir", "rmdir"], "comm": ["mkdir", "sh"], "path": ["/mkdir", "/a"]}
    found = pa.table(names)
    made = Scrub("x", private=frozenset({"mkdir"})).table(found).to_pydict()
    assert made == {"kind": ["mkdir", "rmdir"], "comm": ["other", "sh"], "path": ["/other", "/a"]}


def test_container_ids_stay_different_from_each_other():
    ids = [f"/docker/{character * 64}" for character in "ab"]
    made = [Scrub("x")(item) for item in ids]
    assert len({*made, *ids}) == 4
    assert Scrub("x")(ids[0]) == made[0]


def test_a_name_is_private_unless_everybody_has_it_or_the_scene_gave_it():
    names = private_names(
        {("sh", False), (SECRET, False), ("agent7", False), ("kworker/0:1", True)}
    )
    assert names == {SECRET, "agent7"}
    assert private_names({("agent7", False)}, ["agent7"]) == frozenset()


def test_an_incident_is_kept_under_its_name_with_its_scene(source, tmp_path, capsys):
    into = tmp_path / "incidents"
    assert main([str(source), "--into", str(into)]) == 0
    place = into / "idle-6.1-v1"
    document = json.loads((place / SCENE).read_text())
    assert document["expected"]["exit"] == 3
    assert "somewhere" not in document
    assert size_of(place / "recording") < size_of(source)
    assert "bytes became" in capsys.readouterr().out
    assert [path.name for path in into.iterdir()] == ["idle-6.1-v1"]


def test_what_is_too_big_is_not_kept(source, tmp_path, monkeypatch):
    monkeypatch.setattr("lab.compact.MAX_BYTES", 100)
    against = add_incident(source, tmp_path / "into", None, False)
    assert any("bytes, 100 allowed" in item for item in against)
    assert [*(tmp_path / "into").iterdir()] == []


def test_a_directory_without_a_scene_is_refused_by_name(tmp_path, capsys):
    assert main([str(tmp_path), "--into", str(tmp_path / "into")]) == 1
    assert "FileNotFoundError" in capsys.readouterr().out


def test_an_incident_is_called_by_scene_kernel_and_hierarchy():
    assert incident_name({"id": "a_b", "kernel": "7.2.1-amd64", "hierarchy": "v2"}) == "a_b-7.2-v2"

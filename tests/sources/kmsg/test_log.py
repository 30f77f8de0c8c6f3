"""`/dev/kmsg`, and the logs that were kept of it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sexton.errors import SourceAbsent, SourceDenied
from sexton.host.host import ON_THE_NODE, Host, open_host
from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.sources.kmsg import log
from sexton.sources.kmsg.log import PATH, KernelLogReading
from tests.support.fixtures import kernel_text
from tests.support.trees import plant

RESET = "ena 0000:20:03.0 eth0: Trigger reset is on"


def split(rows) -> tuple[list[KernelEvent], KernelLog]:
    rows = list(rows)
    (kernel_log,) = [row for row in rows if isinstance(row, KernelLog)]
    return [row for row in rows if isinstance(row, KernelEvent)], kernel_log


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.18"])
def test_a_quiet_kernels_log_has_no_events(tmp_path: Path, kernel: str):
    text = kernel_text("kmsg.log", kernel)
    host = plant(tmp_path, {"/commands/kmsg": text})
    events, kernel_log = split(KernelLogReading(host).collect())
    assert events == []
    assert kernel_log.lines == sum(1 for line in text.splitlines() if not line.startswith(" "))
    assert kernel_log.oldest_mono_us == 0
    assert kernel_log.origin == "/commands/kmsg"


def test_a_gap_in_the_numbers_of_a_saved_log_is_counted_as_lost(tmp_path: Path):
    host = plant(tmp_path, {"/commands/kmsg": f"6,10,1,-;a\n3,15,2000000,-;{RESET}\n"})
    events, kernel_log = split(KernelLogReading(host).collect())
    assert kernel_log.lost == 4
    assert [(event.family, event.mono_us) for event in events] == [("nic_reset", 2_000_000)]


def test_a_snapshot_gives_its_own_wall_time(tmp_path: Path):
    files = plant(tmp_path, {"/commands/dmesg": f"[  100.500000] {RESET}\n"}).files
    host = Host(files, live=False, moment=(200.0, 1_700_000_200.0))
    events, _ = split(KernelLogReading(host).collect())
    assert events[0].wall_s == 1_700_000_100.5


def test_without_a_moment_the_boot_time_gives_the_wall_time(tmp_path: Path):
    host = plant(
        tmp_path,
        {
            "/commands/dmesg": f"[  100.500000] {RESET}\n",
            "/proc/stat": "cpu  1\nbtime 1700000000\n",
        },
    )
    events, _ = split(KernelLogReading(host).collect())
    assert events[0].wall_s == 1_700_000_100.5


def test_with_neither_the_wall_time_is_unknown(tmp_path: Path):
    host = plant(tmp_path, {"/var/log/kern.log": f"Jan 24 08:16:20 n kernel: {RESET}\n"})
    events, kernel_log = split(KernelLogReading(host).collect())
    assert (events[0].wall_s, events[0].mono_us, kernel_log.oldest_mono_us) == (None, None, None)


def test_a_second_snapshot_gives_only_what_is_new(tmp_path: Path):
    first = f"3,1,1,-;{RESET}\n3,2,2,-;{RESET}\n"
    host = plant(tmp_path, {"/commands/kmsg": first})
    reading = KernelLogReading(host)
    assert len(split(reading.collect())[0]) == 2
    assert len(split(reading.collect())[0]) == 0
    later = f"3,2,2,-;{RESET}\n3,3,3,-;{RESET}\n"  # the ring dropped its oldest
    plant(tmp_path, {"/commands/kmsg": later})
    events, kernel_log = split(reading.collect())
    assert [event.mono_us for event in events] == [3]
    assert (kernel_log.lines, kernel_log.lost) == (3, 0)


def test_a_second_text_snapshot_gives_only_what_is_new(tmp_path: Path):
    host = plant(tmp_path, {"/commands/dmesg": f"[    1.000000] a\n[    2.000000] {RESET}\n"})
    reading = KernelLogReading(host)
    reading.collect()
    plant(tmp_path, {"/commands/dmesg": f"[    2.000000] {RESET}\n[    3.000000] {RESET}\n"})
    assert [event.mono_us for event in split(reading.collect())[0]] == [3_000_000]


def test_a_file_that_outlived_a_boot_has_times_only_since_the_last(tmp_path: Path):
    text = (
        f"Jan 24 08:16:20 n kernel: [  900.000000] {RESET}\n"
        "Jan 24 08:20:00 n kernel: [    0.000000] Linux version 6.1.0\n"
        f"Jan 24 08:21:00 n kernel: [   60.000000] {RESET}\n"
    )
    events, _ = split(KernelLogReading(plant(tmp_path, {"/var/log/kern.log": text})).collect())
    assert [event.mono_us for event in events] == [None, 60_000_000]


def test_a_tree_without_a_log_is_absent(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        KernelLogReading(open_host(str(tmp_path))).collect()


BOOT_ID = "/proc/sys/kernel/random/boot_id"


@pytest.mark.parametrize("theirs", [None, "", "11111111-2222-3333-4444-555555555555\n"])
def test_another_kernels_tree_never_gets_our_ring_and_is_sent_to_its_node(tmp_path, theirs):
    host = plant(tmp_path, {"/etc/hostname": "x"} if theirs is None else {BOOT_ID: theirs})
    with pytest.raises(SourceAbsent) as caught:
        KernelLogReading(host).collect()
    assert caught.value.grant == ON_THE_NODE


def ring_of_a_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live ring that anybody may read."""
    stand_in = tmp_path / "ring"
    stand_in.write_text(f"3,7,5000000,-;{RESET}\n")
    monkeypatch.setattr(log, "PATH", str(stand_in))
    monkeypatch.setattr(log.stat, "S_ISCHR", lambda _: True)
    monkeypatch.setattr(log, "_DEVICE", 0)


def test_a_tree_of_this_very_boot_is_read_from_the_kernels_own_ring(tmp_path, monkeypatch):
    ring_of_a_few(tmp_path, monkeypatch)
    ours = Path(BOOT_ID).read_text()
    tree = {BOOT_ID: ours, "/var/log/kern.log": "Jan 24 08:16:20 n kernel: old\n"}
    events, kernel_log = split(KernelLogReading(plant(tmp_path / "tree", tree)).collect())
    assert [event.mono_us for event in events] == [5_000_000]
    assert events[0].wall_s == pytest.approx(time.time() - time.monotonic() + 5, abs=1)
    assert kernel_log.origin == "/dev/kmsg"


def test_an_archive_of_this_very_boot_keeps_to_what_was_collected(tmp_path, monkeypatch):
    ring_of_a_few(tmp_path, monkeypatch)
    tree = {BOOT_ID: Path(BOOT_ID).read_text(), "/commands/kmsg": "6,1,1,-;calm\n"}
    host = plant(tmp_path / "tree", tree)
    events, kernel_log = split(KernelLogReading(host).collect())
    assert (events, kernel_log.origin) == ([], "/commands/kmsg")
    replayed = Host(host.files, live=False, moment=(9.0, 9.0))
    assert split(KernelLogReading(replayed).collect())[1].origin == "/commands/kmsg"


def test_a_flood_keeps_the_newest_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log, "MOST_EVENTS", 10)
    text = "".join(f"3,{number},{number},-;{RESET}\n" for number in range(500))
    events, kernel_log = split(
        KernelLogReading(plant(tmp_path, {"/commands/kmsg": text})).collect()
    )
    assert [event.mono_us for event in events] == list(range(490, 500))
    assert kernel_log.lines == 500


def refuse(*_: object) -> int:
    raise PermissionError(1, "Operation not permitted")


@pytest.fixture
def no_syslog(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without CAP_SYSLOG where kernel.dmesg_restrict is 1."""

    def denied(*_: object) -> int:
        raise SourceDenied("syslog(2)", "Operation not permitted")

    monkeypatch.setattr(log, "_klogctl", denied)


@pytest.mark.usefixtures("no_syslog")
def test_a_user_who_may_not_look_is_denied_with_a_remedy(monkeypatch: pytest.MonkeyPatch):

    monkeypatch.setattr(log, "KEPT", ())
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceDenied):
        KernelLogReading(open_host()).collect()


@pytest.mark.usefixtures("no_syslog")
def test_a_masked_device_is_absent_and_not_an_empty_log(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log, "KEPT", ())
    monkeypatch.setattr(log, "PATH", "/dev/null")
    with pytest.raises(SourceAbsent, match="masked"):
        KernelLogReading(open_host()).collect()


@pytest.mark.usefixtures("no_syslog")
def test_denied_live_without_a_kept_log_the_journal_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """FAKE: no journald runs here, so what `journalctl -k -o json` would print is planted."""
    entry = {"MESSAGE": RESET, "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0"}
    entry |= {"__MONOTONIC_TIMESTAMP": "7000000", "__REALTIME_TIMESTAMP": "1700000000000000"}
    queries = []

    def journal(host: Host, wanted: Sequence[str], deadline_s: float = 0.0) -> str:
        queries.append(list(wanted))
        return json.dumps(entry) + "\n"

    monkeypatch.setattr(log, "PATH", "/dev/null")
    monkeypatch.setattr(log, "journal_text", journal)
    reading = KernelLogReading(Host(plant(tmp_path, {"/etc/x": ""}).files, live=True))
    events, kernel_log = split(reading.collect())
    assert (len(events), kernel_log.origin) == (1, "journalctl -k")
    assert "-k" in queries[0]
    events, _ = split(reading.collect())
    assert events == [], "given once, and not read again at once"
    assert len(queries) == 1


@pytest.mark.usefixtures("no_syslog")
def test_denied_live_falls_back_to_the_kept_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log, "PATH", "/dev/null")
    files = plant(tmp_path, {"/var/log/kern.log": f"Jan 24 08:16:20 n kernel: {RESET}\n"}).files
    events, kernel_log = split(KernelLogReading(Host(files, live=True)).collect())
    assert (len(events), kernel_log.origin) == (1, "/var/log/kern.log")


@pytest.mark.root
def test_without_the_device_the_system_call_gives_the_same_lines(monkeypatch: pytest.MonkeyPatch):
    """As in a pod with CAP_SYSLOG, which may not open the node's device."""
    monkeypatch.setattr(log, "EVERY_S", 0.0)
    ring, called = log.Ring(), log.Syslog()
    try:
        whole = list(called.new_lines())
        of_ring = [line for line in ring.new_lines() if "\n" not in line.message]
        seen = {(line.mono_us, line.message, line.facility) for line in whole}
        assert {(line.mono_us, line.message, line.facility) for line in of_ring[-50:]} <= seen
        mark = f"sexton test {os.getpid()} of syslog(2)"
        Path(PATH).write_text(f"<6>{mark}\n")
        (line,) = [line for line in called.new_lines() if line.message == mark]
        assert line.facility == 1, "a process wrote it"
        assert not [line for line in called.new_lines() if line.message == mark]
    finally:
        ring.close()
    monkeypatch.setattr(log, "PATH", "/dev/null")
    _, kernel_log = split(KernelLogReading(open_host()).collect())
    assert kernel_log.origin == "syslog(2)"


def test_a_buffer_that_was_overwritten_between_two_calls_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch,
):
    """FAKE: the buffer's content is planted."""
    buffers = [b"<6>[    1.000000] a\n<6>[    2.000000] b\n"]

    def planted(action: int, buffer: object, length: int) -> int:
        if buffer is None:
            return 1 << 10
        buffer[: len(buffers[-1])] = buffers[-1]
        return len(buffers[-1])

    monkeypatch.setattr(log, "_klogctl", planted)
    monkeypatch.setattr(log, "EVERY_S", 0.0)
    called = log.Syslog()

    def messages() -> list[str]:
        return [line.message for line in called.new_lines()]

    assert messages() == ["a", "b"]
    buffers.append(b"<6>[    2.000000] b\n<6>[    3.000000] c\n")
    assert (messages(), called.seen.lost) == (["c"], 0)
    buffers.append(b"<6>[    9.000000] x\n<6>[    9.100000] y\n")
    assert (messages(), called.seen.lost) == (["x", "y"], 1)


@pytest.mark.root
def test_a_forged_reset_in_the_live_ring_is_seen_by_the_lab_and_by_nobody_else():
    """The record stays in this machine's ring, as a process's: its address says whose it is."""
    address = f"5e47:{os.getpid() & 0xFF:02x}:{int(time.time()) & 0x1F:02x}.7"
    forged = (
        f"ena {address} sextontest0: TX q 5 is paused for too long (threshold 5000000). "
        "Time since last napi 6596000 usec. napi scheduled: 1"
    )
    lab = KernelLogReading(open_host(), trust_user_records=True)
    node = KernelLogReading(open_host())
    try:
        lab.collect()
        node.collect()
        Path(PATH).write_text(f"<4>{forged}\n")
        seen, kernel_log = split(lab.collect())
        mine = [event for event in seen if event.fields.get("bus") == address]
        assert [event.fields["napi_us"] for event in mine] == [6_596_000]
        assert mine[0].wall_s == pytest.approx(time.time(), abs=600)
        assert kernel_log.origin == PATH
        believed, _ = split(node.collect())
        assert not [event for event in believed if event.fields.get("bus") == address]
    finally:
        lab.close()
        node.close()


@pytest.mark.root
def test_what_the_kernel_itself_says_is_believed():
    """A real line, made by running into a real limit of a cgroup of our own."""
    root = Path("/sys/fs/cgroup/pids")
    if not (root / "cgroup.procs").exists():
        root = Path("/sys/fs/cgroup")
    ours = root / f"sexton-test-{os.getpid()}"
    ours.mkdir()
    reading = KernelLogReading(open_host())
    try:
        if not (ours / "pids.max").exists():
            pytest.skip("no pids controller for a child of the root cgroup")
        reading.collect()
        (ours / "pids.max").write_text("1")
        script = f"echo $$ > {ours}/cgroup.procs; /bin/true | /bin/true; exit 0"
        subprocess.run(["/bin/sh", "-c", script], stderr=subprocess.DEVNULL, check=False)
        events, _ = split(reading.collect())
        assert f"/{ours.name}" in [event.fields.get("cgroup") for event in events]
    finally:
        reading.close()
        ours.rmdir()

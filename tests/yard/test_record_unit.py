"""The deployed unit under a real systemd: it records, ends, restarts, and stays down."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from sexton.model.rows.trace import RingState
from sexton.store.recording import Recording
from tests.support.tools import need
from tests.yard.yard import PYTHON, REPOSITORY, SEEN, Yard, YardError

pytestmark = [pytest.mark.root, pytest.mark.systemd]

NAME = "sexton-record.service"
UNIT = (REPOSITORY / "deploy/systemd" / NAME).read_text()
DROP_IN = (REPOSITORY / "deploy/systemd/sys-admin.conf").read_text()
LISTEN = (REPOSITORY / "deploy/systemd/listen.conf").read_text()
STATE = "/var/lib/sexton"
COMMAND = "/usr/bin/sexton record /var/lib/sexton"


@pytest.fixture
def place(own_yard: Yard) -> Iterator[Yard]:
    """A yard with what the unit expects of a node: a state directory, tracefs, the kernel's log."""
    own_yard.run("mount", "-t", "tmpfs", "tmpfs", "/var/lib")
    own_yard.run("mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing")
    own_yard.run("mknod", "-m", "600", "/dev/kmsg", "c", "1", "11")
    # Whom nobody mentions systemd forgets when it has ended, and its exit status with it.
    own_yard.install("holder.target", f"[Unit]\nDefaultDependencies=no\nAfter={NAME}\n")
    own_yard.run("systemctl", "start", "holder.target")
    yield own_yard
    own_yard.run("systemctl", "stop", NAME, check=False)  # takes its trace instance with it


def install(yard: Yard, **changed: str) -> None:
    """The unit as it is deployed, but for this checkout's interpreter, which may be in a home."""
    text = UNIT.replace(COMMAND, f"{PYTHON} -B -m sexton record {STATE}")
    text = text.replace("ProtectHome=yes", "ProtectHome=read-only")
    text = text.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n", 1)
    text = text.replace("[Service]\n", f"[Service]\n{SEEN}", 1)
    for key, value in changed.items():
        text = text.replace("[Service]\n", f"[Service]\n{key}={value}\n", 1)
        lines = text.splitlines(keepends=True)
        first = lines.index(f"{key}={value}\n")
        text = "".join(
            line
            for number, line in enumerate(lines)
            if number <= first or not line.startswith(f"{key}=")
        )
    yard.install(NAME, text)


def state_of(yard: Yard) -> dict[str, object]:
    """status.json; empty before there is one."""
    result = yard.run("cat", f"{STATE}/status.json", check=False)
    return json.loads(result) if result else {}


def ring(yard: Yard) -> dict[str, object]:
    return state_of(yard)["companions"]["tracefs.ring"]


def recording(yard: Yard) -> bool:
    return state_of(yard).get("state") == "recording"


def show(yard: Yard, *names: str) -> list[str]:
    found = yard.show(NAME, *names)
    return [found[name] for name in names]


def start_and_wait(yard: Yard) -> None:
    yard.run("systemctl", "start", NAME)
    try:
        yard.wait("recording", lambda: recording(yard))
    except YardError:
        said = yard.run("cat", "/run/sexton-said", check=False)
        how = show(yard, "ActiveState", "Result", "ExecMainStatus")
        raise AssertionError(f"{how}: {said}") from None


def test_the_unit_records_every_source_and_stops_cleanly(place: Yard):
    install(place, StandardError="file:/run/sexton-said")
    start_and_wait(place)
    # On a busy machine one may be late at first.
    place.wait("an answer of every source", lambda: "timeout" not in state_of(place)["sources"])
    sources = state_of(place)["sources"]
    seen = set(sources["ok"])
    assert {"procfs.stat", "procfs.tasks", "kmsg.log", "nic.ethtool", "systemd.units"} <= seen
    assert {"tracefs.cgroup_events", "bpf.softirq_wait"} <= seen, sources
    assert not {"denied", "failed", "malformed"} & set(sources), sources
    modes = place.run("sh", "-c", f"stat -c '%a %n' {STATE} {STATE}/* {STATE}/open/*/*")
    for line in modes.splitlines():
        assert line.split()[0] in ("700", "600"), line
    pid = state_of(place)["pid"]
    assert any(name.startswith(f"sexton-{pid}-") for name in instances(place))
    place.run("systemctl", "stop", NAME)
    assert show(place, "ActiveState", "Result", "ExecMainCode", "ExecMainStatus") == [
        "inactive",
        "success",
        "1",
        "0",
    ]
    assert state_of(place)["state"] == "stopped"
    assert place.run("sh", "-c", f"ls {STATE}/open") == ""
    assert "manifest.json" in place.run("sh", "-c", f"ls {STATE}/segments/*")
    verify = f"{PYTHON} -B -m sexton recording verify {STATE}"
    assert place.run("sh", "-c", verify).startswith("intact")
    assert not any(name.startswith(f"sexton-{pid}-") for name in instances(place))
    assert place.run("cat", "/run/sexton-said") == f"sexton: recording into {STATE}\n"


def instances(yard: Yard) -> list[str]:
    return yard.run("ls", "/sys/kernel/tracing/instances").split()


@pytest.mark.whole
def test_the_kernel_enforces_the_limits_of_the_unit(place: Yard):
    install(place)
    start_and_wait(place)
    (pid,) = show(place, "MainPID")
    status = place.run("cat", f"/proc/{pid}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 1 << 34 | 1 << 38 | 1 << 39
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"
    assert place.run("cat", f"/proc/{pid}/oom_score_adj").strip() == "100"
    # -r: the yard is a chroot, and without it this would be the machine's own root. Only asked:
    # a path that could be written by mistake must not be written by a test.
    inside = ["nsenter", "-t", pid, "-m", "-r", "--"]
    for path in ("/etc", "/usr", "/sys/kernel", "/proc/sys/kernel/hostname", "/sys/fs/cgroup"):
        place.run(*inside, "test", "!", "-w", path)
    for path in (STATE, "/sys/kernel/tracing/instances"):
        place.run(*inside, "test", "-w", path)
    place.run(*inside, "test", "-r", "/proc/kallsyms")
    place.run(*inside, "test", "!", "-s", "/proc/kcore")
    memory = place.cgroups.get("memory", place.cgroups.get("cgroup"))
    assert memory is not None
    limit = [
        path.read_text().strip()
        for name in ("memory.max", "memory.limit_in_bytes")
        for path in (memory / "system.slice" / NAME).glob(name)
    ]
    assert limit == [str(300 << 20)]


def test_a_killed_recorder_is_restarted_and_takes_over_the_recording(place: Yard):
    install(place, RestartSec="3s")  # long enough to be seen on a busy machine
    start_and_wait(place)
    parent, first = *show(place, "MainPID"), state_of(place)["pid"]
    # The kernel lists the instances of every yard, in which another recorder may have this PID.
    started = place.run("cat", f"/proc/{first}/stat").rpartition(")")[2].split()[19]
    place.run("kill", "-9", parent)
    place.wait("the back-off", lambda: show(place, "SubState") == ["auto-restart"])
    place.wait("recording again", lambda: recording(place) and state_of(place)["pid"] != first)
    assert show(place, "NRestarts") == ["1"]
    assert any(note["kind"] == "taken over" for note in state_of(place)["notes"])
    assert not any(name.startswith(f"sexton-{first}-{started}-") for name in instances(place))


def test_stacks_and_the_event_ring_work_in_the_sandbox_and_perf_ends_with_the_unit(place: Yard):
    need("perf", package="linux-perf")
    install(place, ExecStart=f"{PYTHON} -B -m sexton record {STATE} --stacks")
    start_and_wait(place)
    place.wait("perf", lambda: state_of(place)["companions"]["perf.stacks"]["alive"])
    place.wait("the ring's events to be counted", lambda: ring(place)["events_per_s"] is not None)
    assert "perf" in place.programs()
    place.run("systemctl", "stop", NAME)
    assert show(place, "Result", "ExecMainStatus") == ["success", "0"]
    assert "perf" not in place.programs()
    kept = place.run("ls", f"{STATE}/stacks").split()
    assert not any(name.startswith("perf.data") for name in kept)
    assert "/profile-" in place.run("sh", "-c", f"ls -d {STATE}/segments/*/*"), "it was decoded"
    (symbols,) = (name for name in kept if name.startswith("kallsyms-"))
    named = place.run("sh", "-c", f"zcat {STATE}/stacks/{symbols} | grep -c ' _text$'")
    assert named.strip() == "1"
    address = place.run("sh", "-c", f"zcat {STATE}/stacks/{symbols} | grep ' _text$'").split()[0]
    assert int(address, 16) != 0  # CAP_SYSLOG: without it every address is 0
    # The ring's first state, before a busy machine's events may pause it.
    found = Recording(Path(f"/proc/{place.pid}/root{STATE}"))
    states = [
        row for segment in found.segments for b in segment.batches(RingState) for row in b.rows
    ]
    assert states[0].mode == "on", states


def test_a_unit_that_always_fails_stops_at_the_start_limit(place: Yard):
    install(place, ExecStart="/bin/false", RestartSec="20ms")
    place.run("systemctl", "start", NAME, check=False)
    place.wait("the start limit", lambda: show(place, "ActiveState") == ["failed"])
    restarts, started = show(place, "NRestarts", "ExecMainStartTimestampMonotonic")
    assert int(restarts) in (5, 6)  # systemd 252 counts the one that was refused as well
    assert show(place, "StartLimitBurst", "StartLimitIntervalUSec") == ["6", "1h"]
    # Not even by hand, until somebody resets it: and so the last start stays the last.
    place.run("systemctl", "start", NAME, check=False)
    assert show(place, "ActiveState", "ExecMainStartTimestampMonotonic") == ["failed", started]


def test_a_locked_directory_is_not_retried(place: Yard):
    place.run("mkdir", "-m", "700", "-p", STATE)
    place.run("systemd-run", "--quiet", "flock", f"{STATE}/LOCK", "sleep", "1000")
    place.wait("the lock", lambda: Path(f"/proc/{place.pid}/root{STATE}/LOCK").exists())
    install(place, StandardError="file:/run/sexton-said", RestartSec="20ms")
    place.run("systemctl", "start", NAME, check=False)
    place.wait("its end", lambda: show(place, "ActiveState") == ["failed"])
    assert show(place, "NRestarts", "ExecMainStatus") == ["0", "2"]
    assert "is recording here already" in place.run("cat", "/run/sexton-said")


@pytest.mark.whole
def test_the_drop_in_adds_one_capability_and_tracefs_needs_no_mount(place: Yard):
    install(place)
    root = Path(f"/proc/{place.pid}/root/run/systemd/system/{NAME}.d")
    root.mkdir()
    (root / "sys-admin.conf").write_text(DROP_IN)
    place.run("umount", "/sys/kernel/tracing")
    place.run("systemctl", "daemon-reload")
    start_and_wait(place)
    (pid,) = show(place, "MainPID")
    status = place.run("cat", f"/proc/{pid}/status")
    held = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    assert int(held, 16) == 1 << 21 | 1 << 34 | 1 << 38 | 1 << 39
    place.wait(
        "its events", lambda: "tracefs.cgroup_events" in state_of(place)["sources"].get("ok", ())
    )
    place.run("mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing")


def test_with_the_other_drop_in_it_serves_its_metrics_and_its_page(place: Yard):
    install(place, StandardError="file:/run/sexton-said")
    root = Path(f"/proc/{place.pid}/root/run/systemd/system/{NAME}.d")
    root.mkdir()
    command = re.search(r"^ExecStart=/usr/bin/sexton record .*$", LISTEN, re.MULTILINE)
    assert command is not None
    here = f"ExecStart={PYTHON} -B -m sexton record {STATE} --listen 127.0.0.1:0"
    (root / "listen.conf").write_text(LISTEN.replace(command[0], here))
    place.run("systemctl", "daemon-reload")
    start_and_wait(place)
    place.wait("its port", lambda: "metrics" in state_of(place)["companions"])
    address = state_of(place)["companions"]["metrics"]["address"]

    def answer(path: str) -> bytes:
        with contextlib.suppress(OSError), urlopen(f"http://{address}{path}", timeout=20) as found:
            return found.read()
        return b""

    place.wait("a verdict", lambda: b"\nsexton_verdict " in answer("/metrics"))
    assert b"\nsexton_recorder_up 1.0\n" in answer("/metrics")
    assert b"<html" in answer("/").lower()
    assert "sexton: warning" not in place.run("cat", "/run/sexton-said")
    place.run("systemctl", "stop", NAME)
    assert show(place, "ActiveState", "Result") == ["inactive", "success"]

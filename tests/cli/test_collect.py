"""`sexton collect`: the script runs for real, and what it wrote is read as if we had been there."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.cli.commands.collect import script
from sexton.cli.main import main
from sexton.host.archive import Snapshot, read_archive
from sexton.host.host import Host, open_host
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.net import NetDevice, Nic
from sexton.model.rows.task import Process, Thread
from sexton.model.window import Window
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of
from tests.support.tools import need

WALKING = ("memory.stat", "memory.numa_stat", "lru_gen")
NOBODY = 65534


@pytest.fixture(params=["dash", "busybox"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """A POSIX shell with the tools of a full host, and one with nothing but busybox's own."""
    if request.param == "dash":
        return [need("dash", package="dash"), "-s", "--"], {"PATH": "/usr/bin:/bin"}
    busybox = need("busybox", package="busybox-static")
    applets = tmp_path / "applets"
    applets.mkdir()
    subprocess.run([busybox, "--install", "-s", str(applets)], check=True)
    return [busybox, "sh", "-s", "--"], {"PATH": str(applets)}


def collect(
    argv: list[str], env: dict[str, str], *, seconds: int = 2, user: int | None = None
) -> list[Snapshot]:
    ended = subprocess.run(
        [*argv, str(seconds)],
        input=script().encode(),
        env=env,
        capture_output=True,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == b"", "quiet where nobody looks"
    return read_archive(io.BytesIO(ended.stdout))


def replay(snapshots: list[Snapshot]) -> Window:
    with Sampler(Host(snapshots[0].files, live=False)) as sampler:
        return sampler.replay(snapshots)


@pytest.mark.parametrize("user", [None, pytest.param(NOBODY, marks=pytest.mark.root)])
def test_a_collected_node_reads_like_the_live_one(shell, user: int | None):
    before = _live_now()
    snapshots = collect(*shell, user=user)
    assert len(snapshots) == 3
    assert [snapshot.moment for snapshot in snapshots] == sorted(
        snapshot.moment for snapshot in snapshots
    )
    assert snapshots[-1].moment[0] - snapshots[0].moment[0] >= 1.9
    window = replay(snapshots)
    kinds = (CoreTimes, CgroupCensus, NetDevice, Nic, Process)
    with Sampler(open_host(), sources_of(*kinds)) as sampler:
        live = sampler.run(0)
    broken = [state for state in window.states.values() if state.state in ("malformed", "failed")]
    assert not broken
    assert {row.cpu for row in window.latest(CoreTimes)} == {
        row.cpu for row in live.latest(CoreTimes)
    }
    assert len(window.batches(CoreTimes)) == 3
    (there,), (here,) = window.latest(CgroupCensus), live.latest(CgroupCensus)
    assert (there.hierarchy, there.version) == (here.hierarchy, here.version)
    assert there.mount_point == here.mount_point
    if here.live is not None:
        assert _still(before) <= {row.path for row in window.latest(CgroupDir)}
        assert len(window.latest(CgroupDir)) == there.live
    if user is None:
        assert there.scope == here.scope
    assert {row.name for row in window.latest(NetDevice)} == {
        row.name for row in live.latest(NetDevice)
    }
    assert window.node is not None
    assert window.node.kernel == os.uname().release


def _live_now() -> set[str]:
    with Sampler(open_host(), sources_of(CgroupDir)) as sampler:
        return {row.path for row in sampler.run(0).latest(CgroupDir) or ()}


def _still(before: set[str]) -> set[str]:
    """Cgroups that were there before and are there now: other tests make and remove some meanwhile.
    Without those of unprintable names, which busybox lists with question marks."""
    return {path for path in before & _live_now() if path.isprintable()}


def test_movement_is_seen_between_snapshots_down_to_the_thread(shell):
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        window = replay(collect(*shell))
    finally:
        burner.kill()
        burner.wait()
    burnt = [
        [row.user_ms for row in batch.rows if row.pid == burner.pid]
        for batch in window.batches(Process)
    ]
    assert burnt[0] < burnt[1] < burnt[2]
    threads = [
        [row for row in batch.rows if row.pid == burner.pid] for batch in window.batches(Thread)
    ]
    assert [len(rows) for rows in threads] == [0, 1, 1], "two readings make a difference"
    assert threads[2][0].user_ms > threads[1][0].user_ms


def test_a_hostile_process_name_arrives_whole(shell, tmp_path: Path):
    name = "a) R 1\nx"
    program = tmp_path / name
    shutil.copy(need("sleep", package="coreutils"), program)
    child = subprocess.Popen([str(program), "60"])
    try:
        window = replay(collect(*shell, seconds=1))
    finally:
        child.kill()
        child.wait()
    (row,) = [row for row in window.latest(Process) if row.pid == child.pid]
    assert row.comm == name


@pytest.fixture
def hostile_cgroup() -> Iterator[str]:
    with Sampler(open_host(), sources_of(CgroupCensus)) as sampler:
        (census,) = sampler.run(0).latest(CgroupCensus)
    top = f"{census.mount_point}/sexton-test-{os.getpid()}-collect"
    inner = os.fsencode(top) + b"/\xff\x1b[2J <b> x"
    os.mkdir(top)
    try:
        os.mkdir(inner)
        yield os.fsdecode(inner).removeprefix(census.mount_point or "")
        os.rmdir(inner)
    finally:
        os.rmdir(top)


@pytest.mark.root
def test_a_hostile_cgroup_name_arrives_whole(shell, hostile_cgroup: str):
    window = replay(collect(*shell, seconds=1))
    assert hostile_cgroup in {row.path for row in window.latest(CgroupDir)}


def test_nothing_that_walks_is_read_and_nothing_is_left_behind(shell, tmp_path: Path):
    argv, env = shell
    place = tmp_path / "tmp"
    place.mkdir()
    for snapshot in collect(argv, env | {"TMPDIR": str(place)}, seconds=1):
        for top in ("/sys/fs/cgroup", "/sys/kernel"):
            assert not _below(snapshot, top, WALKING)
    assert list(place.iterdir()) == []
    code = [line.strip() for line in script().splitlines() if not line.strip().startswith("#")]
    assert not [line for line in code if any(name in line for name in WALKING)]


def _below(snapshot: Snapshot, top: str, names: tuple[str, ...]) -> list[str]:
    entries = snapshot.files._entries  # type: ignore[attr-defined]
    return [path for path in entries if path.startswith(top) and path.endswith(names)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_without_leftovers(shell, tmp_path: Path, number: signal.Signals):
    argv, env = shell
    place = tmp_path / "tmp"
    place.mkdir()
    child = subprocess.Popen(
        [*argv, "30"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env | {"TMPDIR": str(place)},
        start_new_session=True,
    )
    assert child.stdin is not None
    child.stdin.write(script().encode())
    child.stdin.close()
    _wait_for(lambda: list(place.glob("sexton.*/1/bundle")))
    os.killpg(child.pid, number)
    assert child.wait(timeout=120) != 0
    _wait_for(lambda: not list(place.iterdir()))
    assert list(place.iterdir()) == []


def _wait_for(ready) -> None:
    deadline = time.monotonic() + 60
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.parametrize("wrong", ["x", "0", "-3", "99999", "1.5", "$(id)"])
def test_a_wrong_number_of_seconds_is_one_line(wrong: str):
    ended = subprocess.run(
        [need("dash", package="dash"), "-s", "--", wrong],
        input=script().encode(),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert len(ended.stderr.splitlines()) == 1


def test_a_missing_tool_is_named(tmp_path: Path):
    dash = need("dash", package="dash")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("cat", "find", "mkdir", "rm", "date", "sleep"):
        (tools / tool).symlink_to(need(tool, package="coreutils"))
    only_these = script().replace(":/usr/sbin:/usr/bin:/sbin:/bin", "")
    ended = subprocess.run(
        [dash, "-s"],
        input=only_these.encode(),
        env={"PATH": str(tools)},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr == b"sexton collect: this host has no 'tar'\n"


def test_the_barest_of_hosts_is_enough(tmp_path: Path):
    """No stat, head, timeout, dd, mktemp, readlink: every second way is gone."""
    busybox = need("busybox", package="busybox-static")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("cat", "ls", "find", "tar", "mkdir", "rm", "date", "sleep", "dmesg"):
        (tools / tool).symlink_to(busybox)
    only_these = script().replace(":/usr/sbin:/usr/bin:/sbin:/bin", "")
    before = _live_now()
    # A busybox shell runs its own applets unasked: dash knows none.
    ended = subprocess.run(
        [need("dash", package="dash"), "-s", "--", "1"],
        input=only_these.encode(),
        env={"PATH": str(tools)},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    window = replay(read_archive(io.BytesIO(ended.stdout)))
    (there,) = window.latest(CgroupCensus)
    assert {"/"} <= _still(before) <= {row.path for row in window.latest(CgroupDir)}
    assert len(window.latest(CgroupDir)) == there.live
    assert all(row.inode > 0 for row in window.latest(CgroupDir))


#: Functions whose names, or their beginnings, are programs too.
_NAMES = ("groups", "output", "has", "moved")


def test_a_script_cut_on_its_way_does_nothing(tmp_path: Path):
    dash = need("dash", package="dash")
    whole = script()
    cuts = {*range(0, len(whole) - 2, 997), *(whole.index(f"\n{name}()") + 3 for name in _NAMES)}
    for length in cuts | {len(whole) - 3}:
        ended = subprocess.run(
            [dash, "-s"],
            input=whole[:length].encode(),
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
            capture_output=True,
            check=False,
        )
        assert ended.stdout == b""
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_the_script_with_its_default(capsys: pytest.CaptureFixture[str]):
    assert main(["collect", "--seconds", "25"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("#!/bin/sh\n")
    assert "${SEXTON_SECONDS:-25}" in printed
    assert printed.endswith('main "$@" </dev/null\n\n}\n')


def test_the_command_refuses_a_wrong_default(capsys: pytest.CaptureFixture[str]):
    assert main(["collect", "--seconds", "0"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

"""The yard itself: it boots, it is private, and nothing of it stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.yard.yard import Yard, YardError

pytestmark = [pytest.mark.root, pytest.mark.systemd]


def test_systemd_is_pid_1_of_its_own_namespaces(yard: Yard):
    assert yard.run("cat", "/proc/1/comm").strip() == "systemd"
    for kind in ("mnt", "pid", "cgroup", "uts", "ipc"):
        assert os.readlink(f"/proc/{yard.pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")


def test_the_host_is_out_of_reach(yard: Yard):
    for path in ("/etc/sexton-was-here", "/usr/sexton-was-here", "/proc/sys/fs/nr_open"):
        with pytest.raises(YardError, match="Read-only file system"):
            yard.run("sh", "-c", f"echo 1 >{path}")
    yard.run("touch", "/run/sexton-was-here", "/tmp/sexton-was-here")
    assert not Path("/run/sexton-was-here").exists()
    assert not Path("/tmp/sexton-was-here").exists()


def test_it_lives_below_a_cgroup_of_its_own_in_every_hierarchy(yard: Yard):
    lines = Path(f"/proc/{yard.pid}/cgroup").read_text().splitlines()
    own = {path.name for path in yard.cgroups.values()}
    assert len(own) == 1
    mounted = [line for line in lines if not line.endswith(":/")]
    assert len(mounted) == len(yard.cgroups)
    assert all(line.split(":", 2)[2].startswith(f"/{next(iter(own))}") for line in mounted)


def test_nothing_of_it_stays(own_yard: Yard):
    pid, cgroups, base = own_yard.pid, dict(own_yard.cgroups), own_yard._base
    assert base is not None
    own_yard.run("systemd-run", "--quiet", "sleep", "1000")
    assert all(path.is_dir() for path in cgroups.values())
    own_yard.close()
    assert not Path(f"/proc/{pid}").exists()
    assert not any(path.exists() for path in cgroups.values())
    assert base.name not in Path("/proc/self/mountinfo").read_text()
    assert not base.exists()


def test_a_yard_that_cannot_boot_says_why_and_leaves_nothing(monkeypatch):
    monkeypatch.setattr("tests.yard.yard.SYSTEMD", Path("/bin/false"))
    broken = Yard()
    with pytest.raises(YardError, match="PID 1 ended"):
        broken.__enter__()
    assert broken.cgroups
    assert not any(path.exists() for path in broken.cgroups.values())

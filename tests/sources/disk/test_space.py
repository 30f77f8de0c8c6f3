"""Local filesystems: which are queried, the result, and one that does not answer."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.host.host import Host, open_host
from sexton.host.reader import LiveFiles
from sexton.sources.disk import space
from sexton.sources.disk.space import MOST, Filesystems, local, parse
from tests.support.fixtures import kernel_text


def parts(kernel: str) -> dict[str, str]:
    found = re.split(r"==> (\S+) <==\n", kernel_text("disk.space", kernel))[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def line(point: str, fstype: str, device: str = "8:1", options: str = "rw", state: str = "rw"):
    return f"30 1 {device} / {point} {options},relatime shared:1 - {fstype} /dev/sda1 {state}\n"


def test_disks_and_tmpfs_are_local_and_each_is_there_once():
    assert [found.mount_point for found in local(parts("6.12")["mountinfo"])] == [
        "/", "/dev/shm", "/run", "/run/lock"
    ]  # fmt: skip
    # A second tmpfs on /dev/shm hides the first.
    assert [(found.mount_point, found.device) for found in local(parts("6.18")["mountinfo"])] == [
        ("/", "254:0"), ("/dev/shm", "0:27")
    ]  # fmt: skip


def test_what_stat_says_of_a_real_node():
    found = parse(parts("6.18")["stat"])
    assert found["/"].available < found["/"].free < found["/"].total
    assert found["/dev/shm"].inodes == 3085512


@pytest.mark.parametrize(
    "fstype", ["nfs4", "fuse.sshfs", "fuseblk", "autofs", "cifs", "squashfs", "overlay", "iso9660"]
)
def test_what_may_hang_or_is_full_by_nature_is_not_queried(fstype):
    assert local(line("/mnt/a", fstype)) == []


def test_nothing_below_a_server_is_queried():
    text = (
        line("/mnt/nfs", "nfs4", "0:50") + line("/mnt/nfs/disk", "ext4") + line("/b", "xfs", "8:2")
    )
    assert [found.mount_point for found in local(text)] == ["/b"]


def test_a_bind_mount_is_the_same_filesystem():
    text = line("/var/lib/docker/x", "ext4", options="ro") + line("/", "ext4")
    (found,) = local(text)
    assert (found.mount_point, found.read_only, found.mount_read_only) == ("/", False, False)


@pytest.mark.parametrize("state", ["ro,errors=remount-ro", "rw,emergency_ro", "rw,shutdown"])
def test_a_filesystem_that_stopped_writing_is_read_only_in_a_writable_mount(state):
    (found,) = local(line("/data", "ext4", state=state))
    assert (found.read_only, found.mount_read_only) == (True, False)


def test_a_node_with_many_pods_is_bounded_and_disks_come_first():
    pods = "".join(line(f"/pods/{pod}", "tmpfs", f"0:{pod}") for pod in range(3 * MOST))
    found = local(pods + line("/zdata", "xfs"))
    assert len(found) == MOST
    assert found[0].mount_point == "/zdata"


@pytest.mark.parametrize("output", ["1 2 3\n", "a b c d e f /\n", "-1 2 3 4 5 6 /\n"])
def test_what_is_broken_is_malformed_and_not_zero(output):
    with pytest.raises(SourceMalformed):
        parse(output)


def test_this_machine_agrees_with_statvfs():
    rows = {row.mount_point: row for row in Filesystems(open_host()).collect()}
    shm = os.statvfs("/dev/shm")
    assert rows["/dev/shm"].total_bytes == shm.f_blocks * shm.f_frsize
    assert rows["/dev/shm"].inodes == shm.f_files
    disks = [row for row in rows.values() if row.fstype == "ext4" and row.mount_point == "/"]
    for row in disks:
        shown = subprocess.run(
            ["findmnt", "-no", "SOURCE", "/"], capture_output=True, text=True, check=False
        ).stdout
        assert not shown or row.device


def test_one_that_hangs_is_named_and_not_queried_again(monkeypatch):
    """A child that hangs for one mount point, as `stat` does on a dying disk."""
    script = (
        'for point; do [ "$point" = /hung ] && sleep 60;'
        ' stat -f -c "%S %b %f %a %c %d $point" -- /; done'
    )
    monkeypatch.setattr(space, "_COMMAND", ("sh", "-c", script, "sh"))
    monkeypatch.setattr(space, "_ALL_S", 0.3)
    monkeypatch.setattr(
        space, "local", lambda _: [space.Found(p, "8:1", "x", "xfs", False, False)
                                   for p in ("/", "/hung", "/z")]
    )  # fmt: skip
    source = Filesystems(open_host())
    first = {row.mount_point: row for row in source.collect()}
    assert [row.hung for row in first.values()] == [False, True, False]
    assert first["/"].total_bytes
    assert first["/hung"].total_bytes is None
    second = {row.mount_point: row for row in source.collect()}
    assert second["/hung"].hung
    assert second["/z"].total_bytes


def test_through_a_root_only_the_state_is_known():
    (row, *_) = Filesystems(Host(LiveFiles(), live=False)).collect()
    assert (row.total_bytes, row.hung) == (None, False)


@given(st.text(), st.text())
def test_junk_is_malformed_or_nothing(mountinfo, output):
    with contextlib.suppress(SourceMalformed):
        local(mountinfo)
    with contextlib.suppress(SourceMalformed):
        parse(output)

"""Reading files: bounded, never blocking, never outside the root, or kept open."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed
from sexton.host.host import open_host
from sexton.host.reader import HeldFiles, LiveFiles, RootedFiles, read_regular, room, text
from sexton.model.rows.task import Process
from sexton.sources.procfs.tasks import Tasks


@pytest.fixture(params=["live", "rooted"])
def place(request, tmp_path):
    """(files, directory on disk, that directory as the host calls it)."""
    inside = tmp_path / "tree"
    inside.mkdir()
    if request.param == "live":
        return LiveFiles(), inside, str(inside)
    return RootedFiles(str(inside)), inside, ""


def test_a_file_is_read_whole(place):
    files, disk, name = place
    (disk / "a").write_bytes(b"x" * 700_000)
    assert files.read(f"{name}/a") == b"x" * 700_000


def test_a_fifo_does_not_block_and_is_refused(place):
    files, disk, name = place
    os.mkfifo(disk / "pipe")
    with pytest.raises(SourceMalformed, match="not a regular file"):
        files.read(f"{name}/pipe")


def test_a_directory_is_not_a_file_and_a_file_not_a_directory(place):
    files, disk, name = place
    (disk / "d").mkdir()
    (disk / "f").write_text("")
    with pytest.raises(SourceMalformed, match="a directory"):
        files.read(f"{name}/d")
    with pytest.raises(SourceAbsent):
        files.names(f"{name}/f")
    with pytest.raises(SourceAbsent):
        files.read(f"{name}/f/deeper")


def test_more_than_the_limit_is_refused_and_the_limit_itself_is_not(place):
    files, disk, name = place
    (disk / "a").write_bytes(b"12345")
    assert files.read(f"{name}/a", 5) == b"12345"
    with pytest.raises(SourceMalformed, match="larger than 4 bytes"):
        files.read(f"{name}/a", 4)


def test_what_is_not_there_is_absent(place):
    files, _, name = place
    for ask in (files.read, files.names, files.link, files.status):
        with pytest.raises(SourceAbsent):
            ask(f"{name}/nothing/here")


def test_names_that_are_no_utf8_can_be_listed_opened_and_read(place):
    files, disk, name = place
    raw = b"caf\xe9 \x1b[2J"
    with open(os.fsencode(disk) + b"/" + raw, "wb") as file:
        file.write(b"\xff\n")
    (listed,) = files.names(name or "/")
    assert os.fsencode(listed) == raw
    assert text(files, f"{name}/{listed}") == "\udcff\n"


def test_status_does_not_follow_the_last_link(place):
    files, disk, name = place
    (disk / "d").mkdir()
    (disk / "d/e").mkdir()
    (disk / "l").symlink_to("d")
    assert files.status(f"{name}/d").is_dir
    assert files.status(f"{name}/d").inode == (disk / "d").stat().st_ino
    assert files.status(f"{name}/d/").links == (disk / "d").stat().st_nlink
    assert not files.status(f"{name}/l").is_dir
    assert files.link(f"{name}/l") == "d"


def test_what_is_no_link_has_no_target(place):
    files, disk, name = place
    (disk / "f").write_text("")
    with pytest.raises(SourceError):
        files.link(f"{name}/f")


def test_links_that_go_round_end(place):
    files, disk, name = place
    (disk / "a").symlink_to("b")
    (disk / "b").symlink_to("a")
    (disk / "self").symlink_to("self")
    for loop in ("a", "self", "a/x", "self/x/y"):
        with pytest.raises(SourceError):
            files.read(f"{name}/{loop}")


@pytest.fixture
def guarded(tmp_path):
    """A root, and a file outside it that must never be read."""
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/inner").write_text("inside")
    return RootedFiles(str(root)), root, tmp_path / "secret"


@pytest.mark.parametrize(
    "target",
    ["{secret}", "../secret", "../../secret", "/../../../../../../..{secret}", "etc/../../secret"],
)
def test_a_link_never_leads_out_of_the_root(guarded, target):
    files, root, secret = guarded
    (root / "out").symlink_to(target.format(secret=secret))
    with pytest.raises(SourceAbsent):
        files.read("/out")


def test_a_linked_directory_never_leads_out_of_the_root(guarded):
    files, root, secret = guarded
    (root / "up").symlink_to("../")
    (root / "abs").symlink_to(str(secret.parent))
    with pytest.raises(SourceAbsent):
        files.read("/up/secret")
    with pytest.raises(SourceAbsent):
        files.names("/abs")
    assert sorted(files.names("/up")) == ["abs", "etc", "up"], "`..` of the root is the root"
    assert files.names("/../../..") == files.names("/")


def test_absolute_links_start_at_the_root_as_they_would_on_that_host(guarded):
    files, root, _ = guarded
    (root / "usr").mkdir()
    (root / "usr/link").symlink_to("/etc/inner")
    (root / "deep").symlink_to("usr/../usr/./link")
    assert files.read("/deep") == b"inside"
    assert files.read("/usr/../../etc/inner") == b"inside"


def test_a_root_that_is_not_there_or_no_directory_is_absent(tmp_path):
    (tmp_path / "f").write_text("")
    for root in ("nothing", "f"):
        with pytest.raises(SourceAbsent):
            open_host(str(tmp_path / root))


def test_no_descriptor_is_left_open(guarded):
    files, root, _ = guarded
    (root / "loop").symlink_to("loop")
    before = len(os.listdir("/proc/self/fd"))
    files.read("/etc/inner")
    files.names("/etc")
    files.status("/etc/inner")
    for broken in ("/loop", "/etc", "/etc/inner/x", "/gone"):
        with pytest.raises(SourceError):
            files.read(broken)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_that_ended_is_absent_through_the_kernel_too():
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    with pytest.raises(SourceAbsent):
        LiveFiles().read(f"/proc/{child.pid}/stat")


def test_an_endless_device_is_refused():
    with pytest.raises(SourceMalformed, match="not a regular file"):
        LiveFiles().read("/dev/zero")


def status_as_nobody(check):
    """How `check` ends in a child without rights: 0 where nothing was raised."""
    pid = os.fork()
    if pid == 0:  # a fork and no new interpreter, which nobody might not be allowed to read
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            check()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_others_may_not_read_is_denied_and_not_absent():
    with tempfile.TemporaryDirectory() as root:  # pytest's own is closed to others
        os.chmod(root, 0o755)
        closed, locked = Path(root, "closed"), Path(root, "locked")
        closed.write_text("x")
        locked.mkdir()
        (locked / "f").write_text("x")
        closed.chmod(0)
        locked.chmod(0)

        def check():
            for files, prefix in ((LiveFiles(), root), (RootedFiles(root), "")):
                for ask, path in (
                    (files.read, "/closed"),
                    (files.read, "/locked/f"),
                    (files.names, "/locked"),
                    (files.status, "/locked/f"),
                ):
                    with pytest.raises(SourceDenied):
                        ask(prefix + path)

        try:
            assert status_as_nobody(check) == 0
        finally:
            locked.chmod(0o700)


def test_a_held_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_bytes(b"one")
    held = HeldFiles()
    assert held.read(str(path), 100) == b"one"
    path.write_bytes(b"two")
    assert held.read(str(path), 100) == b"two"
    assert len(held) == 1
    with pytest.raises(SourceMalformed, match="larger than 2"):
        held.read(str(path), 2)
    held.keep_only({str(tmp_path / "other")})
    assert len(held) == 0


def test_past_its_bound_files_are_opened_and_closed_as_ever(tmp_path: Path) -> None:
    held = HeldFiles(most=1)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
    assert [held.read(str(tmp_path / name), 10) for name in ("a", "b", "a", "b")] == [
        b"a", b"b", b"a", b"b",
    ]  # fmt: skip
    assert len(held) == 1
    held.close()


def test_what_is_not_there_is_absent_and_not_held(tmp_path: Path) -> None:
    held = HeldFiles()
    with pytest.raises(SourceAbsent):
        held.read(str(tmp_path / "nowhere"), 10)
    assert len(held) == 0


def test_a_process_that_ended_is_let_go_and_the_bound_leaves_room_for_others() -> None:
    assert room() <= 2048
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = HeldFiles()
    path = f"/proc/{child.pid}/stat"
    assert held.read(path, 4000).startswith(f"{child.pid} (".encode())
    child.communicate(b"\n")
    with pytest.raises(SourceAbsent):
        held.read(path, 4000)
    assert len(held) == 0


def test_a_lasting_host_keeps_processes_open_and_closes_them_in_the_end() -> None:
    host = open_host()
    host.lasting = True
    before = len(os.listdir("/proc/self/fd"))
    tasks = Tasks(host)
    first = [row for row in tasks.collect() if isinstance(row, Process)]
    assert len(os.listdir("/proc/self/fd")) > before
    again = [row for row in tasks.collect() if isinstance(row, Process)]
    assert {os.getpid(), 1} <= {row.pid for row in first} & {row.pid for row in again}
    tasks.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.root
@pytest.mark.parametrize("reader", ["root", "live"])
def test_a_device_is_looked_at_and_not_opened(tmp_path: Path, reader: str):
    """This one has no driver: opening it would be "No such device or address"."""
    try:
        os.mknod(tmp_path / "watchdog", stat.S_IFCHR | 0o600, os.makedev(511, 250))
    except PermissionError:
        pytest.skip("no devices may be made here")
    files = RootedFiles(str(tmp_path)) if reader == "root" else LiveFiles()
    path = "/watchdog" if reader == "root" else str(tmp_path / "watchdog")
    with pytest.raises(SourceMalformed, match="a device, not a regular file"):
        read_regular(files, path)

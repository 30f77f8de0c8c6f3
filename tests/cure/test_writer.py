"""The only code that changes a host: what it does, and all that it refuses to."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.cure.unit_files import (
    FILE,
    LINK,
    Entry,
    components,
    entry_from_json,
    entry_json,
    read_entry,
)
from sexton.cure.writer import (
    CUT,
    DONE,
    KILLED,
    REFUSED,
    STOPPED,
    DryWriter,
    LiveWriter,
    WriteLimits,
    unit_name,
    write_in_child,
)
from sexton.errors import CommandError, SourceAbsent
from sexton.host.host import open_host
from tests.support.zombies import scratch_cgroup

HOSTILE = [
    "\x1b[2J",
    b"\xff\xfe".decode("utf-8", "surrogateescape"),
    "<script>",
    "a b'\"$(x)",
    "-f",
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "system").mkdir()
    return tmp_path / "system"


@pytest.fixture
def writer(place: Path) -> LiveWriter:
    return LiveWriter(open_host(), (str(place),))


def test_only_this_machine_is_ever_changed(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        LiveWriter(open_host(str(tmp_path)))


@pytest.mark.root
def test_what_was_there_comes_back_to_the_last_bit(place: Path, writer: LiveWriter):
    file, link = place / "a.conf", place / "b.service"
    file.write_bytes(b"\xff\0x\r\n")
    file.chmod(0o640)
    os.chown(file, 12, 34)
    os.utime(file, ns=(5, 1_234_567_891))
    with contextlib.suppress(OSError):  # not every file system has them
        os.setxattr(file, "user.sexton", b"\0label")
    link.symlink_to("../gone")
    os.chown(link, 56, 78, follow_symlinks=False)
    os.utime(link, ns=(5, 9_876_543_210), follow_symlinks=False)
    before = [read_entry(str(path)) for path in (file, link)]
    assert all(before)
    file.unlink()
    link.unlink()
    kept = [entry_from_json(entry_json(entry)) for entry in before if entry]
    writer.write_file(kept[0].path, kept[0].content, kept[0])
    writer.make_link(kept[1].path, kept[1].target, kept[1])
    assert [read_entry(str(path)) for path in (file, link)] == before
    assert sorted(os.listdir(place)) == ["a.conf", "b.service"]
    assert file.stat().st_nlink == 1


def test_nothing_is_ever_overwritten(place: Path, writer: LiveWriter):
    path = str(place / "x")
    for make in (
        lambda path: Path(path).write_text("theirs"),
        lambda path: Path(path).symlink_to("theirs"),
        lambda path: Path(path).mkdir(),
    ):
        make(path)
        before = read_entry(path)
        for change in (
            lambda: writer.write_file(path, b"ours"),
            lambda: writer.make_link(path, "/dev/null"),
            lambda: writer.make_directory(path),
        ):
            with pytest.raises(CommandError, match="already exists"):
                change()
            assert read_entry(path) == before
        assert os.listdir(place) == ["x"]
        Path(path).rmdir() if before and before.kind == "directory" else Path(path).unlink()


def test_only_what_it_is_believed_to_be_is_removed(place: Path, writer: LiveWriter):
    (place / "f").write_text("theirs")
    (place / "l").symlink_to("/theirs")
    (place / "d").mkdir()
    (place / "d" / "in it").touch()
    for change in (
        lambda: writer.remove_file(str(place / "f"), b"ours"),
        lambda: writer.remove_link(str(place / "l"), "/dev/null"),
        lambda: writer.remove_file(str(place / "l"), b"theirs"),
        lambda: writer.remove_link(str(place / "f"), "theirs"),
        lambda: writer.remove_directory(str(place / "d")),
    ):
        with pytest.raises(CommandError, match="not removed"):
            change()
    with pytest.raises(CommandError, match="no longer exists"):
        writer.remove_link(str(place / "never"), "x")
    writer.remove_file(str(place / "f"), b"theirs")
    writer.remove_link(str(place / "l"), "/theirs")
    assert os.listdir(place) == ["d"]


def test_a_place_that_is_not_of_units_is_refused(place: Path, tmp_path: Path, writer: LiveWriter):
    (tmp_path / "else").mkdir()
    (place / "a" / "b").mkdir(parents=True)
    inside = [tmp_path / "else/x", place / "a/b/too-deep", place, Path("/etc/passwd")]
    for path in [*map(str, inside), f"{place}/../else/x", "relative", f"{place}//x", f"{place}/."]:
        for change in (
            lambda path=path: writer.write_file(path, b"x"),
            lambda path=path: writer.make_link(path, "x"),
            lambda path=path: writer.remove_link(path, "x"),
            lambda path=path: writer.remove_file(path, b"x"),
        ):
            with pytest.raises(CommandError, match="refused"):
                change()
    assert os.listdir(tmp_path / "else") == []


def test_a_link_on_the_way_is_not_followed(place: Path, tmp_path: Path, writer: LiveWriter):
    (tmp_path / "else").mkdir()
    (place / "x.service.d").symlink_to(tmp_path / "else")
    with pytest.raises(CommandError, match=r"x\.service\.d is a link; refused"):
        writer.write_file(str(place / "x.service.d" / "a.conf"), b"x")
    with pytest.raises(CommandError, match="is a link"):
        writer.remove_directory(str(place / "x.service.d" / "sub"))
    assert os.listdir(tmp_path / "else") == []
    os.rename(place, tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    with pytest.raises(CommandError, match="system is a link; refused"):
        writer.make_link(str(place / "y"), "/dev/null")


@pytest.mark.parametrize("what", ["write_file", "make_link"])
def test_killed_half_way_there_is_nothing_or_all_of_it(place: Path, what: str):
    """Killed right before it gets its name: then nothing is there, and one sweeps up after it."""
    path = str(place / "a.conf")
    code = f"""
import os, sys
from sexton.cure.writer import LiveWriter
from sexton.host.host import open_host
os.link = lambda *a, **k: os.kill(os.getpid(), 9)
writer = LiveWriter(open_host(), ({str(place)!r},))
writer.{what}({path!r}, {"b'whole'" if what == "write_file" else "'/dev/null'"})
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert read_entry(path) is None
    assert os.listdir(place) == [".a.conf.sexton-new"]
    writer = LiveWriter(open_host(), (str(place),))
    writer.sweep(path)
    writer.sweep(path)
    assert os.listdir(place) == []
    writer.write_file(path, b"whole")
    assert os.listdir(place) == ["a.conf"]


@given(st.text(max_size=40))
def test_a_path_is_plain_or_refused(junk: str):
    try:
        parts = components(f"/etc/{junk}")
    except CommandError:
        return
    assert "/".join(("", *parts)) == f"/etc/{junk}"
    assert not {"", ".", ".."} & set(parts)


@given(st.text(max_size=60))
def test_a_name_is_a_units_or_refused(junk: str):
    for name in (junk, f"{junk}.service"):
        try:
            assert unit_name(name) == name
        except CommandError:
            continue
        assert not set(name) & set("*?[]/ \t\n\0'\"$`;&|<>(){}~!#%")


@pytest.mark.parametrize(
    "args",
    [
        ("mask", "a.service"),
        ("stop",),
        ("stop", "*.service"),
        ("stop", "-H", "elsewhere", "a.service"),
        ("stop", "--root=/x", "a.service"),
        ("stop", "a.service", "b"),
        ("daemon-reload", "a.service"),
        ("start", "../a.service"),
        ("stop", "a.service\n"),
        (),
    ],
)
def test_a_call_of_systemctl_that_is_not_on_the_list_is_refused(args: tuple[str, ...]):
    dry = DryWriter()
    for writer in (dry, LiveWriter(open_host())):
        with pytest.raises(CommandError):
            writer.systemctl(*args)
    assert dry.actions == []


def test_a_dry_writer_changes_nothing_and_remembers(place: Path):
    dry = DryWriter()
    dry.make_link(f"{place}/a", "/dev/null")
    dry.write_file(f"{place}/b", b"x")
    dry.systemctl("stop", "a.service")
    assert (
        dry.write_control("/sys/fs/cgroup/x/memory.reclaim", "1", WriteLimits(1)).how == "dry run"
    )
    assert [deed.verb for deed in dry.actions] == [
        "make link",
        "write file",
        "systemctl",
        "write control file",
    ]
    assert os.listdir(place) == []
    with pytest.raises(CommandError, match="refused"):
        dry.remove_cgroup("/sys/fs/cgroup/../x")


# Orders, given by a child.


@contextlib.contextmanager
def blocked() -> Iterator[int]:
    """A descriptor on which a write waits for ever."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(theirs, bytes(4096))
    os.set_blocking(theirs, True)
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def children() -> list[int]:
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            found += Path(f"/proc/self/task/{task}/children").read_text().split()
    return [int(pid) for pid in found]


def test_an_order_is_written_as_it_is_and_the_kernels_no_is_told(tmp_path: Path):
    file = os.open(tmp_path / "control", os.O_WRONLY | os.O_CREAT)
    came = write_in_child(file, "1048576 swappiness=0", WriteLimits(20))
    os.close(file)
    assert (came.how, came.error) == (DONE, 0)
    assert (tmp_path / "control").read_text() == "1048576 swappiness=0"
    full = os.open("/dev/full", os.O_WRONLY)
    came = write_in_child(full, "0", WriteLimits(20))
    os.close(full)
    assert (came.how, came.why) == (REFUSED, "refused: No space left on device")


def test_an_order_is_killed_at_its_deadline_and_leaves_no_process():
    before = children()
    with blocked() as descriptor:
        began = time.monotonic()
        came = write_in_child(descriptor, "0", WriteLimits(0.3))
        assert came.how == KILLED
        assert 0.3 <= came.seconds <= time.monotonic() - began
    assert children() == before


def test_an_order_is_given_nicely_on_the_cores_it_may_use_and_called_off():
    core = max(os.sched_getaffinity(0))
    seen: list[tuple[set[int], int]] = []

    def keep_going() -> bool:
        for pid in children():
            with contextlib.suppress(OSError):
                if b"signal.SIG_DFL" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    nice = os.getpriority(os.PRIO_PROCESS, pid)
                    seen.append((os.sched_getaffinity(pid), nice))
        return ({core}, 19) not in seen

    with blocked() as descriptor:
        came = write_in_child(descriptor, "0", WriteLimits(20, frozenset({core}), keep_going))
    assert came.how == STOPPED
    assert seen[-1] == ({core}, 19)


def test_an_order_without_a_measure_is_cut_into_bites_of_work():
    """Waiting is not working, so a write that only waits is cut off when that takes too long."""
    with blocked() as descriptor:
        came = write_in_child(descriptor, "0", WriteLimits(30, cpu_limit_s=0.001))
    assert (came.how, came.error) == (CUT, 0)
    assert came.cpu_s < 0.1 <= came.seconds
    zero = os.open("/dev/null", os.O_WRONLY)
    for _ in range(10):  # an end just in time is none that was cut
        assert write_in_child(zero, "0", WriteLimits(30, cpu_limit_s=1e-6)).how in (DONE, CUT)
    os.close(zero)


def test_whoever_kills_us_ends_the_order():
    code = """
import os, sys
from sexton.cure.writer import WriteLimits, write_in_child
def keep_going():
    for task in os.listdir("/proc/self/task"):
        for pid in open(f"/proc/self/task/{task}/children").read().split():
            if b"signal.SIG_DFL" in open(f"/proc/{pid}/cmdline", "rb").read():
                print(pid, flush=True)
    return True
write_in_child(int(sys.argv[1]), "0", WriteLimits(60, None, keep_going, 0.2))
"""
    with blocked() as descriptor:
        argv = [sys.executable, "-c", code, str(descriptor)]
        one = subprocess.Popen(argv, stdout=subprocess.PIPE, pass_fds=[descriptor])
        assert one.stdout is not None
        pid = int(one.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        one.stdout.readline()  # said twice: by now it has asked the kernel to watch over us
        one.kill()
        one.wait()
        one.stdout.close()
        end = time.monotonic() + 20
        while _runs(pid) and time.monotonic() < end:
            time.sleep(0.02)
        assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# Cgroups.


@pytest.mark.root
@pytest.mark.parametrize("name", ["plain", *HOSTILE])
def test_an_empty_cgroup_is_removed_whatever_its_name(name: str):
    with scratch_cgroup() as (_, parent):
        (parent / name).mkdir()
        LiveWriter(open_host()).remove_cgroup(f"{parent}/{name}")
        assert not (parent / name).exists()


@pytest.mark.root
@pytest.mark.parametrize("left_over", [False, True])
def test_a_cgroup_that_is_made_is_removed_whoever_made_it(left_over: bool):
    with scratch_cgroup() as (_, parent):
        if left_over:  # by a child that was killed in between
            (parent / "new").mkdir()
        writer = LiveWriter(open_host())

        def number_of(name: str) -> int:  # kernfs numbers what is made, one after the other
            (parent / name).mkdir()
            return (parent / name).stat().st_ino

        first, second = number_of("a"), number_of("b")
        writer.make_and_remove_cgroup(f"{parent}/new")
        assert sorted(path.name for path in parent.iterdir() if path.is_dir()) == ["a", "b"]
        if not left_over:
            assert number_of("c") - second >= 2 * (second - first)


@pytest.mark.root
def test_no_directory_is_made_outside_a_cgroup_hierarchy(tmp_path: Path):
    with pytest.raises(CommandError, match="not in a cgroup hierarchy"):
        LiveWriter(open_host()).make_and_remove_cgroup(f"{tmp_path}/new")


@pytest.mark.root
def test_a_cgroup_with_a_process_in_it_stays():
    with scratch_cgroup() as (_, parent):
        (parent / "home").mkdir()
        child = subprocess.Popen(["sleep", "60"])
        try:
            (parent / "home" / "cgroup.procs").write_text(str(child.pid))
            with pytest.raises(CommandError, match="in use, the kernel refused"):
                LiveWriter(open_host()).remove_cgroup(f"{parent}/home")
            assert child.poll() is None
            assert (parent / "home" / "cgroup.procs").read_text().split() == [str(child.pid)]
        finally:
            child.kill()
            child.wait()


@pytest.mark.root
def test_no_other_file_of_a_cgroup_is_ever_written(tmp_path: Path):
    writer = LiveWriter(open_host())
    with scratch_cgroup() as (layout, parent):
        for name in ("cgroup.procs", "memory.limit_in_bytes", "memory.max", "notify_on_release"):
            with pytest.raises(CommandError, match="not an allowed control file"):
                writer.write_control(f"{parent}/{name}", "0", WriteLimits(1))
        with pytest.raises(CommandError, match="No such file"):
            writer.write_control(f"{parent}/gone/memory.reclaim", "0", WriteLimits(1))
        for path in (f"{layout.mount_point}", "/proc/sys/vm/swappiness", str(tmp_path)):
            with pytest.raises(CommandError, match="not in a cgroup hierarchy"):
                writer.remove_cgroup(path)
    (tmp_path / "memory.reclaim").touch()
    with pytest.raises(CommandError, match="not in a cgroup hierarchy"):
        writer.write_control(f"{tmp_path}/memory.reclaim", "0", WriteLimits(1))
    assert (tmp_path / "memory.reclaim").read_text() == ""


def test_an_entry_that_is_none_is_refused():
    good = entry_json(Entry("/a", LINK, target="b"))
    for broken in (
        {},
        {**good, "kind": "joke"},
        {**good, "content": "%%%"},
        {**good, "attributes": 5},
        {**good, "mode": None},
        {**good, "path": 7},
    ):
        with pytest.raises(CommandError, match="malformed file entry"):
            entry_from_json(broken)
    assert entry_from_json(good).kind == LINK
    assert entry_from_json(entry_json(Entry("/a", FILE, content=b"\xff"))).content == b"\xff"

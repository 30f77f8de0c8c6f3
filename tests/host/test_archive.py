"""The tar of `sexton collect`: what a good one gives, and that a bad one is one clear line."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.errors import (
    SourceAbsent,
    SourceDenied,
    SourceError,
    SourceMalformed,
    SourceTimeout,
    StoreError,
)
from sexton.host import archive, tar
from sexton.host.archive import ArchiveFiles, read_archive
from sexton.host.reader import Directory, text, walk
from tests.support.examples import examples

MANIFEST = b"sexton.collect/1\nsnapshots 1\n"
MARK = "5d1fcb0e-7a2d-4b8e-9a41-2f5f6e1c9d10"


def bundle(*entries: tuple[str, str, bytes], end: bool = True) -> bytes:
    body = f"sexton.bundle/1 {MARK}\n".encode()
    for kind, path, content in entries:
        name = path.encode("utf-8", "surrogateescape")
        body += b"\n" + MARK.encode() + f" {kind} ".encode() + name + b"\n" + content
    return body + (f"\n{MARK} end\n".encode() if end else b"")


CLOCK = ("file", "/commands/clock", b"100.5 1700000000")


def pack(*members: tuple[str, bytes] | tarfile.TarInfo, manifest: bytes = MANIFEST) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member in [("manifest", manifest), *members]:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            name, content = member
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def read(content: bytes) -> list[archive.Snapshot]:
    return read_archive(io.BytesIO(content))


def one(*entries: tuple[str, str, bytes]) -> ArchiveFiles:
    (snapshot,) = read(pack(("./1/bundle", bundle(CLOCK, *entries))))
    assert isinstance(snapshot.files, ArchiveFiles)
    return snapshot.files


def refused(content: bytes) -> str:
    with pytest.raises(StoreError) as caught:
        read(content)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def test_snapshots_come_in_order_with_their_moments_over_what_they_share():
    content = pack(
        ("./2/bundle", bundle(("file", "/commands/clock", b"110 1700000010\n"))),
        ("./0/bundle", bundle(("file", "/etc/os-release", b"ID=debian\n"))),
        ("./1/bundle", bundle(CLOCK, ("file", "/proc/stat", b"cpu0 1\n"))),
        manifest=b"sexton.collect/1\nsnapshots 2\n",
    )
    first, second = read(content)
    assert (first.moment, second.moment) == ((100.5, 1.7e9), (110.0, 1700000010.0))
    assert first.files.read("/proc/stat") == b"cpu0 1\n"
    assert first.files.read("/etc/os-release") == second.files.read("/etc/os-release")
    with pytest.raises(SourceAbsent):
        second.files.read("/proc/stat")


def test_a_gzipped_archive_and_plain_members_are_read_too():
    link = special("1/sys/class/net/eth0", tarfile.SYMTYPE, "../../devices/x/eth0")
    content = pack(("1/commands/clock", b"1 2"), ("1/sys/devices/x/eth0/operstate", b"up\n"), link)
    (snapshot,) = read(gzip.compress(content))
    assert text(snapshot.files, "/sys/class/net/eth0/operstate") == "up\n"
    assert snapshot.files.link("/sys/class/net/eth0") == "../../devices/x/eth0"


def test_contents_are_kept_byte_by_byte_whatever_they_hold():
    hostile = b"a\n\n" + MARK.encode()[:-1] + b" file /x\n\xff\x1b[2J without a newline at the end"
    files = one(("file", "/proc/7/stat", hostile), ("file", "/proc/8/stat", b""))
    assert files.read("/proc/7/stat") == hostile
    assert files.read("/proc/8/stat") == b""
    assert sorted(files.names("/proc")) == ["7", "8"]


def test_names_that_are_no_utf8_survive():
    path = b"/sys/fs/cgroup/\xff\x1b<script> x".decode("utf-8", "surrogateescape")
    files = one(("dir", "", f"7 2 {path}\n".encode("utf-8", "surrogateescape")))
    assert [node.path for node in walk(files, "/sys/fs/cgroup")] == [
        "/",
        path.removeprefix("/sys/fs/cgroup"),
    ]


def test_directories_keep_their_inode_and_their_count_of_children():
    listed = b"1 3 /sys/fs/cgroup\n9 3 /sys/fs/cgroup/a\n12 2 /sys/fs/cgroup/a/b\nnonsense\n"
    files = one(("dir", "", listed), ("file", "/sys/fs/cgroup/a/cgroup.stat", b"x"))
    assert files.status("/sys/fs/cgroup/a").inode == 9
    assert files.status("/sys/fs/cgroup/a").links == 3
    assert list(walk(files, "/sys/fs/cgroup")) == [
        Directory("/", 1, 1),
        Directory("/a", 9, 1),
        Directory("/a/b", 12, 0),
    ]


def test_absent_denied_and_wrong_are_three_answers():
    files = one(("denied", "/commands/kmsg", b""), ("file", "/proc/stat", b"x"))
    with pytest.raises(SourceAbsent):
        files.read("/proc/vmstat")
    with pytest.raises(SourceDenied):
        files.read("/commands/kmsg")
    with pytest.raises(SourceMalformed):
        files.read("/proc")
    with pytest.raises(SourceMalformed):
        files.link("/proc/stat")
    with pytest.raises(SourceAbsent):
        files.status("/nothing")


def test_a_program_that_did_not_end_in_time_is_neither_absent_nor_half_believed():
    files = one(("late", "/commands/systemctl_show", b""))
    assert not files.status("/commands/systemctl_show").is_dir
    with pytest.raises(SourceTimeout, match="in time"):
        files.read("/commands/systemctl_show")


def test_a_file_that_was_cut_is_malformed_and_not_half_believed():
    files = one(("file", "/proc/interrupts", b"x" * (archive.FILE_LIMIT + 1)))
    with pytest.raises(SourceMalformed, match="larger"):
        files.read("/proc/interrupts", 1 << 30)


def test_links_are_followed_inside_and_lead_nowhere_outside():
    files = one(
        ("link", "/sys/class/net/eth0", b"../../devices/pci0/virtio2/net/eth0"),
        ("link", "/sys/devices/pci0/virtio2/net/eth0/device", b"../../../virtio2"),
        ("file", "/sys/devices/pci0/msi_irqs/37", b"msix\n"),
        ("link", "/proc/out", b"../../../../../../etc/passwd"),
        ("link", "/proc/absolute", b"/etc/passwd"),
        ("link", "/proc/round", b"/proc/round"),
    )
    # as in the kernel, .. goes up from where the link points
    assert files.names("/sys/class/net/eth0/device/../msi_irqs") == ["37"]
    assert not files.status("/sys/class/net/eth0").is_dir
    for path in ("/proc/out", "/proc/absolute", "/proc/round", "/../../etc/passwd"):
        with pytest.raises(SourceAbsent):
            files.read(path)


def test_the_last_of_two_members_of_one_name_wins():
    content = pack(("1/commands/clock", b"1 2"), ("1/proc/stat", b"old"), ("1/proc/stat", b"new"))
    assert read(content)[0].files.read("/proc/stat") == b"new"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"bash: line 1: sh: command not found\n", "not a tar"),
        (b"\x1f\x8bnonsense", "damaged"),
        (pack(manifest=b"something else\n"), "no sexton.collect/1 manifest"),
        (pack(), "truncated"),
        (pack(("1/bundle", bundle(CLOCK, end=False))), "truncated"),
        (pack(("1/bundle", b"sexton.bundle/9 xxxxxxxxx\n")), "bundle"),
        (pack(("1/bundle", bundle())), "without a time"),
        (pack(("1/commands/clock", b"nan 5")), "impossible"),
        (pack(("1/commands/clock", b"yesterday")), "without a time"),
        (pack(("/etc/passwd", b"x")), "points outside"),
        (pack(("1/../../etc/passwd", b"x")), "points outside"),
        (pack(special("1/x", tarfile.LNKTYPE, "manifest")), "not a plain file"),
        (pack(special("1/x", tarfile.CHRTYPE)), "not a plain file"),
        (pack(special("1/x", tarfile.FIFOTYPE)), "not a plain file"),
    ],
)
def test_a_bad_archive_is_one_clear_line(content: bytes, says: str):
    assert says in refused(content)


def test_every_truncation_is_noticed():
    whole = pack(("1/bundle", bundle(CLOCK, ("file", "/proc/stat", b"x" * 3000))))
    end = whole.rindex(f"{MARK} end".encode())
    for length in range(0, end, 97):
        refused(whole[:length])
    packed = gzip.compress(whole)
    for length in range(0, len(packed) - 9, 23):
        refused(packed[:length])


def test_a_bomb_is_refused_while_it_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive, "MOST_BYTES", 1 << 20)
    bomb = gzip.compress(pack(("1/proc/stat", b"\0" * (4 << 20))))
    assert len(bomb) < 1 << 16
    assert "larger than" in refused(bomb) or "more than" in refused(bomb)
    monkeypatch.setattr(archive, "MOST_NAMES", 10)
    assert "more than 10 names" in refused(pack(*((f"1/{number}", b"") for number in range(20))))


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_junk_is_refused_or_read_and_never_a_crash(data: st.DataObject):
    good = pack(
        ("1/bundle", bundle(CLOCK, ("link", "/a", b"b"), ("dir", "", b"1 2 /c\n"))),
        special("1/l", tarfile.SYMTYPE, "/x"),
    )
    start = data.draw(st.integers(0, len(good)))
    cut = data.draw(st.integers(0, 600))
    junk = good[:start] + data.draw(st.binary(max_size=60)) + good[start + cut :]
    try:
        snapshots = read(junk)
    except StoreError:
        return
    for snapshot in snapshots:
        for path in ("/a", "/c", "/l", "/", "/commands/clock"):
            for look in (snapshot.files.read, snapshot.files.names, snapshot.files.status):
                with contextlib.suppress(SourceError):
                    look(path)


def peak_bytes(content: bytes) -> int:
    """What Python allocates at most while it reads this, or refuses it."""
    tracemalloc.start()
    try:
        with contextlib.suppress(StoreError):
            read(content)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_path_of_many_levels_takes_no_memory_for_each_of_them():
    """523 bytes took 3.6 GB: every level is a directory, with the whole way to it as its name."""
    for kind, path, value in (
        ("file", "/a" * 60_000, b""),
        ("dir", "", b"1 2 " + b"/a" * 60_000),
        ("link", "/x", b"a/" * 60_000),
    ):
        bad = gzip.compress(pack(("1/bundle", bundle(CLOCK, (kind, path, value)))))
        assert len(bad) < 1024
        assert "bytes" in refused(bad)
        assert peak_bytes(bad) < 5 << 20
    assert "a path of" in refused(pack(("1/" + "a/" * 30_000 + "x", b"")))
    deep = one(("file", "/a" * archive.MOST_DEPTH, b"x"))
    assert deep.read("/a" * archive.MOST_DEPTH) == b"x"


def test_many_deep_paths_are_refused_by_what_they_would_take_together():
    lines = b"".join(
        b"1 2 /%d%s\n" % (number, b"/aaaaaaaaaaaaaaaa" * 120) for number in range(2000)
    )
    bad = gzip.compress(pack(("1/bundle", bundle(CLOCK, ("dir", "", lines)))))
    assert "96 MB of names" in refused(bad)


def test_what_the_snapshots_share_is_there_once_however_many_they_are():
    """465 kB took 1.7 GB: each of 99 snapshots had a copy of it."""
    shared = b"".join(b"%d 2 /sys/fs/cgroup/%05d\n" % (number, number) for number in range(5000))
    moments = [
        (f"{number}/bundle", bundle(("file", "/commands/clock", b"%d 17" % number)))
        for number in range(1, 100)
    ]
    everyone = pack(
        ("0/bundle", bundle(("dir", "", shared))),
        *moments,
        manifest=b"sexton.collect/1\nsnapshots 99\n",
    )
    assert peak_bytes(everyone) < 12 << 20
    last = read(everyone)[-1].files
    assert len(last.names("/sys/fs/cgroup")) == 5000
    assert last.status("/sys/fs/cgroup/00017").inode == 17


def test_what_a_snapshot_has_itself_hides_what_all_share():
    content = pack(
        ("0/bundle", bundle(("denied", "/a", b""), ("file", "/b", b"old"), ("file", "/d/x", b""))),
        ("1/bundle", bundle(CLOCK, ("file", "/a", b"new"), ("file", "/b", b"new"))),
        ("1/d/y", b""),
    )
    files = read(content)[0].files
    assert (files.read("/a"), files.read("/b")) == (b"new", b"new")
    assert sorted(files.names("/d")) == ["x", "y"]


def header(name: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("digits", [20, 60_000])
def test_a_pax_record_of_many_digits_costs_no_time(digits: int):
    """`int` takes quadratic time, and `tarfile` gave it the whole record."""
    record = b"9" * digits
    block = header("x", digits, tarfile.XHDTYPE) + record + bytes(-digits % 512)
    assert "pax record" in refused(pack()[:1024] + 5 * block)


def test_pax_records_are_counted_over_all_members(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tar, "MOST_RECORDS", 1000)
    record = b"6 a=b\n" * 85
    block = header("x", len(record), tarfile.XHDTYPE) + record + bytes(-len(record) % 512)
    assert "more than 1,000 pax records" in refused(pack()[:1024] + 20 * block)


def test_lines_that_name_nothing_are_counted_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive, "MOST_LINES", 1000)
    assert "1,000 lines" in refused(pack(("1/bundle", bundle(CLOCK, ("dir", "", b"\n" * 2000)))))
    many = [("nothing", "", b"")] * 2000
    assert "1,000 lines" in refused(pack(("1/bundle", bundle(CLOCK, *many))))


def test_an_archive_without_its_end_is_refused():
    whole = pack(("1/commands/clock", b"1 2"), ("1/proc/stat", b"x"))
    assert "end marker" in refused(whole.rstrip(b"\0")[: 6 * 512].ljust(6 * 512, b"\0"))

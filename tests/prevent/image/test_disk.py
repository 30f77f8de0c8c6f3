"""Disk images: real file systems made by mke2fs, partition tables, and damaged ones."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import stat
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceError, SourceMalformed, StoreError
from sexton.prevent.image import Image, ext4
from sexton.prevent.image.disk import Slice
from sexton.prevent.image.ext4 import Ext4Files
from sexton.prevent.image.ext4_layout import INDEXED
from tests.support.examples import examples
from tests.support.tools import need

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with all that a reader may trip over."""
    root = tmp_path_factory.mktemp("tree")
    units = root / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    (root / "etc/many").mkdir(parents=True)
    os.symlink("usr/lib", root / "lib")
    os.symlink("/etc/real", root / "etc/absolute")
    os.symlink("../../../../etc/real", root / "etc/upwards")
    os.symlink("/etc/" + "x" * 100 + "/../real", root / "etc/long")
    os.symlink("loop", root / "etc/loop")
    os.symlink("/etc/hostname", root / "etc/outside")
    (root / "etc/real").write_text("here\n")
    (root / ("etc/" + "x" * 100)).mkdir()
    (units / "a.service").write_text("[Service]\n")
    for number in range(1200):
        (root / f"etc/many/unit-{number:04}.service").touch()
    (root / "etc/large").write_bytes(random.Random(1).randbytes(1_500_000))
    with (root / "etc/sparse").open("wb") as stream:
        stream.truncate(10 << 30)
        stream.seek(7 << 20)
        stream.write(b"z")
    with (root / "etc/holes").open("wb") as stream:
        stream.write(b"a" * 5000)
        stream.seek(300_000)
        stream.write(b"b" * 5000)
    os.mkfifo(root / "etc/fifo")
    (root / "etc" / os.fsdecode(b"\xff\x1b[2J")).write_text("strange")
    return root


@pytest.fixture(scope="module")
def make(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    need("mke2fs", package="e2fsprogs")

    def made(*options: str) -> Path:
        path = tmp_path_factory.mktemp("disk") / "image"
        subprocess.run(
            ["mke2fs", "-q", "-F", *options, "-d", str(tree), str(path), "20M"], check=True
        )
        return path

    return made


KINDS = {
    "ext4": ("-t", "ext4", "-b", "4096"),
    "ext4 with blocks of 1 kB": ("-t", "ext4", "-b", "1024"),
    "ext4 of 32 bits": ("-t", "ext4", "-O", "^64bit,^metadata_csum"),
    "ext3": ("-t", "ext3"),
    "ext2 with blocks of 1 kB": ("-t", "ext2", "-b", "1024"),
    "ext4 with inline data": ("-t", "ext4", "-O", "inline_data", "-I", "256", "-b", "4096"),
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_every_file_is_as_it_was_put_in(make: Make, tree: Path, options: tuple[str, ...]):
    with Image(str(make(*options))) as image:
        files = image.files
        assert image.kind == "a disk image, the whole image"
        assert files.read("/etc/large") == (tree / "etc/large").read_bytes()
        assert files.read("/etc/holes") == (tree / "etc/holes").read_bytes()
        assert set(files.names("/etc/many")) == set(os.listdir(tree / "etc/many"))
        assert files.read("/lib/systemd/system/a.service") == b"[Service]\n"
        for name in ("absolute", "upwards", "long"):
            assert files.read(f"/etc/{name}") == b"here\n", name
        assert files.link("/etc/long") == "/etc/" + "x" * 100 + "/../real"
        assert files.status("/etc/many").is_dir
        assert not files.status("/lib").is_dir, "the link itself"
        strange = os.fsdecode(b"\xff\x1b[2J")
        assert strange in files.names("/etc")
        assert files.read(f"/etc/{strange}") == b"strange"


def test_what_is_no_plain_small_file_is_refused(make: Make):
    with Image(str(make("-t", "ext4"))) as image:
        files = image.files
        for path, why in (
            ("/etc/fifo", "not a regular file"),
            ("/etc", "a directory"),
            ("/etc/sparse", "larger"),
            ("/etc/loop", "Too many levels"),
        ):
            with pytest.raises(SourceMalformed, match=why):
                files.read(path)
        with pytest.raises(SourceMalformed, match="larger"):
            files.read("/etc/large", 1000)
        for path in ("/etc/missing", "/etc/real/x", "/etc/outside", "/etc/real/../real"):
            with pytest.raises(SourceAbsent):
                files.read(path)
        with pytest.raises(SourceMalformed, match="not a link"):
            files.link("/etc/real")


def test_a_directory_of_too_many_names_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ext4, "MOST_NAMES", 100)
    refused = pytest.raises(SourceMalformed, match="more than 100 names")
    with Image(str(make("-t", "ext4"))) as image, refused:
        image.files.names("/etc/many")


def test_it_says_what_debugfs_says(make: Make):
    need("debugfs", package="e2fsprogs")
    path = make("-t", "ext4")
    output = subprocess.run(
        ["debugfs", "-R", "stat /etc/many/unit-0042.service", str(path)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    with Image(str(path)) as image:
        inode = image.files.status("/etc/many/unit-0042.service").inode
    assert output.startswith(f"Inode: {inode} ")


def gpt(path: Path, whole: Path, first: int) -> None:
    """A disk with a small empty partition and one with the file system."""
    with path.open("wb") as disk:
        disk.seek(512)
        header = struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, 1, 0, 34, 0,
                             bytes(16), 2, 128, 128, 0)  # fmt: skip
        disk.write(header)
        disk.seek(1024)
        for start in (34, first):
            disk.write(b"\x01" * 32 + struct.pack("<QQQ", start, start + 100, 0) + bytes(72))
        disk.seek(first * 512)
        disk.write(whole.read_bytes())


def test_the_root_is_found_behind_a_gpt(make: Make, tmp_path: Path):
    gpt(tmp_path / "disk", make("-t", "ext4"), 2048)
    with Image(str(tmp_path / "disk")) as image:
        assert image.kind == "a disk image, partition 2"
        assert image.files.read("/etc/real") == b"here\n"


def test_the_root_is_found_behind_an_old_table(make: Make, tmp_path: Path):
    table = bytearray(512)
    struct.pack_into("<4xB3xII", table, 446, 0x83, 2048, 131072)
    table[510:] = b"\x55\xaa"
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(table) + bytes(2047 * 512) + make("-t", "ext4").read_bytes())
    with Image(str(disk)) as image:
        assert image.kind == "a disk image, partition 1"


@pytest.mark.parametrize(
    ("offset", "magic", "words"),
    [
        (0, b"QFI\xfb", "a qcow2 disk.*qemu-img convert"),
        (0, b"QED\0", "a QED disk.*qemu-img convert"),
        (0, b"KDMV", "a VMware disk.*qemu-img convert"),
        (0, b"# Disk DescriptorFile\nversion=1\n", "a VMware disk descriptor.*qemu-img convert"),
        (0, b"vhdxfile", "a VHDX disk.*qemu-img convert"),
        (0, b"conectix", "a VHD disk.*qemu-img convert"),
        (64, b"\x7f\x10\xda\xbe", "a VirtualBox disk.*qemu-img convert"),
        (0, b"XFSB", "an XFS file system.*virt-tar-out"),
        (0x10040, b"_BHRfS_M", "a btrfs file system.*virt-tar-out"),
        (512, b"LABELONE", "an LVM volume.*virt-tar-out"),
        (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system.*virt-tar-out"),
        (0, b"hsqs", "a squashfs file system.*unsquashfs -d DIR"),
        (0, b"LUKS\xba\xbe", "LUKS.*cryptsetup open --readonly"),
        (0, b"070701", "a cpio archive.*cpio -idm"),
        (0, b"#!/bin/sh\n", "not a directory, a tar"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_way_out(
    tmp_path: Path, offset: int, magic: bytes, words: str
):
    raw = bytearray(1 << 18)
    raw[offset : offset + len(magic)] = magic
    (tmp_path / "disk").write_bytes(raw)
    with pytest.raises(StoreError, match=words):
        Image(str(tmp_path / "disk"))


def test_a_partition_that_cannot_be_read_is_named(tmp_path: Path):
    strange = tmp_path / "strange"
    strange.write_bytes(b"XFSB" + bytes(1 << 18))
    gpt(tmp_path / "disk", strange, 2048)
    with pytest.raises(StoreError, match=r"\(partition 2: an XFS file system\).*virt-tar-out"):
        Image(str(tmp_path / "disk"))


@pytest.mark.parametrize("sector", [512, 4096])
def test_an_image_that_ends_inside_its_partition_table_is_damaged(tmp_path: Path, sector: int):
    """Fewer bytes than the fields that are read of a table's header."""
    (tmp_path / "disk").write_bytes(bytes(sector) + b"EFI PART" + bytes(76))
    with pytest.raises(StoreError, match="ends inside its partition table"):
        Image(str(tmp_path / "disk"))


def test_what_was_opened_is_closed_where_it_is_no_image(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"QFI\xfb" + bytes(5000))
    held = len(os.listdir("/proc/self/fd"))
    for path in (tmp_path / "x", tmp_path / "missing"):
        with pytest.raises(StoreError):
            Image(str(path))
    with pytest.raises(StoreError, match="image path is empty"):
        Image("")
    assert len(os.listdir("/proc/self/fd")) == held


def test_a_data_disk_is_no_root(tmp_path: Path):
    need("mke2fs", package="e2fsprogs")
    subprocess.run(["mke2fs", "-q", "-F", str(tmp_path / "disk"), "1M"], check=True)
    with pytest.raises(StoreError, match="not a root"):
        Image(str(tmp_path / "disk"))


def test_a_journal_that_was_not_played_back_is_said(make: Make):
    path = make("-t", "ext3")
    raw = bytearray(path.read_bytes())
    features = struct.unpack_from("<I", raw, 1024 + 96)[0]
    struct.pack_into("<I", raw, 1024 + 96, features | 0x4)
    path.write_bytes(raw)
    with Image(str(path)) as image:
        assert "journal" in image.unread[0]


@pytest.mark.parametrize("kind", ["fifo", "missing", "empty"])
def test_other_things_are_refused_in_words(tmp_path: Path, kind: str):
    path = tmp_path / "it"
    if kind == "fifo":
        os.mkfifo(path)
        assert stat.S_ISFIFO(path.stat().st_mode)
    elif kind == "empty":
        path.touch()
    with pytest.raises(StoreError, match=r"not a directory|No such file|empty"):
        Image(str(path))


def look_at_everything(files: Ext4Files) -> None:
    """Every way in; whatever is damaged must say so."""
    files.check()
    for path in ("/", "/etc", "/etc/many", "/etc/large", "/etc/long", "/lib/systemd/system",
                 "/etc/holes", "/etc/upwards"):  # fmt: skip
        for look in (files.names, files.read, files.link, files.status):
            with contextlib.suppress(SourceError):
                look(path)


@pytest.fixture(scope="module")
def small(make: Make) -> list[bytes]:
    plain = make("-t", "ext4", "-O", "^metadata_csum").read_bytes()
    return [make("-t", "ext4").read_bytes(), plain, make("-t", "ext2", "-b", "1024").read_bytes()]


class Damaged:
    """An image with some bytes changed, without a copy of it."""

    def __init__(self, raw: bytes, changed: dict[int, bytes]) -> None:
        self.raw, self.changed = raw, changed

    def at(self, offset: int, size: int) -> bytes:
        assert size < 1 << 26, "no damaged number may ask for so much"
        if offset < 0 or offset + size > len(self.raw):
            raise StoreError("the image is shorter than its file system says")
        found = bytearray(self.raw[offset : offset + size])
        for place, new in self.changed.items():
            start = place - offset
            if -len(new) < start < size:
                kept = new[max(-start, 0) : size - start]
                found[max(start, 0) : max(start, 0) + len(kept)] = kept
        return bytes(found)


@settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_junk_in_a_file_system_is_said_and_never_followed_for_ever(small, data):
    raw = data.draw(st.sampled_from(small))
    # Where the metadata is: the superblock, descriptors, inode tables and directories.
    places = st.one_of(st.integers(1024, 2047), st.integers(2048, 1 << 20))
    changed = data.draw(st.dictionaries(places, st.binary(min_size=1, max_size=8), max_size=60))
    with contextlib.suppress(StoreError):
        look_at_everything(Ext4Files(Damaged(raw, changed)))


def test_an_extent_tree_in_a_circle_ends(make: Make):
    """A node that names itself as its child."""
    raw = make("-t", "ext4", "-b", "4096", "-O", "^metadata_csum").read_bytes()
    at = raw.find(Ext4Files(Damaged(raw, {}))._find("/etc/large").block)
    block = 4000
    node = struct.pack("<HHHHI", 0xF30A, 1, 4, 1, 0) + struct.pack("<IIHH", 0, block, 0, 0)
    circle = Ext4Files(Damaged(raw, {at: node, block * 4096: node}))
    with pytest.raises(SourceMalformed, match="loop in an extent tree"):
        circle.read("/etc/large")


def test_a_slice_past_the_end_is_an_error_and_not_zeros(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"abc")
    with (tmp_path / "x").open("rb") as stream, pytest.raises(StoreError, match="truncated"):
        Slice(stream.fileno()).at(1, 10)


def said(raw: bytes, changed: dict[int, bytes], path: str = "/etc/many") -> list[str]:
    """What the reader cannot vouch for once it has listed a directory, as `gate` does."""
    try:
        files = Ext4Files(Damaged(raw, changed))
    except StoreError as error:
        return [str(error)]
    files.check()
    with contextlib.suppress(SourceError):
        files.names(path)
    return files.unread


def names_of(raw: bytes, changed: dict[int, bytes], path: str = "/etc/many") -> list[str]:
    return Ext4Files(Damaged(raw, changed)).names(path)


def record_of(raw: bytes, name: bytes, inode: int | None = None) -> int:
    """Where the directory record of this name is."""
    found = raw.find(name)
    while raw[found - 2] != len(name) or inode not in (
        None,
        struct.unpack_from("<I", raw, found - 8)[0],
    ):
        found = raw.find(name, found + 1)
    return found - 8


@pytest.mark.parametrize(
    "options", [("-t", "ext4"), ("-t", "ext4", "-O", "^metadata_csum"), ("-t", "ext2")]
)
def test_four_changed_bytes_hide_no_names(make: Make, options: tuple[str, ...]):
    """The length of one record: too small for what follows, or so large that it swallows it."""
    raw = make(*options, "-b", "4096").read_bytes()
    at = record_of(raw, b"unit-0600.service")
    rest = 4096 - at % 4096 - (12 if "^metadata_csum" not in options and "ext4" in options else 0)
    assert len(names_of(raw, {})) == 1200
    assert said(raw, {}) == []
    for length in (0, 3, 8, 13, rest, rest + 4, 65535):
        (line, *_) = said(raw, {at + 4: struct.pack("<H", length)})
        assert "damaged ext4" in line
    with pytest.raises(SourceMalformed, match="damaged ext4"):
        names_of(raw, {at: b"\xff\xff\xff\x7f"})


#: What a few changed bytes of a directory record turn it into: the record's place and the inode of
#: another file (or directory) give the bytes and where they go.
CHANGES = {
    "no inode": lambda at, other: {at: bytes(4)},
    "the inode of another": lambda at, other: {at: struct.pack("<I", other)},
    "a free inode": lambda at, other: {at: struct.pack("<I", 5000)},
    "a reserved inode": lambda at, other: {at: struct.pack("<I", 8)},
    "another type": lambda at, other: {at + 7: b"\x07"},
    "no type": lambda at, other: {at + 7: b"\0"},
}
FORMATS = {
    "ext4": ("-t", "ext4"),
    "ext4 without checksums": ("-t", "ext4", "-O", "^metadata_csum"),
    "ext4 of 2010": ("-t", "ext4", "-O", "^metadata_csum,^64bit,uninit_bg"),
    "ext4, inline": ("-t", "ext4", "-O", "^metadata_csum,inline_data", "-I", "256"),
    "ext3": ("-t", "ext3"),
    "ext2": ("-t", "ext2"),
    "ext2 of 2000": ("-t", "ext2", "-O", "none", "-I", "128"),
}


@pytest.fixture(scope="module")
def made(make: Make) -> Callable[[str], bytes]:
    return functools.cache(lambda name: make(*FORMATS[name], "-b", "4096").read_bytes())


@pytest.mark.parametrize(
    "features",
    ["quota,project", "orphan_file", "ea_inode", "bigalloc", "sparse_super2", "casefold"],
)
def test_inodes_of_the_file_system_itself_need_no_name(make: Make, features: str):
    raw = make("-t", "ext4", "-O", f"^metadata_csum,{features}").read_bytes()
    assert said(raw, {}) == []


def test_a_directory_of_too_many_subdirectories_counts_no_links(made):
    """Its number of links is 1, where the file system may do that (dir_nlink)."""
    for form, whole in (("ext4 without checksums", True), ("ext2", False)):
        raw = made(form)
        block = Ext4Files(Damaged(raw, {}))._find("/usr/lib").block
        lines = said(raw, {raw.find(block) - 14: struct.pack("<H", 1)})
        assert (lines == []) == whole, form


@pytest.mark.parametrize("form", FORMATS)
def test_an_undamaged_file_system_is_whole_with_and_without_checksums(made, form: str):
    files = Ext4Files(Damaged(made(form), {}))
    notes = files.check()
    assert [bool("no checksums" in note) for note in notes] == ([] if form == "ext4" else [True])
    assert files.unread == []
    assert len(files.names("/etc/many")) == 1200


@pytest.mark.parametrize(
    ("form", "change"),
    [
        (form, change)
        for form, change in itertools.product(FORMATS, CHANGES)
        if form != "ext2 of 2000" or "type" not in change  # its records have none
    ],
)
@pytest.mark.parametrize("name", ["unit-0600.service", "system"])
def test_a_changed_record_hides_nothing(made, form: str, name: str, change: str):
    """`system`: one of four bytes, and all units are gone."""
    raw = made(form)
    intact = Ext4Files(Damaged(raw, {}))
    other, parent = "/etc/" + "x" * 100, "/usr/lib/systemd"
    if name != "system":
        other, parent = "/etc/many/unit-0601.service", "/etc/many"
    inode = intact.status(f"{parent}/{name}").inode
    at = record_of(raw, name.encode(), inode)
    changed = CHANGES[change](at, intact.status(other).inode)
    assert any("damaged ext4" in line for line in said(raw, changed, parent))


@pytest.mark.parametrize("form", [form for form in FORMATS if "inline" not in form])
@pytest.mark.parametrize("which", [".", ".."])
def test_a_directory_in_the_place_of_another_is_damage(made, form: str, which: str):
    """Its first block now belongs to another directory, or its parent does."""
    raw = made(form)
    intact = Ext4Files(Damaged(raw, {}))
    place, other = intact._find("/usr/lib/systemd/system"), intact._find("/etc/many")
    start = next(piece for piece in intact._mapped(place, 1)).start * 4096
    at = start if which == "." else start + 12
    changed = {at: struct.pack("<I", other.number)}
    assert any("damaged ext4" in line for line in said(raw, changed, "/usr/lib/systemd/system"))


@pytest.mark.parametrize("options", [("-t", "ext4"), ("-t", "ext3"), ("-t", "ext2")])
def test_a_directory_whose_inode_says_less_hides_no_names(make: Make, options: tuple[str, ...]):
    raw = make(*options, "-b", "4096").read_bytes()
    files = Ext4Files(Damaged(raw, {}))
    inode = files._find("/etc/many")
    at = raw.find(inode.block) - 40
    size = struct.pack("<I", 4096)
    # Its size, and what maps its blocks.
    for changed in ({at + 4: size}, {at + 40: bytes(4)}, {at + 40 + 20: bytes(8)}):
        assert any("damaged ext4" in line for line in said(raw, changed))


def test_every_changed_byte_of_a_directory_with_checksums_is_noticed(make: Make):
    raw = make("-t", "ext4", "-b", "1024").read_bytes()
    block = record_of(raw, b"unit-0600.service") // 1024 * 1024
    for at in range(block, block + 1024, 7):
        with pytest.raises(SourceMalformed, match="wrong checksum of a directory"):
            names_of(raw, {at: bytes([raw[at] ^ 0x40])})
    with pytest.raises(StoreError, match="wrong checksum of the superblock"):
        names_of(raw, {1024 + 120: b"x"})
    with pytest.raises(StoreError, match="wrong checksum of a group descriptor"):
        names_of(raw, {2048 + 12: b"\xff"})


@pytest.mark.parametrize("options", [("-t", "ext4"), ("-t", "ext3")])
def test_an_indexed_directory_is_read_and_its_index_checked(make: Make, options: tuple[str, ...]):
    check = need("e2fsck", package="e2fsprogs")
    path = make(*options, "-b", "1024")
    subprocess.run([check, "-fyD", path], stdout=subprocess.DEVNULL)
    raw = path.read_bytes()
    files = Ext4Files(Damaged(raw, {}))
    inode = files._find("/etc/many")
    assert inode.flags & INDEXED
    assert len(files.names("/etc/many")) == 1200
    if options[1] == "ext4":
        start = next(iter(files._extents(inode))).start * 1024
        with pytest.raises(SourceMalformed, match="wrong checksum of a directory"):
            names_of(raw, {start + 40: b"\xff\xff"})


@pytest.mark.parametrize("options", [("-t", "ext4"), ("-t", "ext3")])
def test_files_that_were_deleted_or_renamed_are_no_damage(make: Make, options: tuple[str, ...]):
    """Their names stay in unused space, and an inode may be in use again under another name."""
    debugfs = need("debugfs", package="e2fsprogs")
    path = make(*options, "-b", "4096")
    orders = [
        *(f"rm /etc/many/unit-{number:04}.service" for number in range(300, 330)),
        "ln /etc/many/unit-0400.service /etc/renamed",
        "unlink /etc/many/unit-0400.service",
    ]
    for order in orders[-2:]:
        subprocess.run([debugfs, "-w", "-R", order, path], check=True, capture_output=True)
    subprocess.run(
        [debugfs, "-w", "-f", "/dev/stdin", path],
        input="\n".join(orders[:-2]), text=True, check=True, capture_output=True,
    )  # fmt: skip
    with Image(str(path)) as image:
        assert len(image.files.names("/etc/many")) == 1200 - 31
        assert image.unread == []


def test_a_file_system_with_errors_is_not_read_as_whole(make: Make):
    path = make("-t", "ext3")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<H", raw, 1024 + 58, 3)
    path.write_bytes(raw)
    with Image(str(path)) as image:
        assert "marked as having errors" in image.unread[0]


def test_a_damaged_root_directory_is_said_to_be_one(make: Make):
    path = make("-t", "ext4", "-b", "4096")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"lost+found") - 4] ^= 4
    path.write_bytes(raw)
    with pytest.raises(StoreError, match="wrong checksum of a directory"):
        Image(str(path))

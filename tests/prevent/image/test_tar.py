"""Tars: real ones in every packing, and those that were made to hurt."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed, StoreError
from sexton.host import tar as host_tar
from sexton.prevent.image import tar
from sexton.prevent.image.tar import TarImage, read_tar
from tests.support.examples import examples
from tests.support.tools import need


def member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", link: str = "") -> tuple:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


def packed(*members: tuple, form: int = tarfile.PAX_FORMAT) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as out:
        for info, content in members:
            out.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def read(raw: bytes) -> TarImage:
    return read_tar(io.BytesIO(raw))


UNIT = member("./etc/systemd/system/a.service", content=b"[Service]\n")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_packing_and_form_is_read(pack, form):
    long = "usr/lib/systemd/system/" + "x" * 140 + ".service"
    raw = packed(UNIT, *([member(long, content=b"long")] if form else []), form=form)
    files = read(pack(raw)).files
    assert files.read("/etc/systemd/system/a.service") == b"[Service]\n"
    if form:
        assert files.read("/" + long) == b"long"


def test_what_tar_itself_writes_is_read(tmp_path: Path):
    need("tar", package="tar")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/unit").write_text("x")
    (tmp_path / "etc/link").symlink_to("/etc/unit")
    (tmp_path / "etc/hard").hardlink_to(tmp_path / "etc/unit")
    with (tmp_path / "etc/sparse").open("wb") as stream:
        stream.truncate(10 << 30)
        stream.seek(5 << 30)
        stream.write(b"y")
    for form in ("gnu", "posix"):
        out = tmp_path.parent / f"{tmp_path.name}-{form}.tar"
        subprocess.run(
            ["tar", "-S", f"--format={form}", "-C", str(tmp_path), "-cf", str(out), "."], check=True
        )
        with out.open("rb") as stream:
            files = read_tar(stream).files
        assert files.read("/etc/link") == files.read("/etc/hard") == b"x"
        with pytest.raises(SourceMalformed, match="sparse"):
            files.read("/etc/sparse")


def test_members_that_lead_out_are_left_out_and_counted():
    found = read(packed(UNIT, member("../../etc/shadow", content=b"x"), member("a/../../b")))
    assert found.notes == ("2 members skipped: .. in their names",)
    assert found.files.names("/") == ["etc"]


def test_an_absolute_name_begins_at_the_trees_root():
    files = read(packed(member("/etc/passwd", content=b"root"))).files
    assert files.read("/etc/passwd") == b"root"


def test_a_hard_link_outwards_shares_nothing():
    for target in ("/etc/shadow", "../../etc/shadow", "etc/missing"):
        files = read(packed(UNIT, member("etc/x", tarfile.LNKTYPE, link=target))).files
        with pytest.raises(SourceMalformed):
            files.read("/etc/x")


def test_a_link_outwards_leads_nowhere():
    files = read(packed(UNIT, member("etc/x", tarfile.SYMTYPE, link="../../../etc/hostname"))).files
    with pytest.raises(SourceAbsent):
        files.read("/etc/x")
    assert files.link("/etc/x") == "../../../etc/hostname"


def test_links_in_a_circle_end():
    circle = [
        member("etc/a", tarfile.SYMTYPE, link="b"),
        member("etc/b", tarfile.SYMTYPE, link="a"),
    ]
    with pytest.raises(SourceAbsent):
        read(packed(UNIT, *circle)).files.read("/etc/a")


def test_the_later_member_of_a_name_counts():
    name = "etc/systemd/system/a.service"
    files = read(packed(UNIT, member(name, tarfile.SYMTYPE, link="/dev/null"))).files
    assert files.link("/" + name) == "/dev/null"
    files = read(packed(member(name, tarfile.SYMTYPE, link="/dev/null"), UNIT)).files
    assert files.read("/" + name) == b"[Service]\n"


def test_devices_and_fifos_are_names():
    files = read(
        packed(UNIT, member("etc/d", tarfile.CHRTYPE), member("etc/f", tarfile.FIFOTYPE))
    ).files
    for name in ("d", "f"):
        with pytest.raises(SourceMalformed, match=r"device|FIFO"):
            files.read(f"/etc/{name}")
    assert not files.status("/etc/d").is_dir


def test_a_huge_unit_file_is_a_name():
    files = read(packed(UNIT, member("etc/big", content=bytes(tar.MOST_FILE + 1)))).files
    with pytest.raises(SourceMalformed, match="larger"):
        files.read("/etc/big")


KUBELET = member("opt/k8s/kubelet.yaml", content=b"kind: KubeletConfiguration\n")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_another_small_file_is_looked_up_when_it_is_asked_for(pack):
    before, after = (member(f"usr/{name}", content=name.encode() * 900) for name in ("a", "b"))
    hard = member("opt/k8s/same.yaml", tarfile.LNKTYPE, link="opt/k8s/kubelet.yaml")
    files = read(pack(packed(before, KUBELET, UNIT, hard, after))).files
    assert not files.status("/opt/k8s/kubelet.yaml").is_dir
    for _ in range(2):
        assert files.read("/opt/k8s/kubelet.yaml") == b"kind: KubeletConfiguration\n"
    assert files.read("/opt/k8s/same.yaml") == b"kind: KubeletConfiguration\n"
    assert files.read("/usr/b") == b"b" * 900
    with pytest.raises(SourceMalformed, match="larger than 10 bytes"):
        files.read("/usr/a", 10)


def test_a_packed_tar_is_unpacked_again_only_so_often(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tar, "MOST_FETCHES", 1)
    others = [member(f"opt/{name}", content=b"x") for name in "ab"]
    files = read(gzip.compress(packed(UNIT, *others))).files
    assert files.read("/opt/a") == b"x"
    with pytest.raises(SourceMalformed, match="in a compressed tar"):
        files.read("/opt/b")
    files = read(packed(UNIT, *others)).files
    assert files.read("/opt/a") == files.read("/opt/b") == b"x", "a plain one costs a seek"


def test_one_that_was_cut_short_since_says_so():
    raw = io.BytesIO(packed(UNIT, KUBELET))
    files = read_tar(raw).files
    raw.truncate(600)
    with pytest.raises(SourceMalformed, match=r"damaged|cut short"):
        files.read("/opt/k8s/kubelet.yaml")


@pytest.mark.parametrize(
    "name", ["boot/grub2/grub.cfg", "boot/loader/entries/a.conf", "home/kubernetes/k.yaml"]
)
def test_how_it_boots_is_kept(name: str):
    assert read(gzip.compress(packed(member(name, content=b"x")))).files.content(f"/{name}") == b"x"


def test_absurd_names_are_left_out_and_counted():
    deep = "etc/" + "a/" * 2000 + "b"
    wide = "etc/" + "a" * 5000
    found = read(packed(UNIT, member(deep), member(wide)))
    assert found.notes == ("2 members skipped: names too long or too deep",)


def test_a_name_that_asks_for_much_memory_is_refused():
    huge = member("etc/" + "a" * 200_000)
    with pytest.raises(StoreError, match="a name with"):
        read(packed(UNIT, huge))


def test_a_header_that_lies_about_its_size_does_not_get_it():
    raw = bytearray(packed(member("etc/x", content=b"y")))
    lying = tarfile.TarInfo("etc/x")
    lying.size = 1 << 40
    raw[:512] = lying.tobuf(tarfile.GNU_FORMAT)[:512]
    with pytest.raises(StoreError):
        read(bytes(raw))


def test_a_bomb_of_zeros_is_passed_over_and_not_kept(monkeypatch: pytest.MonkeyPatch):
    raw = packed(member("var/zeros", content=bytes(64 << 20)), UNIT)
    assert read(gzip.compress(raw, 1)).files.read("/etc/systemd/system/a.service")
    monkeypatch.setattr(host_tar, "MOST_STREAM", 32 << 20)
    with pytest.raises(StoreError, match="larger than"):
        read(gzip.compress(raw, 1))


def test_too_many_members_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_tar, "MOST_MEMBERS", 3)
    with pytest.raises(StoreError, match="more than 3"):
        read(packed(*[member(f"etc/{number}") for number in range(5)]))


def test_too_much_to_keep_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tar, "MOST_KEPT", 1000)
    with pytest.raises(StoreError, match="configuration files"):
        read(packed(*[member(f"etc/{number}", content=bytes(400)) for number in range(3)]))


@pytest.mark.parametrize("cut", [700, 1500, 2600])
def test_a_tar_cut_short_is_said_to_be(cut: int):
    raw = packed(member("etc/a", content=bytes(1024)), member("etc/b", content=b"y" * 600))
    with pytest.raises(StoreError, match=r"cut short|damaged"):
        read(raw[:cut])
    with pytest.raises(StoreError, match=r"cut short|damaged"):
        read(gzip.compress(raw)[:-20])


def test_layers_of_a_container_image_are_named_with_the_way_out():
    with pytest.raises(StoreError, match="docker export"):
        read(packed(member("manifest.json", content=b"[]"), member("abc/layer.tar", content=b"x")))


@pytest.mark.parametrize("name", ["node.ovf", "disk.raw", "box.img"])
def test_a_disk_in_a_tar_is_named_with_the_way_out(name: str):
    with pytest.raises(
        StoreError, match=rf"holds a disk image \({name}\): tar -xf FILE, then qemu-img"
    ):
        read(packed(member(name, content=b"x"), member("metadata.json")))
    read(packed(member(name, content=b"x"), UNIT))


@pytest.mark.parametrize(
    ("start", "way"),
    [
        (b"\x28\xb5\x2f\xfd", "zstd, which is not supported: run zstd -d FILE"),
        (b"\x04\x22\x4d\x18", "lz4, which is not supported: run lz4 -d FILE"),
        (b"LZIP", "lzip, which is not supported: run lzip -d FILE"),
        (b"PK\x03\x04", "zip, which is not supported: run unzip FILE"),
    ],
)
def test_other_packings_are_named(start: bytes, way: str):
    with pytest.raises(StoreError, match=way):
        read(start + bytes(600))


@pytest.mark.parametrize(
    ("pack", "way"), [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2"), (lzma.compress, "unxz")]
)
def test_a_packed_disk_is_to_be_unpacked_first(pack, way: str):
    with pytest.raises(StoreError, match=rf"but not a tar: run {way} FILE and use the result"):
        read(pack(bytes(1 << 16)))


@pytest.mark.parametrize("program", ["zstd", "lz4"])
def test_what_the_packers_themselves_write_is_named(program: str, tmp_path: Path):
    if shutil.which(program) is None:
        return  # the marks above are the same
    raw = subprocess.run([program, "-qc"], input=packed(UNIT), capture_output=True, check=True)
    with pytest.raises(StoreError, match=f"{program} -d FILE"):
        read(raw.stdout)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_junk_in_a_tar_is_refused_in_words_or_read(data):
    raw = bytearray(
        packed(UNIT, member("etc/link", tarfile.SYMTYPE, link="a"), form=tarfile.GNU_FORMAT)
    )
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    # With the checksum made right again, so that the junk is looked at.
    for start in range(0, len(raw) - 511, 512):
        block = raw[start : start + 512]
        if block[257:262] == b"ustar":
            total = sum(block[:148]) + sum(block[156:]) + 8 * 32
            raw[start + 148 : start + 156] = b"%06o\0 " % total
    try:
        files = read(bytes(raw)).files
        for name in files.names("/"):
            files.status("/" + name)
    except (StoreError, SourceAbsent, SourceMalformed):
        pass


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_bomb_is_refused_by_its_ratio_over_all_passes(pack, monkeypatch: pytest.MonkeyPatch):
    """1.3 kB of bzip2 took 25 s: they unpack to more than a gigabyte."""
    monkeypatch.setattr(host_tar, "FREE_BYTES", 1 << 20)
    bomb = pack(packed(member("var/zeros", content=bytes(16 << 20)), KUBELET))
    with pytest.raises(StoreError, match="more than 100 times its size"):
        read(bomb)
    monkeypatch.setattr(host_tar, "FREE_BYTES", 17 << 20)
    files = read(bomb).files
    with pytest.raises(SourceMalformed, match="more than 100 times its size"):
        files.read("/opt/k8s/kubelet.yaml")


def test_a_tar_that_ends_between_two_members_is_not_whole():
    raw = packed(UNIT, KUBELET)
    assert read(raw).incomplete == ""
    assert "without its end marker" in read(raw[:1024]).incomplete
    assert "half an end marker" in read(raw[: 2048 + 512]).incomplete
    assert "without its end marker" in read(gzip.compress(raw[:1024])).incomplete
    overwritten = raw[:1024] + bytes(1024) + raw[1024:]
    assert "goes on after its end" in read(overwritten).incomplete


@pytest.mark.parametrize("cut", [1, 200, 511])
def test_a_small_member_that_was_cut_is_not_taken_for_a_shorter_one(cut: int):
    with pytest.raises(StoreError, match="ends inside a member"):
        read(packed(UNIT)[: 1024 - cut])

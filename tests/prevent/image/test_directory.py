"""Directories that somebody made to hurt whoever reads them."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from sexton.errors import SourceAbsent, SourceError, SourceMalformed
from sexton.prevent import image
from sexton.prevent.image import ImageDirectory


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "image"
    (root / "etc").mkdir(parents=True)
    (tmp_path / "secret").write_text("the host's own")
    return root


def test_a_file_is_read_and_a_missing_one_is_absent(tree: Path):
    (tree / "etc/os-release").write_text("ID=debian\n")
    files = ImageDirectory(str(tree))
    assert files.read("/etc/os-release") == b"ID=debian\n"
    with pytest.raises(SourceAbsent):
        files.read("/etc/passwd")


@pytest.mark.parametrize("target", ["/secret", "../../secret", "../../../../../../../../secret"])
def test_a_link_to_the_hosts_files_leads_nowhere(tree: Path, target: str):
    outside = str(tree.parent / "secret") if target == "/secret" else target
    os.symlink(outside, tree / "etc/shadow")
    with pytest.raises(SourceAbsent):
        ImageDirectory(str(tree)).read("/etc/shadow")


def test_an_absolute_link_is_the_images_own(tree: Path):
    os.symlink("/etc/real", tree / "etc/alias")
    (tree / "etc/real").write_text("inside")
    assert ImageDirectory(str(tree)).read("/etc/alias") == b"inside"


def test_a_linked_directory_does_not_lead_out_either(tree: Path):
    os.symlink(str(tree.parent), tree / "etc/systemd")
    with pytest.raises(SourceAbsent):
        ImageDirectory(str(tree)).read("/etc/systemd/secret")
    with pytest.raises(SourceAbsent):
        ImageDirectory(str(tree)).names("/etc/systemd")


def test_links_in_a_circle_end(tree: Path):
    os.symlink("b", tree / "etc/a")
    os.symlink("a", tree / "etc/b")
    with pytest.raises(SourceMalformed):
        ImageDirectory(str(tree)).read("/etc/a")


def test_a_fifo_is_not_waited_for(tree: Path):
    os.mkfifo(tree / "etc/unit")
    with pytest.raises(SourceMalformed, match="a FIFO"):
        ImageDirectory(str(tree)).read("/etc/unit")


def test_a_socket_is_not_a_file(tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tree / "etc")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("sock")
        with pytest.raises(SourceMalformed, match="a socket"):
            ImageDirectory(str(tree)).read("/etc/sock")


@pytest.mark.root
def test_a_device_is_never_opened(tree: Path, monkeypatch: pytest.MonkeyPatch):
    """Opening is what some devices act upon. This one only counts who would open it."""
    try:
        os.mknod(tree / "etc/unit", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("no devices may be made here")
    opened: list[str] = []
    real = os.open

    def spy(path: str, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        if not flags & os.O_PATH:
            opened.append(path)
        return real(path, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", spy)
    with pytest.raises(SourceMalformed, match="a device"):
        ImageDirectory(str(tree)).read("/etc/unit")
    assert opened == []
    (tree / "etc/file").write_text("x")
    ImageDirectory(str(tree)).read("/etc/file")
    assert opened, "the spy sees a file that is opened"


def test_ten_gigabytes_of_nothing_are_refused_by_their_size(tree: Path):
    with (tree / "etc/unit").open("wb") as stream:
        stream.truncate(10 << 30)
    with pytest.raises(SourceMalformed, match="larger"):
        ImageDirectory(str(tree)).read("/etc/unit")


def test_names_are_bounded(tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(image, "MOST_NAMES", 10)
    for number in range(11):
        (tree / f"etc/{number}").touch()
    with pytest.raises(SourceMalformed, match="more than 10"):
        ImageDirectory(str(tree)).names("/etc")


def test_strange_names_come_back_as_they_are(tree: Path):
    strange = [b"\x1b[2J", b"\xff\xfe", b"a\nb", b"<script>", b" "]
    for name in strange:
        (tree / "etc" / os.fsdecode(name)).touch()
    found = ImageDirectory(str(tree)).names("/etc")
    assert {os.fsencode(name) for name in found} == set(strange)


def test_absurd_depth_fails_and_leaves_no_descriptor_behind(tree: Path):
    here = os.open(tree, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    files = ImageDirectory(str(tree))
    held = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SourceError):
        files.read("/d" * 1201)
    assert len(os.listdir("/proc/self/fd")) == held
    _remove_deep(tree)


def _remove_deep(top: Path) -> None:
    """`rmtree` recurses; pytest would choke on it as well."""
    while True:
        inner = top / "d"
        if not inner.exists():
            return
        chain = [os.open(top, os.O_RDONLY)]
        for _ in range(400):
            try:
                chain.append(os.open("d", os.O_RDONLY, dir_fd=chain[-1]))
            except FileNotFoundError:
                break
        deepest = len(chain) - 1
        with contextlib.suppress(FileNotFoundError):
            os.rename("d", top / "rest", src_dir_fd=chain[-1])
        for level in range(deepest - 1, -1, -1):
            os.rmdir("d", dir_fd=chain[level])
        for descriptor in chain:
            os.close(descriptor)
        if (top / "rest").exists():
            os.rename(top / "rest", top / "d")

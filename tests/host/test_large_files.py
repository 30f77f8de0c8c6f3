"""Files that somebody else named: only regular ones are opened, and none outside of a root."""

from __future__ import annotations

import os
import socket

import pytest

from sexton.errors import SourceAbsent, SourceError, SourceMalformed
from sexton.host.large_files import BytesImage, open_image
from sexton.host.reader import LiveFiles, RootedFiles


def test_any_part_of_a_file_is_read_and_nothing_past_its_end(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(100)))
    with open_image(LiveFiles(), str(tmp_path / "file")) as image:
        assert image.read(10, 3) == b"\x0a\x0b\x0c"
        for offset, size in ((99, 2), (-1, 1), (0, -1), (2**70, 1)):
            with pytest.raises(SourceMalformed):
                image.read(offset, size)


def test_a_file_cut_off_while_it_is_read_is_malformed(tmp_path):
    (tmp_path / "file").write_bytes(bytes(100))
    with open_image(LiveFiles(), str(tmp_path / "file")) as image:
        os.truncate(tmp_path / "file", 10)
        with pytest.raises(SourceMalformed, match="truncated"):
            image.read(50, 10)


def test_neither_fifo_device_socket_nor_directory_is_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    try:
        for path in (tmp_path / "fifo", tmp_path / "socket", tmp_path, "/dev/null", "/dev/zero"):
            with pytest.raises(SourceMalformed, match="not a regular file"):
                open_image(LiveFiles(), str(path))
    finally:
        listening.close()


def test_a_link_cannot_lead_out_of_a_root(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("ours")
    (root / "inside").write_text("theirs")
    (root / "up").symlink_to("../secret")
    (root / "absolute").symlink_to(tmp_path / "secret")
    (root / "fine").symlink_to("/inside")
    files = RootedFiles(str(root))
    for path in ("/up", "/absolute", "/../secret"):
        with pytest.raises(SourceAbsent):
            open_image(files, path)
    with open_image(files, "/fine") as image:
        assert image.read(0, image.size) == b"theirs"


def test_a_path_with_a_nul_or_too_long_is_an_error_of_its_own(tmp_path):
    for files in (LiveFiles(), RootedFiles(str(tmp_path))):
        for path in ("/a\0b", "/" + "x" * 5000, ""):
            with pytest.raises(SourceError):
                open_image(files, path)


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("file", "none", "."):
        try:
            with open_image(LiveFiles(), f"{tmp_path}/{path}"):
                pass
        except SourceError:
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_bytes_in_memory_read_the_same():
    image = BytesImage(b"abc", "x")
    assert image.read(1, 2) == b"bc"
    with pytest.raises(SourceMalformed):
        image.read(2, 2)

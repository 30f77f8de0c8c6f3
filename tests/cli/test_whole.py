"""Files that are written for somebody: whole or not at all, and nothing else is touched."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.cli.whole import write_whole
from sexton.errors import CommandError


def test_it_is_there_for_its_owner_alone_and_nothing_lies_beside_it(tmp_path: Path):
    write_whole(str(tmp_path / "plan.json"), (b"one ", b"two"))
    assert (tmp_path / "plan.json").read_bytes() == b"one two"
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["plan.json"]


def test_one_that_is_kept_in_git_keeps_its_mode(tmp_path: Path):
    path = tmp_path / "agents.toml"
    write_whole(str(path), (b"new",), mode=None)
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    write_whole(str(path), (b"newer",), mode=None)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"newer", 0o640)


def test_what_fails_half_way_leaves_the_old_one_and_no_rest(tmp_path: Path):
    path = tmp_path / "plan.json"
    path.write_bytes(b"old")

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(str(path), parts())
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["plan.json"])


def test_a_link_is_replaced_and_not_followed(tmp_path: Path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "plan.json").symlink_to(tmp_path / "precious")
    write_whole(str(tmp_path / "plan.json"), (b"new",))
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "plan.json").is_symlink()


@pytest.mark.root
def test_a_device_is_written_to_and_stays_one(tmp_path: Path):
    """As root, a rename would have made a file of /dev/null."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices may be made here")
    for mode in (0o600, None):
        write_whole(str(device), (b"x",), mode)
        assert stat.S_ISCHR(device.stat().st_mode)
    assert os.listdir(tmp_path) == ["null"]
    disk = tmp_path / "disk"
    os.mknod(disk, stat.S_IFBLK | 0o600, os.makedev(7, 250))
    with pytest.raises(CommandError, match="a disk, no file"):
        write_whole(str(disk), (b"x",))


@pytest.mark.parametrize(
    ("name", "why"),
    [(".", "Is a directory"), ("no/such", "No such file"), ("x\0y", "no NUL"), ("", "No such")],
)
def test_what_cannot_be_written_is_one_line(tmp_path: Path, name: str, why: str):
    with pytest.raises(CommandError, match=why) as error:
        write_whole(str(tmp_path / name) if name else "", (b"x",))
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == []

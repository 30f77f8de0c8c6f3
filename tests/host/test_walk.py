"""Walking a tree of directories."""

from __future__ import annotations

import os
import subprocess

import pytest

from sexton.errors import SourceAbsent
from sexton.host import reader
from sexton.host.reader import LiveFiles, RootedFiles, walk


@pytest.fixture
def tree(tmp_path):
    for path in ("a/b/c", "a/d", "e", "f/g"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "a/file").write_text("x")
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "a/loop").symlink_to("..")
    return tmp_path


def shape(found) -> dict[str, int]:
    return {directory.path: directory.children for directory in found}


WHOLE = {"/": 3, "/a": 2, "/a/b": 1, "/a/b/c": 0, "/a/d": 0, "/e": 0, "/f": 1, "/f/g": 0}


def test_gives_every_directory_with_its_children_and_follows_no_link(tree):
    assert shape(walk(LiveFiles(), str(tree))) == WHOLE
    assert shape(walk(RootedFiles(str(tree)), "/")) == WHOLE


def test_a_tree_that_can_only_be_asked_by_name_gives_the_same(tree):
    assert shape(reader._walk_by_name(LiveFiles(), str(tree), None)) == WHOLE


def test_a_file_system_that_lies_about_links_is_listed(tree, monkeypatch):
    honest = os.fstat

    def lying(descriptor: int) -> os.stat_result:
        status = list(honest(descriptor))
        status[3] = 1  # as btrfs says
        return os.stat_result(status)

    monkeypatch.setattr(reader.os, "fstat", lying)
    assert shape(walk(LiveFiles(), str(tree))) == WHOLE


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_goes_no_deeper_than_asked(tree, depth):
    found = shape(walk(LiveFiles(), str(tree), depth))
    assert found == {
        path: children
        for path, children in WHOLE.items()
        if (0 if path == "/" else path.count("/")) <= depth
    }


def test_the_inode_is_the_directorys(tree):
    found = {directory.path: directory.inode for directory in walk(LiveFiles(), str(tree))}
    assert found["/a/b"] == (tree / "a/b").stat().st_ino


def test_a_top_that_is_not_there_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        list(walk(LiveFiles(), str(tmp_path / "none")))


def test_a_directory_that_goes_away_meanwhile_is_left_out(tree):
    found = walk(LiveFiles(), str(tree))
    next(found)
    (tree / "f/g").rmdir()
    (tree / "f").rmdir()
    assert "/f/g" not in shape(found)


def test_leaves_no_descriptor_open_when_nobody_reads_on(tree):
    before = len(os.listdir("/proc/self/fd"))
    found = walk(LiveFiles(), str(tree))
    next(found)
    next(found)
    found.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.oracle
def test_counts_what_find_counts():
    top = "/sys/kernel"
    printed = subprocess.run(
        ["find", top, "-xdev", "-type", "d"], capture_output=True, check=False
    ).stdout
    # find names a mount point too, where it stops as we do: perf mounts tracefs there by itself.
    here = os.lstat(top).st_dev
    theirs = [path for path in printed.splitlines() if os.lstat(path).st_dev == here]
    assert len(list(walk(LiveFiles(), top))) == len(theirs)

"""A recorder writes and deletes only where nobody else can lead it elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from sexton.errors import StoreError
from sexton.profile.symbols.cache import Cache
from sexton.record.destination import Directory
from sexton.store.layout import prepare, write_whole
from sexton.store.pins import leave_mark, pin_mark, remark_now
from tests.support.cli import sexton
from tests.support.recordings import scratch

SOMEBODY = 12345
root = pytest.mark.root


@pytest.fixture
def place() -> Iterator[Path]:
    """Under a sticky directory of root, as /tmp is."""
    with scratch() as made:
        yield made / "r"


def test_a_directory_of_our_own_is_used_and_one_that_is_missing_is_made(place: Path):
    prepare(place / "a" / "b")
    prepare(place / "a" / "b")
    assert (place / "a" / "b" / "open").stat().st_mode & 0o777 == 0o700


def test_a_link_to_our_own_directory_may_be_given(place: Path):
    prepare(place)
    place.with_name("link").symlink_to(place)
    prepare(place.with_name("link"))


@pytest.mark.parametrize("name", ["open", "segments", "stacks"])
def test_a_link_inside_is_refused(place: Path, name: str):
    elsewhere = place.with_name("elsewhere")
    elsewhere.mkdir()
    place.mkdir()
    (place / name).symlink_to(elsewhere)
    with pytest.raises(StoreError, match=f"{name} in it is not a directory of user"):
        prepare(place)


@pytest.mark.parametrize(("mode", "fine"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_directory_that_others_may_write_into_is_refused(place: Path, mode: int, fine: bool):
    place.mkdir()
    place.chmod(mode)
    if fine:
        return prepare(place)
    with pytest.raises(StoreError, match="other users may write into it; record into"):
        prepare(place)
    assert list(place.iterdir()) == []


class Account(NamedTuple):
    pw_name: str
    pw_uid: int
    pw_gid: int


#: Of the process and of the directory.
GROUP = 4242


@root
@pytest.mark.parametrize(
    ("theirs", "members", "fine"),
    [(100, ["root"], True), (100, None, True), (GROUP, [], False), (100, ["theirs"], False)],
    ids=["private", "no name", "shared primary", "shared"],
)
def test_a_directory_of_a_group_is_refused_if_others_are_in_it(
    place: Path, theirs: int, members: list[str] | None, fine: bool, monkeypatch: pytest.MonkeyPatch
):
    """Our primary group was taken for ours alone; many sites give one to all users."""
    place.mkdir()
    place.chmod(0o775)
    os.chown(place, -1, GROUP)

    def getgrgid(group: int) -> SimpleNamespace:
        if members is None:
            raise KeyError(group)
        return SimpleNamespace(gr_mem=members)

    every = [Account("root", 0, GROUP), Account("theirs", SOMEBODY, theirs)]
    monkeypatch.setattr("os.getegid", lambda: GROUP)
    monkeypatch.setattr("pwd.getpwall", lambda: every)
    monkeypatch.setattr("grp.getgrgid", getgrgid)
    if fine:
        return prepare(place)
    with pytest.raises(StoreError, match="other users may write into it"):
        prepare(place)


@root
def test_the_directory_of_another_user_is_refused_whatever_is_in_it(place: Path):
    victim = place.with_name("victim")
    victim.mkdir()
    (victim / ".new-precious").write_text("kept")
    place.mkdir()
    (place / "open").symlink_to(victim)
    os.chown(place, SOMEBODY, SOMEBODY)
    ended = sexton("record", place, "--seconds", "1")
    assert ended.returncode == 2
    assert ended.stderr.decode() == (
        f"sexton: {place}: it belongs to user {SOMEBODY}, not to user 0;"
        " record into a directory of your own\n"
    )
    assert os.listdir(victim) == [".new-precious"]
    assert os.listdir(place) == ["open"]


@root
def test_a_directory_below_that_of_another_user_is_refused(place: Path):
    place.mkdir()
    os.chown(place, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreError, match=f"{place} belongs to user {SOMEBODY}"):
        prepare(place / "deeper" / "recording")
    assert list(place.iterdir()) == []
    (place / "ours").mkdir()
    with pytest.raises(StoreError, match=f"{place} belongs to user {SOMEBODY}"):
        prepare(place / "ours")


@root
def test_symbols_are_not_cached_in_the_home_of_another_user(place: Path):
    place.mkdir()
    os.chown(place, SOMEBODY, SOMEBODY)
    Cache(str(place / "sexton" / "symbols")).store("abcdef", b"x")
    assert list(place.iterdir()) == []
    os.chown(place, 0, 0)
    Cache(str(place / "sexton" / "symbols")).store("abcdef", b"x")
    assert [path.name for path in (place / "sexton" / "symbols").iterdir()] == ["abcdef.names"]


def test_marks_and_pins_are_not_written_through_a_link(place: Path):
    elsewhere = place.with_name("elsewhere")
    elsewhere.mkdir()
    place.mkdir()
    for name in ("marks", "pins"):
        (place / name).symlink_to(elsewhere)
    remark = remark_now("job 17 died", "boot")
    for write in (leave_mark, pin_mark):
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            write(place, remark)
    assert list(elsewhere.iterdir()) == []


def test_a_file_is_replaced_beside_a_link_that_was_left_there(place: Path):
    place.mkdir()
    (place / ".new-status.json").symlink_to(place / "target")
    write_whole(place / "status.json", b"{}")
    assert sorted(os.listdir(place)) == ["status.json"]


def test_nothing_is_shipped_or_deleted_through_a_link(place: Path):
    elsewhere = place.with_name("elsewhere")
    (elsewhere / "segments").mkdir(parents=True)
    (elsewhere / "segments" / "kept").write_text("kept")
    place.mkdir()
    (place / "node").symlink_to(elsewhere)
    shipped = Directory(place)
    for act in (
        lambda: shipped.put("node/segments/a", [b"x"]),
        lambda: shipped.delete("node/segments/kept"),
        lambda: shipped.delete_all("node/segments"),
        lambda: shipped.get("node/segments/kept", 10),
    ):
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            act()
    assert (elsewhere / "segments" / "kept").read_text() == "kept"
    for name in ("../elsewhere/segments/kept", "a//b", "./a"):
        with pytest.raises(OSError, match="not a name"):
            shipped.delete(name)
    shipped.put("other/segments/a", [b"x", b"y"])
    assert shipped.get("other/segments/a", 10) == b"xy"
    shipped.delete_all("other/segments")
    assert shipped.get("other/segments/a", 10) is None

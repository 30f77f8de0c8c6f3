"""The symbol cache: checked, private, of limited size, and never the cause of a failure."""

from __future__ import annotations

import os
import stat

import pytest

from sexton.profile.symbols import cache
from sexton.profile.symbols.cache import Cache, default_directory
from tests.profile.symbols.test_table import GLOBAL, named, table

KEY = "ab12cd34-full"
TABLE = table((100, 10, GLOBAL, "one"), (200, 10, GLOBAL, "two"))


@pytest.fixture
def kept(tmp_path):
    found = Cache(str(tmp_path / "names"))
    found.store_table(KEY, TABLE)
    return found


def only_file(tmp_path):
    (path,) = (tmp_path / "names").iterdir()
    return path


def test_a_table_comes_back_as_it_was(kept):
    assert named(kept.load_table(KEY), 105, 150, 205) == ["one", None, "two"]
    assert kept.has(KEY)


def test_it_is_private(kept, tmp_path):
    assert stat.S_IMODE(only_file(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "names").stat().st_mode) == 0o700


def test_an_entry_with_a_flipped_bit_or_a_truncated_end_counts_as_missing(kept, tmp_path):
    path = only_file(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        if 12 <= at < 16:  # padding
            continue
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert kept.load_table(KEY) is None, at
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert kept.load_table(KEY) is None


def test_a_body_that_promises_what_it_has_not_is_no_table(kept):
    good = cache.pack(TABLE)
    for body in (b"", good[:20], b"\xff" * 16, good[:8] + b"\xff" * 8 + good[16:]):
        kept.store(KEY, body)
        assert kept.load_table(KEY) is None


def test_a_link_in_its_place_is_not_followed(kept, tmp_path):
    path = only_file(tmp_path)
    other = tmp_path / "other"
    path.rename(other)
    path.symlink_to(other)
    assert kept.load_table(KEY) is None
    os.unlink(path)
    os.mkfifo(path)
    assert kept.load_table(KEY) is None


def test_keys_that_are_no_names_of_files_are_refused(kept, tmp_path):
    for key in ("../../etc/passwd", "a/b", "", "x" * 200, "AB\0", ".."):
        kept.store_table(key, TABLE)
        assert kept.load_table(key) is None
        assert not kept.has(key)
    assert only_file(tmp_path)


def test_the_least_recently_used_entry_is_deleted_first(tmp_path):
    size = len(cache.pack(TABLE)) + cache.HEAD_SIZE
    small = Cache(str(tmp_path / "names"), most_bytes=2 * size)
    for number, key in enumerate(("aaaa", "bbbb")):
        small.store_table(key, TABLE)
        os.utime(tmp_path / "names" / f"{key}.names", (1000 + number, 1000 + number))
    assert small.load_table("aaaa") is not None  # and so it is the younger one now
    small.store_table("cccc", TABLE)
    assert [small.has(key) for key in ("aaaa", "bbbb", "cccc")] == [True, False, True]


def test_without_a_place_to_write_nothing_is_kept_and_nothing_fails(tmp_path):
    (tmp_path / "file").write_text("")
    for found in (Cache(None), Cache(str(tmp_path / "file" / "names"))):
        found.store_table(KEY, TABLE)
        assert found.load_table(KEY) is None


def test_the_cache_is_in_the_users_cache_directory(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_directory() == "/somewhere/sexton/symbols"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_directory() == "/home/me/.cache/sexton/symbols"


def test_a_table_too_large_is_not_kept(kept, monkeypatch):
    monkeypatch.setattr(cache, "MOST_ENTRY", 50)
    kept.store_table("large", TABLE)
    assert not kept.has("large")

"""Rotated files as one set."""

from __future__ import annotations

import struct

import pytest

from sexton.errors import SourceAbsent
from sexton.profile.perf.rotation import first_sample_ns, is_perf_directory, members, rotated
from tests.support.perf_bytes import USER_MARK, comm, perf_data, piped, sample


def capture(path, time, **more):
    path.write_bytes(perf_data([comm(5, 5, b"sh"), sample(time, 5, [USER_MARK, 1])], **more))
    return str(path)


def test_files_stand_in_the_order_of_their_samples_and_not_of_their_names(tmp_path):
    # The clocks went back an hour in between.
    late = capture(tmp_path / "perf.data.2026102502300000", 9_000_000_000)
    early = capture(tmp_path / "perf.data.2026102502590000", 5_000_000_000)
    found = rotated([late, early])
    assert found.paths == (early, late)
    assert found.name == str(tmp_path / "perf.data")


def test_the_time_that_perf_tells_needs_no_look_at_the_samples(tmp_path):
    path = capture(tmp_path / "x", 50, features={21: struct.pack("<QQ", 7, 90)})
    assert first_sample_ns(path) == 7
    assert first_sample_ns(capture(tmp_path / "y", 50, features={21: bytes(16)})) == 50


def test_where_a_file_does_not_tell_its_time_names_decide(tmp_path):
    second = capture(tmp_path / "perf.data.2026111511473148", 5)
    first = tmp_path / "perf.data.2026111511453141"
    first.write_bytes(piped([sample(9, 5, [USER_MARK, 1])]))
    current = capture(tmp_path / "perf.data", 1)
    assert rotated([current, second, first]).paths == (str(first), second, current)


def test_files_of_different_names_are_named_by_their_directory(tmp_path):
    one, other = capture(tmp_path / "a.data", 1), capture(tmp_path / "b.data", 2)
    assert rotated([other, one]) == (str(tmp_path), (one, other))


def test_a_directorys_captures_are_found_by_what_they_hold(tmp_path):
    one = capture(tmp_path / "perf.data.2026111511453141", 1)
    (tmp_path / "kallsyms.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "perf.data.deeper").mkdir()
    assert members(tmp_path) == [one]
    assert not is_perf_directory(tmp_path)
    capture(tmp_path / "data", 2)
    assert is_perf_directory(tmp_path)
    with pytest.raises(SourceAbsent):
        members(tmp_path / "nowhere")


def test_what_cannot_be_read_has_no_time(tmp_path):
    (tmp_path / "x").write_bytes(b"PERFILE2" + bytes(300))
    (tmp_path / "y").write_bytes(perf_data([bytes(64)]))
    assert first_sample_ns(str(tmp_path / "x")) is None
    assert first_sample_ns(str(tmp_path / "y")) is None

"""Where pinned minutes go: refused in one line at the start, or written whole."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.errors import StoreError
from sexton.record import destination
from sexton.record.destination import Directory, Objects, one_line, open_destination, shown


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("relative/path", "give a full path"),
        ("", "give a full path"),
        ("/no/such/place", "No such file"),
        ("file:///no/such/place", "No such file"),
        ("/etc/passwd", "not a directory"),
        ("ftp://x/y", "neither a directory nor one of s3://"),
        ("hdfs://x/y", "neither a directory"),
        ("s3://", "names no bucket"),
        ("s3://bucket?nonsense=1", "nonsense"),
    ],
)
def test_a_bad_destination_is_one_line(tmp_path: Path, url: str, why: str):
    with pytest.raises(StoreError, match=why) as caught:
        open_destination(url, tmp_path)
    assert str(caught.value).startswith("--ship ")
    assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there_is_told_at_the_start(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    url = "s3://key:secret@bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    with pytest.raises(StoreError, match="NETWORK_CONNECTION") as caught:
        open_destination(url, tmp_path)
    assert "secret" not in str(caught.value)
    assert "s3://…@bucket/x" in str(caught.value)


def test_a_url_that_cannot_be_parsed_does_not_show_its_keys_either(tmp_path: Path):
    with pytest.raises(StoreError, match="Cannot parse URI") as caught:
        open_destination("s3://key:se/cret@bucket/x?sas_token=cret", tmp_path)
    assert "cret" not in str(caught.value)


def test_the_recording_itself_is_no_place_to_ship_to(tmp_path: Path):
    (tmp_path / "rec/pins").mkdir(parents=True)
    with pytest.raises(StoreError, match="inside the recording"):
        open_destination(str(tmp_path / "rec/pins"), tmp_path / "rec")
    open_destination(str(tmp_path), tmp_path / "rec")


def test_a_destination_that_does_not_answer_is_refused_in_time(tmp_path: Path, monkeypatch):
    import threading

    never = threading.Event()
    monkeypatch.setattr(destination, "_PROBE_S", 0.05)
    monkeypatch.setattr(Directory, "put", lambda *_: never.wait(30))
    with pytest.raises(StoreError, match="no answer within"):
        open_destination(str(tmp_path), tmp_path / "rec")
    never.set()


def test_the_probe_leaves_nothing_behind(tmp_path: Path):
    open_destination(f"file://{tmp_path}", tmp_path / "rec")
    assert list(tmp_path.iterdir()) == []


def test_keys_are_never_told():
    assert "secret" not in shown("s3://AKIA:secret@bucket/x")
    assert "secret" not in shown("s3://AKIA:sec/ret+secret@bucket/x?access_key=secret")
    assert "secret" not in one_line(OSError("at s3://AKIA:secret@bucket/x?sas=secret: no"))
    assert shown("s3://\x1b[2J") == "s3://\\x1b[2J"


def test_a_long_error_is_one_short_line():
    error = OSError("When …: AWS Error ACCESS_DENIED during PutObject operation: no\nsecond" * 50)
    assert one_line(error) == "ACCESS_DENIED: no"
    assert len(one_line(OSError("x" * 1000))) == 200


@pytest.fixture(params=["directory", "arrow"])
def place(request, tmp_path: Path) -> Directory | Objects:
    """A directory, and one of Arrow's own file systems, which lives in memory.

    Real object storage is tried by hand: ``python -m lab.ship_to URL`` (docs/recording.md).
    """
    return Directory(tmp_path) if request.param == "directory" else Objects("mock:///bucket/x")


def test_what_is_put_can_be_got_replaced_and_deleted(place):
    if isinstance(place, Objects):
        for name in ("bucket/x", "bucket/x/a", "bucket/x/a/b"):
            place._files.create_dir(name)  # a store of objects would not ask for it
    assert place.get("a/b/c", 100) is None
    place.put("a/b/c", [b"one ", b"two"])
    assert place.get("a/b/c", 100) == b"one two"
    assert place.get("a/b/c", 3) == b"one"
    place.put("a/b/c", [b"new"])
    assert place.get("a/b/c", 100) == b"new"
    place.delete("a/b/c")
    assert place.get("a/b/c", 100) is None
    place.put("a/b/d", [b"x"])
    place.delete_all("a/b")
    place.delete_all("a/b")
    assert place.get("a/b/d", 100) is None


def test_a_source_that_fails_half_way_leaves_no_file(place):
    if isinstance(place, Objects):
        place._files.create_dir("bucket/x")

    def half() -> Iterator[bytes]:
        yield b"half"
        raise StoreError("shorter than it was")

    with pytest.raises(StoreError):
        place.put("file", half())
    assert place.get("file", 100) is None
    if isinstance(place, Directory):
        assert list(place.path.iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 kB, mounted for this test alone."""
    mount = tmp_path / "small"
    mount.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=64k", "sexton-test", str(mount)]
    subprocess.run(options, check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=False)


@pytest.mark.root
def test_a_read_only_destination_is_refused_at_the_start(small: Path, tmp_path: Path):
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with pytest.raises(StoreError, match="Read-only file system"):
        open_destination(str(small), tmp_path / "rec")


@pytest.mark.root
def test_a_full_destination_fails_leaves_no_half_file_and_recovers(small: Path, tmp_path: Path):
    to = open_destination(str(small), tmp_path / "rec")
    ballast = small / "ballast"
    ballast.write_bytes(bytes(40 << 10))
    with pytest.raises(OSError, match="No space left"):
        to.put("n/p/file", [bytes(30 << 10)])
    assert list((small / "n/p").iterdir()) == []
    ballast.unlink()
    to.put("n/p/file", [bytes(30 << 10)])
    assert (small / "n/p/file").stat().st_size == 30 << 10


@pytest.mark.root
def test_a_full_destination_is_refused_at_the_start(small: Path, tmp_path: Path):
    with pytest.raises(OSError, match="No space"):
        (small / "ballast").write_bytes(bytes(65 << 10))
    with pytest.raises(StoreError, match="No space left"):
        open_destination(str(small), tmp_path / "rec")


@pytest.mark.root
def test_what_was_mounted_is_never_missed_for_the_disk_below(small: Path, tmp_path: Path):
    to = open_destination(str(small), tmp_path / "rec")
    subprocess.run(["umount", str(small)], check=True)
    with pytest.raises(OSError, match="not the filesystem it was"):
        to.put("n/p/file", [b"x"])
    assert list(small.iterdir()) == []

"""The child that decodes: each file into the segment of its minutes, and nothing is ever lost."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sexton.record.decode_child import Decoder, Request
from sexton.store import sealed
from sexton.store.annex import Annex
from sexton.store.recording import Recording
from sexton.store.signing import check_signed, read_public
from sexton.store.verify import verify
from tests.support.keys import make_keys, signed
from tests.support.made_capture import CORES, HERTZ, SECONDS, START_NS, made_capture
from tests.support.recordings import BOOT, HEADER, simple, write_open, write_sealed

NAME = "perf.data.2026111513300407"
START_S = START_NS / 1e9
SAMPLES = CORES * HERTZ * SECONDS


def recorded(place: Path, tmp_path: Path, *starts: float) -> Path:
    """A recording with a closed file of perf's from `START_S` on; segments of 120 s each."""
    for number, start in enumerate(starts, 1):
        write_sealed(place, [simple(start), simple(start + 119.0)], number)
    capture, kallsyms = made_capture(tmp_path)
    (place / "stacks").mkdir(parents=True, exist_ok=True)
    (place / "segments").mkdir(exist_ok=True)
    capture.rename(place / "stacks" / NAME)
    named = place / "stacks" / f"kallsyms-{BOOT}.gz"
    named.write_bytes(gzip.compress(kallsyms.read_bytes()))
    return place / "stacks" / NAME


def asked(patient: bool = True, boot_id: str = BOOT) -> Request:
    return Request(NAME, boot_id, START_S, START_S + SECONDS, patient)


def annexes(place: Path) -> list[Annex]:
    return [annex for segment in Recording(place).segments for annex in segment.annexes]


def child(
    place: Path, files: Sequence[Request], most: int | None = None, more: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """As the recorder starts it."""
    change = "" if most is None else f"child.MEMORY_BYTES = {most}; "
    load = "import sys, sexton.record.decode_child as child"
    code = f"{load}; {change}sys.exit(child.main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-I", "-c", code, str(place), json.dumps(files), *more],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "r"


def test_a_file_is_decoded_named_and_sealed_into_its_segment_and_deleted(place, tmp_path):
    raw = recorded(place, tmp_path, START_S - 150, START_S - 20, START_S + 110)
    size = raw.stat().st_size
    ended = child(place, [asked()])
    assert ended.returncode == 0, ended.stderr
    word, name, samples, kept = ended.stderr.split()
    assert (word, name, int(samples)) == ("done", NAME, SAMPLES)
    assert not raw.exists()
    (annex,) = annexes(place)
    assert annex.path.parent.name.startswith("00000002-")
    assert annex.name == "profile-2026111513300407"
    assert int(kept) < size / 10
    assert annex.start[0] == pytest.approx(START_S)
    assert annex.manifest["profile"]["host"] == "node-7"
    names = annex.table("frame").column("name").to_pylist()
    assert "mem_cgroup_css_rstat_flush" in names
    assert verify(place).whole
    assert [path.name for path in (place / "stacks").iterdir()] == [f"kallsyms-{BOOT}.gz"]


def test_an_annex_is_signed_as_its_segment_is(place, tmp_path):
    keys = make_keys(tmp_path / "keys")
    (segment,) = signed(place, keys)
    raw = recorded(place, tmp_path)
    ended = child(place, [asked(patient=False)], more=["1000000", str(keys.private)])
    assert ended.stderr.startswith(f"done {NAME}"), ended.stderr
    assert not raw.exists()
    (annex,) = annexes(place)
    assert (annex.path / "manifest.sig").is_file()
    assert check_signed(place, read_public(str(keys.public))).segments == {segment.name}


def test_it_waits_while_its_segment_is_open_and_takes_the_nearest_when_patience_ends(
    place, tmp_path
):
    raw = recorded(place, tmp_path, START_S - 120)
    write_open(place, [simple(START_S)], 2)
    decoder = Decoder(place)
    assert decoder.answer(asked()) == f"waits {NAME}"
    assert raw.exists()
    assert annexes(place) == []
    assert decoder.answer(asked(patient=False)).startswith(f"done {NAME} {SAMPLES} ")
    (annex,) = annexes(place)
    assert annex.path.parent.name.startswith("00000001-")


def test_without_any_segment_of_its_boot_it_stays_and_that_is_said(place, tmp_path):
    raw = recorded(place, tmp_path)
    write_sealed(place, [simple(START_S)], 1, {**HEADER, "boot_id": "another"})
    assert Decoder(place).answer(asked()) == f"waits {NAME}"
    assert "no segment of its boot" in Decoder(place).answer(asked(patient=False))
    assert raw.exists()


def test_a_file_that_an_earlier_boot_left_finds_its_segment_by_the_wall_clock(place, tmp_path):
    raw = recorded(place, tmp_path, START_S)
    end = Recording(place).segments[0].end[1]
    os.utime(raw, (end, end))
    assert Decoder(place).answer(asked(boot_id="")).startswith("done ")
    assert annexes(place)[0].boot_id == BOOT


@pytest.mark.parametrize(
    "content", [b"", b"PERFILE2", b"x" * 5000, b"PERFILE2" + bytes(5000)], ids=len
)
def test_what_is_no_capture_stays_as_it_is_with_the_reason(place, tmp_path, content):
    raw = recorded(place, tmp_path, START_S)
    raw.write_bytes(content)
    ended = child(place, [asked()])
    assert ended.returncode == 0
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"failed {NAME} ")
    assert len(line) < 400
    assert raw.read_bytes() == content


def test_a_truncated_file_gives_what_is_whole(place, tmp_path):
    raw = recorded(place, tmp_path, START_S)
    os.truncate(raw, raw.stat().st_size // 2)
    assert Decoder(place).answer(asked()).startswith("done ")
    (annex,) = annexes(place)
    assert 0 < (annex.fact("samples") or 0) < SAMPLES
    assert annex.manifest["profile"]["problems"]


def test_over_its_memory_it_says_so_keeps_the_file_and_goes_on_with_the_next(place, tmp_path):
    raw = recorded(place, tmp_path, START_S)
    good = raw.with_name("perf.data.2026111513300408")
    raw.rename(good)
    recorded(place, tmp_path)
    with open(raw, "r+b") as stream:  # many times as many samples, and nothing told beside them
        content = stream.read()
        at = int.from_bytes(content[40:48], "little")
        size = int.from_bytes(content[48:56], "little")
        stream.seek(0)
        times = 60
        head = content[:48] + (times * size).to_bytes(8, "little") + bytes(16)
        head += bytes(32) + content[len(head) + 32 : at]
        stream.write(head + content[at : at + size] * times)
    files = [asked(), asked()._replace(name=good.name)]
    ended = child(place, files, most=48 << 20)
    first, second = ended.stderr.splitlines()
    assert first.startswith(f"failed {NAME} ")
    assert "memory" in first
    assert second.startswith(f"done {good.name} {SAMPLES}")
    assert raw.exists()
    assert not good.exists()
    assert not list(place.glob("stacks/.new-*"))


def test_killed_after_the_seal_the_next_one_only_deletes_the_file(place, tmp_path, monkeypatch):
    raw = recorded(place, tmp_path, START_S)
    monkeypatch.setattr(Path, "unlink", lambda self, **_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Decoder(place).decode(asked())
    monkeypatch.undo()
    assert raw.exists()
    before = annexes(place)[0].path.stat().st_ino
    assert Decoder(place).answer(asked()) == f"done {NAME} 0 0"
    assert not raw.exists()
    assert [annex.path.stat().st_ino for annex in annexes(place)] == [before]


def test_two_children_never_work_in_one_recording(place, tmp_path):
    raw = recorded(place, tmp_path, START_S)
    lock = os.open(place / "stacks", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = child(place, [asked()])
    finally:
        os.close(lock)
    assert ended.returncode == 1
    assert "another process is decoding" in ended.stderr
    assert raw.exists()


def test_a_file_that_retention_took_first_is_no_failure(place, tmp_path):
    recorded(place, tmp_path, START_S).unlink()
    assert Decoder(place).answer(asked()) == f"gone {NAME}"


def test_on_a_full_disk_the_file_waits_and_nothing_half_is_left(place, tmp_path, monkeypatch):
    raw = recorded(place, tmp_path, START_S)

    def full(descriptor, content, start=0):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sealed, "write_all", full)
    assert Decoder(place).answer(asked()) == f"waits {NAME} No space left on device"
    assert raw.exists()
    assert annexes(place) == []
    assert not list(place.glob("stacks/.new-*"))
    assert verify(place).whole

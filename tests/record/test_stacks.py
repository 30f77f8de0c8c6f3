"""Rolling stacks: a real perf that rotates, dies, is killed, fills a disk and comes back."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import signal
import stat
import struct
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceDenied
from sexton.host.host import open_host
from sexton.record import stacks as stacks_module
from sexton.record.stacks import NICE, RollingStacks, Rotation, mend, snapshot_kallsyms
from tests.kernel.conftest import until
from tests.support.perf import fake_perf
from tests.support.tools import need

SHORT = Rotation(segment_s=4, hertz=97)  # shorter than perf's start, it would never rotate
HOLDER = """
import sys, signal
from sexton.record.stacks import RollingStacks, Rotation
from sexton.host.host import open_host
stacks = RollingStacks(open_host(), sys.argv[1], Rotation(segment_s=1))
stacks.start()
print(stacks._running.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def perf():
    return need("perf", package="linux-perf")


@pytest.fixture
def rolling(tmp_path, perf, monkeypatch):
    # A node that is busy with other tests would keep a low priority waiting for minutes.
    monkeypatch.setattr(
        stacks_module, "_CHILD_OPTIONS", stacks_module._CHILD_OPTIONS._replace(nice=0)
    )
    made = []

    def make(rotation=SHORT, directory=tmp_path):
        made.append(RollingStacks(open_host(), str(directory), rotation))
        made[-1].start()
        return made[-1]

    yield make
    for part in made:
        part.stop()


def gather(stacks, count):
    """Poll until so many files were closed."""
    files = []
    assert until(lambda: files.extend(stacks.poll()) or len(files) >= count, 240)
    return files


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def of_one_perf(stacks, count):
    """Poll until the perf that runs now has closed so many files, and stop it: those files, and the
    last one. A perf that starts too late on a busy machine never rotates, and the next replaces
    it, with a gap between the two."""
    files = []

    def ours():
        return [file for file in files if file.mono_end_s > stacks._began_s]

    def enough():
        files.extend(stacks.poll())
        return stacks.is_alive() and len(ours()) >= count

    assert until(enough, 240), stacks.state()
    stacks.stop(patience_s=120)  # a busy machine lets it take long to finish its file
    files.extend(stacks.poll())
    return ours()


@pytest.mark.whole
@pytest.mark.root
def test_files_follow_each_other_without_a_gap_and_each_stands_alone(rolling, perf):
    core = max(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    burner = subprocess.Popen([sys.executable, "-c", spin])
    try:
        files = of_one_perf(rolling(), 3)
    finally:
        burner.kill()
        burner.wait()
    assert len(files) >= 4
    assert all(file.whole for file in files), files
    assert sorted(file.mono_end_s for file in files) == [file.mono_end_s for file in files]
    times = []
    for file in files:
        command = [perf, "script", "-i", file.path, "-F", "time,cpu"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.findall(rf"^\[0*{core}\]\s+(\d+\.\d+):", shown, re.MULTILINE)
        times.append([float(one) for one in found])
    # The stop came right after a rotation: the last file may be shorter than the time between two
    # samples. All others cover seconds in which the core was never idle.
    if not times[-1]:
        del times[-1]
    assert all(times)
    assert all(part[-1] <= file.mono_end_s + 0.5 for part, file in zip(times, files, strict=False))
    inside = [later - earlier for part in times for earlier, later in pairwise(part)]
    between = [after[0] - before[-1] for before, after in pairwise(times)]
    # Others may take this virtual core from all of us for a while; a rotation must not do more.
    assert max(between) <= max(5 / 97, *inside)
    assert min(between) > 0


@pytest.mark.root
def test_perf_has_a_low_priority(tmp_path, perf):
    stacks = RollingStacks(open_host(), str(tmp_path))
    stacks.start()
    try:
        assert os.getpriority(os.PRIO_PROCESS, stacks._running.pid) == NICE
    finally:
        stacks.stop()


@pytest.mark.root
def test_files_and_their_folder_are_for_the_owner_alone(rolling, tmp_path):
    stacks = rolling()
    (closed, *_) = gather(stacks, 1)
    for path in (closed.path, f"{stacks.folder}/perf.data"):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(stacks.folder).st_mode) == 0o700
    assert closed.bytes == os.path.getsize(closed.path)
    assert not [name for name in os.listdir(stacks.folder) if name.startswith(".")]
    assert closed not in stacks.poll()


@pytest.mark.root
def test_the_bound_deletes_the_oldest_counts_them_and_spares_the_pinned(rolling):
    stacks = rolling()
    folder = Path(stacks.folder)
    stacks.stop()
    for number in range(3):
        made = folder / f"perf.data.202601010000000{number}"
        made.write_bytes(b"x" * 100)
        os.utime(made, (number, number))
    first, second, third = stacks.closed()[:3]
    stacks._rotation = SHORT._replace(keep_bytes=sum(item.bytes for item in stacks.closed()) - 1)
    stacks.poll(spare={os.path.basename(first.path)})
    assert os.path.exists(first.path)
    assert not os.path.exists(second.path)
    assert os.path.exists(third.path)
    state = stacks.state()
    assert (state.deleted_files, state.deleted_bytes) == (1, second.bytes)


@pytest.mark.root
def test_one_file_that_alone_passes_the_bound_is_cut_short(rolling):
    stacks = rolling(Rotation(segment_s=3600, keep_bytes=1))
    assert until(lambda: stacks.poll() == [] and stacks.state().deaths > 0)
    assert "exceeded the size limit" in stacks.state().reason
    stacks.poll()
    assert stacks.closed() == []


def task_events(perf: str, path: str) -> bytes:
    command = [perf, "script", "--show-task-events", "-i", path]
    return subprocess.run(command, capture_output=True, check=False).stdout


@pytest.mark.root
@pytest.mark.whole
def test_a_perf_that_is_killed_comes_back_after_a_wait_and_its_file_is_kept_as_torn(rolling, perf):
    stacks = rolling()
    gather(stacks, 1)
    killed = stacks._running.pid
    spent_s = stacks.cost().cpu_s
    # perf empties its buffers when they are half full: what is there for sure are the names of all
    # processes, which it writes behind a head of less than 4 kB.
    assert until(lambda: stacks._open_bytes() > 1 << 13)
    os.kill(killed, signal.SIGKILL)
    assert until(lambda: stacks._running.status() is not None)
    torn = [item for item in stacks.poll() if not item.whole]
    assert len(torn) == 1
    assert torn[0].mono_end_s <= time.monotonic()
    assert b"PERF_RECORD_COMM" in task_events(perf, torn[0].path), "it can still be read"
    state = stacks.state()
    assert (state.alive, state.deaths) == (False, 1)
    assert "-9" in state.reason
    assert state.again_in_s <= 1
    assert until(lambda: stacks.poll() is not None and stacks.is_alive())
    assert stacks._running.pid != killed
    gather(stacks, 1)
    assert stacks.cost().cpu_s >= spent_s
    assert stacks.cost().rss_bytes > 1 << 20


def test_a_perf_that_does_not_rotate_is_ended_and_begun_again(tmp_path, monkeypatch):
    fake_perf(tmp_path, monkeypatch, 'case "$*" in *"-- true") exit 0;; esac; exec sleep 300')
    stacks = RollingStacks(open_host(), str(tmp_path))
    stacks.start()
    try:
        now_s = time.monotonic()
        stacks._watch(now_s + 2 * 120 + 20)
        assert stacks.is_alive()
        stacks._watch(now_s + 2 * 120 + 40)
        state = stacks.state()
        assert (state.alive, state.deaths) == (False, 1)
        assert "no new file" in state.reason
        stacks._tend(stacks._again_s)
        assert stacks.is_alive()
    finally:
        stacks.stop()


def test_each_death_doubles_the_wait_up_to_a_minute(tmp_path, monkeypatch):
    trial = 'case "$*" in *"-- true") exit 0;; esac; echo "failed to write: No space left" >&2'
    fake_perf(tmp_path, monkeypatch, f"{trial}; exit 1")
    stacks = RollingStacks(open_host(), str(tmp_path))
    stacks.start()
    now_s = time.monotonic()
    waits = []
    for _ in range(8):
        assert until(lambda: not stacks.is_alive())
        stacks._tend(now_s)
        waits.append(stacks._again_s - now_s)
        stacks._tend(now_s + waits[-1] - 0.1)
        assert stacks._running is None, "too early"
        now_s += waits[-1]
        stacks._tend(now_s)
        assert stacks._running is not None
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])
    assert stacks.state().reason == "failed to write: No space left"
    assert stacks.state().deaths == 8
    stacks.stop()


@pytest.mark.root
def test_a_full_disk_ends_perf_says_so_and_is_not_hammered(rolling, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", place], check=True)
    try:
        stacks = rolling(Rotation(segment_s=3600, hertz=9973), place)
        with contextlib.suppress(OSError), open(place / "filler", "wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        assert until(lambda: stacks.poll() is not None and stacks.state().deaths > 0, 60)
        state = stacks.state()
        assert "No space left on device" in state.reason
        assert state.again_in_s is not None
        stacks.stop()
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.root
def test_a_recorder_that_is_killed_leaves_no_perf_and_no_growing_file(tmp_path, perf):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True
    )
    try:
        child = int(holder.stdout.readline())
        assert running(child)
        assert until(lambda: (tmp_path / "stacks/perf.data").exists())
    finally:
        holder.kill()
        holder.wait()
    assert until(lambda: not running(child))
    before = {path: path.stat().st_size for path in (tmp_path / "stacks").iterdir()}
    time.sleep(1.2)
    assert before == {path: path.stat().st_size for path in (tmp_path / "stacks").iterdir()}
    assert not (tmp_path / "stacks/perf.data").exists(), "it had the time to finish its file"


@pytest.mark.root
def test_a_perf_that_outlived_its_recorder_is_ended_at_the_next_start(tmp_path, rolling, perf):
    folder = tmp_path / "stacks"
    folder.mkdir()
    (folder / ".trial-1").mkdir()
    other = tmp_path / "other"
    command = [perf, "record", "-q", "-e", "cpu-clock", "-a", "-o"]
    orphan = subprocess.Popen([*command, folder / "perf.data"])
    by_descriptor = subprocess.Popen([*command, "stacks/perf.data.7"], cwd=tmp_path)
    stranger = subprocess.Popen([*command, other])
    try:
        assert until(lambda: (folder / "perf.data").exists() and (folder / "perf.data.7").exists())
        stacks = rolling()
        assert orphan.wait(60) is not None
        assert by_descriptor.wait(60) is not None
        assert stranger.poll() is None
        assert stacks.state().taken_over == 2
        assert not (folder / ".trial-1").exists()
        assert [item.whole for item in stacks.poll()][:1] == [False], "its open file was set aside"
        assert stacks.is_alive()
    finally:
        for item in (orphan, by_descriptor, stranger):
            item.kill()
            item.wait()


def test_leftovers_are_given_by_the_first_poll_and_empty_ones_removed(tmp_path, monkeypatch):
    fake_perf(tmp_path, monkeypatch, 'case "$*" in *"-- true") exit 0;; esac; exec sleep 300')
    folder = tmp_path / "stacks"
    folder.mkdir()
    (folder / "perf.data.2026111510135660").write_bytes(b"x" * 10)
    (folder / "perf.data").write_bytes(b"y" * 20)
    (folder / "perf.data.old").touch()
    (folder / "notes.txt").touch()
    os.utime(folder / "perf.data.2026111510135660", (1, 1))
    stacks = RollingStacks(open_host(), str(tmp_path))
    stacks.start()
    try:
        first, second = stacks.poll()
        assert (first.mono_end_s, first.bytes, first.whole) == (None, 10, True)
        assert (second.bytes, second.whole) == (20, False)
        assert second.mono_end_s <= time.monotonic()
        assert (folder / "notes.txt").exists()
        assert not (folder / "perf.data.old").exists()
        assert stacks.poll() == []
    finally:
        stacks.stop()


def test_a_clock_that_jumps_moves_no_file_out_of_the_time_it_was_closed_in(tmp_path, monkeypatch):
    fake_perf(tmp_path, monkeypatch, 'case "$*" in *"-- true") exit 0;; esac; exec sleep 300')
    stacks = RollingStacks(open_host(), str(tmp_path))
    stacks.start()
    try:
        before_s = time.monotonic()
        stacks.poll()
        for hours, name in ((-5, "perf.data.2026111510135660"), (5, "perf.data.2026111510135661")):
            path = tmp_path / "stacks" / name
            path.touch()
            moved_s = time.time() + hours * 3600
            os.utime(path, (moved_s, moved_s))
        for item in stacks.poll():
            assert before_s <= item.mono_end_s <= time.monotonic()
    finally:
        stacks.stop()


def test_a_file_that_is_closed_while_poll_is_held_up_does_not_end_before_that(
    tmp_path, monkeypatch
):
    fake_perf(tmp_path, monkeypatch, 'case "$*" in *"-- true") exit 0;; esac; exec sleep 300')
    stacks = RollingStacks(open_host(), str(tmp_path))
    stacks.start()
    closed_s = []

    def held_up(now_s):
        while time.monotonic() < now_s + 0.05:
            pass
        closed_s.append(time.monotonic())
        (tmp_path / "stacks" / "perf.data.2026111510135660").write_bytes(b"x")

    try:
        stacks.poll()
        monkeypatch.setattr(stacks, "_tend", held_up)
        (each,) = stacks.poll()
    finally:
        stacks.stop()
    assert closed_s[0] - 0.02 <= each.mono_end_s <= time.monotonic()  # a file's time is coarse


def test_another_hosts_tree_cannot_be_sampled(tmp_path):
    with pytest.raises(SourceAbsent, match="only on the node itself"):
        RollingStacks(open_host(str(tmp_path)), str(tmp_path))


OFFSET = 112
HEAD = struct.pack("=8s8Q32s", b"PERFILE2", 104, 144, 104, 8, OFFSET, 50, 0, 0, b"\xff" * 32)


def size_and_sections(path):
    fields = struct.unpack("=8s8Q32s", path.read_bytes()[:104])
    return fields[6], fields[9]


def test_a_file_without_a_head_gets_its_siblings_with_its_own_size(tmp_path):
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    whole.write_bytes(HEAD + b"attrs..." + b"x" * 50 + b"sections")
    torn.write_bytes(bytes(OFFSET) + b"y" * 30)
    assert mend(str(torn), str(whole))
    assert size_and_sections(torn) == (30, bytes(32))
    assert torn.read_bytes()[104:] == b"attrs..." + b"y" * 30
    assert whole.read_bytes().startswith(HEAD)


def test_a_file_with_a_head_and_no_size_is_given_it(tmp_path):
    torn = tmp_path / "torn"
    torn.write_bytes(HEAD.replace(struct.pack("=Q", 50), bytes(8)) + b"attrs..." + b"y" * 9)
    assert mend(str(torn), None)
    assert size_and_sections(torn) == (9, bytes(32))


def test_a_whole_file_is_left_as_it_is(tmp_path):
    torn = tmp_path / "torn"
    torn.write_bytes(HEAD + b"attrs..." + b"y" * 50 + b"sections")
    before = torn.read_bytes()
    assert mend(str(torn), None)
    assert torn.read_bytes() == before


def test_without_a_sibling_or_samples_nothing_is_done(tmp_path):
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    whole.write_bytes(HEAD + b"attrs..." + b"x" * 50)
    for content in (bytes(OFFSET) + b"y", bytes(50), b""):
        torn.write_bytes(content)
        assert not mend(str(torn), None)
        assert torn.read_bytes() == content
    torn.write_bytes(bytes(OFFSET))
    assert not mend(str(torn), str(whole))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_junk_is_mended_or_left_and_never_grows(tmp_path, one, other):
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    torn.write_bytes(one)
    whole.write_bytes(other)
    mend(str(torn), str(whole))
    assert len(torn.read_bytes()) == len(one)


@pytest.mark.root
def test_the_kernels_symbols_are_kept_once_per_boot_for_their_owner(tmp_path):
    path = snapshot_kallsyms(open_host(), str(tmp_path), "0a-1b")
    assert path == str(tmp_path / "stacks/kallsyms-0a-1b.gz")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert b" T schedule\n" in gzip.decompress(Path(path).read_bytes())
    before = os.stat(path)
    assert snapshot_kallsyms(open_host(), str(tmp_path), "0a-1b") == path
    assert os.stat(path).st_mtime_ns == before.st_mtime_ns
    assert os.listdir(tmp_path / "stacks") == ["kallsyms-0a-1b.gz"]


def test_hidden_symbols_are_not_kept(tmp_path):
    root = tmp_path / "root/proc"
    root.mkdir(parents=True)
    (root / "kallsyms").write_text("0000000000000000 T schedule\n0000000000000000 t x [a1]\n")
    with pytest.raises(SourceDenied, match="kptr_restrict"):
        snapshot_kallsyms(open_host(str(root.parent)), str(tmp_path), "0a")
    assert not (tmp_path / "stacks").exists()

"""`/proc/PID/stat` and `/proc/PID/task/TID/stat`."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.host.host import Host, open_host
from sexton.model.rows.task import Process, Thread
from sexton.sources.procfs import tasks
from sexton.sources.procfs.tasks import Tasks, parse_process, parse_thread
from tests.support.fixtures import kernels
from tests.support.trees import plant

CORES = sorted(os.sched_getaffinity(0))


def line(pid, comm="job", **fields):
    """A stat line in the kernel's shape; `ticks` are its system time."""
    values = {"state": "S", "ticks": 0, "start": 50, "cpu": 0} | fields
    text = "{pid} ({comm}) {state} 1 1 1 0 -1 4194560 0 0 0 0 0 {ticks} 0 0 20 0 1 0 {start} "
    return text.format(pid=pid, comm=comm, **values) + "0 " * 16 + f"{values['cpu']} 0 0\n"


@contextmanager
def child(program):
    """A real Python child; it says a line once it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def processes(rows):
    return {row.pid: row for row in rows if isinstance(row, Process)}


def threads(rows, pid):
    return {row.tid: row for row in rows if isinstance(row, Thread) and row.pid == pid}


@pytest.mark.parametrize("path", kernels("procfs.tasks"), ids=lambda path: path.stem)
def test_every_line_of_a_real_kernel_is_read(path):
    rows = [parse_process(content) for content in path.read_bytes().splitlines()]
    kthreadd = next(row for row in rows if row.pid == 2)
    assert (kthreadd.comm, kthreadd.ppid, kthreadd.kernel) == ("kthreadd", 0, True)
    assert all(row.cpu in (0, 1) and row.threads >= 1 for row in rows)
    assert all(row.kernel == (row.pid == 2 or row.ppid == 2) for row in rows)


def test_there_were_two_kernels_to_read():
    assert len(kernels("procfs.tasks")) >= 2


def test_fields_are_the_ones_proc_5_numbers():
    text = next(path for path in kernels("procfs.tasks") if path.stem == "6.1").read_text()
    init = parse_process(text.split("\n")[0].encode())
    fields = text.split("\n")[0].split()
    assert (init.user_ms, init.system_ms) == (int(fields[13]) * 10, int(fields[14]) * 10)
    assert (init.start_ms, init.threads) == (int(fields[21]) * 10, int(fields[19]))
    assert init.cpu == int(fields[38])


@pytest.mark.parametrize("comm", ["a) R 1\nx", ") Z 0 (", "", "((", "\udcff", "a b c"])
def test_a_name_may_be_anything(comm):
    row = parse_process(line(7, comm, cpu=3).encode("utf-8", "surrogateescape"))
    assert (row.pid, row.comm, row.state, row.cpu) == (7, comm, "S", 3)


@pytest.mark.parametrize("content", [b"7", b"7 (x", b"7 (x) S 1", b"x (y) S" + b" 0" * 50])
def test_a_broken_line_is_malformed_and_named(content):
    with pytest.raises(SourceMalformed, match="/proc/7/stat"):
        parse_process(content, "/proc/7/stat")
    with pytest.raises(SourceMalformed, match="/proc/7/task/8/stat"):
        parse_thread(7, content, "/proc/7/task/8/stat")


@given(junk=st.binary(max_size=30), cut=st.integers(0, 120))
def test_junk_is_a_row_or_malformed(junk, cut):
    good = line(7).encode()
    with suppress(SourceMalformed):
        parse_process(good[:cut] + junk + good[cut:])
    with suppress(SourceMalformed):
        parse_thread(7, good[:cut] + junk)


def test_a_process_that_vanished_is_skipped_and_a_defunct_one_is_not(tmp_path):
    host = plant(
        tmp_path,
        {
            "/proc/7/stat": line(7, state="Z"),
            "/proc/8/stat": "",  # how a shell's snapshot sees a process that ended meanwhile
            "/proc/uptime": "1 1\n",
        },
    )
    (tmp_path / "proc/9").mkdir()
    rows = list(Tasks(host).collect())
    assert [(row.pid, row.state) for row in rows] == [(7, "Z")]


def test_threads_are_read_of_what_moved_and_once_more_after_it_stopped(tmp_path):
    host = plant(tmp_path, {"/proc/7/stat": line(7), "/proc/8/stat": line(8, ticks=9999)})
    for pid, tid in ((7, 7), (7, 71), (8, 8)):
        plant(tmp_path, {f"/proc/{pid}/task/{tid}/stat": line(tid, cpu=1)})
    tasks = Tasks(host)
    assert not threads(tasks.collect(), 7), "nothing has moved yet"
    plant(tmp_path, {"/proc/7/stat": line(7, ticks=500)})
    rows = list(tasks.collect())
    assert set(threads(rows, 7)) == {7, 71}
    assert not threads(rows, 8), "it burnt much, but long ago"
    still = list(tasks.collect())
    assert set(threads(still, 7)) == {7, 71}, "a second reading, to make a difference of"
    for _ in range(5):
        rows = list(tasks.collect())
    assert not threads(rows, 7), "it is forgotten in the end"


def test_a_pid_taken_over_by_another_process_starts_anew(tmp_path):
    host = plant(tmp_path, {"/proc/7/stat": line(7, ticks=5000, start=50)})
    plant(tmp_path, {"/proc/7/task/7/stat": line(7)})
    tasks = Tasks(host)
    list(tasks.collect())
    plant(tmp_path, {"/proc/7/stat": line(7, ticks=400, start=9000)})
    assert set(threads(tasks.collect(), 7)) == {7}, "its 4 s are all new"


def test_the_threads_of_one_process_are_bounded(tmp_path):
    host = plant(tmp_path, {"/proc/7/stat": line(7)})
    plant(tmp_path, {f"/proc/7/task/{tid}/stat": line(tid) for tid in range(100, 700)})
    tasks = Tasks(host)
    list(tasks.collect())
    plant(tmp_path, {"/proc/7/stat": line(7, ticks=500)})
    assert set(threads(tasks.collect(), 7)) == set(range(100, 612)), "the lowest 512"


def test_a_snapshot_is_read_once_so_all_the_threads_it_holds_are(tmp_path):
    live = plant(tmp_path, {"/proc/7/stat": line(7), "/proc/7/task/71/stat": line(71, cpu=1)})
    snapshot = Host(live.files, live=False, root=live.root, moment=(100.0, 1e9))
    (thread,) = threads(Tasks(snapshot).collect(), 7).values()
    assert (thread.tid, thread.cpu) == (71, 1)


BURNER = """
import os, sys, threading, time
def burn():
    os.sched_setaffinity(0, {%d})
    while True: pass
os.sched_setaffinity(0, {%d})
threading.Thread(target=burn, daemon=True).start()
sys.setswitchinterval(0.001)
time.sleep(0.2)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores: a leader's and a burner's")
def test_the_burning_thread_is_blamed_on_its_own_core_and_not_the_leaders():
    leader_core, burning_core = CORES[:2]
    tasks = Tasks(open_host())
    with child(BURNER % (burning_core, leader_core)) as process:
        scans = []
        for _ in range(60):  # on a loaded machine it may take some before it has moved
            rows = list(tasks.collect())
            if threads(rows, process.pid):
                scans.append(rows)
            if len(scans) == 2:
                break
            time.sleep(0.5)
    assert processes(scans[-1])[process.pid].cpu == leader_core
    before, after = (threads(scan, process.pid) for scan in scans)
    burnt = {
        tid: row.user_ms + row.system_ms - before[tid].user_ms - before[tid].system_ms
        for tid, row in after.items()
    }
    worst = max(burnt, key=burnt.__getitem__)
    assert worst != process.pid
    assert after[worst].cpu == burning_core
    assert burnt[process.pid] == 0, "the leader only waits"


def test_a_process_with_a_hostile_name_is_read_whole():
    program = (
        "open('/proc/self/comm', 'w').write('a) R 1\\nx')\n"
        "import sys; print('ready', flush=True); sys.stdin.read()"
    )
    with child(program) as process:
        rows = processes(Tasks(open_host()).collect())
    row = rows[process.pid]
    assert (row.comm, row.ppid, row.kernel) == ("a) R 1\nx", os.getpid(), False)


def test_a_defunct_child_of_ours_is_seen_as_one():
    process = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes(Tasks(open_host()).collect())[process.pid].state == "Z"
    finally:
        process.wait()


def test_page_faults_are_the_processs_own_and_not_its_dead_childrens():
    line = b"7 (x) S 1 7 7 0 -1 64 11 22 33 44 5 2 0 0 20 0 3 0 543 0 0"
    row = parse_process(line)
    assert (row.minor_faults, row.major_faults) == (11, 33)


def test_the_first_scan_reads_the_threads_of_what_has_long_been_busy(monkeypatch):
    monkeypatch.setattr(tasks, "_LONG_BUSY", 0.02)  # beside a busy neighbour, too
    code = "import time, sys\nprint('up', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            deadline = time.monotonic() + 120
            seen: list[Thread] = []
            while not seen and time.monotonic() < deadline:
                time.sleep(0.2)
                rows = Tasks(open_host()).collect()
                seen = [row for row in rows if isinstance(row, Thread) and row.pid == busy.pid]
            assert [row.tid for row in seen] == [busy.pid]
            assert (seen[0].policy, seen[0].rt_priority) == (0, 0)
        finally:
            busy.kill()


def test_a_process_whose_times_fell_is_no_mover(tmp_path):
    """The kernel scales user and system time anew at each reading: they step back at times."""
    host = plant(tmp_path, {"/proc/7/stat": line(7, ticks=500), "/proc/8/stat": line(8)})
    for pid in (7, 8):
        plant(tmp_path, {f"/proc/{pid}/task/{pid}/stat": line(pid)})
    tasks = Tasks(host)
    list(tasks.collect())
    plant(tmp_path, {"/proc/7/stat": line(7, ticks=900)})
    assert threads(tasks.collect(), 7)
    plant(tmp_path, {"/proc/7/stat": line(7, ticks=890), "/proc/8/stat": line(8, ticks=700)})
    rows = list(tasks.collect())
    assert [row.pid for row in rows if isinstance(row, Thread)] == [8, 7], "7 is still followed"

"""Running programs: a deadline, a bound, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed, SourceSkipped, SourceTimeout
from sexton.host.runner import ChildOptions, module_command, run, start


def alive(pid):
    """Whether a process runs; a defunct one that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid, patience_s=60.0):
    """Whether it ends; SIGKILL was sent, but being dead takes the kernel a moment."""
    end_s = time.monotonic() + patience_s
    while alive(pid) and time.monotonic() < end_s:
        time.sleep(0.02)
    return not alive(pid)


def written(path, patience_s=60.0):
    end_s = time.monotonic() + patience_s
    while not (path.exists() and path.read_text().strip()) and time.monotonic() < end_s:
        time.sleep(0.02)
    return path.read_text()


def test_status_and_both_outputs_come_back():
    ended = run(["sh", "-c", "echo out; echo err >&2; exit 3"], deadline_s=60)
    assert (ended.status, ended.output, ended.errors) == (3, b"out\n", b"err\n")


def test_the_child_gets_a_clean_environment_and_no_input(monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    ended = run(["sh", "-c", "cat; echo ${SECRET-unset} $LC_ALL"], deadline_s=60)
    assert ended.output == b"unset C.UTF-8\n"


def test_arguments_never_meet_a_shell():
    assert run(["echo", "$(id); `id` | x"], deadline_s=60).output == b"$(id); `id` | x\n"


def test_past_the_deadline_the_whole_group_is_killed(tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $$ $! > {pids}; wait"
    with pytest.raises(SourceTimeout, match="sh"):
        run(["sh", "-c", script], deadline_s=2.0)
    shell, sleeper = map(int, written(pids).split())
    assert gone(shell)
    assert gone(sleeper)


def test_a_grandchild_that_keeps_the_pipe_open_does_not_outlast_the_deadline(tmp_path):
    pids = tmp_path / "pids"
    with pytest.raises(SourceTimeout):
        run(["sh", "-c", f"sleep 300 & echo $! > {pids}"], deadline_s=2.0)
    assert gone(int(written(pids)))


def test_a_program_that_is_not_there_is_absent():
    with pytest.raises(SourceAbsent, match="not installed"):
        run(["sexton-no-such-program"], deadline_s=1)


def test_a_file_that_may_not_be_run_is_denied(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    with pytest.raises(SourceDenied):
        run([str(plain)], deadline_s=1)


def test_too_much_output_is_refused_at_once_and_the_child_killed(tmp_path):
    pids = tmp_path / "pid"
    began_s = time.monotonic()
    with pytest.raises(SourceMalformed, match="more than 1,000 bytes"):
        run(["sh", "-c", f"echo $$ > {pids}; exec yes"], deadline_s=300, limit=1000)
    assert time.monotonic() - began_s < 300, "it was not left to run until its deadline"
    assert gone(int(written(pids)))


def test_output_of_exactly_the_limit_is_allowed():
    assert len(run(["head", "-c", "1000", "/dev/zero"], deadline_s=60, limit=1000).output) == 1000


def test_endless_errors_are_cut_and_do_not_stop_it():
    ended = run(["sh", "-c", "head -c 300000 /dev/zero >&2; echo done"], deadline_s=30)
    assert (ended.output, len(ended.errors)) == (b"done\n", 4096)


def test_a_pinned_child_runs_on_those_cores_only_and_we_stay_free():
    before = os.sched_getaffinity(0)
    core = max(before)
    program = "import os; print(*os.sched_getaffinity(0))"
    ended = run([sys.executable, "-c", program], deadline_s=30, cpus=[core])
    assert ended.output == f"{core}\n".encode()
    assert os.sched_getaffinity(0) == before


def test_a_child_that_cannot_be_pinned_is_not_run_at_all(tmp_path):
    trace = tmp_path / "ran"
    with pytest.raises(SourceSkipped, match="pinned"):
        run(["touch", str(trace)], deadline_s=60, cpus=[8191])
    assert not trace.exists()


def test_no_descriptor_is_left_open():
    run(["true"], deadline_s=60)
    before = len(os.listdir("/proc/self/fd"))
    run(["true"], deadline_s=60)
    with pytest.raises(SourceTimeout):
        run(["sleep", "300"], deadline_s=0.2)
    assert len(os.listdir("/proc/self/fd")) == before


def test_niceness_is_not_added_to_ours():
    """The recorder is nice itself: added up, perf would be the last to run on a busy node."""
    script = (
        "import os; from sexton.host.runner import ChildOptions, start; os.nice(10);"
        "child = start(['sleep', '300'], ChildOptions(nice=10));"
        "print(os.getpriority(os.PRIO_PROCESS, child.pid)); child.stop()"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    expected = max(10, min(19, os.nice(0) + 10))
    assert ended.stdout.strip() == str(expected), ended.stderr


def test_a_child_that_works_beside_us_is_nice_private_heard_and_ends(tmp_path):
    script = f"echo said >&2; nice; nice > {tmp_path}/nice; exec sleep 300"
    child = start(["sh", "-c", script], ChildOptions(nice=7, private=True, keep_stderr=True))
    made = tmp_path / "nice"
    assert int(written(made)) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
    assert made.stat().st_mode & 0o777 == 0o600
    assert child.stderr() == "said\n"
    assert child.status() is None
    child.stop(patience_s=10)
    assert child.status() == -signal.SIGINT
    assert gone(child.pid)


def test_endless_words_are_cut_and_go_on_from_the_start():
    child = start(
        ["sh", "-c", "while echo yyyyyyyyyyyyyyy >&2; do :; done"], ChildOptions(keep_stderr=True)
    )
    try:
        while os.fstat(child._errors).st_size <= 1 << 16:
            time.sleep(0.01)
        assert len(child.stderr()) == 4096
        while os.fstat(child._errors).st_size == 0:
            time.sleep(0.01)
        assert child.stderr().startswith("yyy"), "no hole at the start"
    finally:
        child.stop(patience_s=1)


def test_a_descriptor_is_handed_down_only_if_asked(tmp_path):
    readable, writable = os.pipe()
    with os.fdopen(readable) as pipe:
        child = start(
            ["sh", "-c", f"echo x > /proc/self/fd/{writable}"], ChildOptions(keep=(writable,))
        )
        os.close(writable)
        assert pipe.read() == "x\n"
        child.stop()


def test_a_child_told_to_dies_with_us_even_by_kill_9():
    program = (
        "from sexton.host.runner import ChildOptions, start\nimport signal\n"
        "print(start(['sleep', '300'], ChildOptions(dies_with_parent=True)).pid, flush=True)\n"
        "signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(child)


def test_starting_leaves_no_descriptor_open_even_where_it_fails():
    before = len(os.listdir("/proc/self/fd"))
    start(["true"], ChildOptions(keep_stderr=True)).stop()
    with pytest.raises(SourceAbsent):
        start(["sexton-no-such-program"], ChildOptions(keep_stderr=True))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_module_of_ours_is_searched_where_we_were_found_and_never_in_the_current_directory(
    tmp_path, monkeypatch
):
    (tmp_path / "sexton.py").write_text("raise SystemExit('from the wrong place')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ended = run(module_command("sexton", "--version"), 30.0)
    assert (ended.status, ended.output[:7]) == (0, b"sexton ")

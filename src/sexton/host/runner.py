"""The only module that runs programs, each with a deadline and a limit on its output.

No shell, an environment of only PATH and the C locale, no standard input. At the deadline the child
and its process group are killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed, SourceSkipped, SourceTimeout

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_MOST_ERRORS = 4096
_SET_PARENT_DEATH_SIGNAL = 1
#: -I ignores PYTHONPATH, and `pip install --target` is found only through it.
_MODULE = (
    "import runpy, sys; sys.path[:] = sys.argv.pop(1).split('\\n');"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


class Ended(NamedTuple):
    """How a child ended."""

    status: int
    output: bytes
    errors: bytes


class ChildOptions(NamedTuple):
    """Settings of a long-running child.

    `nice` is its niceness, or ours if that is higher; the I/O priority follows from it
    (ioprio_set(2): nice 19 is the lowest best-effort level; the idle class would be too low for a
    child that must drain a buffer). `private`: files it creates are readable by their owner only.
    `keep_stderr`: its standard error is kept in memory (`Running.stderr`). `shares_stderr`: it is
    ours. `keep`: descriptors that it inherits.

    `dies_with_parent`: the kernel sends it SIGTERM when we end, in whatever way. It watches the
    *thread* that started it (prctl(2), PR_SET_PDEATHSIG), so start such a child from a thread that
    lives as long as the process. The setting is cleared if the program has file capabilities and we
    are not root, so the next start still has to look for leftovers.
    """

    nice: int = 0
    private: bool = False
    keep_stderr: bool = False
    shares_stderr: bool = False
    dies_with_parent: bool = False
    keep: tuple[int, ...] = ()


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours in an interpreter of its own.

    It searches where we were found and where this process searches, but never the current
    directory, whose files are not ours.
    """
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = ""
    searched = [path for path in sys.path if os.path.isabs(path) and os.path.realpath(path) != here]
    places = "\n".join(dict.fromkeys((own, *searched)))
    return [sys.executable, "-I", "-c", _MODULE, places, module, *arguments]


def run(
    argv: Sequence[str], deadline_s: float, limit: int = 8 << 20, cpus: Iterable[int] | None = None
) -> Ended:
    """Run `argv`; `cpus` pins it (and only it) to those cores."""
    child = _spawn(argv, (subprocess.PIPE, subprocess.PIPE), _before_exec(cpus, ChildOptions()))
    try:
        output, errors = _gather(child, time.monotonic() + deadline_s, limit)
    except subprocess.TimeoutExpired:
        raise SourceTimeout(argv[0], f"did not finish in {deadline_s:g} s; killed") from None
    except OverflowError:
        raise SourceMalformed(argv[0], 0, f"printed more than {limit:,} bytes; killed") from None
    finally:
        _end(child)
    return Ended(child.returncode, output, errors)


class Running:
    """A child that runs until `stop`."""

    def __init__(self, child: subprocess.Popen[bytes], errors: int = -1) -> None:
        self._child = child
        self._errors = errors

    @property
    def pid(self) -> int:
        return self._child.pid

    def status(self) -> int | None:
        """Its exit status (minus the signal's number); `None` while it runs."""
        return self._child.poll()

    def stderr(self) -> str:
        """The end of its standard error, if that is kept (`keep_stderr`)."""
        if self._errors < 0:
            return ""
        size = os.fstat(self._errors).st_size
        content = os.pread(self._errors, _MOST_ERRORS, max(0, size - _MOST_ERRORS))
        if size > 16 * _MOST_ERRORS:  # the offset is shared: the child continues at the start
            os.lseek(self._errors, 0, os.SEEK_SET)
            os.ftruncate(self._errors, 0)
        return content.replace(b"\0", b"").decode("utf-8", "surrogateescape")  # a hole, from a race

    def stop(self, patience_s: float = 5.0) -> None:
        """Send SIGINT, so that it can finish its file; then kill what is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(patience_s)
        _end(self._child)
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1


def start(argv: Sequence[str], options: ChildOptions | None = None) -> Running:
    """Start `argv` in the background; `stop` ends it. Its output is discarded, and its standard
    error too unless the options say otherwise."""
    options = options or ChildOptions()
    captured = os.memfd_create("sexton-stderr") if options.keep_stderr else -1
    try:
        errors = captured if options.keep_stderr else subprocess.DEVNULL
        streams = (subprocess.DEVNULL, None if options.shares_stderr else errors)
        child = _spawn(argv, streams, _before_exec(None, options), options)
    except BaseException:
        if captured >= 0:
            os.close(captured)
        raise
    return Running(child, captured)


def _before_exec(cpus: Iterable[int] | None, options: ChildOptions) -> Callable[[], None] | None:
    """What the child does between fork and exec; prepared before the fork, because little is safe
    there in a threaded process."""
    pinned = frozenset(cpus or ())
    if not (pinned or options.nice or options.dies_with_parent):
        return None
    control = None
    if options.dies_with_parent:
        import ctypes  # slow to import, and only a recorder has such children

        control = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()
    nicer = max(0, options.nice - os.nice(0)) if options.nice else 0

    def before_exec() -> None:
        if pinned:
            os.sched_setaffinity(0, pinned)
        if nicer:
            os.nice(nicer)
        if control is not None:
            control(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
            if os.getppid() != parent:  # we died before prctl took effect
                os._exit(1)

    return before_exec


def _spawn(
    argv: Sequence[str],
    streams: tuple[int, int | None],
    before_exec: Callable[[], None] | None,
    options: ChildOptions = ChildOptions(),  # noqa: B008 - an immutable tuple
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=streams[0],
            stderr=streams[1],
            env=_ENVIRONMENT,
            start_new_session=True,
            preexec_fn=before_exec,
            pass_fds=options.keep,
            umask=0o077 if options.private else -1,
        )
    except FileNotFoundError:
        raise SourceAbsent(argv[0], "not installed") from None
    except PermissionError:
        raise SourceDenied(argv[0], "not executable for this user") from None
    except subprocess.SubprocessError:
        raise SourceSkipped(argv[0], "cannot be pinned to the allowed cores") from None


def _gather(child: subprocess.Popen[bytes], end_s: float, limit: int) -> tuple[bytes, bytes]:
    """The child's output until it ends; `OverflowError` as soon as that is too much."""
    assert child.stdout is not None
    assert child.stderr is not None
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, output)
        selector.register(child.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(child.args, 0)
            for key, _ in selector.select(left_s):
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    selector.unregister(key.fileobj)
                key.data.extend(piece)
            if len(output) > limit:
                raise OverflowError
            del errors[_MOST_ERRORS:]
    child.wait(max(0.0, end_s - time.monotonic()))
    return bytes(output), bytes(errors)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill its process group and close the pipes."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)  # else it is in an uninterruptible read, and dies later
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()

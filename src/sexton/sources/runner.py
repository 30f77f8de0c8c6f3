"""The only module that runs programs, each with a deadline and a bound on what it may print.

No shell, an empty environment but for PATH and the C locale, no standard input; past the
deadline the child and whatever it started are killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sexton.errors import (
    SourceAbsent,
    SourceDenied,
    SourceMalformed,
    SourceSkipped,
    SourceTimeout,
)

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_MOST_ERRORS = 4096


class Ended(NamedTuple):
    """How a child ended."""

    status: int
    output: bytes
    errors: bytes


def run(
    argv: Sequence[str],
    deadline_s: float,
    limit: int = 8 << 20,
    cpus: Iterable[int] | None = None,
) -> Ended:
    """Run `argv`; `cpus` pins it (and only it) to those cores."""
    child = _spawn(argv, subprocess.PIPE, frozenset(cpus or ()))
    try:
        output, errors = _gather(child, time.monotonic() + deadline_s, limit)
    except subprocess.TimeoutExpired:
        raise SourceTimeout(argv[0], f"no answer in {deadline_s:g} s; killed") from None
    except OverflowError:
        raise SourceMalformed(argv[0], 0, f"printed more than {limit:,} bytes; killed") from None
    finally:
        _end(child)
    return Ended(child.returncode, output, errors)


class Running:
    """A child that works beside us until it is told to stop."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    def stop(self, patience_s: float = 5.0) -> None:
        """Interrupt it as Ctrl-C would, so that it can finish its file; then kill what is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(patience_s)
        _end(self._child)


def start(argv: Sequence[str]) -> Running:
    """Run `argv` beside us, its words thrown away; whoever starts it stops it."""
    return Running(_spawn(argv, subprocess.DEVNULL, frozenset()))


def _spawn(argv: Sequence[str], output: int, cpus: frozenset[int]) -> subprocess.Popen[bytes]:
    def before_exec() -> None:
        os.sched_setaffinity(0, cpus)

    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_ENVIRONMENT,
            start_new_session=True,
            preexec_fn=before_exec if cpus else None,
        )
    except FileNotFoundError:
        raise SourceAbsent(argv[0], "not installed") from None
    except PermissionError:
        raise SourceDenied(argv[0], "may not be run") from None
    except subprocess.SubprocessError:
        raise SourceSkipped(argv[0], "could not be pinned to the cores it may use") from None


def _gather(child: subprocess.Popen[bytes], end_s: float, limit: int) -> tuple[bytes, bytes]:
    """What the child prints until it ends; `OverflowError` as soon as that is too much."""
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
    """Leave nothing behind: neither a process of its group, nor a pipe."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)  # past this it is in an uninterruptible read, and dies later
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()

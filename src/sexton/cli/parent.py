"""The process that the shell waits for: it ends when the command is done, stuck threads or not.

A call that waits inside the kernel (for an RCU grace period that a held core delays, for a dying
disk) cannot be killed, and a process with such a thread does not end: the verdict is printed, but
the prompt does not come back. So a command that reads the node runs in a child. The parent reads
its exit status from a pipe and ends with it. A child that cannot end yet is left behind and ends as
soon as the kernel lets it.

Untrusted input may crash the libraries that parse it. The child then confines itself
(`sexton.sandbox`); if it dies, the parent prints one line and exits 2.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from sexton import sandbox

#: Commands that read a live node, or untrusted files.
_VERBS = frozenset(
    (
        "diagnose", "why", "zombies", "fix", "audit", "gate", "top", "profile", "sources",
        "collect", "recording", "serve",
    )
)  # fmt: skip
_RECORD = "record"
#: Killed at once when their parent is killed: their journals are made for that.
_KILLED = frozenset((_RECORD, "fix"))
_FORWARDED = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
_AWAITED = _FORWARDED | {signal.SIGCHLD}
#: `si_code` of a signal from the kernel (asm-generic/siginfo.h): a terminal's Ctrl-C reaches the
#: child as well.
_BY_THE_KERNEL = 0x80
#: A process exits within milliseconds; after this long it is stuck.
_ENDS_S = 0.5


def needs_child(arguments: Sequence[str]) -> bool:
    """Whether the command may hang in the kernel, or crash on what it reads.

    A recorder started by init or a service manager must stay its main process.
    """
    verb = _verb(arguments)
    if verb == _RECORD:
        return 1 not in (os.getppid(), os.getpid())
    return verb in _VERBS


def _verb(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def run_in_child(command: Callable[[], int]) -> int:
    """Run it in a child and return its exit status, as soon as that is known."""
    reader, writer = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reader)
        killed = _verb(sys.argv[1:]) in _KILLED
        sandbox.end_with(parent, signal.SIGKILL if killed else signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sandbox.expendable()
        status = command()
        with contextlib.suppress(OSError):
            os.write(writer, bytes([status & 0xFF]))
            os.kill(parent, signal.SIGCHLD)
        os._exit(status)
    os.close(writer)
    os.set_blocking(reader, False)
    known: int | None = None
    while True:
        came: signal.struct_siginfo | None = (
            signal.sigwaitinfo(_AWAITED)
            if known is None
            else signal.sigtimedwait(_AWAITED, _ENDS_S)
        )
        if came is not None and came.si_signo in _FORWARDED:
            if came.si_code != _BY_THE_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, came.si_signo)
            continue
        ended, how = os.waitpid(child, os.WNOHANG)
        if ended:
            return _status(os.waitstatus_to_exitcode(how))
        if came is None and known is not None:
            return known
        with contextlib.suppress(BlockingIOError):
            known = (os.read(reader, 1) or b"\2")[0]


def _status(code: int) -> int:
    """The exit status of a child that ended; prints a line if it was killed."""
    if code >= 0:
        return code
    why = sandbox.cause_of_death(-code)
    if not why:
        return 128 - code
    print(f"sexton: {_verb(sys.argv[1:])} failed: {why}", file=sys.stderr)
    return 2

"""The process that the shell waits for: it ends when the command is done, or when it is stuck.

A call that waits inside the kernel (for an RCU grace period that a held core delays, for a dying
disk, for the server of a mount) cannot be killed, and a process with such a thread does not end:
the verdict is printed, but the prompt does not come back. So a command runs in a child. The parent
reads its exit status from a pipe and ends with it. Meanwhile it looks at the child
(`sexton.host.stuck`): one that waits for a single answer of the kernel for `SILENT_S`, or for
`ENDING_S` after Ctrl-C, is given up with one line that says what it waits for. A child that cannot
end yet is left behind and ends as soon as the kernel lets it.

Untrusted input may crash the libraries that parse it. The child then confines itself
(`sexton.sandbox`); if it dies, the parent prints one line and exits 2.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from mmap import mmap

from sexton import sandbox
from sexton.host.stuck import Thread, Watch, waited_s

#: These read neither a node nor a file of the user's, or see to it themselves.
_PLAIN = frozenset(("", "completion", "npd"))
_RECORD = frozenset(("record", "node-agent"))
#: Killed at once when their parent is killed: their journals are made for that.
_KILLED = _RECORD | {"fix"}
_FORWARDED = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
_AWAITED = _FORWARDED | {signal.SIGCHLD}
#: `si_code` of a signal from the kernel (asm-generic/siginfo.h): a terminal's Ctrl-C reaches the
#: child as well.
_BY_THE_KERNEL = 0x80
#: A process exits within milliseconds; after this long it is stuck.
_ENDS_S = 0.5
#: How long one call may take. A disk under load answers within seconds, an NFS server that restarts
#: within a minute.
SILENT_S = 60.0
#: The same once the user asked for the end, and asked again.
ENDING_S, INSISTING_S = 5.0, 1.0
#: A recorder that a service manager stops has longer, to write its last minutes to a slow disk. The
#: manager has a limit of its own, 45 s in the unit that we ship.
MANAGED_S = 30.0
#: How often the child is looked at, until the end was asked for and afterwards.
_LOOK_S, _LOOK_SOON_S = 5.0, 0.5


def needs_child(arguments: Sequence[str]) -> bool:
    """Whether the command may hang in the kernel, or crash on what it reads.

    The first process of a container is not left: the kernel ends a container only as a whole. A
    part of the node's agent has a parent already.
    """
    verb = _verb(arguments)
    if "--agent-part" in arguments:
        return False
    return os.getpid() != 1 if verb in _RECORD else verb not in _PLAIN


def _verb(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def run_in_child(
    command: Callable[[], int], left: Callable[[], Callable[[], None] | None] = lambda: None
) -> int:
    """Run it in a child and return its exit status, as soon as that is known.

    `left` says afterwards what the child still has to do, however long that takes: to wait for a
    call that is stuck, and remove what that call was making.
    """
    reader, writer = os.pipe()
    note = sandbox.new_note()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    parent = os.getpid()
    show_memory = sandbox.hide_memory()  # from a child that was taken over by what it reads
    child = os.fork()
    if child == 0:
        show_memory()
        os.close(reader)
        killed = _verb(sys.argv[1:]) in _KILLED
        sandbox.end_with(parent, signal.SIGKILL if killed else signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sandbox.expendable(note)
        status = command()
        remaining = left()
        if remaining is not None:
            _detach()
        with contextlib.suppress(OSError):
            os.write(writer, bytes([status & 0xFF]))
            os.kill(parent, signal.SIGCHLD)
        if remaining is not None:
            remaining()
        os._exit(status)
    os.close(writer)
    os.set_blocking(reader, False)
    return _Child(child, reader, note).await_end()


def _detach() -> None:
    """Outlive the parent, and hold no pipe open whose reader waits for its end."""
    for forwarded in _FORWARDED:
        signal.signal(forwarded, signal.SIG_IGN)
    sandbox.outlive_parent()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)


class _Child:
    """The process that runs the command."""

    def __init__(self, pid: int, reader: int, note: mmap) -> None:
        self._pid = pid
        self._reader = reader
        self._note = note
        self._watch = Watch(pid)
        managed = os.getppid() == 1 and _verb(sys.argv[1:]) in _RECORD
        self._limits_s = (SILENT_S, MANAGED_S if managed else ENDING_S, INSISTING_S)
        #: The signals that asked it to end.
        self._asked: list[int] = []
        #: When it must have ended (monotonic); 0 until it is confined.
        self._deadline_s = 0.0
        #: For being late.
        self._killed = False

    def await_end(self) -> int:
        """Its exit status, as soon as that is known or it is given up."""
        known: int | None = None
        due_s = time.monotonic() + self._look_s
        while True:
            left_s = _ENDS_S if known is not None else max(0.0, due_s - time.monotonic())
            came = signal.sigtimedwait(_AWAITED, left_s)
            if came is not None and came.si_signo in _FORWARDED:
                self._pass_on(came)
                due_s = min(due_s, time.monotonic() + self._look_s)
                continue
            ended, how = os.waitpid(self._pid, os.WNOHANG)
            if ended:
                return self._status(os.waitstatus_to_exitcode(how))
            if came is None and known is not None:
                return known
            with contextlib.suppress(BlockingIOError):
                known = (os.read(self._reader, 1) or b"\2")[0]
            if known is None and time.monotonic() >= due_s:
                due_s = time.monotonic() + self._look_s
                if (stuck := self._stuck()) is not None:
                    return self._give_up(stuck)
                if self._is_late():
                    self._killed = True
                    os.kill(self._pid, signal.SIGKILL)

    @property
    def _look_s(self) -> float:
        return _LOOK_SOON_S if self._asked else min(_LOOK_S, SILENT_S)

    @property
    def _limit_s(self) -> float:
        return self._limits_s[min(len(self._asked), 2)]

    def _pass_on(self, came: signal.struct_siginfo) -> None:
        self._asked.append(came.si_signo)
        if came.si_code != _BY_THE_KERNEL:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, came.si_signo)

    def _is_late(self) -> bool:
        """Whether it had as much time as its input may take, without what it waited for a core."""
        if not self._deadline_s:  # kept: a child that was taken over could write another
            self._deadline_s = sandbox.noted(self._note).deadline_s
            return False
        over_s = time.monotonic() - self._deadline_s
        return over_s > 0 and (waited := waited_s(self._pid)) is not None and over_s > waited

    def _status(self, code: int) -> int:
        """The exit status of the child that ended; prints a line if it was killed.

        That of a recorder stays 128 plus the signal: a service manager restarts it, but not after
        2.
        """
        if code >= 0:
            return code
        reading = sandbox.noted(self._note).reading
        late = self._killed and -code == signal.SIGKILL
        why = sandbox.cause_of_death(signal.SIGALRM if late else -code, reading)
        if not why:
            return 128 - code
        from sexton.model.text import printable

        place = f"{printable(reading)}: " if reading else ""
        verb = _verb(sys.argv[1:])
        print(f"sexton: {place}{verb} failed: {why}", file=sys.stderr)
        return 128 - code if verb in _RECORD else 2

    def _stuck(self) -> Thread | None:
        most_s = 2 * max(self._look_s, _LOOK_SOON_S)
        return self._watch.look(self._limit_s, bool(self._asked), most_s)

    def _give_up(self, stuck: Thread) -> int:
        """Kill it, say what it waits for, and return an exit status without it."""
        from sexton.model.text import printable, seconds

        path, function = self._watch.place(stuck)
        what = printable(path) or f"sexton {_verb(sys.argv[1:])}"
        waits = f", waits in {function}" if function else ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        left = "" if self._is_gone() else "; left behind, it ends when the kernel lets it"
        hint = "; is its mount hung?" if path.startswith("/") or not waits else ""
        print(
            f"sexton: {what}: no answer for {seconds(self._limit_s)}{hint}"
            f" (process {stuck.pid}{waits}{left})",
            file=sys.stderr,
        )
        return 128 + self._asked[0] if self._asked else 2

    def _is_gone(self) -> bool:
        """Whether it ends within moments."""
        end_s = time.monotonic() + _ENDS_S
        while (left_s := end_s - time.monotonic()) > 0:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                return True
            signal.sigtimedwait((signal.SIGCHLD,), left_s)
        return False

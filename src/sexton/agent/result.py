"""The last verdict in a file of two lines, for node-problem-detector's plug-in.

::

    sexton-npd/1 1 84512 2f1c8a4e-…           exit status, until when it counts, of which boot
    PROBLEM: crash-looping unit leaky.service -> dying memory cgroups (proven)

The time is of CLOCK_BOOTTIME, as in ``/proc/uptime``, so that a clock that jumps changes nothing,
and a shell can compare it. What is older, of another boot, or not of this form is *unknown*. The
file belongs in memory (``/run``): there it is read at once, also while a disk hangs.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import stat
import time
from pathlib import Path
from typing import NamedTuple

from sexton.agent.condition import State, bounded

FORM = "sexton-npd/1"
OK, PROBLEM, UNKNOWN = 0, 1, 2
_STATUS = {"True": OK, "False": PROBLEM}
_WORDS = {OK: "OK", PROBLEM: "PROBLEM", UNKNOWN: "UNKNOWN"}
_MOST_LINE = 400
_MOST_BYTES = 1024
#: No verdict counts for longer.
_MOST_AGE_S = 3600
_HEAD = re.compile(rb"sexton-npd/1 ([012]) ([0-9]{1,12}) ([0-9a-f-]{1,64})\n([ -~]{1,400})\n")


class Result(NamedTuple):
    """A plug-in's exit status and its line."""

    status: int
    line: str


def result_of(state: State) -> Result:
    """The condition as a plug-in says it."""
    status = _STATUS.get(state.status, UNKNOWN)
    return Result(status, _line(status, state.message))


def unknown(why: str) -> Result:
    return Result(UNKNOWN, _line(UNKNOWN, why))


def _line(status: int, words: str) -> str:
    """ASCII: node-problem-detector cuts at bytes.

    >>> _line(1, "a → ß")
    'PROBLEM: a -> \\\\xdf'
    """
    text = bounded(words, _MOST_LINE).replace("→", "->").replace("…", "...")
    plain = text.encode("ascii", "backslashreplace").decode("ascii")
    return f"{_WORDS[status]}: {plain}"[:_MOST_LINE]


def write(path: str, result: Result, lasts_s: float, boot_id: str) -> None:
    """Replace the file as a whole. It counts from now for `lasts_s`."""
    until = int(uptime_s() + lasts_s) + 1
    content = f"{FORM} {result.status} {until} {boot_id}\n{result.line}\n".encode("ascii")
    place = Path(path)
    place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as stream:
            stream.write(content)
            os.fchmod(handle, 0o644)  # what a Node's condition says as well
        temporary.replace(place)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def uptime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read(path: str, boot_id: str) -> Result:
    """What the file says, if that still counts."""
    try:
        # A pipe does not block, and its content is not a verdict.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return unknown(f"{path}: no verdict yet; does sexton node-agent run with --npd?")
    except OSError as error:
        return unknown(f"{path}: {error.strerror}")
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return unknown(f"{path}: not a regular file")
        content = os.read(handle, _MOST_BYTES)
    except OSError as error:
        return unknown(f"{path}: {error.strerror}")
    finally:
        os.close(handle)
    return parse(content, uptime_s(), boot_id)


def read_in_time(path: str, most_s: float) -> Result:
    """The same by a child, which is left behind if a disk does not answer: a process with a call
    that hangs could not end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in range(3):  # who started us waits until nobody holds its pipes
                os.dup2(nowhere, number)
            found = read(path, _boot_id())
            os.write(writer, bytes([found.status]) + found.line.encode("ascii"))
        finally:
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], most_s)
    answer = os.read(reader, _MOST_BYTES) if ready else b""
    if answer:
        return Result(answer[0], answer[1:].decode("ascii"))
    os.kill(pid, signal.SIGKILL)
    return unknown(f"{path}: the disk does not answer" if not ready else "internal error")


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def parse(content: bytes, now_s: float, boot_id: str) -> Result:
    """The verdict in a file's content.

    >>> parse(b"sexton-npd/1 0 90 b-1\\nOK: no problem found\\n", 50.0, "b-1")
    Result(status=0, line='OK: no problem found')
    >>> parse(b"sexton-npd/1 0 90 b-1\\nOK: no problem found\\n", 91.0, "b-1").line
    'UNKNOWN: the last verdict is too old; is sexton node-agent running?'
    """
    found = _HEAD.fullmatch(content)
    if found is None:
        return unknown("the result file is damaged")
    status, until_s = int(found[1]), int(found[2])
    if found[3] != boot_id.encode():
        return unknown("the last verdict is of another boot")
    if not now_s <= until_s <= now_s + _MOST_AGE_S:
        return unknown("the last verdict is too old; is sexton node-agent running?")
    return Result(status, found[4].decode("ascii"))

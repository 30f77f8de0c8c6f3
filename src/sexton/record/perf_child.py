"""The continuous ``perf record``: which flags this perf supports, and leftover perf processes.

The flags are tested, the most complete set first, with a trial capture (``-- true``). Only the
result decides, never a version number, since distributions backport both::

      Error: unknown option `buildid-mmap'

- ``cpu-clock`` and not ``cycles``, which many virtual machines lack; ``-k CLOCK_MONOTONIC`` joins
  the samples with every other reading.
- ``--all-cgroups`` (perf 5.8, kernel 5.7) names each sample's cgroup; ``--buildid-mmap`` (5.12)
  puts build ids beside the maps. Without the latter perf would read every closed file again for
  them, so ``-B`` leaves them out there.
- ``--switch-output`` rotates files without gaps; a perf without it cannot be used. Never with
  ``-z``: one zstd stream would run across the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed, SourceSkipped
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.host.runner import run

INSTALL = "apt-get install linux-perf  # or the distribution's perf"
AS_ROOT = "sudo sexton record --stacks  # or kernel.perf_event_paranoid below 0"
_NAME = "perf record"
_NEEDED = "switch-output"
#: Dropped one by one, in this order, if perf or the kernel does not say which one it rejects.
_EXTRAS = ("--all-cgroups", "--buildid-mmap", "--switch-max-files")
_UNKNOWN = re.compile(r"unknown option `([a-z-]+)'")
_DENIED = re.compile(r"is limited|[Pp]ermission|paranoid|not permitted")
_PROBE_S = 20.0
_TRIAL = ".trial-"


def flags(hertz: int, segment_s: int, keep_files: int, folder: str) -> list[str]:
    """The most complete command that works here, without ``-o``; `folder` holds trial captures."""
    extras = list(_EXTRAS)
    while True:
        chosen = [f"{extra}={keep_files}" if "max-files" in extra else extra for extra in extras]
        plain = [] if "--buildid-mmap" in extras else ["-B"]
        command = [
            *("perf", "record", "-F", str(hertz), "-e", "cpu-clock", "-a", "-g"),
            *("-k", "CLOCK_MONOTONIC", "-m", "128", f"--{_NEEDED}={segment_s}s"),
            *chosen,
            *plain,
        ]
        refusal = _refusal(command, folder)
        if refusal is None:
            return command
        unknown = _UNKNOWN.search(refusal)
        if unknown is not None and unknown[1] == _NEEDED:
            raise SourceAbsent(_NAME, "this perf cannot rotate its output", INSTALL)
        if _DENIED.search(refusal):
            need = "it needs root, or kernel.perf_event_paranoid below 0"
            raise SourceDenied(_NAME, need, AS_ROOT)
        if "No space left" in refusal:
            raise SourceSkipped(_NAME, f"{folder}: no space left to try it")
        if not extras:
            raise SourceMalformed(_NAME, 0, last_words(refusal) or "failed without a message")
        named = f"--{unknown[1]}" if unknown is not None else ""
        extras.remove(named if named in extras else extras[0])


def _refusal(command: list[str], folder: str) -> str | None:
    """The error of a trial capture; `None` if it worked."""
    trial = f"{folder}/{_TRIAL}{os.getpid()}"
    os.makedirs(trial, mode=0o700, exist_ok=True)
    try:
        ended = run([*command, "-o", f"{trial}/perf.data", "--", "true"], _PROBE_S)
    except SourceAbsent:
        raise SourceAbsent(_NAME, "perf is not installed", INSTALL) from None
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return None if ended.status == 0 else ended.errors.decode("utf-8", "surrogateescape")


def clear_trials(folder: str) -> None:
    """Remove trial captures of a recorder that was killed during the test."""
    for name in os.listdir(folder):
        if name.startswith(_TRIAL):
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)


def last_words(said: str) -> str:
    """The most useful line of perf's output: one with an error in it, else the last.

    >>> last_words("[ perf record: Dump /x/perf.data.20261115 ]\\nfailed to write: No space\\nx\\n")
    'failed to write: No space'
    """
    lines = [line.strip() for line in said.split("\n")]
    lines = [line for line in lines if line and not line.startswith("[ perf record:")]
    errors = [line for line in lines if re.search(r"(?i)error\b|fail|no space|cannot", line)]
    return (errors or lines or [""])[-1][:200]


def end_leftovers(host: Host, folder: str) -> int:
    """End every perf that still writes into `folder`; returns how many.

    They were left by a killed recorder of ours: the caller holds the recording's lock. SIGTERM
    first, so that perf finishes its file. Processes are signalled by pidfd, so a reused PID is
    never hit.
    """
    ended = 0
    for pid in _writers(host, folder):
        with contextlib.suppress(ProcessLookupError):
            held = os.pidfd_open(pid)
            try:
                if not _writes_into(host, pid, folder):
                    continue
                for how, wait_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 1.0)):
                    signal.pidfd_send_signal(held, how)
                    if select.select([held], [], [], wait_s)[0]:
                        break
                ended += 1
            finally:
                os.close(held)
    return ended


def _writers(host: Host, folder: str) -> Iterator[int]:
    for name in host.files.names("/proc"):
        if name.isascii() and name.isdigit() and _writes_into(host, int(name), folder):
            yield int(name)


def _writes_into(host: Host, pid: int, folder: str) -> bool:
    """By its command line, which names the file, or by a file it holds open."""
    try:
        if not text(host.files, f"/proc/{pid}/comm").startswith("perf"):
            return False
        arguments = host.files.read(f"/proc/{pid}/cmdline").split(b"\0")
        if os.fsencode(f"{folder}/perf.data") in arguments:
            return True
        open_files = host.files.names(f"/proc/{pid}/fd")
    except SourceError:  # it has exited, or is not ours
        return False
    return any(_leads_into(host, f"/proc/{pid}/fd/{file}", folder) for file in open_files)


def _leads_into(host: Host, descriptor: str, folder: str) -> bool:
    try:
        return host.files.link(descriptor).startswith(f"{folder}/perf.data")
    except SourceError:
        return False

"""What a recorder must be allowed to do, why, and whether this process is.

CAP_SYSLOG, CAP_BPF, CAP_PERFMON, CAP_DAC_OVERRIDE, CAP_SYS_PTRACE and tracefs's CAP_SYS_ADMIN were
found by taking the capability away and by giving it alone (setpriv(1), Linux 6.18, root and another
user); that BPF's statistics need CAP_SYS_ADMIN is the kernel's documentation. Of no use turned out
CAP_NET_ADMIN (ethtool's counters are open to everybody) and, for root, CAP_DAC_OVERRIDE and
CAP_SYS_PTRACE (group root sees past ``hidepid``). Root recorded without any other.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.sources.tracefs.instance import find_tracefs

#: Their numbers in linux/capability.h.
BITS = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}


class Right(NamedTuple):
    """A capability: what for, whether this node asks for it, and whether we have it.

    `held` is `None` where that could not be read. `without` is what is missing then.
    """

    name: str
    reason: str
    needed: bool
    held: bool | None
    without: str


class Parts(NamedTuple):
    """What of a recorder is asked for, beside reading files."""

    probe: bool = True
    trace: bool = True
    ring: bool = True
    stacks: bool = False


def effective(host: Host) -> int | None:
    """This process's effective capabilities, as bits."""
    try:
        status = text(host.files, "/proc/self/status") if host.live else ""
    except SourceError:
        return None
    found = [line for line in status.split("\n") if line.startswith("CapEff:")]
    return int(found[0].split()[1], 16) if found else None


def has(capabilities: int | None, *names: str) -> bool | None:
    """All of these, or CAP_SYS_ADMIN, which was all there was before Linux 5.8.

    >>> has(1 << 39 | 1 << 38, "CAP_BPF", "CAP_PERFMON"), has(1 << 39, "CAP_BPF", "CAP_PERFMON")
    (True, False)
    >>> has(1 << 21, "CAP_BPF", "CAP_PERFMON"), has(None, "CAP_BPF")
    (True, None)
    """
    if capabilities is None:
        return None
    if capabilities >> BITS["CAP_SYS_ADMIN"] & 1:
        return True
    return all(capabilities >> BITS[name] & 1 for name in names)


def rights(host: Host, parts: Parts) -> tuple[Right, ...]:
    """Every capability a recorder may want, the plainest first."""
    held = effective(host)

    def one(name: str) -> bool | None:
        return None if held is None else bool(held >> BITS[name] & 1)

    restricted = _number(host, "/proc/sys/kernel/dmesg_restrict") != 0
    paranoid = _number(host, "/proc/sys/kernel/perf_event_paranoid")
    traces = parts.trace or parts.ring
    perf = parts.stacks and (paranoid is None or paranoid >= 0)
    return (
        Right(
            "CAP_SYSLOG",
            "/dev/kmsg if kernel.dmesg_restrict=1; symbols for stacks",
            restricted or parts.stacks,
            one("CAP_SYSLOG"),
            "kernel messages from the journal or a file, if at all",
        ),
        Right(
            "CAP_BPF",
            "the softirq probe (before Linux 5.8: CAP_SYS_ADMIN)",
            parts.probe,
            has(held, "CAP_BPF"),
            "no wait times; softirq and softnet counters remain",
        ),
        Right(
            "CAP_PERFMON",
            "the probe's tracepoints; perf, for stacks",
            parts.probe or perf,
            has(held, "CAP_PERFMON"),
            "no wait times; no stacks if perf_event_paranoid ≥ 0",
        ),
        Right(
            "CAP_SYS_ADMIN",
            "tracefs if not mounted; the probe's cost, else estimated",
            traces and not _tracefs_is_mounted(host),
            one("CAP_SYS_ADMIN"),
            "no cgroup events, no ring until tracefs is mounted",
        ),
        Right(
            "CAP_DAC_OVERRIDE",
            "for other users than root: trace instances, debugfs",
            traces and os.geteuid() != 0,
            True if os.geteuid() == 0 else one("CAP_DAC_OVERRIDE"),
            "no cgroup events and no ring",
        ),
        Right(
            "CAP_SYS_PTRACE",
            "/proc mounted with hidepid, if not in group root",
            _hides(host) and os.getegid() != 0 and 0 not in os.getgroups(),
            one("CAP_SYS_PTRACE"),
            "the process table has our own processes only",
        ),
    )


def _number(host: Host, path: str) -> int | None:
    try:
        return int(text(host.files, path))
    except (SourceError, ValueError):
        return None


def _tracefs_is_mounted(host: Host) -> bool:
    try:
        find_tracefs(host)
    except SourceError:
        return False
    return True


def _hides(host: Host) -> bool:
    """Is /proc mounted so that processes of others are hidden?"""
    try:
        lines = text(host.files, f"{host.self_dir}/mountinfo").split("\n")
    except SourceError:
        return False
    options = [
        line.rpartition(" ")[2] for line in lines if " /proc " in line and " - proc " in line
    ]
    hidden = [each for last in options[-1:] for each in last.split(",") if "hidepid=" in each]
    return any(each not in ("hidepid=0", "hidepid=off") for each in hidden)

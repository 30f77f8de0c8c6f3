"""How to get what is missing, in the words of the command that misses it."""

from __future__ import annotations


def own_words(grant: str, command: str) -> str:
    """A source's grant, which speaks of `diagnose`, for another command; without its remark.

    >>> own_words("sudo sexton diagnose  # needs CAP_SYSLOG, or kernel.dmesg_restrict=0", "top")
    'sudo sexton top'
    >>> own_words("sudo mount -t tracefs none /sys/kernel/tracing", "zombies")
    'sudo mount -t tracefs none /sys/kernel/tracing'
    """
    asked, _, remark = grant.partition("  # ")
    if asked != "sudo sexton diagnose":
        return grant
    where = "  # on the node itself" if remark.startswith("on the node") else ""
    return f"sudo sexton {command}{where}"

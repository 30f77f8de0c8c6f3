"""What is at a root: an operating system, and does it run?"""

from __future__ import annotations

from sexton.errors import CommandError, SourceError
from sexton.host.host import Host
from sexton.host.reader import exists, text
from sexton.model.text import shorten

_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
#: Any of these makes a tree an operating system's.
_SIGNS = (
    *_OS_RELEASE,
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/etc/systemd/system",
    "/sbin/init",
)
_LIMIT = 64 << 10
#: A name for a person; an image may hold a name of any length.
_LONGEST = 80


def require_system(host: Host, name: str) -> None:
    """An empty directory breaks no rule, and must not pass for an image: exit 2."""
    if not any(_there(host, path) for path in _SIGNS):
        raise CommandError(
            f"{name}: no operating system in there (neither os-release nor systemd's units nor"
            " an init); is it mounted?"
        )


def is_booted(host: Host) -> bool:
    """Does somebody's kernel answer in there? A mounted /proc has its first process."""
    return host.live or _there(host, "/proc/1/mountinfo") or _there(host, "/proc/cgroups")


def os_release(host: Host) -> dict[str, str]:
    """os-release's lines; empty where there is none.

    Shell syntax, of which only quotes are ever used (os-release(5)).
    """
    for path in _OS_RELEASE:
        try:
            content = text(host.files, path, _LIMIT)
        except SourceError:
            continue
        pairs = (line.split("=", 1) for line in content.splitlines() if "=" in line)
        return {
            key.strip(): shorten(value.strip().strip("\"'"), _LONGEST)
            for key, value in pairs
            if not key.lstrip().startswith("#")
        }
    return {}


def _there(host: Host, path: str) -> bool:
    try:
        return exists(host.files, path)
    except SourceError:
        return False

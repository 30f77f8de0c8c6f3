"""Which cgroup version an image that has never run will come up with.

systemd decides: by ``systemd.unified_cgroup_hierarchy=`` on the kernel command line, else by the
default its distribution built in. The command line is looked for where boot loaders keep it; the
defaults below are what the distributions themselves announced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import Files, text
from sexton.model.finding import Missing

_LIMIT = 1 << 20
_MOST = 50
_FILES = (
    "/boot/grub/grub.cfg",
    "/boot/grub2/grub.cfg",
    "/etc/default/grub",
    "/etc/kernel/cmdline",
    "/boot/cmdline.txt",
    "/boot/firmware/cmdline.txt",
)
_FOLDERS = ("/etc/default/grub.d", "/boot/loader/entries", "/etc/cmdline.d")
_SETTING = re.compile(r"systemd\.unified_cgroup_hierarchy(?:=([\w-]+))?")
_NO_V1 = re.compile(r"\bcgroup_no_v1=all\b")
_YES = ("1", "yes", "true", "on", "")
_NO = ("0", "no", "false", "off")
#: From which version on a distribution boots into v2; before, memory is on v1. `None`: it has no
#: versions and has been on v2 for years.
_UNIFIED_SINCE: Mapping[str, float | None] = {
    "ubuntu": 21.10,
    "debian": 11,
    "fedora": 31,
    "rhel": 9,
    "centos": 9,
    "rocky": 9,
    "almalinux": 9,
    "ol": 9,
    "amzn": 2023,
    "arch": None,
}


class Expected(NamedTuple):
    """Where memory will be accounted ("v1", "v2"), how that is known, and where it stands."""

    version: str
    why: str
    path: str
    line: int = 0


def expected(files: Files, os_release: Mapping[str, str]) -> Expected | Missing:
    """What the next boot will bring, or why that cannot be said."""
    unread: list[SourceError] = []
    told = {each.version: each for each in _by_command_line(files, unread)}
    if unread:  # it may say otherwise
        return Missing(f"{unread[0]}", "sudo sexton gate --root IMAGE")
    if len(told) == 1:
        return next(iter(told.values()))
    if told:
        both = " and ".join(f"{each.path} says {each.version}" for each in told.values())
        return Missing(f"boot entries differ: {both}", "sexton gate  # on a booted instance")
    return _by_distribution(os_release)


def _by_command_line(files: Files, unread: list[SourceError]) -> Iterator[Expected]:
    """What every boot entry says; those that are there and cannot be read go to `unread`."""
    for path in (*_FILES, *_listed(files, unread)):
        try:
            content = text(files, path, _LIMIT)
        except SourceAbsent:
            continue
        except SourceError as error:
            unread.append(error)
            continue
        for number, line in enumerate(content.splitlines(), 1):
            if line.lstrip().startswith("#"):
                continue
            found = _SETTING.search(line)
            value = (found[1] or "").lower() if found else None
            if value in _YES or _NO_V1.search(line):
                yield Expected("v2", f"by {path}", path, number)
            elif value in _NO:
                yield Expected("v1", f"by {path}", path, number)


def _listed(files: Files, unread: list[SourceError]) -> Iterator[str]:
    for folder in _FOLDERS:
        try:
            names = sorted(files.names(folder))[:_MOST]
        except SourceAbsent:
            continue
        except SourceError as error:
            unread.append(error)
            continue
        yield from (f"{folder}/{name}" for name in names if name.endswith((".cfg", ".conf")))


def _by_distribution(os_release: Mapping[str, str]) -> Expected | Missing:
    name = os_release.get("ID", "").lower()
    if name not in _UNIFIED_SINCE:
        told = os_release.get("PRETTY_NAME") or name or "this distribution"
        what = f"no boot entry of the image sets it, and {told}'s default is not known here"
        return Missing(what, "sexton gate  # on a booted instance")
    since = _UNIFIED_SINCE[name]
    version = _number(os_release.get("VERSION_ID", ""))
    if since is not None and version is None:
        what = f"no boot entry of the image sets it, and {name} does not say its version"
        return Missing(what, "sexton gate  # on a booted instance")
    unified = since is None or (version is not None and version >= since)
    release = os_release.get("PRETTY_NAME") or f"{name} {os_release.get('VERSION_ID', '')}"
    which = "v2" if unified else "v1"
    return Expected(which, f"the default of {release.strip()}", "/etc/os-release")


def _number(version: str) -> float | None:
    found = re.match(r"\d{1,6}(?:\.\d{1,4})?", version)
    return float(found[0]) if found else None

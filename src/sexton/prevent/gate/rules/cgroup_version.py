"""The node uses the cgroup version the policy requires.

``require`` is "any" (reported, never fails), "v1" or "v2", and refers to the *memory* controller: a
hybrid node counts as v1. On a booted node it is what is mounted. In an image it is what the next
boot will use: ``systemd.unified_cgroup_hierarchy=`` on the kernel command line in its boot
configuration, else the distribution's default. A distribution that is not in the list is *unknown*,
never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import Files, text
from sexton.model.finding import Missing
from sexton.prevent.gate.model import Checked, Settings, Violation
from sexton.prevent.gate.target import Target
from sexton.sources.cgroupfs.layout import read_layout

_CMDLINE = {"v2": "systemd.unified_cgroup_hierarchy=1", "v1": "systemd.unified_cgroup_hierarchy=0"}
_BOOTED = "sexton gate  # on a booted instance"
_LIMIT = 1 << 20
_MOST_ENTRIES = 50
#: Where boot loaders keep the kernel command line.
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
#: The first release of each distribution that boots into v2 by default, as announced by the
#: distribution; earlier ones keep memory on v1. `None`: a rolling release, on v2 for years.
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


class CgroupVersion(NamedTuple):
    """Which version has the memory controller ("v1", "v2"), how that is known, and from where."""

    version: str
    why: str
    path: str
    line: int = 0


def check(target: Target, settings: Settings) -> Checked:
    required = settings["require"]
    found = _version(target)
    if isinstance(found, Missing):
        if required == "any":
            return Checked(f"unknown ({found.what}); required: any")
        return Checked(missing=(found,))
    summary = f"{found.version} ({found.why}); required: {required}"
    if required in ("any", found.version):
        return Checked(summary)
    violation = Violation(
        "node",
        f"cgroup {found.version} ({found.why}), but the policy requires {required}",
        found.path,
        found.line,
        remedy=f"boot with {_CMDLINE[required]} on the kernel command line",
    )
    return Checked(summary, (violation,))


def _version(target: Target) -> CgroupVersion | Missing:
    if not target.booted:
        return next_boot(target.host.files, target.os_release)
    try:
        layout = read_layout(target.host)
    except SourceError as error:
        return Missing(str(error), "sudo sexton gate  # on the node itself")
    if layout.version is None:
        return Missing(layout.reason or "no cgroup hierarchy is mounted here", layout.advice)
    how = "hybrid, memory on v1" if layout.hierarchy == "hybrid" else "as mounted"
    return CgroupVersion(f"v{layout.version}", how, f"{target.host.self_dir}/mountinfo")


def next_boot(files: Files, os_release: Mapping[str, str]) -> CgroupVersion | Missing:
    """The version an image will boot into, or why that is unknown."""
    unread: list[SourceError] = []
    versions = {line.version: line for line in _command_lines(files, unread)}
    if unread:  # it may contradict the others
        return Missing(f"{unread[0]}", "sudo sexton gate --root IMAGE")
    if len(versions) == 1:
        return next(iter(versions.values()))
    if versions:
        both = " and ".join(
            f"{version.path} sets {version.version}" for version in versions.values()
        )
        return Missing(f"boot entries differ: {both}", _BOOTED)
    return _distribution_default(os_release)


def _command_lines(files: Files, unread: list[SourceError]) -> Iterator[CgroupVersion]:
    """What each boot entry sets; errors of entries that exist but cannot be read go to `unread`."""
    for path in (*_FILES, *_boot_entries(files, unread)):
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
                yield CgroupVersion("v2", f"set in {path}", path, number)
            elif value in _NO:
                yield CgroupVersion("v1", f"set in {path}", path, number)


def _boot_entries(files: Files, unread: list[SourceError]) -> Iterator[str]:
    for folder in _FOLDERS:
        try:
            names = sorted(files.names(folder))[:_MOST_ENTRIES]
        except SourceAbsent:
            continue
        except SourceError as error:
            unread.append(error)
            continue
        yield from (f"{folder}/{name}" for name in names if name.endswith((".cfg", ".conf")))


def _distribution_default(os_release: Mapping[str, str]) -> CgroupVersion | Missing:
    name = os_release.get("ID", "").lower()
    if name not in _UNIFIED_SINCE:
        distribution = os_release.get("PRETTY_NAME") or name or "this distribution"
        what = f"no boot entry sets it, and the default of {distribution} is unknown"
        return Missing(what, _BOOTED)
    since = _UNIFIED_SINCE[name]
    version = _number(os_release.get("VERSION_ID", ""))
    if since is not None and version is None:
        what = f"no boot entry sets it, and os-release has no VERSION_ID for {name}"
        return Missing(what, _BOOTED)
    unified = since is None or (version is not None and version >= since)
    release = os_release.get("PRETTY_NAME") or f"{name} {os_release.get('VERSION_ID', '')}"
    which = "v2" if unified else "v1"
    return CgroupVersion(which, f"default of {release.strip()}", "/etc/os-release")


def _number(version: str) -> float | None:
    found = re.match(r"\d{1,6}(?:\.\d{1,4})?", version)
    return float(found[0]) if found else None

"""What the gate checks: a node that was watched for a while, or the files of an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sexton.detect.findings import missing
from sexton.errors import CommandError, SourceError
from sexton.host.host import Host
from sexton.host.reader import RootedFiles, exists, text
from sexton.model.audit import Audit
from sexton.model.finding import Missing
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.unit import ServiceManager
from sexton.model.text import shorten
from sexton.model.window import Window
from sexton.prevent.gate.model import Checked

NOT_BOOTED = "nothing runs in an image; gate a booted instance of it as well"
_ON_THE_NODE = "sudo sexton gate  # on the node itself, not in a container"
_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
#: A tree with any of these is an operating system.
_OS_FILES = (
    *_OS_RELEASE,
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/etc/systemd/system",
    "/sbin/init",
)
_LIMIT = 64 << 10
_MOST_UNREAD = 3
#: An image may set a PRETTY_NAME of any length.
_LONGEST = 80


@dataclass
class Target:
    """A node or an image. `window` is `None` where nothing is booted; `auditing` runs once, on the
    first rule that needs the audit."""

    host: Host
    name: str
    kind: str
    booted: bool
    window: Window | None
    auditing: Callable[[Host, Window | None], Audit]
    os_release: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    #: What is damaged or missing in an image, a line each; grows while it is read.
    unread: Sequence[str] = ()

    @cached_property
    def audit(self) -> Audit:
        return self.auditing(self.host, self.window)

    @property
    def os(self) -> str:
        """The operating system's name for display."""
        return self.os_release.get("PRETTY_NAME") or self.os_release.get("ID", "")

    @property
    def in_container(self) -> bool:
        """Whether Sexton runs in a container, where the node's services are not visible."""
        node = None if self.window is None else self.window.node
        return node is not None and bool(node.container)

    @property
    def service_manager(self) -> str | None:
        rows = None if self.window is None else self.window.latest(ServiceManager)
        return rows[0].name if rows else None


def audit_of(target: Target) -> Audit | Checked:
    """The audit, or why there is none."""
    try:
        found = target.audit
    except SourceError as error:
        return Checked(missing=(Missing(str(error), error.grant or "sudo sexton gate"),))
    if found.has_units:
        return found
    why = next(iter((*found.unseen, *found.notes)), "units could not be listed")
    if not target.in_container and target.service_manager not in (None, "systemd"):
        return Checked(not_applicable=f"systemd is not running: {why.removeprefix('units: ')}")
    return Checked(missing=(Missing(why, "sudo sexton gate  # on the node itself"),))


def unread_units(audit: Audit) -> tuple[Missing, ...]:
    """Unit files that exist but could not be read: a unit may be missing from the audit."""
    return tuple(Missing(line, "sudo sexton gate") for line in audit.unread[:_MOST_UNREAD])


def memcg_counts(target: Target) -> tuple[CgroupCensus, ...] | Checked:
    """Every node-wide count of memory cgroups in the window, or why there is none.

    A cgroup counts as dying for the few milliseconds an ordinary removal takes, so rules use the
    lowest count of the window.
    """
    if not target.booted or target.window is None:
        return Checked(not_applicable=NOT_BOOTED)
    batches = target.window.batches(CgroupCensus)
    if batches is None:
        lack = missing(target.window.why_missing(CgroupCensus))
        grant = lack.grant.replace("sexton diagnose", "sexton gate")
        return Checked(missing=(Missing(lack.what, grant),))
    rows = tuple(row for batch in batches for row in batch.rows)
    whole = tuple(row for row in rows if row.scope == "node" and row.total is not None)
    if whole:
        return whole
    reason = next((row.reason for row in rows if row.reason), "memory cgroups could not be counted")
    return Checked(missing=(Missing(reason, _ON_THE_NODE),))


def count_source(census: CgroupCensus) -> str:
    """The file a count was read from."""
    if census.method.startswith("cgroup.stat") and census.mount_point:
        return f"{census.mount_point}/cgroup.stat"
    return "/proc/cgroups"


def require_system(host: Host, name: str) -> None:
    """Exit 2 for a tree without an operating system: an empty directory violates no rule, and a
    failed mount must not pass."""
    if not any(_exists(host, path) for path in _OS_FILES):
        raise CommandError(
            f"{name}: no operating system found (no os-release, no systemd units, no init);"
            " is it mounted?"
        )


def is_booted(host: Host) -> bool:
    """Whether a kernel runs in this tree; then procfs is mounted in it. An image's own files below
    /proc are no reason to watch it, which needs more rights and time than reading it."""
    if host.live or not isinstance(host.files, RootedFiles):
        return host.live
    try:
        return host.files.on_procfs("/proc")
    except SourceError:
        return False


def os_release(host: Host) -> dict[str, str]:
    """The fields of os-release(5); empty if there is no such file.

    The format is shell syntax, of which only quotes are used in practice.
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


def _exists(host: Host, path: str) -> bool:
    try:
        return exists(host.files, path)
    except SourceError:
        return False

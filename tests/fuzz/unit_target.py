"""Fuzz target: a unit file, in a tree that it is enabled in."""

from __future__ import annotations

from sexton.host.archive import ArchiveFiles
from sexton.prevent.audit.enabled import Enabled
from sexton.prevent.audit.unit_files import UnitTree
from tests.prevent.audit.trees import ECS_DEB

SYSTEM = "/usr/lib/systemd/system"


def one(data: bytes) -> None:
    files = ArchiveFiles()
    for name in ("a.service", "a.timer", "multi-user.target"):
        files.add_file(f"{SYSTEM}/{name}", data)
        files.add_link(f"/etc/systemd/system/multi-user.target.wants/{name}", f"{SYSTEM}/{name}")
    files.add_file("/etc/systemd/system.conf", data)
    files.add_file("/usr/lib/systemd/system-preset/1.preset", data)
    _ = Enabled(UnitTree(files)).units


def seeds() -> list[bytes]:
    """What units say."""
    return [
        ECS_DEB.encode(),
        b"[Timer]\nOnCalendar=*-*-* 4,8..12/2:0/5:*\nOnUnitActiveSec=1min 30s\nUnit=a.service\n",
        b"[Unit]\nWants=a.service \\\n b.service\n[Manager]\nDefaultRestartSec=1h\n",
        b"enable *\ndisable a?[b-c].service\n",
    ]

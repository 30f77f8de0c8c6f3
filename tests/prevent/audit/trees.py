"""Small trees of unit files, such as an image has."""

from __future__ import annotations

import os
from pathlib import Path

#: As the deb package of the ECS agent ships it.
ECS_DEB = """\
[Unit]
Description=Amazon Elastic Container Service - container agent
Requires=docker.service
After=docker.service
[Service]
Type=simple
Restart=on-failure
RestartSec=10s
EnvironmentFile=-/etc/ecs/ecs.config
ExecStart=/usr/libexec/amazon-ecs-init start
[Install]
WantedBy=multi-user.target
"""
PLAIN = "[Service]\nExecStart=/usr/bin/{name}\n[Install]\nWantedBy=multi-user.target\n"


class Tree:
    """An image's directory: units go to /usr/lib, links to /etc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path in ("etc/systemd/system", "usr/lib/systemd/system", "usr/bin"):
            (root / path).mkdir(parents=True)
        (root / "lib").symlink_to("usr/lib")
        self.write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")

    def write(self, path: str, content: str | bytes) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target, place)

    def unit(self, name: str, content: str = "", by: str | None = "multi-user.target") -> None:
        """A vendor's unit, enabled as `systemctl enable` would where `by` says so."""
        self.write(f"/usr/lib/systemd/system/{name}", content or PLAIN.format(name=name))
        if by is not None:
            self.link(f"/etc/systemd/system/{by}.wants/{name}", f"/lib/systemd/system/{name}")

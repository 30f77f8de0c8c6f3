"""The committed host trees (see their README)."""

from __future__ import annotations

from sexton.host.host import Host, open_host
from tests.support.fixtures import FIXTURES


def tree(name: str) -> Host:
    return open_host(str(FIXTURES / "nic" / "trees" / name))

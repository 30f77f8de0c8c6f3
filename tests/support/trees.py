"""A host's tree made of a few files, for sources that read more than one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sexton.host.host import Host, open_host


def plant(root: Path, files: Mapping[str, str | bytes]) -> Host:
    """Write `files` (the host's absolute paths) under `root` and open that as a host.

    Text goes the way names from the kernel come: surrogates are raw bytes.
    """
    for path, content in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else os.fsencode(content))
    return open_host(str(root))

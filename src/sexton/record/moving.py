"""One tree for the sources to keep while the snapshot behind it moves on."""

from __future__ import annotations

from sexton.host.reader import DEFAULT_LIMIT, Files, FileStatus


class MovingFiles:
    """The snapshot that is being replayed: sources keep this, and it moves on under them."""

    def __init__(self, now: Files) -> None:
        self.now = now

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        return self.now.read(path, limit)

    def names(self, path: str) -> list[str]:
        return self.now.names(path)

    def link(self, path: str) -> str:
        return self.now.link(path)

    def status(self, path: str) -> FileStatus:
        return self.now.status(path)

"""A tree in memory that also knows of files whose contents it does not hold."""

from __future__ import annotations

from sexton.errors import SourceMalformed
from sexton.sources.archive import ArchiveFiles
from sexton.sources.reader import DEFAULT_LIMIT, FileStatus


class ImageTree(ArchiveFiles):
    """`ArchiveFiles`, with a reason for each file that is there and cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self._closed: dict[str, str] = {}

    def add_closed(self, path: str, why: str) -> None:
        """A file that is known by name only."""
        self._closed[self._enter(path, is_dir=False)] = why

    def forget(self, path: str) -> None:
        """As a later member of a tar replaces an earlier one of the same name."""
        for kept in (self._contents, self._links, self._closed):
            kept.pop(path, None)

    def content(self, path: str) -> bytes | None:
        """What a hard link to `path` shares; by name alone, through no link."""
        return self._contents.get(path)

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        why = self._closed.get(self._find(path))
        if why is not None:
            raise SourceMalformed(path, 0, why)
        return super().read(path, limit)

    def status(self, path: str) -> FileStatus:
        if self._find(path, last=False) in self._closed:
            return FileStatus(0, 1, is_dir=False)
        return super().status(path)

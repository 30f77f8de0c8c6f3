"""A tree in memory that also knows of files whose contents it does not hold."""

from __future__ import annotations

from collections.abc import Callable

from sexton.errors import SourceMalformed, StoreError
from sexton.host.archive import ArchiveFiles
from sexton.host.reader import DEFAULT_LIMIT, FileStatus


class ImageTree(ArchiveFiles):
    """`ArchiveFiles`, with a reason for each file that is there and cannot be read.

    Others are fetched when they are asked for: `fetch` takes the place and the size that they were
    added with.
    """

    def __init__(self, fetch: Callable[[int, int], bytes] | None = None) -> None:
        super().__init__()
        self._closed: dict[str, str] = {}
        self._later: dict[str, tuple[int, int]] = {}
        self._fetch = fetch

    def add_closed(self, path: str, why: str) -> None:
        """A file that is known by name only."""
        self._closed[self._enter(path, is_dir=False)] = why

    def add_later(self, path: str, place: int, size: int) -> None:
        """A file whose contents are fetched if anybody wants them."""
        self._later[self._enter(path, is_dir=False)] = place, size

    def forget(self, path: str) -> None:
        """As a later member of a tar replaces an earlier one of the same name."""
        for kept in (self._contents, self._links, self._closed, self._later):
            kept.pop(path, None)

    def later(self, path: str) -> tuple[int, int] | None:
        """Place and size of a file that is still to be fetched."""
        return self._later.get(path)

    def content(self, path: str) -> bytes | None:
        """What a hard link to `path` shares; by name alone, through no link."""
        return self._contents.get(path)

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        found = self._find(path)
        why = self._closed.get(found)
        if why is not None:
            raise SourceMalformed(path, 0, why)
        later = self._later.get(found)
        if later is not None and self._fetch is not None:
            if later[1] > limit:
                raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
            try:
                content = self._fetch(*later)
            except StoreError as error:
                raise SourceMalformed(path, 0, str(error)) from None
            self.forget(found)
            self.add_file(found, content)
        return super().read(path, limit)

    def status(self, path: str) -> FileStatus:
        found = self._find(path, last=False)
        if found in self._closed or found in self._later:
            return FileStatus(0, 1, is_dir=False)
        return super().status(path)

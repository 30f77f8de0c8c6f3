"""Where `--ship` copies to: a directory, or object storage through pyarrow's filesystems.

Only three operations are used: put a whole file, get a small one, delete one. In a directory a file
is written under a temporary name, synced and renamed, with mode 0600. In object storage a file
exists once its upload is complete.

A URL may contain keys (``s3://KEY:SECRET@bucket/…``), so URLs are never printed unredacted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from sexton.errors import StoreError, first_line
from sexton.model.text import printable
from sexton.record.sampler import Worker
from sexton.store.layout import ASIDE, new_file, read_plain, write_all

#: Schemes tested with pyarrow, or aliases of those.
SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
_PROBE_S = 30.0
#: Per attempt; the SDK makes several.
_CONNECT_S, _REQUEST_S = 5.0, 10.0
#: Defaults unless the URL sets them: one request for small files, limited retries.
_DEFAULTS = {"s3": "allow_delayed_open=true", "gs": "retry_limit_seconds=30"}
_AWS = re.compile(r".*AWS Error (\w+) during \w+ operation: (.*)")
#: Keys may appear before an @ and after a ?; a key may contain slashes.
_KEYS = re.compile(r"(?<=://)\S*@|(?<=\?)\S+")
_LONGEST = 200


class Destination(Protocol):
    """Names are relative, with slashes. All methods raise `OSError` and may be slow."""

    def put(self, name: str, chunks: Iterable[bytes]) -> None: ...
    def get(self, name: str, most: int) -> bytes | None: ...
    def delete(self, name: str) -> None: ...
    def delete_all(self, place: str) -> None: ...


def shown(url: str) -> str:
    """A URL without its keys, safe to print.

    >>> shown("s3://AKIA:secret/with/slash@bucket/x?region=eu"), shown("/mnt/box")
    ('s3://…@bucket/x', '/mnt/box')
    """
    scheme, colon, rest = url.partition("://")
    if not colon:
        return printable(url)
    rest = rest.partition("?")[0]
    keys, at, place = rest.rpartition("@")
    return printable(f"{scheme}://…@{place}" if at and keys else f"{scheme}://{rest}")


def one_line(error: BaseException) -> str:
    """The error in one line, without keys and without the SDK's boilerplate.

    >>> one_line(OSError("When … 'k': AWS Error NO_SUCH_BUCKET during Put operation: none here"))
    'NO_SUCH_BUCKET: none here'
    """
    text = printable(_KEYS.sub("…", first_line(error)))
    if found := _AWS.fullmatch(text):  # without the name of the failed request
        text = f"{found[1]}: {found[2]}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def open_destination(url: str, recording: Path) -> Destination:
    """Check at start that `url` is writable; `StoreError` if not."""
    opened: Destination = _within(lambda: _opened(url, recording), url)
    probe = f".sexton-probe-{secrets.token_hex(4)}"

    def write_and_delete() -> None:
        opened.put(probe, [b"sexton\n"])
        opened.delete(probe)

    _within(write_and_delete, url)
    return opened


def _opened(url: str, recording: Path) -> Destination:
    scheme, colon, _ = url.partition("://")
    if not colon or scheme == "file":
        path = Path(unquote(urlsplit(url).path) if colon else url)
        if not path.is_absolute():
            raise StoreError(f"--ship {shown(url)}: give a full path, or a URL such as s3://bucket")
        inside = (path.resolve(), *path.resolve().parents)
        if recording.resolve() in inside:
            raise StoreError(f"--ship {shown(url)}: is inside the recording")
        return Directory(path)
    if scheme not in SCHEMES:
        known = ", ".join(f"{item}://" for item in SCHEMES)
        raise StoreError(f"--ship {shown(url)}: neither a directory nor one of {known}")
    return Objects(url)


def _within(action: Callable[[], Any], url: str) -> Any:
    """The result of the call; `StoreError` if it fails or times out."""
    worker = Worker()
    answer = worker.call("ship", action)
    worker.stop()
    if not answer.done.wait(_PROBE_S):
        raise StoreError(f"--ship {shown(url)}: no answer within {_PROBE_S:.0f} s")
    if isinstance(answer.error, StoreError):
        raise answer.error
    if answer.error is not None:
        raise StoreError(f"--ship {shown(url)}: {one_line(answer.error)}")
    return answer.result


class Directory:
    """An existing directory, usually a mount."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._device = path.stat().st_dev
        if not path.is_dir():
            raise StoreError(f"--ship {printable(str(path))}: not a directory")

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        if self.path.stat().st_dev != self._device:  # unmounted: never fill what is below
            raise OSError(0, f"{self.path} is not the filesystem it was at the start")
        with self._parent(name, make=True) as (place, last):
            aside = f"{ASIDE}{last}"
            descriptor = new_file(aside, place)
            try:
                try:
                    end = 0
                    for chunk in chunks:
                        write_all(descriptor, chunk, end)
                        end += len(chunk)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                os.rename(aside, last, src_dir_fd=place, dst_dir_fd=place)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(aside, dir_fd=place)
                raise
            os.fsync(place)

    def get(self, name: str, most: int) -> bytes | None:
        try:
            with self._parent(name) as (place, last):
                return read_plain(Path(f"/proc/self/fd/{place}") / last, most)
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._parent(name) as (place, last):
            os.unlink(last, dir_fd=place)

    def delete_all(self, place: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._parent(place) as (parent, last):
            shutil.rmtree(last, dir_fd=parent)

    @contextlib.contextmanager
    def _parent(self, name: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """The directory that a file is in, as a descriptor, and the file's own name. No link below
        the destination is followed: the destination may belong to another user."""
        *folders, last = name.split("/")
        if {"", ".", ".."} & {*folders, last}:  # from an untrusted listing
            raise OSError(errno.EINVAL, "not a name in a recording")
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        place = os.open(self.path, flags)
        try:
            for folder in folders:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, 0o700, dir_fd=place)
                inner = os.open(folder, flags | os.O_NOFOLLOW, dir_fd=place)
                os.close(place)
                place = inner
            yield place, last
        finally:
            os.close(place)


class Objects:
    """Object storage. Credentials come from the environment, a role or a file, as with the
    provider's own tools; avoid putting them in the URL, which `ps` shows."""

    def __init__(self, url: str) -> None:
        files, place = _file_system(url)
        self._files = _limited(files)
        self._root = place.rstrip("/")
        if not self._root:
            raise StoreError(f"--ship {shown(url)}: names no bucket")

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        path = f"{self._root}/{name}"
        stream = self._files.open_output_stream(path)
        try:
            for chunk in chunks:
                stream.write(chunk)
        except BaseException:
            # Closing completes the upload of half a file: delete it.
            with contextlib.suppress(OSError):
                stream.close()
                self._files.delete_file(path)
            raise
        stream.close()

    def get(self, name: str, most: int) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                content: bytes = stream.read(most)
        except FileNotFoundError:
            return None
        return content

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(f"{self._root}/{name}")

    def delete_all(self, place: str) -> None:
        # Not file by file: after each, pyarrow would leave an empty object for the directory.
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_dir(f"{self._root}/{place}")


def _file_system(url: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    opened: Callable[[str], tuple[Any, str]] = fs.FileSystem.from_uri
    more = _DEFAULTS.get(url.partition("://")[0], "")
    if more and more.partition("=")[0] not in url:
        with contextlib.suppress(pa.ArrowInvalid):  # an older pyarrow, or a bad URL: raised below
            return opened(f"{url}{'&' if '?' in url else '?'}{more}")
    return opened(url)


def _limited(files: Any) -> Any:
    """The same file system with request time-outs, which a URL cannot set: without them a server
    that stopped answering blocks for minutes."""
    if files.type_name != "s3":
        return files
    make, (known, *_) = files.__reduce__()  # its arguments, as pickling would store them
    if not isinstance(known, dict):
        return files
    return make({**known, "connect_timeout": _CONNECT_S, "request_timeout": _REQUEST_S})

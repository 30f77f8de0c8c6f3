"""Removes names from a committed recording that belong to the machine it was made on.

Replaced are the host name, boot and machine ids, home directories and checkouts, and names of
unrelated processes. A process keeps its name if it is a kernel thread, is common (`EVERYBODY`), or
is listed by the scene. Each name gets the same replacement everywhere, so that related rows still
match.

>>> scrub = Scrub("box-17", private=frozenset({"paydaemon"}))
>>> scrub("box-17: /home/ann/jobs/run.py, paydaemon[12] and /system.slice/paydaemon.service")
'node: /home/user, other[12] and /system.slice/other.service'
>>> scrub("boxing-17 payday"), scrub.name("paydaemon"), scrub.name("sh")
('boxing-17 payday', 'other', 'sh')
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable

import pyarrow as pa

HOST = "node"
BOOT = "00000000-0000-4000-8000-000000000001"
OTHER = "other"
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_DIGEST = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{32})(?![0-9a-f])")
_END = r"(?:/[^\s:,;'\")\]]*)?"
_HOME = re.compile(rf"(?<![\w.-])(?:/home/[^\s/:,;'\")\]]+|/root(?![\w.-])){_END}")
_CHECKOUT = re.compile(rf"(?<![\w.-])/(?:work|workspace|builds|mnt)(?![\w.-]){_END}")
_DISTRIBUTED = re.compile(r"[\w.+~-]+[-.](amd64|arm64|x86_64|aarch64|generic|aws|azure|gcp)")
#: Programs found on any machine.
EVERYBODY = re.compile(
    r"systemd(-[\w-]+)?|\(sd-pam\)|\([\w.-]{1,14}\)|init|dbus-daemon|agetty|login|cron|sshd"
    r"|udevd|rsyslogd|swapper(/\d+)?"
    r"|sexton[\w:-]*|perf[\w-]*|python[\d.]*|pytest|sh|bash|dash|sleep|dd|cat|true|false|tail|yes"
    r"|head|tee|ip|ping|nc|socat|curl|iperf3?|runc[\w:\[\]-]*|conmon|containerd[\w-]*|crun|stress[\w-]*"
    r"|ecs[\w-]*|kubelet|cadvisor|ray[\w:.-]*|lab[\w:.-]*|hog[\w-]*|scene[\w:.-]*|client|server"
)


#: Columns with words of our own: a process called mkdir must not rename the events of that kind.
OWN_WORDS = frozenset(("kind", "family", "method", "mode", "hierarchy", "scope"))


class Scrub:
    """Scrubs the texts of one recording. `private` are process names to replace."""

    def __init__(self, host: str, private: frozenset[str] = frozenset(), release: str = "") -> None:
        self._private = private
        self._release = release
        # Longest first; short words would match in too many paths.
        words = sorted((w for w in private if len(w) >= 4), key=lambda w: (-len(w), w))
        self._words = _any_of(words)
        self._host = _any_of([host] if len(host) >= 3 and host != HOST else [])

    def name(self, comm: str) -> str:
        """Scrub a process name."""
        return OTHER if comm in self._private else comm

    def __call__(self, text: str) -> str:
        """Scrub any other text."""
        if self._release:
            text = text.replace(self._release, plain_release(self._release))
        text = _UUID.sub(BOOT, text)
        text = _DIGEST.sub(lambda found: _other_digest(found[0]), text)
        text = _CHECKOUT.sub("/lab", text)
        text = _HOME.sub(lambda found: "/root" if found[0][1] == "r" else "/home/user", text)
        if self._host is not None:
            text = self._host.sub(HOST, text)
        if self._words is not None:
            text = self._words.sub(OTHER, text)
        return text

    def table(self, found: pa.Table) -> pa.Table:
        """Scrub every text of a table; columns called ``comm`` hold process names."""
        for place, field in enumerate(found.schema):
            if field.name in OWN_WORDS:
                continue
            how = self.name if field.name == "comm" else self
            column = _rewritten(found.column(place), how)
            if column is not None:
                found = found.set_column(place, field, column)
        return found


def plain_release(release: str) -> str:
    """A kernel release: unchanged for a distribution's kernel, only the version for a custom build.

    >>> plain_release("6.1.0-37-cloud-amd64"), plain_release("6.9.3-acme-prod-v12")
    ('6.1.0-37-cloud-amd64', '6.9.3')
    """
    if _DISTRIBUTED.fullmatch(release):
        return release
    numbers = re.match(r"\d+(\.\d+)*", release)
    return numbers[0] if numbers else release


def private_names(
    processes: Iterable[tuple[str, bool]], cast: Iterable[str] = ()
) -> frozenset[str]:
    """Names that are neither common, kernel threads nor in `cast`; input: (comm, is kernel
    thread)."""
    known = {*cast}
    seen = [*processes]
    known |= {comm for comm, kernel in seen if kernel}
    return frozenset(
        comm for comm, _ in seen if comm not in known and EVERYBODY.fullmatch(comm) is None
    )


def _any_of(words: list[str]) -> re.Pattern[str] | None:
    if not words:
        return None
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, words))})(?![\w-])")


def _other_digest(text: str) -> str:
    """A different digest of the same length, always the same for the same input."""
    return hashlib.sha256(text.encode()).hexdigest()[: len(text)]


def _rewritten(column: pa.ChunkedArray, how: Callable[[str], str]) -> pa.ChunkedArray | None:
    """The column with its texts rewritten; `None` if it has no texts."""
    kind = column.type
    if pa.types.is_string(kind):
        return _texts(column, how)
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        rows = [None if row is None else [how(cell) for cell in row] for row in column.to_pylist()]
        return pa.chunked_array([pa.array(rows, kind)])
    return None


def _texts(column: pa.ChunkedArray, how: Callable[[str], str]) -> pa.ChunkedArray:
    """Rewrite each distinct text once."""
    known = {text: _one(text, how) for text in column.unique().to_pylist()}
    return pa.chunked_array([pa.array([known[text] for text in column.to_pylist()], pa.string())])


def _one(text: str | None, how: Callable[[str], str]) -> str | None:
    if text is None:
        return None
    if text.startswith("{"):  # a JSON mapping: its keys are Sexton's
        try:
            document = json.loads(text)
        except ValueError:
            return how(text)
        return json.dumps({k: how(v) if isinstance(v, str) else v for k, v in document.items()})
    return how(text)

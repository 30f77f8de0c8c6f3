"""What the sources of names share: limits, and which names are new.

A node has some hundred containers and few of them change between two readings. So only what is new
is parsed and recorded; every ten minutes everything is, because old segments of a recording are
deleted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from sexton.host.host import Host

#: Of one directory. A kubelet runs 110 pods by default, and keeps one dead container of each.
MOST = 10_000
AGAIN_S = 600.0
#: Longer than a kubelet's API server accepts: DNS subdomains and labels, RFC 1123.
_MOST_LETTERS = 253
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
_ID = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")
R = TypeVar("R")


def is_id(text: object) -> bool:
    """Is it a container's id?"""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_uid(text: object) -> bool:
    """Is it a pod's uid, or the hash that a static pod has?

    >>> is_uid("0a1b2c3d-1111-2222-3333-444455556666"), is_uid("0f" * 16), is_uid("../..")
    (True, True, False)
    """
    return isinstance(text, str) and _UID.fullmatch(text) is not None


def is_name(text: object) -> bool:
    """Could it be a name? Hostile characters are kept, and escaped where they are shown."""
    return isinstance(text, str) and 0 < len(text) <= _MOST_LETTERS


class News:
    """Gives each name of a directory once while it stays there, and all of them every so often."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: set[Any] = set()
        self._all_s: float | None = None

    def of(
        self, names: Iterable[T], make: Callable[[T], R | None], most: int = MOST
    ) -> Iterator[R]:
        """What `make` gives for new names, at most so many: the others are new next time."""
        now_s = self._host.moment[0] if self._host.moment is not None else time.monotonic()
        found = set(names)
        if self._all_s is None or now_s - self._all_s >= AGAIN_S:
            self._all_s, self._known = now_s, set()
        self._known &= found
        for name in islice(sorted(found - self._known, key=str), most):
            made = make(name)
            self._known.add(name)
            if made is not None:
                yield made


def limited(names: list[str], path: str) -> tuple[list[str], str]:
    """The names that are read, and what to say if those are not all.

    >>> limited(["a"] * 10_001, "/x")[1]
    'only 10,000 of 10,001 entries of /x were read'
    """
    if len(names) <= MOST:
        return names, ""
    return names[:MOST], f"only {MOST:,} of {len(names):,} entries of {path} were read"

"""Documents as bytes: escaped, finite, bounded, compressed, and recognised when asked for again."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sexton.model.text import printable

#: Nothing larger is sent at once, measured before compression.
MOST_BYTES = 1_000_000
#: Smaller answers are not worth compressing.
_WORTH_BYTES = 1000
#: Loopback is quicker than a better compression would be.
_LEVEL = 1
#: Lists and texts of a document that is too large are cut at these lengths, one after the other.
_CUTS = (5000, 2000, 1000, 500, 200, 100, 50, 20, 10, 5)
#: The lists that a document's ``left_out`` speaks of.
_COUNTED = ("marks", "rows")
#: It is the same however often it is asked for; not for others, who may not be allowed to ask.
FOREVER = "private, max-age=31536000, immutable"
AGAIN = "private, no-cache"


@dataclass(frozen=True, slots=True)
class Body:
    """An answer as it goes over the wire, with its headers."""

    content: bytes
    headers: Mapping[str, str]


def safe(value: Any) -> Any:
    r"""JSON knows neither infinities nor halves of characters, a page no control characters.

    >>> safe({"name": "a\udcff\x1b[2J<script>", "at": [1.5, float("nan"), None, True]})
    {'name': 'a\\xff\\x1b[2J<script>', 'at': [1.5, None, None, True]}
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {printable(str(key)): safe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [safe(each) for each in value]
    return value


def json_bytes(document: Mapping[str, Any], most: int = MOST_BYTES) -> bytes:
    """At most `most` bytes of JSON.

    A document that is larger has its lists and texts cut: ``"cut_at"`` tells at which length, and
    where it counts what was ``"left_out"`` of its list, the cut counts too.
    """
    clean = safe(document)
    content = _dumped(clean)
    for length in _CUTS:
        if len(content) <= most:
            break
        less = {**_cut(clean, length), "cut_at": length}
        if "left_out" in clean:
            less["left_out"] += sum(len(clean.get(name, ())[length:]) for name in _COUNTED)
        content = _dumped(less)
    return content


def body_of(content: bytes, kind: str, cache: str, gzipped: bool) -> Body:
    """What is sent, with the headers that go with it."""
    headers = {
        "content-type": kind,
        "cache-control": cache,
        "etag": f'"{hashlib.sha256(content).hexdigest()[:24]}"',
        "vary": "accept-encoding",
    }
    if gzipped and len(content) > _WORTH_BYTES:
        headers["content-encoding"] = "gzip"
        content = gzip.compress(content, _LEVEL, mtime=0)
    return Body(content, headers)


def takes_gzip(accepted: str) -> bool:
    """Does an ``Accept-Encoding`` header allow it?

    >>> [takes_gzip(each) for each in ("gzip, br", "br", "", "gzip;q=0", "*", "GZIP; q=0.5")]
    [True, False, False, False, False, True]
    """
    for each in accepted.split(","):
        name, _, quality = each.partition(";")
        if name.strip().lower() == "gzip":
            return quality.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def known_already(etag: str, asked: str) -> bool:
    """Does an ``If-None-Match`` header name it?

    >>> known_already('"a"', 'W/"b", "a"'), known_already('"a"', '"b"'), known_already('"a"', "*")
    (True, False, True)
    """
    names = {each.strip().removeprefix("W/") for each in asked.split(",")}
    return etag in names or "*" in names


def _dumped(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length * 4 else value[: length * 4] + "…"
    if isinstance(value, dict):
        return {key: _cut(each, length) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each, length) for each in value[:length]]
    return value

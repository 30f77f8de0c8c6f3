"""An input of several parts, of which a target makes files whose checksums and lengths fit: what a
fuzzer changes is then read, and not refused as damaged.

>>> parts(joined([(b"J", b"{}"), (b"T", b"x")]))
[(b'J', b'{}'), (b'T', b'x')]
>>> parts(b"junk"), parts(b"")
([(b'j', b'unk')], [])
"""

from __future__ import annotations

from collections.abc import Iterable

_MARK = b"\xf5\xfa"
#: More would only take longer.
_MOST = 64


def parts(data: bytes) -> list[tuple[bytes, bytes]]:
    """Kind, one byte, and content of each part."""
    return [(piece[:1], piece[1:]) for piece in data.split(_MARK, _MOST)[:_MOST] if piece]


def joined(made: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The input that has these parts."""
    return b"".join(_MARK + kind + content for kind, content in made)

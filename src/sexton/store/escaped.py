"""Text that Arrow can hold.

Names from the kernel are any bytes, which Python holds as lone surrogates and Arrow's UTF-8 cannot.
Text with such bytes is stored escaped behind a NUL, which no name can hold:

>>> escape("a\\udcffb"), unescape(escape("a\\udcffb")) == "a\\udcffb"
('\\x00a\\\\xffb', True)
>>> escape("plain \\\\xff"), escape("\\0odd")
('plain \\\\xff', '\\x00\\x00odd')
"""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(\\|x[0-9a-f]{2}|u[0-9a-f]{4})")


def escape(text: str) -> str:
    """Text that UTF-8 can hold; most is itself."""
    if not text.startswith("\0") and _SURROGATE.search(text) is None:
        return text
    return "\0" + _SURROGATE.sub(_escaped, text.replace("\\", "\\\\"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    # A raw byte is written as one; JSON (the journal's) can hold other halves of a pair.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def unescape(text: str) -> str:
    """What `escape` was given."""
    if not text.startswith("\0"):
        return text
    return _ESCAPED.sub(_unescaped, text[1:])


def _unescaped(found: re.Match[str]) -> str:
    if found[1] == "\\":
        return "\\"
    return chr(int(found[1][1:], 16) + (0xDC00 if found[1][0] == "x" else 0))

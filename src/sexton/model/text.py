r"""Names from the kernel are hostile text.

A cgroup may be called ``\x1b[2J`` or ``<script>``, a process ``a) R 1\nx``. Rows keep names as
they are (decoded with ``surrogateescape``, so that they can be opened again); everything that is
shown to users or other programs goes through `printable` first.
"""

from __future__ import annotations

import time
import unicodedata

#: Categories that move the cursor, hide, reorder or break lines: control, format (bidi overrides,
#: zero-width), surrogate (an undecodable byte), private use, unassigned, line and paragraph
#: separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""`text` with everything that could disturb a terminal, a page or a log line escaped.

    >>> printable("ssh.service")
    'ssh.service'
    >>> printable("a) R 1\nx")
    'a) R 1\\nx'
    >>> printable("\x1b[2J")
    '\\x1b[2J'
    >>> printable(b"\xff".decode("utf-8", "surrogateescape"))
    '\\xff'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape of one raw byte
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(character) in _UNSAFE:
        return character.encode("unicode_escape").decode("ascii")
    return character


def escape(record: object, *names: str) -> None:
    """Make these fields of a frozen record printable: texts, or tuples of texts."""
    for name in names:
        value = getattr(record, name)
        safe = printable(value) if isinstance(value, str) else tuple(map(printable, value))
        object.__setattr__(record, name, safe)


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` columns, cut in the middle, where paths repeat themselves.

    >>> shorten("/system.slice/docker-0123456789abcdef.scope", 24)
    '/system.slic…bcdef.scope'
    """
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    head = width - 1 - tail
    return f"{text[:head]}…{text[len(text) - tail :]}" if tail else text[:width]


def count(number: float, singular: str, plural: str = "") -> str:
    """A number with its noun.

    >>> count(1, "core"), count(2000, "zombie"), count(3, "directory", "directories")
    ('1 core', '2,000 zombies', '3 directories')
    """
    noun = singular if number == 1 else (plural or singular + "s")
    return f"{number:,} {noun}"


def seconds(value: float) -> str:
    """A duration that is easy to read.

    >>> [seconds(v) for v in (0.00003, 0.0004, 0.25, 4.82, 75, 7300, 700000)]
    ['30 µs', '0.4 ms', '250 ms', '4.8 s', '1 min 15 s', '2 h 1 min', '8 d 2 h']
    >>> [seconds(v) for v in (0.9994, 0.9996, 59.94, 59.96)]
    ['999 ms', '1.0 s', '59.9 s', '1 min 0 s']
    """
    if value < 0:
        return "-" + seconds(-value)
    if 0 < value < 1e-4:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:  # what rounds to the next unit is shown in it
        return f"{value * 1000:.{1 if value < 0.01 else 0}f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = max(int(value), 60)
    for unit, size, sub, subsize in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // subsize} {sub}"
    return f"{whole // 60} min {whole % 60} s"


def an_hour(value: float, sign: str = "") -> str:
    """A rate per hour; small ones with a decimal, `sign` "+" to show it.

    >>> an_hour(7948.1), an_hour(9.96), an_hour(0.04), an_hour(120.2, "+"), an_hour(-3.25, "+")
    ('7,948 an hour', '10.0 an hour', '0.0 an hour', '+120 an hour', '-3.2 an hour')
    """
    return f"{value:{sign},.{0 if abs(value) >= 10 else 1}f} an hour"


def size(value: float) -> str:
    """Bytes in binary units.

    >>> size(0), size(4096), size(3.5 * 2**30)
    ('0 B', '4.0 KiB', '3.5 GiB')
    """
    if abs(value) < 1024:
        return f"{value:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.1f} {unit}"
    raise AssertionError("unreachable")


def clock(wall_s: float | None) -> str:
    """The time of day in UTC.

    >>> clock(1_740_000_002.4), clock(None), clock(1e30)
    ('21:20:02', '', '')
    """
    return "" if wall_s is None else _utc("%H:%M:%S", wall_s)


def day(wall_s: float) -> str:
    """The date in UTC, empty if there is none.

    >>> day(1_740_000_002.4)
    '2025-02-19'
    """
    return _utc("%Y-%m-%d", wall_s)


def moment(wall_s: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in this machine's zone, in which times are typed.

    >>> moment(1e30)
    '1000000000000000019884624838656'
    """
    try:
        return time.strftime(form, time.localtime(wall_s))
    except (OverflowError, OSError, ValueError):
        return f"{wall_s:.0f}"


def local_time(wall_s: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """The same with the zone, unless that is UTC: other times of a report are."""
    return moment(wall_s, form if moment(wall_s, "%z") == "+0000" else f"{form} %Z")


def _utc(form: str, wall_s: float) -> str:
    try:
        return time.strftime(form, time.gmtime(wall_s))
    except (OverflowError, OSError, ValueError):
        return ""

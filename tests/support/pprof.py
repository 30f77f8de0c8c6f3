"""A pprof profile made field by field, as the format's own document has them."""

from __future__ import annotations

from sexton.profile.perf.protobuf import number, text, varint

STRINGS = (
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "main",
    "vfs_read",
    "inlined_one",
    "/usr/bin/app",
    "[kernel.kallsyms]",
    "comm",
    "worker/3",
    "pid",
    "tid",
    "7",
)


def packed(*values: int) -> bytes:
    return b"".join(varint(value) for value in values)


def label(key: int, said: int = 0, num: int = 0) -> bytes:
    return text(3, number(1, key) + number(2, said) + number(3, num))


def small(labels: bool = True, types: tuple[tuple[int, int], ...] = ((1, 2), (3, 4))) -> bytes:
    """Two stacks: main > (inlined_one in) main > vfs_read 3 times, main alone 4 times."""
    told = label(10, 11) + label(12, num=70) + label(13, num=71) + label(3, 14) if labels else b""
    pieces = [text(1, number(1, kind) + number(2, unit)) for kind, unit in types]
    pieces += [
        text(2, text(1, packed(2, 3, 1)) + text(2, packed(3, 30)) + told),
        text(2, text(1, packed(1)) + text(2, packed(4, 40))),
        text(3, number(1, 1) + number(5, 8)),
        text(3, number(1, 2) + number(5, 9)),
        text(4, number(1, 1) + number(2, 1) + number(3, 0x4010) + text(4, number(1, 1))),
        text(4, number(1, 2) + number(2, 2) + text(4, number(1, 2))),
        # A location of two functions, the inlined one first.
        text(4, number(1, 3) + number(2, 1) + text(4, number(1, 3)) + text(4, number(1, 1))),
        text(5, number(1, 1) + number(2, 5)),
        text(5, number(1, 2) + number(2, 6)),
        text(5, number(1, 3) + number(2, 7)),
        *(text(6, said.encode()) for said in STRINGS),
        number(9, 1794743011 * 10**9),
        number(10, 5 * 10**9),
        text(11, number(1, 3) + number(2, 4)),
        number(12, 10_309_278),
    ]
    return b"".join(pieces)

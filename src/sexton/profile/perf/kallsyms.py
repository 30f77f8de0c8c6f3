"""Kernel symbols: ``/proc/kallsyms``, or a snapshot of it, plain or gzipped.

Documentation: ``man 5 proc``; kernel/kallsyms.c (`s_show`). An excerpt::

    ffffffff81000000 T _stext
    ffffffff81000000 T _text
    ffffffffc0201000 t ftrace_trampoline	[__builtin__ftrace]

Quirks: only the kernel's own part is sorted, modules follow in load order; there are no sizes; one
address may have many names; with `kernel.kptr_restrict` all addresses are zero. Names are chosen as
in perf (tools/perf/util/symbol.c), so that both agree: text and data symbols only; a symbol extends
to the next one, or to the end of its page at a module border; of several at one address one with an
extent wins, which is the last, then the one that is not weak, is global, has fewer leading
underscores, is longer, came first.

A BPF program, a trampoline or a kprobe page gets its name and extent from a KSYMBOL record (type
17) when it is loaded; a later one at the same address replaces an earlier one.

>>> table = parse(b"ffffffff81000000 T _text\\nffffffff81000000 T go\\nffffffff81000040 t on\\n")
>>> table.names(table.find([0xffffffff81000003, 0xffffffff81000040]))
['go', 'on']
>>> table.find([0x1000]).tolist(), table.marks == {"_text": 0xffffffff81000000}
([-1], True)
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sexton.errors import SourceDenied, SourceMalformed
from sexton.host.reader import Files
from sexton.model.profile import I32, I64, UNKNOWN
from sexton.profile.perf.raw import KernelSymbol

PATH = "/proc/kallsyms"
KERNEL = "[kernel.kallsyms]"
#: Kernels with everything built in reach some 35 MB.
MOST_BYTES = 128 << 20
_MOST_ODD = 1_000_000
MARKS = ("_text", "_stext", "_etext", "_edata")
_PAGE = 4096
_GZIP = b"\x1f\x8b"
_NEWLINE, _TAB, _SPACE = 10, 9, 32
#: An address, spaces and the type before a name: ``ffffffff81000000 T ``.
_HEAD = 19
_ODD = re.compile(rb"\s*([0-9a-fA-F]{1,16}) ([!-~]) ([^\s]+)(?:\t\[([^\]\n]*)\])?")
_USED = np.zeros(256, np.bool_)
_USED[np.frombuffer(b"TtWwDdBb", np.uint8)] = True

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Kallsyms:
    """Symbols by ascending `start`; `module` 0 is the kernel itself. Names are in `text`.

    `marks` are the addresses of `MARKS`, which differ between boots and builds.
    """

    start: U64
    end: U64
    name_from: I64
    name_to: I64
    module: I32
    text: bytes
    modules: tuple[str, ...]
    marks: dict[str, int]

    def __len__(self) -> int:
        return len(self.start)

    def find(self, addresses: npt.ArrayLike) -> I64:
        """The symbol of each address; -1: none."""
        wanted = np.asarray(addresses, np.uint64)
        if not len(self.start):
            return np.full(len(wanted), -1, np.int64)
        found = np.searchsorted(self.start, wanted, side="right").astype(np.int64) - 1
        inside = (found >= 0) & (wanted < self.end[found])
        return np.where(inside, found, -1)

    def names(self, symbols: I64) -> list[str]:
        """The names of symbols."""
        spans = zip(self.name_from[symbols].tolist(), self.name_to[symbols].tolist(), strict=True)
        return [self.text[start:end].decode("utf-8", "surrogateescape") for start, end in spans]

    def module_names(self, symbols: I64) -> list[str]:
        """The modules of symbols: `KERNEL`, ``[ext4]``, ``[bpf]``."""
        return [self.modules[module_index] for module_index in self.module[symbols].tolist()]

    def shifted(self, by: int) -> Kallsyms:
        """The same kernel at another address: its own symbols moved, without modules."""
        kept = np.flatnonzero(self.module == 0)
        shift = np.uint64(by % (1 << 64))
        return Kallsyms(
            self.start[kept] + shift,
            self.end[kept] + shift,
            self.name_from[kept],
            self.name_to[kept],
            self.module[kept],
            self.text,
            self.modules,
            {name: address + by for name, address in self.marks.items()},
        )


def read(files: Files, path: str = PATH) -> Kallsyms:
    """Parse a file, plain or gzipped."""
    return parse(unpacked(files.read(path, MOST_BYTES), path), path)


def unpacked(content: bytes, path: str = PATH) -> bytes:
    """Unpack gzip, at most `MOST_BYTES`; other input is returned unchanged."""
    if not content.startswith(_GZIP):
        return content
    inflate = zlib.decompressobj(wbits=31)
    try:
        text = inflate.decompress(content, MOST_BYTES)
    except zlib.error as error:
        raise SourceMalformed(path, 0, f"damaged gzip: {error}") from None
    if inflate.unconsumed_tail:
        raise SourceMalformed(path, 0, f"more than {MOST_BYTES:,} bytes of text")
    if not inflate.eof:
        raise SourceMalformed(path, 0, "truncated gzip")
    return text


class _Lines:
    """Address, type, name and module of each line as columns."""

    def __init__(self, text: bytes) -> None:
        # Words are read at any byte: spare bytes at the end.
        self.text = text if text.endswith(b"\n") or not text else text + b"\n"
        self._bytes = np.frombuffer(self.text + bytes(24), np.uint8)
        ends = np.flatnonzero(self._bytes[: len(self.text)] == _NEWLINE)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1)) if len(ends) else ends
        address, regular = self._addresses(starts)
        regular &= ends - starts > _HEAD
        kind = self._bytes[starts + 17]
        used = regular & _USED[kind]
        self.address = address[used]
        self.kind = kind[used]
        self.name_from = starts[used] + _HEAD
        self.name_to = ends[used]
        self.modules = {KERNEL: 0}
        self.module = np.zeros(len(self.address), np.int32)
        self._cut_modules(ends, np.cumsum(used) - 1, used)
        odd = np.flatnonzero(~regular & (ends > starts))
        if len(odd):
            self._add_odd(starts[odd[:_MOST_ODD]], ends[odd[:_MOST_ODD]])

    def _addresses(self, starts: I64) -> tuple[U64, npt.NDArray[np.bool_]]:
        """Parse sixteen hexadecimal digits at once: two words of eight, a digit per byte."""
        words = np.ndarray((len(self._bytes) - 7,), "<u8", self._bytes, strides=(1,))
        high, good_high = _hexadecimal(words[starts])
        low, good_low = _hexadecimal(words[starts + 8])
        spaced = (self._bytes[starts + 16] == _SPACE) & (self._bytes[starts + 18] == _SPACE)
        return (high << np.uint64(32)) | low, good_high & good_low & spaced

    def _cut_modules(self, ends: I64, place: I64, used: npt.NDArray[np.bool_]) -> None:
        """A tab separates the name from its module."""
        tabs = np.flatnonzero(self._bytes[: len(self.text)] == _TAB)
        lines = np.searchsorted(ends, tabs)
        lines, first = np.unique(lines, return_index=True)
        kept = used[lines]
        tabs, rows, ends = tabs[first][kept], place[lines[kept]], ends[lines[kept]]
        behind = tabs >= self.name_from[rows]
        tabs, rows, ends = tabs[behind], rows[behind], ends[behind]
        self.name_to[rows] = tabs
        for row, tab, end in zip(rows.tolist(), tabs.tolist(), ends.tolist(), strict=True):
            self.module[row] = self._number(self.text[tab + 1 : end].rstrip())

    def _number(self, module: bytes) -> int:
        name = module.decode("utf-8", "surrogateescape")
        return self.modules.setdefault(name, len(self.modules))

    def _add_odd(self, starts: I64, ends: I64) -> None:
        """Lines of other widths (32-bit kernels): one by one."""
        found = []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            match = _ODD.fullmatch(self.text, start, end)
            if match is None or not _USED[match[2][0]]:
                continue
            module = self._number(b"[%s]" % match[4]) if match[4] is not None else 0
            found.append((int(match[1], 16), match[2][0], *match.span(3), module))
        if not found:
            return
        address, kind, name_from, name_to, module_of = zip(*found, strict=True)
        self.address = np.append(self.address, np.array(address, np.uint64))
        self.kind = np.append(self.kind, np.array(kind, np.uint8))
        self.name_from = np.append(self.name_from, np.array(name_from, np.int64))
        self.name_to = np.append(self.name_to, np.array(name_to, np.int64))
        self.module = np.append(self.module, np.array(module_of, np.int32))


def _hexadecimal(word: U64) -> tuple[U64, npt.NDArray[np.bool_]]:
    """The number of eight digits, the first in the lowest byte; and whether all are digits."""
    ones = np.uint64(0x0101010101010101)
    letter = (word >> np.uint64(6)) & ones
    digit = (word & (np.uint64(0x0F) * ones)) + letter * np.uint64(9)
    digit &= np.uint64(0x0F) * ones
    # Formatting it again must give the same text: 0x30 + digit, plus 39 above nine.
    above = ((digit + np.uint64(6) * ones) >> np.uint64(4)) & ones
    good = digit + np.uint64(0x30) * ones + above * np.uint64(39) == word
    pairs = (digit << np.uint64(4) | digit >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs << np.uint64(8) | pairs >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    whole = (fours << np.uint64(16) | fours >> np.uint64(32)) & np.uint64(0xFFFFFFFF)
    return whole, good


def parse(text: bytes, path: str = PATH) -> Kallsyms:
    """Symbols by address, one per address. Malformed lines are skipped."""
    lines = _Lines(text)
    if not len(lines.address):
        raise SourceMalformed(path, 0, "no kernel symbols")
    if not lines.address.any():
        raise SourceDenied(path, "all addresses are zero: kernel.kptr_restrict", "as root")
    order = np.argsort(lines.address, kind="stable")
    start = lines.address[order]
    module = lines.module[order]
    end = _ends(start, module)
    kept = _chosen(lines, order, start, end)
    name_from, name_to = lines.name_from[order], lines.name_to[order]
    return Kallsyms(
        start[kept],
        end[kept],
        name_from[kept],
        name_to[kept],
        module[kept],
        lines.text,
        tuple(lines.modules),
        _marks(lines),
    )


def _ends(start: U64, module: I32) -> U64:
    """The end of each symbol: the next start, or the end of its page at a module border."""
    page_end = (start + np.uint64(2 * _PAGE - 1)) & ~np.uint64(_PAGE - 1)
    end = np.empty_like(start)
    end[:-1] = np.where(module[1:] != module[:-1], page_end[:-1], start[1:])
    end[-1] = page_end[-1]
    return end


def _chosen(lines: _Lines, order: I64, start: U64, end: U64) -> I64:
    """The sorted rows that name an address."""
    last = np.append(start[1:] != start[:-1], True)
    kept = np.flatnonzero(last)
    # Only the last of equal addresses has an extent, except at module borders: rare.
    group = np.cumsum(last) - last
    for row in np.flatnonzero(~last & (end > start))[:_MOST_ODD].tolist():
        place = int(group[row])
        best, here = int(kept[place]), _rank(lines, int(order[row]))
        other = _rank(lines, int(order[best]))
        if here > other or (here == other and row < best):
            kept[place] = row
    return kept


def _rank(lines: _Lines, row: int) -> tuple[bool, bool, int, int]:
    """perf's preference among symbols with an extent: larger is better."""
    name = lines.text[int(lines.name_from[row]) : int(lines.name_to[row])]
    kind = int(lines.kind[row])
    underscores = len(name) - len(name.lstrip(b"_"))
    return kind != ord("W"), kind < ord("a"), -underscores, len(name)


def _marks(lines: _Lines) -> dict[str, int]:
    """Searched in the text: they may be aliases that were not chosen."""
    found = {}
    for name in MARKS:
        at = lines.text.find(b" %s\n" % name.encode()) + 1
        row = np.flatnonzero(lines.name_from == at)
        if at and len(row):
            found[name] = int(lines.address[row[0]])
    return found


BPF = "[bpf]"


def kernel_names(
    addresses: U64, table: Kallsyms | None, loaded: list[KernelSymbol]
) -> tuple[list[tuple[str, str]], I32]:
    """Distinct names with their modules, and the name of each address."""
    found: list[tuple[str, str]] = [(UNKNOWN, KERNEL)]
    which = np.zeros(len(addresses), np.int32)
    if table is not None:
        symbols, which_name = np.unique(table.find(addresses), return_inverse=True)
        known = symbols[symbols >= 0]
        found += zip(table.names(known), table.module_names(known), strict=True)
        missed = int(len(symbols) > len(known))
        which = np.where(missed & (which_name == 0), 0, which_name + 1 - missed).astype(np.int32)
    if loaded:
        _name_loaded(addresses, loaded, found, which)
    return found, which


def _name_loaded(
    addresses: U64, loaded: list[KernelSymbol], found: list[tuple[str, str]], which: I32
) -> None:
    ordered = sorted({symbol.start: symbol for symbol in loaded}.values())
    start = np.array([symbol.start for symbol in ordered], np.uint64)
    end = np.array([symbol.end for symbol in ordered], np.uint64)
    row = np.searchsorted(start, addresses, side="right") - 1
    inside = (row >= 0) & (addresses < end[np.maximum(row, 0)])
    rows, which_name = np.unique(row[inside], return_inverse=True)
    which[inside] = len(found) + which_name
    found += [(ordered[one].name, BPF) for one in rows.tolist()]

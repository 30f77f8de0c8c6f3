"""`/proc/net/stat/nf_conntrack`: size, limit and drops of the conntrack table.

Written by `ct_cpu_seq_show` (net/netfilter/nf_conntrack_standalone.c, CONFIG_NF_CONNTRACK_PROCFS);
the limit is documented in the kernel's Documentation/networking/nf_conntrack-sysctl.rst. A line of
names, then one per possible core, in hexadecimal; an excerpt::

    entries  clashres found new invalid … insert insert_failed drop early_drop icmp_error …
    0003fff1  00000000 00000000 00000000 00000000 … 00000000 00000000 0000012c 00000000 …
    0003fff1  00000000 00000000 00000000 00000000 … 00000000 00000000 00000000 00000000 …

and `/proc/sys/net/netfilter/nf_conntrack_max`::

    262144

Quirks: `entries` is the whole table's, the same on every line; the rest are per core, summed here,
32 bits wide, and wrap. Columns are found by name, since they changed (`searched`, `delete_list`,
`clashres`, `chainlength`). All of it is for one network namespace, ours or (through ``--root``)
that of the host's init. `/proc/sys/net` is always the reader's, but all namespaces share the limit
(only the first may set it, up to 6.18 at least), and it applies to each of them. 0 means no limit.
A kernel without the file still has the count in `nf_conntrack_count`. If the module is not loaded
there is neither, and no connection is tracked; the first firewall or NAT rule that needs connection
state loads it.

>>> parse("entries found drop early_drop\\n00000010 0 2 0\\n00000010 0 1 0\\n", 64)
Conntrack(count=16, maximum=64, drops=3, early_drops=0, insert_failed=None)
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import text
from sexton.model.rows.net import NOT_TRACKING, Conntrack
from sexton.sources.registry import Reading, source

PATH = "/proc/net/stat/nf_conntrack"
MAXIMUM = "/proc/sys/net/netfilter/nf_conntrack_max"
COUNT = "/proc/sys/net/netfilter/nf_conntrack_count"
_WANTED = ("drop", "early_drop", "insert_failed")


@source(PATH, rows=(Conntrack,), period_s=5.0)
class NfConntrack(Reading):
    """The table's state, from the files that exist."""

    def collect(self) -> Iterator[Conntrack]:
        maximum = self._number(MAXIMUM)
        try:
            content = text(self._files, f"{self._host.net_dir}/stat/nf_conntrack")
        except SourceAbsent:
            count = self._number(COUNT)
            if count is None:
                why = NOT_TRACKING if self._host.live else "not in this tree"
                raise SourceAbsent(PATH, why, grant="") from None
            yield Conntrack(count, maximum, None, None, None)
        else:
            yield parse(content, maximum)

    def _number(self, path: str) -> int | None:
        try:
            content = text(self._files, path).strip()
        except SourceAbsent:
            return None
        return number(path, content)


def number(path: str, content: str) -> int:
    """A file that holds one number.

    >>> number(MAXIMUM, "262144")
    262144
    """
    if not (content.isascii() and content.isdigit()) or int(content) >> 63:
        raise SourceMalformed(path, 1, "not a number")
    return int(content)


def parse(content: str, maximum: int | None) -> Conntrack:
    """The table of one namespace; `maximum` comes from the limit's own file."""
    head, *lines = content.splitlines() or [""]
    names = head.split()
    if "entries" not in names:
        raise SourceMalformed(PATH, 1, "no header with a column 'entries'")
    places = {name: names.index(name) for name in _WANTED if name in names}
    count: int | None = None
    sums = dict.fromkeys(places, 0)
    for line_number, line in enumerate(lines, 2):
        columns = line.split()
        if not columns:
            continue
        if len(columns) != len(names):
            detail = f"{len(columns)} numbers for {len(names)} names"
            raise SourceMalformed(PATH, line_number, detail)
        count = _hexadecimal(columns[names.index("entries")], line_number)
        for name, place in places.items():
            sums[name] += _hexadecimal(columns[place], line_number)
    if count is None:
        raise SourceMalformed(PATH, 0, "no line of numbers")
    return Conntrack(count, maximum, *(sums.get(name) for name in _WANTED))


def _hexadecimal(word: str, line: int) -> int:
    try:
        value = int(word, 16)
    except ValueError:
        raise SourceMalformed(PATH, line, "not hexadecimal numbers") from None
    if value >> 32 or value < 0:
        raise SourceMalformed(PATH, line, "more than the 32 bits of a counter")
    return value

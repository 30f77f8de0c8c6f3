"""`/proc/net/stat/nf_conntrack`: how full the kernel's table of tracked connections is.

Written by `ct_cpu_seq_show` (net/netfilter/nf_conntrack_standalone.c, CONFIG_NF_CONNTRACK_PROCFS);
the limit is documented in the kernel's Documentation/networking/nf_conntrack-sysctl.rst. A line of
names, then one per possible core, in hexadecimal; an excerpt::

    entries  clashres found new invalid … insert insert_failed drop early_drop icmp_error …
    0003fff1  00000000 00000000 00000000 00000000 … 00000000 00000000 0000012c 00000000 …
    0003fff1  00000000 00000000 00000000 00000000 … 00000000 00000000 00000000 00000000 …

and `/proc/sys/net/netfilter/nf_conntrack_max`::

    262144

Quirks: `entries` is the whole table's, the same on every line; the rest are each core's own, added
up here, 32 bits wide, and wrap. Columns are found by name: which there are changed (`searched`,
`delete_list`, `clashres`, `chainlength`). All of it is one network namespace's, ours or (through
``--root``) that of the host's init; `/proc/sys/net` is always the reader's, but the limit is one
for all of them (only the first may set it, up to 6.18 at least), and each holds as many. 0 is no
limit. A kernel without the file still tells the count by `nf_conntrack_count`. Where the module is
not loaded there is neither, and no connection is tracked at all; it is loaded by the first firewall
or address translation rule that asks for a connection's state.

>>> parse("entries found drop early_drop\\n00000010 0 2 0\\n00000010 0 1 0\\n", 64)
Conntrack(count=16, maximum=64, drops=3, early_drops=0, insert_failed=None)
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.net import NOT_TRACKING, Conntrack
from sexton.sources.registry import source

PATH = "/proc/net/stat/nf_conntrack"
MAXIMUM = "/proc/sys/net/netfilter/nf_conntrack_max"
COUNT = "/proc/sys/net/netfilter/nf_conntrack_count"
_WANTED = ("drop", "early_drop", "insert_failed")


@source(PATH, rows=(Conntrack,), period_s=5.0)
class NfConntrack:
    """The table's state, from whichever of the files there are."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._path = f"{host.net_dir}/stat/nf_conntrack"

    def collect(self) -> Iterator[Conntrack]:
        maximum = self._number(MAXIMUM)
        try:
            content = text(self._host.files, self._path)
        except SourceAbsent:
            count = self._number(COUNT)
            if count is None:
                why = NOT_TRACKING if self._host.live else "not in this tree"
                raise SourceAbsent(PATH, why, grant="") from None
            yield Conntrack(count, maximum, None, None, None)
        else:
            yield parse(content, maximum)

    def close(self) -> None:
        pass

    def _number(self, path: str) -> int | None:
        try:
            said = text(self._host.files, path).strip()
        except SourceAbsent:
            return None
        return number(path, said)


def number(path: str, said: str) -> int:
    """A limit or a count that is alone in its file.

    >>> number(MAXIMUM, "262144")
    262144
    """
    if not (said.isascii() and said.isdigit()) or int(said) >> 63:
        raise SourceMalformed(path, 1, "not a number")
    return int(said)


def parse(content: str, maximum: int | None) -> Conntrack:
    """The table of one namespace; `maximum` is what the limit's own file says."""
    head, *lines = content.splitlines() or [""]
    names = head.split()
    if "entries" not in names:
        raise SourceMalformed(PATH, 1, "no line of names with entries among them")
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
        raise SourceMalformed(PATH, 0, "names and no numbers")
    return Conntrack(count, maximum, *(sums.get(name) for name in _WANTED))


def _hexadecimal(word: str, line: int) -> int:
    try:
        value = int(word, 16)
    except ValueError:
        raise SourceMalformed(PATH, line, "not hexadecimal numbers") from None
    if value >> 32 or value < 0:
        raise SourceMalformed(PATH, line, "more than the 32 bits of a counter")
    return value

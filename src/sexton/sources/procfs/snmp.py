"""`/proc/net/snmp` and `/proc/net/netstat`: TCP segments, retransmits, timeouts and resets.

Documented in the kernel's Documentation/networking/snmp_counter.rst. Two files of one shape: a
line of names, then a line of numbers, each with the same prefix. An excerpt of both::

    Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails …
    Tcp: 1 200 120000 -1 41 12 3 …
    TcpExt: SyncookiesSent SyncookiesRecv … ListenDrops … TCPLostRetransmit … TCPTimeouts …
    TcpExt: 0 0 … 0 … 0 … 2 …

Quirks: the order and the set of columns differ between kernels, so a column is found by its name
and is `None` where a kernel does not have it; `MaxConn` is -1. The counters are those of one
network namespace, ours or (through ``--root``) that of the host's init. In a namespace other than
the first, `netstat` is missing on older kernels: then its five columns are `None`.

>>> text = '''Tcp: MaxConn AttemptFails EstabResets InSegs OutSegs RetransSegs
... Tcp: -1 3 4 500 600 7
... TcpExt: ListenDrops TCPTimeouts
... TcpExt: 0 2
... '''
>>> (row,) = parse(text)
>>> row.retransmitted_segments, row.timeouts, row.lost_retransmits
(7, 2, None)
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.reader import text
from sexton.model.rows.net import TcpCounters
from sexton.sources.registry import Reading, source

PATH = "/proc/net/snmp"
_ALWAYS = ("InSegs", "OutSegs", "RetransSegs", "EstabResets", "AttemptFails")
_EXTENDED = (
    "TCPTimeouts",
    "TCPAbortOnTimeout",
    "TCPLostRetransmit",
    "ListenDrops",
    "TCPSynRetrans",
)


@source(PATH, rows=(TcpCounters,), period_s=1.0)
class Snmp(Reading):
    """Both files."""

    def collect(self) -> Iterator[TcpCounters]:
        directory = self._host.net_dir
        content = text(self._files, f"{directory}/snmp")
        with suppress(SourceAbsent):  # its columns are None then
            content += text(self._files, f"{directory}/netstat")
        return parse(content)


def parse(content: str) -> Iterator[TcpCounters]:
    """One row from the text of `snmp`, followed by that of `netstat` if there is one."""
    tables = parse_tables(content, ("Tcp", "TcpExt"))
    tcp = tables.get("Tcp")
    if tcp is None or any(name not in tcp for name in _ALWAYS):
        raise SourceMalformed(PATH, 0, "no Tcp counters")
    extended = tables.get("TcpExt", {})
    yield TcpCounters(*(tcp[name] for name in _ALWAYS), *(extended.get(name) for name in _EXTENDED))


def parse_tables(content: str, wanted: Container[str]) -> dict[str, dict[str, int]]:
    """The wanted pairs of lines as prefix → name → number.

    >>> parse_tables("Udp: InDatagrams NoPorts\\nUdp: 8 0\\nIcmp: a\\nIcmp: 1\\n", ("Udp",))
    {'Udp': {'InDatagrams': 8, 'NoPorts': 0}}
    """
    tables: dict[str, dict[str, int]] = {}
    names: dict[str, list[str]] = {}
    for number, line in enumerate(content.splitlines(), 1):
        prefix, colon, rest = line.partition(":")
        if not colon or prefix not in wanted:
            continue
        columns = rest.split()
        if prefix not in names:
            names[prefix] = columns
            continue
        known = names.pop(prefix)
        if len(known) != len(columns):
            raise SourceMalformed(PATH, number, f"{len(columns)} numbers for {len(known)} names")
        try:
            tables[prefix] = dict(zip(known, map(int, columns), strict=True))
        except ValueError:
            raise SourceMalformed(PATH, number, f"{prefix} counters are not numbers") from None
    return tables

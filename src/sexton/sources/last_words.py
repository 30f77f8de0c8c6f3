r"""When each service last said something, by the journal's newest lines.

`journalctl -o json`, systemd.journal-fields(7): `_SYSTEMD_UNIT` is journald's own field and cannot
be forged. Only the newest `LINES` lines of the last hour are asked for, so a unit that is not among
them may have spoken before: that is "not lately", never "never".

>>> line = '{"_SYSTEMD_UNIT":"a.service","__REALTIME_TIMESTAMP":"1700000000500000"}'
>>> parse(line + "\n" + line.replace("17", "18", 1))
{'a.service': 1800000000.5}
"""

from __future__ import annotations

from sexton.host.host import Host
from sexton.sources.kmsg.journal import journal_text
from sexton.sources.kmsg.records import field, journal_entry, microseconds

LINES = 3000
_WANTED = ("-n", str(LINES), "--output-fields=_SYSTEMD_UNIT")


def last_words(host: Host) -> dict[str, float]:
    """UNIX time of each unit's newest line."""
    return parse(journal_text(host, _WANTED))


def parse(lines: str) -> dict[str, float]:
    """By unit, from the lines of ``journalctl -o json``."""
    found: dict[str, float] = {}
    for line in lines.split("\n"):
        entry = journal_entry(line) if line else None
        unit = field(entry, "_SYSTEMD_UNIT") if entry else None
        wall_us = microseconds(entry, "__REALTIME_TIMESTAMP") if entry else None
        if unit and wall_us is not None:
            found[unit] = max(found.get(unit, 0.0), wall_us / 1e6)
    return found

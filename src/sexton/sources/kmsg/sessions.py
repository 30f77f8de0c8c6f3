"""Logins refused because of too many sessions (journal).

`pam_systemd` logs logind's refusal under the name of the calling program (sshd, cron, su, …), so
the line is found by its program and by the catalogue's entry. One entry of the journal, cut::

    {"SYSLOG_IDENTIFIER":"sshd","_UID":"0","__REALTIME_TIMESTAMP":"1794727061860591",
     "MESSAGE":"pam_systemd(sshd:session): Failed to create session: Maximum number of sessions
      (8192) reached, refusing further sessions."}

Quirks: a node with this message has thousands of session scopes that never closed, each of them a
live directory: in statistics they look like dying cgroups, but are not. Only lines of root's
processes count. The last 300 login lines of the last hour are read.

>>> line = '{"MESSAGE":"Failed to create session: Maximum number of sessions (8192) reached",'
>>> [row.fields for row in parse(line + '"_UID":"0","SYSLOG_IDENTIFIER":"sshd"}')]
[{'limit': 8192}]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sexton.host.host import Host
from sexton.model.rows.event import ServiceEvent
from sexton.sources.kmsg.catalogue import MOST_CHARACTERS, recognise
from sexton.sources.kmsg.journal import GRANT, PATH, journal_text
from sexton.sources.kmsg.records import field, journal_entries, microseconds
from sexton.sources.registry import Reading, source

_PROGRAMS = ("sshd", "sshd-session", "CRON", "cron", "crond", "su", "sudo", "login")


@source(PATH, rows=(ServiceEvent,), period_s=0.0, deadline_s=1.5, grant=GRANT)
class Sessions(Reading):
    """Refused logins of the last hour."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._seen: set[tuple[float | None, str]] = set()

    def collect(self) -> Iterable[ServiceEvent]:
        wanted = ["-n", "300", *(part for name in _PROGRAMS for part in ("-t", name))]
        events = parse(journal_text(self._host, wanted, deadline_s=1.0))
        new = [event for event in events if (event.wall_s, event.message) not in self._seen]
        self._seen.update((event.wall_s, event.message) for event in new)  # snapshots overlap
        return new


def parse(lines: str) -> Iterator[ServiceEvent]:
    """The lines that are in the catalogue, from `journalctl -o json`."""
    for entry in journal_entries(lines, "Maximum number of sessions"):
        message = field(entry, "MESSAGE") or ""
        known = recognise(message, origin="journal")
        if known is None or field(entry, "_UID") != "0":
            continue
        wall_us = microseconds(entry, "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP")
        yield ServiceEvent(
            pattern=known.pattern.id,
            family=known.pattern.family,
            speaker=field(entry, "SYSLOG_IDENTIFIER") or "",
            message=message[:MOST_CHARACTERS],
            wall_s=None if wall_us is None else wall_us / 1e6,
            fields=known.fields,
        )

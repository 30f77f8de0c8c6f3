"""Unit restarts in the journal of the last hour.

`journalctl -o json`, documented in systemd.journal-fields(7). One entry of systemd's own, cut::

    {"MESSAGE_ID":"5eb03494b6584870a536b337290809b3","_PID":"1","UNIT":"demo-crash.service",
     "N_RESTARTS":"20","__REALTIME_TIMESTAMP":"1794727061860591",
     "MESSAGE":"demo-crash.service: Scheduled restart job, restart counter is at 20."}

Quirks: the counter is `NRestarts` at that moment, so it starts again at 1 after `reset-failed` or a
manual start, and a unit whose lines were rate limited has holes in it. Fields with a leading
underscore are journald's own and cannot be forged: only lines of process 1 are used. A value that
is not UTF-8 comes as a list of numbers. The last 2,000 restarts of the last hour are read, by
message id, which the journal has indexed. Users other than root and the groups adm and
systemd-journal see only their own lines: that is denied, not empty.

>>> line = '{"MESSAGE":"a.service: Scheduled restart job, restart counter is at 7.","_PID":"1",'
>>> list(parse(line + '"UNIT":"a.service","__REALTIME_TIMESTAMP":"1700000000500000"}'))
[RestartMark(unit='a.service', counter=7, wall_s=1700000000.5)]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed, SourceTimeout
from sexton.host.host import ON_THE_NODE, Host
from sexton.host.reader import text
from sexton.host.runner import Ended, run
from sexton.model.rows.unit import RestartMark
from sexton.sources.kmsg.records import field, journal_entries, microseconds
from sexton.sources.registry import Reading, source

PATH = "journal"
KEPT = "/commands/journal_json"
RESTART_SCHEDULED = "5eb03494b6584870a536b337290809b3"
GRANT = "sudo sexton diagnose  # or join the group systemd-journal"
_PLACES = ("/var/log/journal", "/run/log/journal")
_COUNTER = re.compile(
    r"(?P<unit>\S{1,256}): Scheduled restart job, restart counter is at (?P<counter>\d{1,10})\.",
    re.ASCII,
)


@source(PATH, rows=(RestartMark,), period_s=0.0, deadline_s=2.5, grant=GRANT)
class Restarts(Reading):
    """Restarts of units in the last hour."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._seen: set[RestartMark] = set()

    def collect(self) -> Iterable[RestartMark]:
        wanted = ["-n", "2000", f"MESSAGE_ID={RESTART_SCHEDULED}", "_PID=1"]
        marks = dict.fromkeys(parse(journal_text(self._host, wanted)))
        new = [mark for mark in marks if mark not in self._seen]  # snapshots overlap
        self._seen.update(new)
        return new


def parse(lines: str) -> Iterator[RestartMark]:
    """The restarts among the lines of `journalctl -o json`."""
    for entry in journal_entries(lines, "restart counter"):
        if field(entry, "_PID") != "1":
            continue
        found = _COUNTER.match(field(entry, "MESSAGE") or "")
        wall_us = microseconds(entry, "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP")
        if found is not None and wall_us is not None:
            unit = field(entry, "UNIT") or found["unit"]
            yield RestartMark(unit, int(found["counter"]), wall_us / 1e6)


def journal_text(host: Host, wanted: Sequence[str], deadline_s: float = 2.0) -> str:
    """JSON lines of the journal, from `journalctl` or from an archive."""
    if not host.live:
        return _archived(host)
    if not any(_has_entries(host, place) for place in _PLACES):
        why = "no journal under /var/log/journal or /run/log/journal"
        raise SourceAbsent(PATH, why, grant="")  # no permission would help
    command = ["journalctl", "--no-pager", "-o", "json", "--since", "-1h", *wanted]
    return answer(run(command, deadline_s))


def _archived(host: Host) -> str:
    """From an archive; no setting or group would add what was not collected."""
    try:
        return text(host.files, KEPT)
    except SourceAbsent:
        raise SourceAbsent(PATH, "not in this tree", grant="") from None
    except SourceDenied as refused:
        raise SourceDenied(PATH, refused.detail, grant=ON_THE_NODE) from None
    except SourceTimeout as late:
        raise SourceTimeout(PATH, late.detail) from None


def answer(ended: Ended) -> str:
    """What `journalctl` printed; raises if it reports missing permissions."""
    complaint = ended.errors.decode("utf-8", "replace")
    if "insufficient permissions" in complaint or "not seeing messages" in complaint:
        raise SourceDenied(PATH, "this user may not read the system journal")
    if ended.status not in (0, 1) or (ended.status == 1 and complaint.strip()):
        reason = complaint.strip().partition("\n")[0] or f"exit status {ended.status}"
        raise SourceMalformed(PATH, 0, f"journalctl: {reason[:200]}")
    return ended.output.decode("utf-8", "surrogateescape")


def _has_entries(host: Host, directory: str) -> bool:
    try:
        return bool(host.files.names(directory))
    except SourceError:
        return False

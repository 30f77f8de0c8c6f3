r"""Kernel log lines in any of the formats people keep.

===================================  ==================================================
form                                 example
===================================  ==================================================
`/dev/kmsg` records                  ``4,1204,8123456789,-,caller=T309;ena 0000:20:03.0: …``
`dmesg`, `dmesg -r`, `dmesg -x`      ``<4>[ 8123.456789] ena 0000:20:03.0: …``
`dmesg -T`                           ``[Mon Jan 24 08:16:20 2022] ena …`` (local time: not used)
`dmesg --time-format iso`            ``2022-01-24T08:16:20,123456+00:00 ena …``
`journalctl -k -o short-monotonic`   ``[ 8123.456789] node-a kernel: ena …``
`journalctl -k`, `/var/log/kern.log`  ``Jan 24 08:16:20 node-a kernel: [ 8123.456789] ena …``
`journalctl -o json`                 ``{"MESSAGE": "ena …", "_TRANSPORT": "kernel", …}``
plain text                           ``ena 0000:20:03.0: …``
===================================  ==================================================

The record form is documented in the kernel's Documentation/ABI/testing/dev-kmsg: priority and
facility, sequence number, microseconds, flags, then the message with everything unprintable as
``\xNN``, and the device on lines that begin with a space. Only this form and the journal's JSON say
whether the kernel or a process wrote a line (`facility` 0 or not); elsewhere that is unknown
(`None`).

>>> [line] = parse_log("4,1204,8123456789,-;ena 0000:20:03.0: x\\x09y\n SUBSYSTEM=pci\n")
>>> line.mono_us, line.facility, line.seq, line.message
(8123456789, 0, 1204, 'ena 0000:20:03.0: x\ty')
>>> [line] = parse_log("[   12.345678] node-a kernel: ena 0000:20:03.0: x\n")
>>> line.mono_us, line.facility, line.message
(12345678, None, 'ena 0000:20:03.0: x')

A record of several lines, or with a newline in a process's name, is printed by `dmesg` and
`journalctl` with its further lines indented as far as the time stamp is wide; these are joined.

>>> [line.message for line in parse_log("[   12.345678] task=a\n               b,pid=7\n")]
['task=a\nb,pid=7']

A line that matches none of them is plain text: there are no malformed lines, only unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: A journal entry has dozens of fields; longer lines are junk.
MOST_LINE = 64 << 10

#: Further lines of a record are indented at least this far.
_INDENT = " " * 10
_RECORD = re.compile(r"(\d{1,6}),(\d{1,20}),(\d{1,20}),[^;\n]{0,200};", re.ASCII)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_PRIORITY = re.compile(r"<(\d{1,4})>", re.ASCII)
_DECODED = re.compile(r"(\w{2,9})\s{0,8}:(?:emerg|alert|crit|err|warn|notice|info|debug)\s{0,4}: ")
_SECONDS = re.compile(r"\[\s{0,16}(\d{1,12})\.(\d{1,9})\](?:\[\s{0,12}[TC]\d{1,10}\])? ?", re.ASCII)
_LOCAL = re.compile(r"\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ", re.ASCII)
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?(Z|[+-]\d\d:?\d\d) ", re.ASCII
)
_SYSLOG = re.compile(r"\w{3} [ \d]\d \d\d:\d\d:\d\d ", re.ASCII)
_TAG = re.compile(r"[^\s:]{1,255} ([\w.@/-]{1,64})(?:\[\d{1,10}\])?: ", re.ASCII)
_KERNEL_TAG = re.compile(r"[^\s:]{1,255} kernel: ", re.ASCII)


class LogLine(NamedTuple):
    """One line: microseconds since boot and UNIX time where known, and its text.

    `facility` is syslog's: 0 for the kernel itself, another number for a process, `None` if the
    form does not include it.
    """

    mono_us: int | None
    wall_s: float | None
    message: str
    facility: int | None = None
    seq: int | None = None


def parse_log(text: str) -> Iterator[LogLine]:
    """Every line of a log; forms may be mixed."""
    in_record = False
    stamped: LogLine | None = None
    further: list[str] = []  # of the stamped line
    for line in text.split("\n"):
        line = line.rstrip("\r")
        if not line or (in_record and line.startswith(" ")):
            continue  # empty, or ` KEY=value` of the record above
        if stamped is not None:
            if line.startswith(_INDENT):
                further.append(line.lstrip())
                continue
            yield _joined(stamped, further)
            stamped, further = None, []
        parsed = record(line[:MOST_LINE])
        in_record = parsed is not None
        if parsed is not None:
            yield parsed
        elif line.startswith("{"):
            entry = journal_entry(line)
            yield _from_journal(entry) if entry is not None else LogLine(None, None, line)
        else:
            plain = _from_text(line[:MOST_LINE])
            if plain.message == line[:MOST_LINE]:
                yield plain
            else:
                stamped = plain
    if stamped is not None:
        yield _joined(stamped, further)


def _joined(stamped: LogLine, further: list[str]) -> LogLine:
    if not further:
        return stamped
    return stamped._replace(message="\n".join((stamped.message, *further))[:MOST_LINE])


def record(text: str) -> LogLine | None:
    """One `/dev/kmsg` record, without or with its ` KEY=value` lines; `None` for anything else."""
    found = _RECORD.match(text)
    if found is None:
        return None
    priority, seq, microseconds = map(int, found.groups())
    message = text[found.end() :].partition("\n")[0]
    return LogLine(microseconds, None, _unescape(message), priority >> 3, seq)


def journal_entry(line: str) -> Mapping[str, Any] | None:
    """One line of `journalctl -o json`; `None` if it is not one."""
    import json  # here, like datetime below: the live ring needs neither

    if len(line) > MOST_LINE:
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def journal_entries(lines: str, hint: str = "") -> Iterator[Mapping[str, Any]]:
    """The entries among the lines of `journalctl -o json` that contain `hint`."""
    for line in lines.split("\n"):  # not splitlines: JSON may hold U+2028
        entry = journal_entry(line) if line and hint in line else None
        if entry is not None:
            yield entry


def field(entry: Mapping[str, Any], name: str) -> str | None:
    """A journal field as text: it is a list of byte values if it is not UTF-8, and a list of
    strings if it was given more than once (the first is used)."""
    value = entry.get(name)
    if isinstance(value, list) and value:
        if all(isinstance(item, int) and 0 <= item <= 255 for item in value):
            return bytes(value).decode("utf-8", "surrogateescape")
        value = value[0]
    return value if isinstance(value, str) else None


def microseconds(entry: Mapping[str, Any], *names: str) -> int | None:
    """The first of these timestamp fields that is present."""
    for name in names:
        value = field(entry, name)
        if value is not None and value.isdecimal() and len(value) <= 20:
            return int(value)
    return None


def _from_journal(entry: Mapping[str, Any]) -> LogLine:
    facility = field(entry, "SYSLOG_FACILITY")
    known = int(facility) if facility is not None and facility.isdecimal() else None
    if field(entry, "_TRANSPORT") != "kernel":
        known = known or 1  # journald marks kernel lines; a process may claim any facility
    mono_us = microseconds(entry, "_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP")
    wall_us = microseconds(entry, "__REALTIME_TIMESTAMP")
    wall_s = None if wall_us is None else wall_us / 1e6
    return LogLine(mono_us, wall_s, field(entry, "MESSAGE") or "", known)


def _from_text(line: str) -> LogLine:
    facility, line = _facility(line)
    wall_s, tagged, line = _stamp(line)
    if tagged and (found := _TAG.match(line)) is not None:
        line = line[found.end() :]
        if found[1] != "kernel":
            return LogLine(None, wall_s, line, 1)
    mono_us: int | None = None
    if (found := _SECONDS.match(line)) is not None:
        mono_us = int(found[1]) * 1_000_000 + int(found[2].ljust(6, "0")[:6])
        line = line[found.end() :]
        if (found := _KERNEL_TAG.match(line)) is not None:
            line = line[found.end() :]
    return LogLine(mono_us, wall_s, line, facility)


def _facility(line: str) -> tuple[int | None, str]:
    """The prefix of `dmesg -r` (`<4>`) and `dmesg -x` (`kern  :warn  : `)."""
    if (found := _PRIORITY.match(line)) is not None:
        return int(found[1]) >> 3, line[found.end() :]
    if (found := _DECODED.match(line)) is not None:
        return 0 if found[1] == "kern" else 1, line[found.end() :]
    return None, line


def _stamp(line: str) -> tuple[float | None, bool, str]:
    """The wall time if it has a zone, and whether a host and a tag follow, as in syslog."""
    if (found := _ISO.match(line)) is not None:
        # dmesg writes a comma before the fraction and no host after it; syslog daemons a dot.
        return _iso(found), line[19] != ",", line[found.end() :]
    if (found := _SYSLOG.match(line)) is not None:
        return None, True, line[found.end() :]
    if (found := _LOCAL.match(line)) is not None:
        return None, False, line[found.end() :]
    return None, False, line


def _iso(found: re.Match[str]) -> float | None:
    from datetime import datetime

    day_and_time, fraction, zone = found.groups()
    try:
        whole = datetime.fromisoformat(day_and_time + zone.replace("Z", "+00:00"))
    except ValueError:  # a thirteenth month
        return None
    return whole.timestamp() + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)


def _unescape(message: str) -> str:
    if "\\x" not in message:
        return message
    raw = message.encode("utf-8", "surrogateescape")
    plain = _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), raw)
    return plain.decode("utf-8", "surrogateescape")

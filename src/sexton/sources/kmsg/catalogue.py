r"""The pattern catalogue: which kernel log lines matter, as data in `patterns/*.toml`.

To add a pattern, add an entry; one test checks every entry against its own lines:

=============== ==================================================================================
``id``          its name, `KernelEvent.pattern`
``family``      what detectors look for: nic_reset nic_starved nic_watchdog nic_other soft_lockup
                hard_lockup rcu_stall workqueue_lockup hung_task oom conntrack slub sessions
                cgroup filesystem no_space block_error disk_timeout memory_error hardware_error
                thermal clock gpu
``severity``    info, warning or critical: how bad the line is by itself, as the explorer marks it
``hint``        a literal in every matching line; checked before the regex is tried
``regex``       matched from the message's start; named groups become fields, those in ``_ms``
                as ``_us``, those in ``_kb`` as ``_bytes``. ``@ena@`` and ``@nic@`` stand for what
                `netdev_err` and `dev_err` print first: driver, bus address, interface
``match``       a line of that format, and ``fields``: exactly what must be parsed from it
``no_match``    a near miss, which the entry must reject
``note``        where the format was read, and what the line does and does not prove
``driver``      (optional) the driver, also a field; ``release``: which of its releases print it
``set``         (optional) constant fields that the line implies
``swap``        (optional) two fields that the driver prints swapped
``pair``        (optional) id of the first half of a two-line message; its queue resolves a swap
``after``       (optional) id of the entry that must have matched before, for the same device: the
                end of a problem matters only if its beginning was logged
``origin``      (optional) "journal" for lines of services, which are never in the ring
=============== ==================================================================================

The field ``phase`` orders the lines of one NIC reset, so that it is counted once: ``cause`` (why it
was requested), ``start`` (once per reset), ``done`` or ``failed``, and ``detail`` (a further line).

>>> known = recognise("ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
...                   "Time since last napi 6596000 usec. napi scheduled: 1")
>>> known.pattern.id, known.pattern.family, known.fields["queue"], known.fields["napi_us"]
('ena-tx-paused-2.8', 'nic_starved', 5, 6596000)

Lines are untrusted: only their first `MOST_CHARACTERS` are matched, from the message's first
character on (a process's name further on cannot pose as a driver), and every repetition in a regex
is bounded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from sexton.model.finding import Severity
from sexton.model.rows.event import KernelEvent
from sexton.sources.kmsg.records import LogLine

MOST_CHARACTERS = 2048
#: Matches remembered, by entry and device, for entries with ``after``.
_MOST_BEGUN = 10_000
#: Characters of a line that patterns of the node's owner are matched against (see `own`).
MOST_OWN = 512

_PREFIXES = {
    "@ena@": (r"ena (?P<bus>[\w.:-]{1,48}?)(?: (?P<nic>[^\s:/]{1,15}))?(?: \(un\w{1,20}\))?: "),
    "@nic@": (
        r"(?P<driver>[\w-]{1,32}) (?P<bus>[\w.:-]{1,48}) "
        r"(?P<nic>[^\s:/]{1,15})(?: \(un\w{1,20}\))?: "
    ),
}
#: Groups that stay text even if they look like a number: a process may be called "12".
_TEXT = frozenset(
    {"action", "bus", "cache", "cgroup", "clock", "comm", "constraint", "device", "dimm"}
    | {"driver", "error", "exception", "found", "function", "info", "kind", "level", "mce"}
    | {"nic", "operation", "owner", "page", "part", "rcu", "side", "table", "task_cgroup", "zone"}
)
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_UNITS = {"_ms": ("_us", 1000), "_kb": ("_bytes", 1024)}
#: A hint that is written without escapes.
_HINT = re.compile(r"""^hint = "([^"\\\n]+)"$""", re.MULTILINE)

Fields = Mapping[str, int | str]


class Pattern(NamedTuple):
    """One entry of the catalogue."""

    id: str
    family: str
    severity: Severity
    origin: str
    hint: str
    expression: str
    constants: Fields
    swap: tuple[str, str] | None
    pair: str | None
    after: str | None
    note: str
    examples: Mapping[str, Any]

    @property
    def regex(self) -> re.Pattern[str]:
        """Compiled when its hint first occurs: most never do, and compiling takes time."""
        # DOTALL: a process's name may hold a newline.
        return re.compile(self.expression, re.ASCII | re.DOTALL)  # `re` keeps the last 512

    def read(self, message: str) -> dict[str, int | str] | None:
        """The fields of a message of this format; `None` for any other."""
        if self.hint not in message:
            return None
        found = self.regex.match(message[:MOST_CHARACTERS])
        if found is None:
            return None
        fields: dict[str, int | str] = {**self.constants}
        for name, value in found.groupdict().items():
            if value is not None:
                key, typed = _typed(name, value)
                fields[key] = typed
        if self.swap is not None:
            first, second = self.swap
            fields[first], fields[second] = fields[second], fields[first]
        return fields


class Known(NamedTuple):
    """A line that matched an entry."""

    pattern: Pattern
    fields: dict[str, int | str]


class _File(NamedTuple):
    """One of the catalogue's files, with its hints; entries are parsed on demand.

    Most files match nothing in most nodes' logs, and parsing them all takes longer than reading the
    log.
    """

    content: str
    hints: tuple[str, ...]

    def entries(self) -> tuple[Pattern, ...]:
        return _entries(self.content)


@cache
def _files() -> tuple[_File, ...]:
    # Not importlib.resources: importing it takes longer than reading the catalogue.
    folder = os.path.join(os.path.dirname(__file__), "patterns")
    found = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            content = file.read()
        hints = _HINT.findall(content)
        if len(hints) != content.count("[[pattern]]"):  # one of them has escapes
            hints = [entry.hint for entry in _entries(content)]
        found.append(_File(content, tuple(dict.fromkeys(hints))))
    return tuple(found)


@cache
def _hints() -> tuple[str, ...]:
    return tuple(dict.fromkeys(hint for file in _files() for hint in file.hints))


@cache
def _entries(content: str) -> tuple[Pattern, ...]:
    import tomllib  # here: slow to import, like the entries

    return tuple(map(_compile, tomllib.loads(content)["pattern"]))


@cache
def patterns() -> tuple[Pattern, ...]:
    """Every entry, in the order of the files and of the entries in them."""
    return tuple(entry for file in _files() for entry in file.entries())


@cache
def severities() -> Mapping[str, Severity]:
    """How bad a line of each entry is by itself."""
    return {entry.id: entry.severity for entry in patterns()}


#: Patterns of the node's owner, for as long as a command runs.
_added: tuple[Pattern, ...] = ()


@contextmanager
def added(own: tuple[Pattern, ...]) -> Iterator[None]:
    """Recognise these lines, too, inside the block: a command's whole run."""
    global _added
    _added = own
    try:
        yield
    finally:
        _added = ()


def recognise(message: str, origin: str = "kernel") -> Known | None:
    """The first entry that matches the message; those of the node's owner come last."""
    known = _shipped(message, origin)
    if known is None and origin == "kernel":
        for pattern in _added:
            fields = pattern.read(message[:MOST_OWN])
            if fields is not None:
                return Known(pattern, fields)
    return known


def _shipped(message: str, origin: str) -> Known | None:
    if not any(map(message.__contains__, _hints())):  # most lines
        return None
    for file in _files():
        if not any(map(message.__contains__, file.hints)):
            continue
        for pattern in file.entries():
            if pattern.hint in message and pattern.origin == origin:
                fields = pattern.read(message)
                if fields is not None:
                    return Known(pattern, fields)
    return None


class Recogniser:
    """Turns log lines into events, and joins the halves of two-line messages.

    Only the kernel's own records count: any process with write access can add lines to `/dev/kmsg`,
    and a diagnosis must not rest on those. `trust_user_records` is for tests and the lab, which
    have no other way to produce a driver's lines.
    """

    def __init__(self, trust_user_records: bool = False) -> None:
        self._trust = trust_user_records
        self._halves: dict[tuple[str, object], Fields] = {}
        self._begun: set[tuple[str, object]] = set()

    def event(self, line: LogLine) -> KernelEvent | None:
        """The line as an event, or `None` if it is not the kernel's or not in the catalogue."""
        if line.facility not in (0, None) and not self._trust:
            return None
        known = recognise(line.message)
        if known is None:
            return None
        pattern, fields = known.pattern, known.fields
        device = fields.get("device")
        if pattern.after is not None and (pattern.after, device) not in self._begun:
            return None
        if device is not None and len(self._begun) < _MOST_BEGUN:
            self._begun.add((pattern.id, device))
        where = fields.get("bus")
        if pattern.pair is not None and pattern.swap is not None:
            first = self._halves.pop((pattern.pair, where), None)
            _settle(fields, pattern.swap, first)
        elif "[1/2]" in line.message:
            if len(self._halves) > 64:  # first halves without a second
                self._halves.clear()
            self._halves[pattern.id, where] = fields
        message = line.message[:MOST_CHARACTERS]
        return KernelEvent(pattern.id, pattern.family, message, line.mono_us, line.wall_s, fields)


def _settle(fields: dict[str, int | str], swap: tuple[str, str], first: Fields | None) -> None:
    """Undo the swap if the first half shows that this driver has fixed it."""
    if first is None:
        return
    queue, cpu = swap
    if fields[queue] != first.get(queue) and fields[cpu] == first.get(queue):
        fields[queue], fields[cpu] = fields[cpu], fields[queue]


def _typed(name: str, value: str) -> tuple[str, int | str]:
    # Words occur in patterns of the node's owner.
    if name in _TEXT or not _NUMBER.fullmatch(value):
        return name, value
    for suffix, (unit, factor) in _UNITS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix) + unit, int(value) * factor
    return name, int(value)


def _compile(entry: Mapping[str, Any]) -> Pattern:
    regex = entry["regex"]
    for name, prefix in _PREFIXES.items():
        regex = regex.replace(name, prefix)
    constants: dict[str, int | str] = dict(entry.get("set", {}))
    if "driver" in entry:
        constants["driver"] = entry["driver"]
    swap = entry.get("swap")
    return Pattern(
        id=entry["id"],
        family=entry["family"],
        severity=Severity(entry["severity"]),
        origin=entry.get("origin", "kernel"),
        hint=entry["hint"],
        expression=regex,
        constants=constants,
        swap=(swap[0], swap[1]) if swap else None,
        pair=entry.get("pair"),
        after=entry.get("after"),
        note=entry["note"],
        examples={key: entry[key] for key in ("match", "no_match", "fields")},
    )

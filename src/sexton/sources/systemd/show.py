r"""`systemctl show '*' --type=service,timer --all`: the units in a node's archive.

``sexton collect`` runs it; `systemd.units` reads it in place of D-Bus. Blocks of
``Key=Value`` lines, an empty line between units (systemctl(1)). An excerpt of systemd 252, of a
unit in a crash loop::

    Restart=always
    RestartUSec=100ms
    NRestarts=97
    ExecMainStartTimestampMonotonic=83590519
    Slice=system.slice
    ControlGroup=
    Id=demo-crash.service
    ActiveState=activating
    SubState=auto-restart

Quirks: keys come in systemctl's order, `Id` in the middle. Names ending in ``Monotonic`` are bare
microseconds, but any with ``USec`` in it is a time span in words (``1min 30s``, ``infinity``).
Values may hold ``=``. A unit that disappeared in between has only a few keys.

``ControlGroup`` is empty while a unit waits to restart, which is most of the time in a fast crash
loop. Then the path follows from its slice, whose name encodes its own path: each dash is a level
(systemd.slice(5)).

>>> text = "NRestarts=97\nSlice=system.slice\nControlGroup=\nId=a.service\nRestartUSec=100ms\n"
>>> [(unit.name, unit.restarts, unit.restart_delay_us, unit.cgroup) for unit in parse(text)]
[('a.service', 97, 100000, '/system.slice/a.service')]
>>> span_us("1min 30s"), span_us("100ms"), span_us("0"), span_us("infinity")
(90000000, 100000, 0, None)
>>> slice_path("a-b-c.slice"), slice_path("-.slice")
('/a.slice/a-b.slice/a-b-c.slice', '')
>>> locate("", "system-getty.slice", "getty@tty1.service")
('/system.slice/system-getty.slice/getty@tty1.service', 'slice + name')
>>> locate("/init.scope/x.service", None, "x.service")
('/init.scope/x.service', 'systemd')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.model.rows.unit import Timer, Unit

PATH = "/commands/systemctl_show"
#: Where a unit's cgroup path comes from.
SYSTEMD, LAST_KNOWN, SLICE_AND_NAME, UNKNOWN = "systemd", "last known", "slice + name", ""
#: systemd.time(7); a month is 30.44 days, a year 365.25.
_UNITS_US = {
    "us": 1,
    "µs": 1,
    "μs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
    "month": 2_629_800_000_000,
    "y": 31_557_600_000_000,
}
_SPAN = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([a-zµμ]*)", re.ASCII)
_REPEAT = re.compile(r"OnUnit(?:Active|Inactive)USec=([^;}]*)")
_UNSET = ("", "[not set]", "n/a")


class _Block:
    """One unit's keys; every value remembers its line."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, int]] = {}

    def add(self, line: str, number: int) -> None:
        key, equals, value = line.partition("=")
        if not equals:
            return
        before = self._values.get(key)
        if before is not None:  # TimersMonotonic= comes once per timer setting
            value = f"{before[0]} {value}"
        self._values[key] = (value, number)

    def text(self, key: str) -> str | None:
        value = self._values.get(key, ("", 0))[0]
        return None if value in _UNSET else value

    def number(self, key: str) -> int | None:
        value, line = self._values.get(key, ("", 0))
        if value in _UNSET:
            return None
        if not (value.isascii() and value.isdigit() and len(value) <= 20):
            raise SourceMalformed(PATH, line, f"{key} is not a number")
        return int(value)

    def span(self, key: str) -> int | None:
        value, line = self._values.get(key, ("", 0))
        try:
            return None if value in _UNSET else span_us(value)
        except ValueError:
            raise SourceMalformed(PATH, line, f"{key} is not a time span") from None


def parse(text: str) -> Iterator[Unit | Timer]:
    """One row per service and per timer; other units are skipped."""
    block = _Block()
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip("\r"):
            block.add(line.rstrip("\r"), number)
            continue
        yield from _rows(block)
        block = _Block()
    yield from _rows(block)


def span_us(text: str) -> int | None:
    """Microseconds of a time span as systemd prints it; `None` for ``infinity``."""
    if text.strip() == "infinity":
        return None
    total = 0.0
    pieces = text.split()
    if not pieces:
        raise ValueError(text)
    for piece in pieces:
        match = _SPAN.fullmatch(piece)
        if match is None:
            raise ValueError(text)
        number, unit = match.groups()
        scale = _UNITS_US.get(unit) if unit else 1
        if scale is None:
            raise ValueError(text)
        total += float(number) * scale
    return round(total)


def slice_path(name: str) -> str:
    """The path of a slice; empty for the root slice."""
    stem = name.removesuffix(".slice")
    if stem in ("", "-"):
        return ""
    parts = stem.split("-")
    return "".join(f"/{'-'.join(parts[:depth])}.slice" for depth in range(1, len(parts) + 1))


def locate(control_group: str | None, slice_name: str | None, unit: str) -> tuple[str | None, str]:
    """A unit's cgroup path and its origin."""
    if control_group:
        return control_group, SYSTEMD
    if slice_name:
        return f"{slice_path(slice_name)}/{unit}", SLICE_AND_NAME
    return None, UNKNOWN


def _rows(block: _Block) -> Iterator[Unit | Timer]:
    name = block.text("Id") or ""
    if name.endswith(".service"):
        yield _unit(name, block)
    elif name.endswith(".timer"):
        yield _timer(name, block)


def _unit(name: str, block: _Block) -> Unit:
    loaded = block.text("LoadState") != "not-found"
    cgroup, origin = locate(
        block.text("ControlGroup"), block.text("Slice") if loaded else None, name
    )
    return Unit(
        name=name,
        load_state=block.text("LoadState") or "",
        active_state=block.text("ActiveState") or "",
        sub_state=block.text("SubState") or "",
        file_state=block.text("UnitFileState"),
        restarts=block.number("NRestarts"),
        restart_policy=block.text("Restart"),
        restart_delay_us=block.span("RestartUSec"),
        main_start_us=block.number("ExecMainStartTimestampMonotonic"),
        main_exit_us=block.number("ExecMainExitTimestampMonotonic"),
        active_enter_us=block.number("ActiveEnterTimestampMonotonic"),
        result=block.text("Result"),
        exit_status=block.number("ExecMainStatus"),
        cgroup=cgroup,
        cgroup_origin=origin,
    )


def _timer(name: str, block: _Block) -> Timer:
    repeats = [
        interval
        for span in _REPEAT.findall(block.text("TimersMonotonic") or "")
        if (interval := _interval(span)) is not None
    ]
    return Timer(
        name=name,
        unit=block.text("Unit") or name.removesuffix(".timer") + ".service",
        last_trigger_us=block.span("LastTriggerUSecMonotonic"),
        interval_us=min(repeats, default=None),
    )


def _interval(span: str) -> int | None:
    try:
        return span_us(span)
    except ValueError:  # free text inside a value we only use in part
        return None

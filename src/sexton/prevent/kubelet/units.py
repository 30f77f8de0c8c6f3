"""Go's durations and Kubernetes' quantities, as numbers."""

from __future__ import annotations

import re

_DURATION = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)")
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_QUANTITY = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+))(m|u|n|[kMGTPE]i?|Ki|[eE][-+]?\d{1,3})?")
_FACTORS = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    **{unit: 1000.0**power for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}
#: More is no number of anything here, and would only take time to read.
_LONGEST = 40


def duration(text: str) -> float | None:
    """Seconds of a Go duration; `None` where it is none.

    >>> duration("1m30s"), duration("10s"), duration("0"), duration("10"), duration("ten")
    (90.0, 10.0, 0.0, None, None)
    """
    if text in ("0", "+0", "-0"):
        return 0.0
    sign = -1.0 if text.startswith("-") else 1.0
    bare = text[1:] if text[:1] in ("-", "+") else text
    if len(bare) > _LONGEST or not _DURATION.match(text):
        return None
    parts = _PART.findall(bare)
    if "".join(number + unit for number, unit in parts) != bare:
        return None
    return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)


def quantity(text: str) -> float | None:
    """A Kubernetes quantity; `None` where it is none.

    >>> quantity("100Mi"), quantity("500m"), quantity("2"), quantity("1e3"), quantity("10%")
    (104857600.0, 0.5, 2.0, 1000.0, None)
    """
    found = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    number, unit = float(found[1]), found[2] or ""
    if unit[:1] in ("e", "E") and unit != "E" and not unit.endswith("i"):
        return number * 10.0 ** int(unit[1:])
    factor = _FACTORS.get(unit)
    return None if factor is None else number * factor


def threshold(text: str) -> tuple[float, str] | None:
    """An eviction threshold: a percentage ("%") or a quantity (""); `None` where it is neither.

    >>> threshold("10%"), threshold("100Mi"), threshold("a lot")
    ((10.0, '%'), (104857600.0, ''), None)
    """
    if text.endswith("%"):
        try:
            value = float(text[:-1])
        except ValueError:
            return None
        return (value, "%") if 0 <= value <= 100 else None
    amount = quantity(text)
    return None if amount is None else (amount, "")

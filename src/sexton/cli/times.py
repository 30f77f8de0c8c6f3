"""Moments and spans of a recording, as people type them.

::

    2026-11-15T10:15:00Z   2026-11-15 10:15   10:15   10:15:30   @1794737700   20m (before its end)

Without a zone it is this machine's. A time without a day is the last such time in the recording.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from sexton.errors import CommandError

#: What `--around` takes on either side.
AROUND_S = 300.0
#: As text: most commands know these options, and few are given one.
_UNIX = r"(?:@(?=[0-9])|(?=[0-9]{9}))([0-9]{1,12}(?:\.[0-9]{1,9})?)"
_AGO = r"-?([0-9]{1,9}(?:\.[0-9]{1,9})?)(s|min|m|h|d)"
_CLOCK = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?"
_NO_SECOND = r"(?:^|[T ])[0-9]{1,2}:[0-9]{2}(?:Z|[+-][0-9:]+)?$"
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_HOW = "like 10:15, 2026-11-15T10:15:00Z, @1794737700, or 20m before the end"


class Asked(NamedTuple):
    """UNIX seconds, both inclusive."""

    start_s: float
    end_s: float


def add_span(parser: argparse.ArgumentParser) -> None:
    """``--around T`` and ``--window A..B``, which exclude each other."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--around", metavar="TIME", help=f"the five minutes before and after: {_HOW}"
    )
    which.add_argument(
        "--window", metavar="A..B", help="from one time to another; either may be left out"
    )


def asked_span(args: argparse.Namespace, edges: tuple[float, float]) -> Asked | None:
    """What `add_span`'s options ask for; `edges` are the recording's own wall times."""
    if args.around is not None:
        moment = parse_moment(args.around, edges)
        return Asked(moment - AROUND_S, moment + AROUND_S)
    if args.window is None:
        return None
    first, dots, last = args.window.partition("..")
    if not dots:
        raise CommandError(f"{args.window!r} is no window: A..B, each {_HOW}")
    start = parse_moment(first, edges) if first.strip() else edges[0]
    end = parse_moment(last, edges) if last.strip() else edges[1]
    if end < start:
        raise CommandError(f"the window {args.window!r} ends before it begins")
    return Asked(start, end)


def parse_moment(text: str, edges: tuple[float, float]) -> float:
    """UNIX seconds; `CommandError` where it is no time.

    >>> parse_moment("@1000", (0.0, 5000.0)), parse_moment("20m", (0.0, 5000.0))
    (1000.0, 3800.0)
    >>> parse_moment("1970-01-01T01:00:00Z", (0.0, 5000.0)), parse_moment("1794737700", (0.0, 1.0))
    (3600.0, 1794737700.0)
    """
    import re
    from datetime import datetime

    said = text.strip()
    if found := re.fullmatch(_UNIX, said):
        return float(found[1])
    if found := re.fullmatch(_AGO, said):
        return edges[1] - float(found[1]) * _UNITS[found[2]]
    try:
        if found := re.fullmatch(_CLOCK, said):
            return _last_time(int(found[1]), int(found[2]), int(found[3] or 0), edges[1])
        return datetime.fromisoformat(said).timestamp()
    except (ValueError, OverflowError, OSError):
        raise CommandError(f"{text!r} is no time: {_HOW}") from None


def lasts_s(text: str) -> float:
    """How much time such words cover: a minute where no second was said.

    >>> [lasts_s(text) for text in ("03:12", "03:12:07", "2026-11-15T03:12Z", "20m", "90s", "@12")]
    [60.0, 0.0, 60.0, 60.0, 0.0, 0.0]
    """
    import re

    said = text.strip()
    ago = re.fullmatch(_AGO, said)
    if ago is not None:
        return 0.0 if ago[2] == "s" else 60.0
    return 60.0 if re.search(_NO_SECOND, said) else 0.0


def _last_time(hour: int, minute: int, second: int, last_s: float) -> float:
    """The last moment up to `last_s` at which a clock on the wall here showed this."""
    from datetime import datetime, timedelta

    end = datetime.fromtimestamp(last_s)
    moment = end.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if moment > end:
        moment -= timedelta(days=1)
    return moment.timestamp()

"""The node's zombie memory cgroups, as text and as `sexton.zombies/1`.

Every number comes from the detectors (`sexton.detect.growth`, `deaths`, `owners`). An unknown
number is "?" or `null`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any, NamedTuple

from sexton.detect.deaths import Deaths, deaths
from sexton.detect.findings import missing, reason
from sexton.detect.growth import ENOUGH, Growth, growth, latest_count, rate
from sexton.detect.kubernetes import pods
from sexton.detect.owners import (
    COUNTED,
    LEDGER,
    LISTED,
    RESIDUAL,
    TRACED,
    TRACED_BEFORE,
    Owner,
    owners,
)
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, CgroupResidual, OfflineMemcg
from sexton.model.text import an_hour, count, printable, seconds, shorten, size
from sexton.model.window import Window
from sexton.reports.text.blocks import bold, clamp, cut, grant_for, picked

SCHEMA = "sexton.zombies/1"
_MOST_OWNERS = 10
#: Short names of the detectors' methods, for a column.
_SHORT = {
    TRACED: "tracefs",
    TRACED_BEFORE: "tracefs",
    LISTED: "lru_gen",
    COUNTED: "cgroup.stat",
    LEDGER: "restarts",
    RESIDUAL: "residual",
}
ONLY_ON_NODE = "only on the node itself"


class Tally(NamedTuple):
    """Number, owners, memory and growth of the zombies in one window."""

    census: CgroupCensus | None
    why_unknown: str | None
    held_bytes: int | None
    bytes_bound: bool
    why_no_bytes: str | None
    owners: tuple[Owner, ...]
    grown: Growth | None
    traced: Deaths | None
    per_s: float | None
    uptime_s: float | None

    @property
    def counted(self) -> bool:
        """Is the number of zombies known, for the node or for the visible subtree?"""
        return self.census is not None and self.census.dying is not None

    @property
    def left_over(self) -> int | None:
        """Zombies of unknown origin."""
        if self.census is None or self.census.dying is None:
            return None
        named = sum(owner.dying or 0 for owner in self.owners)
        return max(self.census.dying - named, 0)


def tally(window: Window) -> Tally:
    """Collect the numbers of a window."""
    census = latest_count(window)
    why = census.reason if census else reason(window.why_missing(CgroupCensus))
    counted = census is not None and census.dying is not None
    residuals = window.latest(CgroupResidual)
    grown, traced = growth(window), deaths(window)
    return Tally(
        census=census,
        why_unknown=None if counted else why or "the kernel does not report it",
        held_bytes=None if residuals is None else sum(row.bytes for row in residuals),
        bytes_bound=any("upper bound" in row.method for row in residuals or ()),
        why_no_bytes=None if residuals is not None else reason(window.why_missing(CgroupResidual)),
        owners=owners(window),
        grown=grown,
        traced=traced,
        per_s=rate(grown, traced),
        uptime_s=window.node.uptime_s if window.node else None,
    )


def zombies_json(found: Tally) -> dict[str, Any]:
    """The contract of docs/json.md."""
    census = found.census
    counted = ("hierarchy", "scope", "total", "live", "dying")
    return {
        "schema": SCHEMA,
        **(picked(census, *counted) if census else dict.fromkeys(counted)),
        "bytes": found.held_bytes,
        "method": census.method if census else None,
        "reason": None if found.why_unknown is None else printable(found.why_unknown),
        "bytes_reason": None if found.why_no_bytes is None else printable(found.why_no_bytes),
        "growth": _growth_json(found),
        "owners": [
            {
                "path": printable(owner.path),
                "names": None if owner.names is None else printable(owner.names),
                "unit": None if owner.unit is None else printable(owner.unit),
                **({} if owner.pod is None else owner.pod.fields),
                **picked(owner, "dying", "bytes", "method"),
                "strength": owner.strength.value,
            }
            for owner in found.owners
        ],
    }


def _growth_json(found: Tally) -> dict[str, Any]:
    grown, traced = found.grown, found.traced
    return {
        "net": None if grown is None else grown.by,
        "seconds": None if grown is None else round(grown.seconds, 3),
        "per_hour": None if found.per_s is None else round(found.per_s * 3600, 1),
        "deaths": None if traced is None else len(traced.all),
        "released": None if traced is None else len(traced.released),
        "unreleased": None if traced is None else len(traced.unreleased),
        "lost_events": None if traced is None else traced.lost,
    }


def zombies_text(found: Tally, window: Window, width: int = 88, colour: bool = False) -> str:
    """At most 25 lines."""
    width = clamp(width, 120)
    lines = [bold(_headline(found.census), colour), ""]
    for label, text in _facts(found):
        lines += wrap(text, width, initial_indent=f" {label:11}", subsequent_indent=" " * 12)
    lines += [*_owner_table(found, width), *_more(found, window, width)]
    return "\n".join(lines) + "\n"


def _headline(census: CgroupCensus | None) -> str:
    if census is None or census.dying is None:
        return "The number of zombies is unknown."
    where = "on this node" if census.scope == "node" else "in this subtree (node-wide: unknown)"
    return f"{count(census.dying, 'zombie') if census.dying else 'No zombies'} {where}"


def _facts(found: Tally) -> Iterator[tuple[str, str]]:
    """Label and text."""
    census = found.census
    if census is None or census.dying is None:
        yield "why", printable(found.why_unknown or "")
        if census is not None and census.live is not None:
            yield "visible", count(census.live, "live memory cgroup")
        return
    live = "?" if census.live is None else f"{census.live:,}"
    yield (
        "counted",
        f"{census.dying:,} dying memory cgroups and {live} live ones: removed, but not freed,"
        " because memory is still charged to them; not zombie processes",
    )
    lives = f", memory on v{census.version}" if census.hierarchy == "hybrid" else ""
    yield "method", f"{printable(census.method)}; cgroup {census.hierarchy}{lives}"
    if census.reason:
        yield "note", printable(census.reason)
    if found.held_bytes is None:
        yield "memory", f"unknown ({printable(found.why_no_bytes or '')})"
    else:
        bound = "at most " if found.bytes_bound and found.held_bytes else ""
        yield "memory", f"{bound}{size(found.held_bytes)} still charged to them"
    yield "growth", _growth_words(found)
    if found.traced is not None:
        yield "traced", _traced_words(found.traced)


def _traced_words(traced: Deaths) -> str:
    words = [f"{len(traced.all):,} removed"]
    words += [f"{len(traced.released):,} freed"] if traced.all else []
    words += [f"{len(traced.unreleased):,} became zombies"] if traced.unreleased else []
    words += [f"{len(traced.pending):,} pending"] if traced.pending else []
    words += [f"{len(traced.unsure):,} unknown"] if traced.unsure else []
    words += [f"{traced.lost:,} events lost"] if traced.lost else []
    return f"{' · '.join(words)} in {seconds(traced.seconds)}"


def _growth_words(found: Tally) -> str:
    words = []
    grown = found.grown
    if grown is not None:
        net = f"{grown.by:+,}" if grown.by else "none"
        words.append(f"{net} in {seconds(grown.seconds)}")
        if grown.draining and grown.drained_in_s is not None:
            words.append(f"draining on its own, empty in {seconds(grown.drained_in_s)}")
    if found.per_s is not None:
        words.append(f"{an_hour(found.per_s * 3600, '+')} at this rate")
    elif grown is not None and 0 < grown.by < ENOUGH.value:
        words.append("too few for a forecast")
    census = found.census
    uptime_s = found.uptime_s or 0.0
    if uptime_s >= 1 and census and census.dying and census.scope == "node":
        hourly = an_hour(census.dying * 3600 / uptime_s)
        words.append(f"{hourly} on average since boot ({seconds(uptime_s)})")
    return " · ".join(words) or "unknown (only one count)"


def _owner_table(found: Tally, width: int) -> Iterator[str]:
    census = found.census
    if census is None or not census.dying or not found.owners:
        return
    shown = found.owners[:_MOST_OWNERS]
    longest = max(len(printable(owner.called)) for owner in shown)
    room = max(min(max(longest, 22), width - 46), 14)
    yield ""
    yield f" {'LEFT BY':{room}}  {'ZOMBIES':>8}  {'MEMORY':>9}  {'EVIDENCE':8}  METHOD"
    for owner in shown:
        number = "?" if owner.dying is None else f"{owner.dying:,}"
        held = "?" if owner.bytes is None else size(owner.bytes)
        name = shorten(printable(owner.called), room)
        by = cut(_in_short(owner.method), max(width - room - 36, 12))
        yield f" {name:{room}}  {number:>8}  {held:>9}  {owner.strength.value:8}  {by}"
    hidden = found.owners[_MOST_OWNERS:]
    if hidden:
        others = sum(owner.dying or 0 for owner in hidden)
        name = f"and {count(len(hidden), 'other')} (--json)"
        yield f" {name:{room}}  {others:>8,}"
    if found.left_over:
        yield f" {'origin unknown':{room}}  {found.left_over:>8,}"


def _in_short(method: str) -> str:
    """`Owner.method` without its details.

    >>> _in_short(f"{LISTED} + {LEDGER}")
    'lru_gen + restarts'
    """
    words = [
        next((_SHORT[key] for key in _SHORT if part.startswith(key)), part)
        for part in method.split(" + ")
    ]
    return " + ".join(words)


def _more(found: Tally, window: Window, width: int) -> Iterator[str]:
    """How to find the remaining owners."""
    census = found.census
    if census is None or census.dying is None:
        yield ""
        yield " try        sudo sexton zombies  # on the node itself"
        yield "            nsenter -t 1 -C -m sexton zombies  # in a pod with hostPID"
        return
    if not census.dying:
        return
    for lacking in pods.missing(window, (owner.path for owner in found.owners)):
        yield f" {'name pods':9}  {cut(lacking.what, width - 12)}"
        if lacking.grant:
            yield f" {'':9}  → {grant_for(lacking.grant, 'zombies')}"
    unnamed = found.left_over or any(owner.names is None for owner in found.owners)
    if not unnamed:
        return
    yield ""
    for kind, gain in ((OfflineMemcg, "see all"), (CgroupEvent, "see new")):
        if window.batches(kind) is None:
            lacking = missing(window.why_missing(kind))
            if ONLY_ON_NODE in lacking.what:
                yield f" {gain:9}  {ONLY_ON_NODE}"
                continue
            yield f" {gain:9}  {cut(lacking.what, width - 12)}"
            if lacking.grant:  # never cut: it will be copied
                yield f" {'':9}  → {grant_for(lacking.grant, 'zombies')}"
    if window.batches(CgroupEvent) is not None:
        yield " see new    sudo sexton zombies --watch  # prints each one with its path"

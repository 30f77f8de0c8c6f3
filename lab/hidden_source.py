"""Diagnose an incident with one source hidden: the verdict may get weaker, never different.

A tool that fills gaps with guesses would name another cause with the same confidence. So each table
behind the top chain is removed in turn, and the whole diagnosis is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from lab.incident import Expected, top_cause
from sexton.explain.diagnosis import diagnose
from sexton.model.chain import Chain, Strength
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding, Rows, Severity, Verdict
from sexton.model.row import Row, table
from sexton.model.rows.trace import StackCount
from sexton.model.window import Batch, Bounds, SourceState, Window
from sexton.store.schema import tables


class ChangedWindow(Window):
    """A window in memory with some tables replaced."""

    def __init__(
        self, window: Window, changed: Mapping[type[Row], Sequence[Batch[Any]]] | None = None
    ) -> None:
        kept = window.keep("every table", lambda: _every_table(window))
        bounds = Bounds(window.start, window.end, window.start_mono, window.end_mono)
        providers = {kind: window.why_missing(kind).id for kind in tables().values()}
        super().__init__({**kept, **(changed or {})}, window.states.values(), providers, bounds)


def _every_table(window: Window) -> dict[type[Row], Sequence[Batch[Any]]]:
    read = ((kind, window.batches(kind)) for kind in (*tables().values(), StackCount))
    return {kind: items for kind, items in read if items is not None}


class WithoutTables(ChangedWindow):
    """A window as if some tables had never been read."""

    def __init__(self, window: Window, *hidden: type[Row]) -> None:
        super().__init__(window, dict.fromkeys(hidden, ()))
        for kind in hidden:
            state = window.why_missing(kind)
            if state.id:
                self.states[state.id] = SourceState(
                    state.id, state.path, "absent", "hidden on purpose", state.grant
                )


@dataclass(frozen=True)
class Trial:
    """The diagnosis without one table, or without all tables of one source."""

    hidden: str
    diagnosis: Diagnosis


def decisive_tables(diagnosis: Diagnosis, window: Window) -> list[type[Row]]:
    """The tables behind the top cause, as its findings and links list them; all recorded tables if
    there is no cause."""
    known = diagnosis.by_id
    rows: list[Rows] = []
    if diagnosis.chains:
        chain = diagnosis.chains[0]
        rows += [row for name in chain.findings for row in known[name].rows]
        rows += [row for link in chain.links for row in link.rows]
    elif (top := top_cause(diagnosis)) is not None:
        rows += known[top].rows
    names = {row.table for row in rows}
    return [
        kind
        for name, kind in sorted(tables().items())
        if window.batches(kind) is not None and (not names or name in names)
    ]


def trials(window: Window, hidden: Sequence[type[Row]]) -> Iterator[Trial]:
    """The diagnosis without each table in turn, and without each source that fills several of
    them."""
    for kind in hidden:
        yield Trial(table(kind), diagnose(WithoutTables(window, kind)))
    for source, kinds in _sources(window, hidden).items():
        if source and len(kinds) > 1:
            yield Trial(source, diagnose(WithoutTables(window, *kinds)))


def _sources(window: Window, hidden: Sequence[type[Row]]) -> dict[str, list[type[Row]]]:
    wanted = {window.why_missing(kind).id for kind in hidden}
    found: dict[str, list[type[Row]]] = {}
    for kind in tables().values():
        source = window.why_missing(kind).id
        if source in wanted and window.batches(kind) is not None:
            found.setdefault(source, []).append(kind)
    return found


def overreach(before: Diagnosis, after: Diagnosis, expected: Expected) -> Iterator[str]:
    """Confident claims that appear only because evidence is missing; there should be none.

    A shorter part of the same chain is effect, and so is a *possible* chain: both are allowed.
    """
    known_before = {*expected.known, *_chained(before)}
    for chain in after.chains:
        if chain.root not in known_before and chain.strength.rank >= Strength.LIKELY.rank:
            yield f"blames {chain.root} ({chain.strength})"
    yield from _stronger_links(before, after)
    known = before.by_id
    for finding in after.findings:
        new = finding.is_problem and not known[finding.id].is_problem
        if new and finding.id not in known_before:
            yield f"finds {finding.id}: {finding.summary}"
    for name in expected.absent:
        now = after.by_id.get(name)
        if _is_present(now) and not _is_present(known.get(name)) and now.severity is Severity.INFO:
            yield f"notes {name}: {now.summary}"


def _is_present(finding: Finding | None) -> TypeGuard[Finding]:
    return finding is not None and finding.verdict is Verdict.PRESENT


def _chained(diagnosis: Diagnosis) -> frozenset[str]:
    return frozenset(name for chain in diagnosis.chains for name in chain.findings)


def _stronger_links(before: Diagnosis, after: Diagnosis) -> Iterator[str]:
    """Links that got stronger with less evidence."""
    links = _links(before.chains)
    for name, strength in _links(after.chains).items():
        if name in links and strength.rank > links[name].rank:
            yield f"{name} became {strength}, was {links[name]}"


def _links(chains: Sequence[Chain]) -> Mapping[str, Strength]:
    found: dict[str, Strength] = {}
    for link in (link for chain in chains for link in chain.links):
        if link.id not in found or link.strength.rank > found[link.id].rank:
            found[link.id] = link.strength
    return found


def effect(before: Diagnosis, after: Diagnosis) -> str:
    """Effect on the top cause: "unknown", "gone", "weaker", "shorter", "same" or "exit N"."""
    top = top_cause(before)
    if top is None:
        return "same" if after.exit == before.exit else f"exit {int(after.exit)}"
    if after.by_id[top].verdict is Verdict.UNKNOWN:
        return "unknown"
    if top_cause(after) != top:
        return "gone"
    if not before.chains:
        return "same"
    if not after.chains or len(after.chains[0].links) < len(before.chains[0].links):
        return "shorter"
    return "weaker" if after.chains[0].strength.rank < before.chains[0].strength.rank else "same"

"""Signals laid over events, as a table: what was different in the seconds before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from sexton.explain.aligned.layout import LEAST_EVENTS
from sexton.model.aligned import Aligned, Ranked
from sexton.model.text import count, printable, shorten
from sexton.model.why import Occasions
from sexton.reports.text.blocks import block, labelled
from sexton.reports.text.profile_head import significance

_MOST, _MOST_OF_CHAIN, _MOST_NOT_SIGNIFICANT, _MOST_OF_ONE = 8, 4, 3, 2
#: Columns of numbers; a narrow terminal does without the last three.
_WIDTHS = (8, 8, 6, 5, 6, 6)
_WIDE_ENOUGH = 72
_HERE = "►"


def aligned_lines(
    aligned: Aligned, occasions: Occasions, known: Collection[str], width: int
) -> Iterator[str]:
    """What was compared, the table, and how far it may be trusted.

    `known` are names in the chain: signals about them come first.
    """
    events = len(aligned.events)
    what = f"{events:,} {occasions.one if events == 1 else occasions.many}"
    text = (
        f"the {aligned.before_s:.0f} s before {what}, against "
        f"{count(aligned.controls, 'quiet window')}; {count(aligned.tested, 'signal')} compared"
    )
    if not events:
        text = f"none of {occasions.words} could be compared with other times"
    yield from labelled("BEFORE IT", [text], width)
    shown = chosen(aligned, known)
    if shown:
        yield from table(shown, events, known, width)
        if any(signal.about in known for signal in shown):
            yield f" {_HERE} named in the chain"
    for text in verdicts(aligned, len(shown)):
        yield from block(text, width, "   ")


def chosen(aligned: Aligned, known: Collection[str]) -> list[Ranked]:
    """The strongest signals, at most two per thing: a NIC has a hundred counters."""
    some = aligned.ranked[: aligned.significant] if aligned.significant else aligned.ranked
    often: Counter[str] = Counter()
    kept: list[Ranked] = []
    for signal in some:
        often[signal.about] += 1
        if often[signal.about] <= _MOST_OF_ONE:
            kept.append(signal)
    if len(aligned.events) >= LEAST_EVENTS and not aligned.significant:
        return kept[:_MOST_NOT_SIGNIFICANT]
    named = [signal for signal in kept if signal.about in known][:_MOST_OF_CHAIN]
    others = [signal for signal in kept if signal.about not in known]
    return [*named, *others[: _MOST - len(named)]]


def table(
    ranked: Sequence[Ranked], events: int, known: Collection[str], width: int
) -> Iterator[str]:
    """One line each, the name in what the numbers leave; `IN` is before how many of the events."""
    cells = [("USUALLY", "BEFORE", "EFFECT", "IN", "LEAD", "q")]
    for signal in ranked:
        lead = "-" if signal.lead_s is None else f"{signal.lead_s:.0f} s"
        numbers = number(signal.control), number(signal.before), size(signal.effect)
        cells.append((*numbers, f"{signal.shown}/{events}", lead, significance(signal.q)))
    columns: tuple[int, ...] = _WIDTHS if width >= _WIDE_ENOUGH else _WIDTHS[:3]
    if events < LEAST_EVENTS:  # a q of so few is 1, whatever happened
        columns = columns[:5]
    room = width - 3 - sum(columns) - len(columns)
    names = ["WHAT DIFFERED", *(named(signal, room) for signal in ranked)]
    signs = [" ", *(_HERE if signal.about in known else " " for signal in ranked)]
    for sign, name, row in zip(signs, names, cells, strict=True):
        text = " ".join(f"{cell:>{wide}}" for cell, wide in zip(row, columns, strict=False))
        yield f" {sign} {name:{room}} {text}"


def size(effect: float) -> str:
    """Spreads of the control windows, with a sign.

    >>> size(48.31), size(-3.14), size(123456.0), size(float("nan"))
    ('+48', '-3.1', '>+999', '-')
    """
    if effect != effect:
        return "-"
    if abs(effect) > 999:
        return ">+999" if effect > 0 else "<-999"
    return f"{effect:+.{0 if abs(effect) >= 10 else 1}f}"


def named(signal: Ranked, room: int) -> str:
    """With its unit where there is room for it.

    >>> core = Ranked("core", "core 5", "system time", "% of a core", 99, 2, 9, 0.1, 0.2, 6)
    >>> named(core, 40), named(core, 20)
    ('core 5: system time, % of a core', 'core 5: system time')
    """
    about = printable(signal.about)
    name = f"{about}: {printable(signal.name)}" if about else printable(signal.name)
    whole = f"{name}, {printable(signal.unit)}"
    return whole if len(whole) <= room else shorten(name, room)


def number(value: float) -> str:
    """With as many digits as matter.

    >>> [number(value) for value in (0.0, 0.034, 3.14159, 120.4, 68440.0, 2.5e7, float("nan"))]
    ['0', '0.034', '3.1', '120', '68,440', '25 M', '-']
    """
    size = abs(value)
    if value != value:
        return "-"
    if size >= 1e6:
        return f"{value / 1e6:,.0f} M"
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 1 else f"{value:.2g}"


def verdicts(aligned: Aligned, shown: int) -> Iterator[str]:
    """What may be concluded, and what not."""
    events = len(aligned.events)
    if 0 < events < LEAST_EVENTS:
        yield (
            f"{count(events, 'event')}: no p below {aligned.smallest_p:.2g} is possible, so "
            "this shows what differed most and proves nothing"
        )
    elif events and aligned.significant:
        rest = aligned.significant - shown
        more = f" (and {rest:,} more: --json lists them)" if rest > 0 else ""
        yield (
            f"significant, with at most {aligned.fdr * 100:.0f} % false discoveries among them"
            f"{more}; what comes first is not necessarily the cause"
        )
    elif aligned.ranked:
        yield (
            "nothing is significant: differences this large occur by chance among "
            f"{count(aligned.tested, 'signal')}"
        )
    # Few events: the line above already says that nothing can be significant.
    few = events < LEAST_EVENTS
    yield from (printable(note) for note in aligned.notes if not (few and "significant" in note))

"""The order of findings in time, and whether one can have caused the other.

Findings have the span of their worst; if something happened more than once, the window's rows have
every time.

**An effect does not begin before its cause.** Every link is held to this, whatever its own rule
says. If the effect began before the cause, by more than the time between readings, and still lasted
when the cause began, it is split there: the link covers the part since then (`Link.since`), and the
earlier part is evidence against it. What was present when the window began has no known beginning.
Of what happened more than once, the first time is the beginning. What an effect that was over
before is worth is left to the link's own rule (the kernel log remembers a wait, the core is held
now), but it is never proven, and that it was over is evidence against it.

**Words.** How two findings lie in time is said by `when`, and by nothing else: "in the same
seconds" means that their spans overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sexton.detect.registry import detector_of, title_of
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.text import seconds
from sexton.model.window import Window

#: The log and the readings disagree by up to this much.
READ_S = 2.0


def near(cause: Finding, effect: Finding, slack_s: float) -> bool:
    """Did the effect begin while the cause lasted, or within `slack_s` of it?"""
    if cause.start is None or effect.start is None:
        return False
    return cause.start - slack_s <= effect.start <= (cause.end or cause.start) + slack_s


def together(one: Finding, other: Finding, slack_s: float) -> bool:
    """Do their spans overlap, give or take `slack_s`? False if one of them has no time."""
    if one.start is None or other.start is None:
        return False
    first, last = one.start - slack_s, (one.end or one.start) + slack_s
    return other.start <= last and (other.end or other.start) >= first


def when(cause: Finding, effect: Finding) -> str:
    """When the effect was, seen from its cause, by the spans that both findings show."""
    if cause.start is None or effect.start is None:
        return "at an unknown time"
    cause_end, effect_end = cause.end or cause.start, effect.end or effect.start
    if effect.start > cause_end:
        return f"{seconds(effect.start - cause_end)} after it ended"
    if effect_end < cause.start:
        return f"{seconds(cause.start - effect_end)} before it began"
    return "in the same seconds"


def in_order(link: Link, ends: tuple[Finding, Finding], window: Window) -> Link:
    """The link, split if its effect began before its cause; `ends` are cause and effect."""
    cause, effect = ends
    if link.since is not None or cause.start is None or effect.start is None:
        return link
    if effect.start >= cause.start - READ_S or effect.start <= window.start + READ_S:
        return link
    begins = min((cause.start, *_times(cause, window)))
    lasts = max((effect.end or effect.start, *_times(effect, window)))
    if effect.start >= begins - READ_S:
        return link
    if lasts >= begins:
        return replace(link, since=begins, against=(*link.against, began_before(ends, begins)))
    weaker = Strength.LIKELY if link.strength is Strength.PROVEN else link.strength
    return replace(link, strength=weaker, against=(*link.against, _was_over(ends, begins - lasts)))


def began_before(ends: tuple[Finding, Finding], begins: float) -> str:
    """Evidence against: the effect was present before its cause began."""
    cause, effect = ends
    early_s = begins - (begins if effect.start is None else effect.start)
    return f"{title_of(effect.id)} began {seconds(early_s)} before {title_of(cause.id)}"


def _was_over(ends: tuple[Finding, Finding], early_s: float) -> str:
    """Evidence against: another occurrence of the cause would be needed."""
    cause, effect = ends
    return f"{title_of(effect.id)} was over {seconds(early_s)} before {title_of(cause.id)} began"


def with_first_causes(links: Sequence[Link], known: Mapping[str, Finding]) -> list[Link]:
    """The links; a split one names another cause of its effect that began earlier."""
    return [_with_first_cause(link, links, known) for link in links]


def _with_first_cause(link: Link, links: Sequence[Link], known: Mapping[str, Finding]) -> Link:
    if link.since is None:
        return link
    ends = known[link.cause], known[link.effect]
    early = began_before(ends, link.since)
    first = [
        other.cause
        for other in links
        if other.effect == link.effect
        and other.cause != link.cause
        and (known[other.cause].start or link.since) < link.since
    ]
    if early not in link.against or not first:
        return link
    words = f"{early}, with {title_of(first[0])}"
    return replace(link, against=tuple(words if one == early else one for one in link.against))


def _times(finding: Finding, window: Window) -> Sequence[float]:
    """Each time it happened, if the window's rows show it."""
    known = detector_of(finding.id)
    each = None if known is None else known.moments or known.spells
    return () if each is None else each(finding, window)

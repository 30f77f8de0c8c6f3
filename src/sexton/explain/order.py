"""An effect does not begin before its cause.

Every link is held to it, whatever its own rule says. Where the effect began before the cause, by
more than readings are apart, and still lasted when the cause began, it is split there: the link
covers the part since then (`Link.since`), and the earlier part is evidence against it.
What was there when the window began has no known beginning. Of what happened more than once, the
first time is the beginning. An effect that was over before is left to the link's own rule, which
says what an earlier time is worth (the kernel's log remembers a wait, the core is held now).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sexton.detect.registry import detector_of, title_of
from sexton.explain.moments import READ_S
from sexton.model.chain import Link
from sexton.model.finding import Finding
from sexton.model.text import seconds
from sexton.model.window import Window


def in_order(link: Link, ends: tuple[Finding, Finding], window: Window) -> Link:
    """The link, split where its effect began before its cause; `ends` are cause and effect."""
    cause, effect = ends
    if link.since is not None or cause.start is None or effect.start is None:
        return link
    if effect.start >= cause.start - READ_S or effect.start <= window.start + READ_S:
        return link
    begins = min((cause.start, *_beginnings(cause, window)))
    lasts = max((effect.end or effect.start, *_beginnings(effect, window)))
    if effect.start >= begins - READ_S or lasts < begins:
        return link
    return replace(link, since=begins, against=(*link.against, began_before(ends, begins)))


def began_before(ends: tuple[Finding, Finding], begins: float) -> str:
    """What is said of an effect that was there before its cause began."""
    cause, effect = ends
    early_s = begins - (begins if effect.start is None else effect.start)
    return f"{title_of(effect.id)} began {seconds(early_s)} before {title_of(cause.id)}"


def with_first_causes(links: Sequence[Link], known: Mapping[str, Finding]) -> list[Link]:
    """Where a split effect has another cause that began earlier, that one is named."""
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


def _beginnings(finding: Finding, window: Window) -> Sequence[float]:
    """Each time it happened, where the window's rows show it."""
    known = detector_of(finding.id)
    each = None if known is None else known.moments or known.spells
    return () if each is None else each(finding, window)

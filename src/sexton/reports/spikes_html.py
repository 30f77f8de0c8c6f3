"""The text of `profile report` as HTML: the verdict above the page, the spikes below it."""

from __future__ import annotations

from collections.abc import Iterator

from sexton.model.text import count, seconds, shorten
from sexton.profile.spikes.spike import Grown, Spike, Spikes, SpikeStack
from sexton.reports.svg.flame_svg import escaped
from sexton.reports.text.profile_head import Capture, lost, percent, significance
from sexton.reports.text.spikes import (
    busy_change,
    calm_words,
    cores_named,
    grown_name,
    lasting,
    recurring_words,
    sentence,
    tasks_named,
    verdict_word,
    whole,
)

_MOST_GROWN = 12
_MOST_PROBLEMS = 20


def capture_title(capture: Capture) -> str:
    """Host, date and length."""
    start = capture.times.date(capture.times.start_ns) if capture.end_ns is not None else ""
    span = "" if capture.span_s is None else f", {seconds(capture.span_s)}"
    return f"{capture.name}{' · ' if start else ''}{start}{span}"


def head_html(capture: Capture, found: Spikes, exit_code: int, event: str) -> Iterator[str]:
    """The title, the capture's facts, and the verdict in one sentence."""
    facts = capture.facts
    parts = [
        count(facts.cores, "core") if facts.cores else "",
        f"Linux {facts.release}" if facts.release else "",
        count(capture.samples, "sample"),
        event,
        lost(facts),
    ]
    yield f"<header><h1>{escaped(capture_title(capture))}</h1>"
    yield f"<p>{escaped(' · '.join(part for part in parts if part))}</p></header>"
    word, text = verdict_word(found, exit_code), verdict_sentence(capture, found, exit_code)
    yield f'<p class="verdict"><span class="word exit{exit_code}">{escaped(word)}</span>'
    yield f"{_unbroken(text)}</p>"


def verdict_sentence(capture: Capture, found: Spikes, exit_code: int) -> str:
    """What stood out first; otherwise what was searched, or why nothing can be said."""
    if found.spikes:
        return sentence(capture, found.spikes[0])
    if exit_code == 3:
        return "; ".join(found.problems) or "too little data to say what is normal here"
    return f"No spikes in {count(found.seconds, 'second')} on {count(found.cores, 'core')}."


def spikes_html(capture: Capture, found: Spikes) -> Iterator[str]:
    """Every spike with what grew in it, recurring work, and what the capture lacks."""
    if found.spikes:
        yield "<h2>Spikes</h2>"
        for number, spike in enumerate(found.spikes):
            yield from _spike(capture, spike, number)
    if found.recurring:
        yield "<h2>Recurring</h2><ul>"
        yield from (f"<li>{escaped(recurring_words(burst))}</li>" for burst in found.recurring)
        yield "</ul>"
    facts = capture.facts
    bad = ' class="note"' if facts.lost or facts.throttled else ""
    yield f"<h2>Capture</h2><p{bad}>{escaped(lost(facts))}</p>"
    problems = list(dict.fromkeys([*facts.problems, *found.problems]))[:_MOST_PROBLEMS]
    if problems:
        yield "<ul>" + "".join(f"<li>{escaped(problem)}</li>" for problem in problems) + "</ul>"
    yield (
        f"<p>{count(found.cells, 'core-second')} tested, false discovery rate "
        f"{whole(found.fdr)}. Flame graphs colour a change where q ≤ 0.05.</p>"
    )
    if facts.command:
        yield f"<p>{escaped(shorten(facts.command, 200))}</p>"


def _unbroken(text: str) -> str:
    """Escaped, with numbers kept on one line with their unit."""
    return escaped(text).replace(" %", "&nbsp;%").replace(" s ", "&nbsp;s ")


def _spike(capture: Capture, spike: Spike, number: int) -> Iterator[str]:
    times = capture.times
    button = f'<button type="button" data-spike="{number}" hidden>show</button>'
    yield (
        f'<article class="spike"><header><span class="number">{number + 1}</span>'
        f"<h3>{escaped(times.clock(spike.onset_ns, 2))} for {lasting(spike)}, "
        f"{escaped(cores_named(spike.cpus))}</h3>"
        f"<span>{escaped(busy_change(spike))}</span>"
        f'<span class="soft">q {escaped(significance(spike.q))}</span>{button}</header>'
    )
    if spike.grew:
        yield (
            '<table><thead><tr><th>grew</th><th class="n">calm</th><th class="n">spike</th>'
            '<th></th><th class="n">self</th><th class="n">q</th></tr></thead><tbody>'
        )
        yield from (_grown(growth) for growth in spike.grew[:_MOST_GROWN])
        yield "</tbody></table>"
    if spike.path is not None:
        yield _stack("fastest-growing path", spike.path)
    for stack in spike.stacks[:3]:
        if spike.path is None or stack.frames != spike.path.frames:
            yield _stack("stack", stack)
    notes = "; ".join(filter(None, (tasks_named(spike, 6), calm_words(spike))))
    yield f'<p class="soft">{escaped(notes)}</p></article>'


def _grown(grown: Grown) -> str:
    wide = 120
    here, calm = (min(max(share, 0.0), 1.0) * wide for share in (grown.share, grown.calm_share))
    bar = (
        f'<svg class="bar" width="{wide}" height="9" role="presentation">'
        f'<rect width="{here:.1f}" height="9" rx="2"/>'
        f'<rect class="calm" width="{calm:.1f}" height="9" rx="2"/></svg>'
    )
    return (
        f'<tr><td class="name">{escaped(shorten(grown_name(grown), 160))}</td>'
        f'<td class="n">{escaped(percent(grown.calm_share))}</td>'
        f'<td class="n">{escaped(percent(grown.share))}</td><td>{bar}</td>'
        f'<td class="n">{escaped(percent(grown.own_share))}</td>'
        f'<td class="n">{escaped(significance(grown.q))}</td></tr>'
    )


def _stack(label: str, stack: SpikeStack) -> str:
    names = " → ".join(escaped(shorten(name, 120)) for name in stack.frames[:-1])
    last = escaped(shorten(stack.frames[-1], 120)) if stack.frames else ""
    share = f"{percent(stack.calm_share)} → {percent(stack.share)}"
    arrow = " → " if names else ""
    return f'<p class="stack">{label}, {escaped(share)}: {names}{arrow}<b>{last}</b></p>'

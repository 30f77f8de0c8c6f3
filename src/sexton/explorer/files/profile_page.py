"""The report: one HTML file with the heatmaps, the spikes, and what grew in each against calm.

Tables and sentences are in the page itself; only pictures need its scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sexton import __version__
from sexton.explorer.files.flame_page import FLAME_PLACE, TIP, heat_place, keys
from sexton.explorer.files.page_data import Numbers
from sexton.explorer.files.page_shell import shell
from sexton.model.profile import Flame, FlameDifference, Kind
from sexton.model.text import count, seconds, shorten
from sexton.profile.heatmap import Heatmap
from sexton.profile.spikes.spike import Grown, Recurring, Spike, Spikes, SpikeStack
from sexton.reports.svg.flame_picture import boxes_of, difference_boxes
from sexton.reports.svg.flame_svg import escaped
from sexton.reports.text.profile_head import (
    Capture,
    lost,
    percent,
    significance,
)
from sexton.reports.text.spikes import (
    calm_words,
    cores_named,
    lasting,
    sentence,
    verdict_word,
    whole,
)

#: Boxes per flame graph; there are several in one page.
WHOLE_BOXES, SPIKE_BOXES = 4000, 2500
_MOST_GROWN = 12


class Compared(NamedTuple):
    """A spike's flame graph against calm, and what calm means there."""

    found: FlameDifference
    calm: str


class Report(NamedTuple):
    """Everything the page shows."""

    capture: Capture
    spikes: Spikes
    exit: int
    heats: Sequence[Heatmap]
    hertz: int | None
    whole: Flame
    compared: Sequence[Compared | None]


def report_html(report: Report, numbers: Numbers) -> str:
    """The page. `numbers` may hold stacks already; flame graphs and heat are added here."""
    for drawn in report.heats:
        numbers.add_heat(drawn, report.capture, report.hertz)
    note = f"{count(report.whole.samples, 'sample')} of running tasks, {report.whole.event}"
    boxes = boxes_of(report.whole, WHOLE_BOXES)
    numbers.add_flame(boxes, "whole capture", note, ())
    pictures = [_picture(report, numbers, at) for at in range(len(report.spikes.spikes))]
    numbers.data["first"] = next((each for each in pictures if each is not None), 0)
    numbers.data["spikes"] = [_mark(report.capture, each) for each in report.spikes.spikes]
    body = "\n".join(_body(report, pictures))
    return shell(_title(report.capture), body, numbers.finished())


def _title(capture: Capture) -> str:
    start = capture.times.date(capture.times.start_ns) if capture.end_ns is not None else ""
    span = "" if capture.span_s is None else f", {seconds(capture.span_s)}"
    return f"{capture.name}{' · ' if start else ''}{start}{span}"


def _below_title(report: Report) -> str:
    facts = report.capture.facts
    parts = [
        count(facts.cores, "core") if facts.cores else "",
        f"Linux {facts.release}" if facts.release else "",
        count(report.capture.samples, "sample"),
        report.whole.event + (f" at {report.hertz} Hz" if report.hertz else ""),
        lost(facts),
    ]
    return " · ".join(part for part in parts if part)


def _unbroken(text: str) -> str:
    """Escaped, and no number is torn from its unit."""
    return escaped(text).replace(" %", "&nbsp;%").replace(" s ", "&nbsp;s ")


def _picture(report: Report, numbers: Numbers, at: int) -> int | None:
    compared = report.compared[at] if at < len(report.compared) else None
    if compared is None:
        return None
    spike = report.spikes.spikes[at]
    when = report.capture.times.clock(spike.onset_ns)
    label = f"spike {at + 1}: {when} {cores_named(spike.cpus)}"
    boxes = difference_boxes(compared.found, SPIKE_BOXES)
    note = f"{compared.calm} → the spike; red grew, blue shrank, grey may be chance"
    return numbers.add_flame(boxes, label, note, ("calm", "spike"))


def _mark(capture: Capture, spike: Spike) -> dict[str, Any]:
    since = capture.times.since
    return {
        "start_s": since(spike.start_ns),
        "end_s": since(spike.end_ns),
        "cores": [cpu for cpu in spike.cpus if cpu >= 0],
    }


def _body(report: Report, pictures: Sequence[int | None]) -> Iterator[str]:
    capture, found = report.capture, report.spikes
    yield f"<header><h1>{escaped(_title(capture))}</h1>"
    yield f'<p class="soft">{escaped(_below_title(report))}</p>'
    word = verdict_word(found, report.exit)
    told = sentence(capture, found.spikes[0]) if found.spikes else _calm(report)
    yield (
        f'<p class="verdict"><span class="word exit{report.exit}">{escaped(word)}</span>'
        f"{_unbroken(told)}</p></header>"
    )
    for drawn in report.heats:
        yield f"<section><h2>{_heat_title(drawn)}</h2>{heat_place(drawn.kind)}</section>"
    if report.heats:
        yield (
            '<p class="soft">Point at a cell to read it; draw over some to see what ran there '
            "(arrows move, Shift and arrows choose, Enter shows). Blank was not sampled.</p>"
        )
    if found.spikes:
        yield "<section><h2>What stood out</h2>"
        for number, spike in enumerate(found.spikes):
            yield from _spike(capture, spike, number, pictures[number])
        yield "</section>"
    if found.recurring:
        yield "<section><h2>What comes back again and again</h2><ul>"
        yield from (f"<li>{escaped(_habit(each))}</li>" for each in found.recurring)
        yield "</ul></section>"
    yield f"<section><h2>Flame graphs</h2>{keys(False)}{keys(True) if found.spikes else ''}"
    yield f"{FLAME_PLACE}</section>{TIP}"
    yield from _footer(report)


def _calm(report: Report) -> str:
    if report.exit == 3:
        return "; ".join(report.spikes.problems) or "it cannot be told what is usual here"
    looked = report.spikes
    return (
        f"nothing stood out of {count(looked.seconds, 'second')} on {count(looked.cores, 'core')}"
    )


def _heat_title(drawn: Heatmap) -> str:
    column = seconds(drawn.column_seconds)
    if drawn.kind == "subsecond":
        return f"Within each second: 20 ms up, {column} across, all cores"
    busiest = ", its busiest second" if drawn.column_seconds > 1 else ""
    return f"Cores over time: a column is {column}{busiest}"


def _spike(capture: Capture, spike: Spike, number: int, picture: int | None) -> Iterator[str]:
    times = capture.times
    lasted = lasting(spike)
    kernel = f"{whole(spike.kernel)} in the kernel"
    if spike.in_kernel:
        kernel = f"in the kernel {whole(spike.normal_kernel)} → {whole(spike.kernel)}"
    button = ""
    if picture is not None:
        button = f'<button type="button" data-picture="{picture}" hidden>flame graph</button>'
    yield (
        f'<article class="spike"><header><span class="number">{number + 1}</span>'
        f"<h3>{escaped(times.clock(spike.onset_ns, 2))} for {lasted}, "
        f"{escaped(cores_named(spike.cpus))}</h3>"
        f"<span>busy {whole(spike.normal)} → {whole(spike.busy)}, {kernel}</span>"
        f'<span class="soft">q {escaped(significance(spike.q))}</span>{button}</header>'
    )
    if spike.grew:
        yield (
            '<table><thead><tr><th>what grew</th><th class="n">calm</th><th class="n">here</th>'
            '<th></th><th class="n">itself</th><th class="n">q</th></tr></thead><tbody>'
        )
        yield from (_grown(each) for each in spike.grew[:_MOST_GROWN])
        yield "</tbody></table>"
    if spike.path is not None:
        yield _stack("the way it grew", spike.path)
    for stack in spike.stacks[:3]:
        if spike.path is None or stack.frames != spike.path.frames:
            yield _stack("stack", stack)
    tasks = " · ".join(
        f"{name}{f'[{pid}]' if pid >= 0 else ''} {percent(share)}"
        for name, pid, share in spike.tasks[:6]
    )
    notes = [tasks, calm_words(spike)]
    yield f'<p class="soft">{escaped("; ".join(note for note in notes if note))}</p></article>'


def _grown(grown: Grown) -> str:
    module = f" [{grown.module.rpartition('/')[2]}]" if grown.kind == Kind.USER else ""
    if not grown.module:
        module = ""
    name = grown.name + (" (task)" if grown.kind == Kind.TASK else module)
    wide = 120
    here, calm = (min(max(share, 0.0), 1.0) * wide for share in (grown.share, grown.calm_share))
    bar = (
        f'<svg width="{wide}" height="9" role="presentation"><g class="g4">'
        f'<rect width="{here:.1f}" height="9" rx="2"/></g><g class="n">'
        f'<rect width="{calm:.1f}" height="9" rx="2"/></g></svg>'
    )
    return (
        f'<tr><td class="name">{escaped(shorten(name, 160))}</td>'
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


def _habit(each: Recurring) -> str:
    often = seconds(each.interval_ns / 1e9)
    how = f"every {often}" if each.regular else f"about every {often}"
    text = f"{cores_named(each.cpus)}: {how}, {count(each.times, 'time')}, "
    text += f"busy {whole(each.normal)} → {whole(each.busy)}"
    if each.example is not None and each.example.grew:
        text += f", {each.example.grew[0].name}"
    return text


def _footer(report: Report) -> Iterator[str]:
    facts, found = report.capture.facts, report.spikes
    bad = ' class="warn"' if facts.lost or facts.throttled else ""
    yield f"<footer><p{bad}>{escaped(lost(facts))}</p>"
    problems = list(dict.fromkeys([*facts.problems, *found.problems]))
    if problems:
        yield "<ul>" + "".join(f"<li>{escaped(each)}</li>" for each in problems[:20]) + "</ul>"
    looked = (
        f"{count(found.cells, 'core-second')} looked at, false discoveries held at "
        f"{whole(found.fdr)}; a change in a flame graph is coloured from q 0.05 down"
    )
    command = f"; {shorten(facts.command, 200)}" if facts.command else ""
    yield f"<p>{escaped(looked)}</p><p>sexton {__version__}{escaped(command)}</p></footer>"

"""`sexton profile spikes` as text: when, on which cores, and what grew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sexton.model.profile import Kind
from sexton.model.text import count, printable, seconds, shorten
from sexton.profile.spikes.spike import Grown, Recurring, Spike, Spikes, SpikeStack
from sexton.reports.text.blocks import SHADES, block, clamp, headline
from sexton.reports.text.heat import (
    Grid,
    Terminal,
    fewer_rows,
    heat_lines,
    marks_line,
    scale,
    stretched,
)
from sexton.reports.text.profile_head import (
    Capture,
    footnotes,
    identity,
    labelled,
    percent,
    significance,
)

_MOST_SPIKES, _MOST_GROWN, _MOST_STACKS, _MOST_RECURRING = 6, 6, 2, 5
_SIGNS = "123456789abcdefghijklmnopqrstuvwxyz"
EXITS = {0: "no spikes", 1: "spikes found", 3: "inconclusive, see PROBLEMS"}
_WORDS = {0: "NO SPIKES", 1: "SPIKES", 3: "INCONCLUSIVE"}


class Invocation(NamedTuple):
    """`arguments` are the files and symbol options of the command line, quoted for a shell.

    `at_moments`: moments were given (`--at`, `--events`) and nothing was searched.
    """

    arguments: str
    exit: int
    at_moments: bool = False


def spikes_text(
    capture: Capture, found: Spikes, heat: Grid | None, invocation: Invocation, terminal: Terminal
) -> str:
    """The whole report."""
    width = clamp(terminal.width, 120)
    word, exits = verdict_word(found, invocation.exit), EXITS[invocation.exit]
    if invocation.at_moments and invocation.exit == 0:
        word, exits = "NO DIFFERENCE", "nothing differs significantly at the given times"
    shade = SHADES[invocation.exit] if terminal.colour else ""
    lines = [*headline(word, identity(capture), width, shade), ""]
    if found.spikes:
        lines += [*block(sentence(capture, found.spikes[0]), width - 1, " "), ""]
    shown = found.spikes[:_MOST_SPIKES]
    if heat is not None:
        lines += [*_strip(capture, shown, heat, terminal), ""]
    for number, spike in enumerate(shown):
        lines += [*_spike(capture, spike, _SIGNS[number], width), ""]
    rest = max(found.found, len(found.spikes)) - len(shown)
    if rest > 0:
        lines += [f" and {count(rest, 'weaker spike')}: see --json --most N", ""]
    if found.recurring:
        lines += [*_recurring(found.recurring, width), ""]
    lines += (
        _next(capture, shown[0], invocation, width) if shown else _instead(found, invocation, width)
    )
    lines += footnotes(capture, width, found.problems)
    lines += ["", *block(_tested(found), width - 1, " ")]
    lines.append(f" exit {invocation.exit}: {exits}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def verdict_word(found: Spikes, exit_code: int) -> str:
    """The verdict in capitals."""
    if exit_code == 1 and found.spikes:
        number = max(found.found, len(found.spikes))
        return f"{number} SPIKE{'S' if number > 1 else ''}"
    return _WORDS[exit_code]


def _tested(found: Spikes) -> str:
    parts = [
        count(found.seconds, "second"),
        count(found.cores, "core"),
        f"{count(found.cells, 'core-second')} tested",
        f"false discovery rate {whole(found.fdr)}",
    ]
    return " · ".join(parts)


def sentence(capture: Capture, spike: Spike) -> str:
    """The strongest spike in one sentence."""
    when = f"for {lasting(spike)} from {capture.times.clock(spike.onset_ns, 2)}"
    where = cores_named(spike.cpus)
    verb = "were" if len(spike.cpus) > 1 else "was"
    what, normal = f"{whole(spike.busy)} busy", spike.normal
    if spike.in_kernel:
        what, normal = f"{whole(spike.kernel)} in the kernel", spike.normal_kernel
    text = f"{where[0].upper()}{where[1:]} {verb} {what} (normally {whole(normal)}) {when}"
    grown = next((growth for growth in spike.grew if growth.kind != Kind.TASK), None)
    task = next((growth for growth in spike.grew if growth.kind == Kind.TASK), None)
    who = printable(task.name) if task else (printable(spike.tasks[0][0]) if spike.tasks else "")
    if grown is not None:
        by = f"{who} in " if who else ""
        text += (
            f": {by}{printable(grown.name)}, {percent(grown.calm_share)} → "
            f"{percent(grown.share)} of the time"
        )
    elif who:
        text += f": {who}"
    return text + "."


def cores_named(cpus: Sequence[int]) -> str:
    """Cores as ranges.

    >>> cores_named((5,)), cores_named((0, 1, 2, 7)), cores_named(())
    ('core 5', 'cores 0-2,7', 'the machine')
    """
    known = sorted(cpu for cpu in cpus if cpu >= 0)
    if not known:
        return "the machine"
    return f"{'core' if len(known) == 1 else 'cores'} {shorten(ranges(known), 40)}"


def lasting(spike: Spike) -> str:
    """How long it lasted, from its onset."""
    return seconds(max(spike.end_ns - max(spike.onset_ns, spike.start_ns), 0) / 1e9)


def calm_words(spike: Spike) -> str:
    """What it was compared with."""
    note = printable(spike.note)
    if not spike.calm_windows:
        return note or "no calm window to compare with"
    words = f"compared with {count(spike.calm_windows, 'calm window')}"
    return f"{words}; {note}" if note else words


def busy_change(spike: Spike) -> str:
    """How busy the cores were, before and in the spike."""
    busy = f"busy {whole(spike.normal)} → {whole(spike.busy)}"
    if spike.in_kernel:
        return f"{busy}, in the kernel {whole(spike.normal_kernel)} → {whole(spike.kernel)}"
    return f"{busy}, {whole(spike.kernel)} in the kernel"


def grown_name(grown: Grown) -> str:
    """What grew: a task, a kernel function, or a program's function with its module."""
    name = printable(grown.name)
    if grown.kind == Kind.TASK:
        return f"{name} (task)"
    if grown.module and grown.kind == Kind.USER:
        return f"{name} [{printable(grown.module).rpartition('/')[2]}]"
    return name


def tasks_named(spike: Spike, most: int) -> str:
    """The tasks that ran in it, with their shares."""
    return " · ".join(
        f"{printable(comm)}{f'[{pid}]' if pid >= 0 else ''} {percent(share)}"
        for comm, pid, share in spike.tasks[:most]
    )


def recurring_words(burst: Recurring) -> str:
    """Work that recurs on a core, in one line."""
    often = seconds(burst.interval_ns / 1e9)
    how = f"every {often}" if burst.regular else f"about every {often}"
    text = f"{cores_named(burst.cpus)}: {how}, {count(burst.times, 'time')}, "
    text += f"busy {whole(burst.normal)} → {whole(burst.busy)}"
    if burst.example is not None and burst.example.grew:
        text += f", {printable(burst.example.grew[0].name)}"
    return text


def whole(share: float) -> str:
    """A share in whole percent.

    >>> whole(0.168), whole(1.0), whole(0.001)
    ('17 %', '100 %', '<1 %')
    """
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def ranges(numbers: Sequence[int]) -> str:
    """``0-2,7``, as `--cpu` takes it."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


def _strip(
    capture: Capture, spikes: Sequence[Spike], heat: Grid, terminal: Terminal
) -> Iterator[str]:
    alone = {str(cpu) for spike in spikes for cpu in spike.cpus[:4]}
    grid = stretched(fewer_rows(heat, alone), clamp(terminal.width, 120))
    groups = "; grouped rows show the mean" if len(grid.labels) < len(heat.labels) else ""
    busiest = ", showing its busiest second" if heat.column_s > 1 else ""
    yield f" CORES    one column is {seconds(heat.column_s)}{busiest}{groups}"
    yield from heat_lines(grid, capture.times, terminal)
    signs = [(spike.onset_ns, _SIGNS[number]) for number, spike in enumerate(spikes)]
    if signs:
        yield marks_line(grid, signs)
    yield scale(terminal, ("idle", "busy"))


def _spike(capture: Capture, spike: Spike, sign: str, width: int) -> Iterator[str]:
    head = (
        f"{capture.times.clock(spike.onset_ns, 2)}  {lasting(spike)}  {cores_named(spike.cpus)}   "
        f"{busy_change(spike)}   q {significance(spike.q)}"
    )
    yield from block(head, width - 1, "    ", first=f" {sign}  ")
    if spike.grew:
        name = max(width - 46, 16)
        yield f"    {'WHAT GREW':{name}} {'NORMAL':>8} {'SPIKE':>9} {'SELF':>9} {'q':>8}"
        for grown in spike.grew[:_MOST_GROWN]:
            yield _grown(grown, name)
        if len(spike.grew) > _MOST_GROWN:
            yield f"    and {len(spike.grew) - _MOST_GROWN} more"
    if spike.path is not None and len(spike.path.frames) > 1:
        yield from _stack("PATH", spike.path, width)
    for stack in spike.stacks[: _MOST_STACKS if spike.path is None else 1]:
        if spike.path is None or stack.frames != spike.path.frames:
            yield from _stack("STACK", stack, width)
    if spike.tasks:
        yield from _hung("TASKS", tasks_named(spike, 4), width)
    yield from _hung("CALM", calm_words(spike), width)


def _grown(grown: Grown, room: int) -> str:
    return (
        f"    {shorten(grown_name(grown), room):{room}} {percent(grown.calm_share):>8} "
        f"{percent(grown.share):>9} {percent(grown.own_share):>9} {significance(grown.q):>8}"
    )


def _recurring(found: Sequence[Recurring], width: int) -> Iterator[str]:
    """Bursts too frequent to be spikes."""
    yield " RECURRING"
    for burst in found[:_MOST_RECURRING]:
        yield from block(recurring_words(burst), width - 2, "      ", first="    ")
    if len(found) > _MOST_RECURRING:
        yield f"    and {len(found) - _MOST_RECURRING} more: see --json"


def _stack(label: str, stack: SpikeStack, width: int) -> Iterator[str]:
    names = [shorten(printable(name), 40) for name in stack.frames]
    if len(names) > 14:
        names = [*names[:4], "…", *names[-9:]]
    share = f"{percent(stack.calm_share)} → {percent(stack.share)}: "
    yield from _hung(label, share + " → ".join(names), width)


def _hung(label: str, text: str, width: int) -> Iterator[str]:
    yield from block(text, width, " " * 10, first=f"    {label:6}")


def _instead(found: Spikes, invocation: Invocation, width: int) -> Iterator[str]:
    """What to run when there are no spikes."""
    if any(problem.startswith("too short") for problem in found.problems):
        longer = "sudo perf record -F 97 -a -g -k CLOCK_MONOTONIC -- sleep 120"
        yield from labelled("RECORD", [longer], width)
    if invocation.arguments.isprintable() and len(invocation.arguments) < 200:
        yield from labelled("NEXT", [f"sexton profile flame {invocation.arguments}"], width)


def _next(capture: Capture, spike: Spike, invocation: Invocation, width: int) -> Iterator[str]:
    """Commands that show the first spike."""
    since = capture.times.since
    cpus = ranges([cpu for cpu in spike.cpus if cpu >= 0])
    cpu = f" --cpu {cpus}" if cpus and len(cpus) < 30 else ""
    span = f"--from {max(since(spike.onset_ns), 0):.2f} --to {since(spike.end_ns):.2f}"
    if invocation.arguments.isprintable() and len(invocation.arguments) < 200:
        yield from labelled(
            "NEXT", [f"sexton profile flame {invocation.arguments} {span}{cpu}"], width
        )
        yield from labelled(
            "", [f"sexton profile report {invocation.arguments} --out report.html"], width
        )

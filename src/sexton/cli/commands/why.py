"""Why did this happen: to a core, an interface, a unit, or at a time?

Starts from the symptom. Shows the cause chain through it, the timeline, competing causes,
and what was different in the seconds before.

  sexton why eth0                               this node: ten seconds, and its log
  sexton why core 5 --from /var/lib/sexton      all that was recorded
  sexton why ecs --from DIR                     a unit, with or without .service
  sexton why 03:12 --from DIR                   a time: that minute, or 03:12:07
  sexton why core 5 --from DIR --window 02:00..04:00
  sexton why eth0 --from node.tar               an archive of `sexton collect`; - reads stdin
  sexton why 03:12 --prometheus URL --node n17  what Prometheus has of a node; also core 5, eth0, …

Also a task (kubelet, kubelet[2113], pid 2113), a pod (NAMESPACE/NAME, or its name alone), a
cgroup (/system.slice/ecs.service, or the ID of a pod or container), a queue (eth0:5), a
mount point or disk (/data, sda1), a marked job, a symptom (the ID that --json gives it), a
kernel function where there are stacks. A word before the name settles what it is: task
kubelet, unit kubelet. On a live node, unknown names fail immediately; `task backup` waits
for one to start.

With a recording, every signal is compared with quiet seconds of the same recording; with
fewer than five events nothing is called significant. Changes nothing on the node.
Exit: 0 nothing wrong with it, 1 problem found on it, 2 failed, 3 could not tell.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sexton.cli import output
from sexton.cli.configuration import add_config
from sexton.cli.options import add_json
from sexton.cli.prometheus import add_prometheus, check_prometheus, read_prometheus
from sexton.cli.tree import suggest
from sexton.cli.window import (
    AROUND_S,
    add_live_options,
    add_recording,
    check_archive,
    check_key,
    check_recording,
    cost_of,
    is_archive,
    is_clock,
    open_recording,
    parse_moment,
    precision_s,
    read_archived,
    requested_span,
    watch,
)
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.model.why import Subject, Why
    from sexton.model.window import Window
    from sexton.replay.span import Span
    from sexton.store.recording import Recording

#: Optional words before a time.
_AT = ("at", "time")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = parser.add_argument(
        "about", nargs="+", metavar="WHAT", help="a time, an interface, `core N`, a unit, a task, …"
    )
    suggest(about, _suggested)
    add_json(parser)
    add_recording(parser)
    parser.add_argument(
        "--window", metavar="A..B", help="only this part of the recording, or of Prometheus' time"
    )
    add_live_options(parser)
    add_prometheus(parser)
    parser.set_defaults(around=None, archive=None)
    add_config(parser)


def _suggested() -> Iterable[str]:
    """Words that may stand before a name, and every symptom."""
    from sexton.detect.registry import detector_ids
    from sexton.explain.subject import KINDS

    return (*KINDS, *detector_ids())


def run(args: argparse.Namespace) -> int:
    import sys

    query = " ".join(args.about)
    check_key(args)
    check_prometheus(args)
    _check_place(args)
    if args.prometheus is not None:
        why = _scraped(args, query)
    elif args.recording is None or is_archive(args.recording):
        why = _sampled(args, query)
    else:
        why = _recorded(args, query)
    if args.json:
        from sexton.reports.text.why import why_json

        output.print_json(why_json(why))
    else:
        from sexton.reports.text.why import why_text

        sys.stdout.write(why_text(why, output.width(), colour=output.colour()))
    return int(why.exit)


def _check_place(args: argparse.Namespace) -> None:
    """Refuse an archive or a recording as the last word, where `diagnose` and `zombies` take one:
    here a name has several words, and `task backup` may stand beside a file called backup."""
    import shlex
    from pathlib import Path

    *words, place = args.about
    if args.recording is not None or args.prometheus is not None or not words:
        return
    path = Path(place)
    is_archive_file = len({*place} & {".", "/"}) > 0 and path.is_file()
    if is_archive_file or (path / "segments").is_dir():
        kind = "a file" if is_archive_file else "a recording"
        command = f"sexton why {_quoted(' '.join(words))} --from {shlex.quote(place)}"
        raise CommandError(f"{place!r} is {kind}, not part of a name: {command}")


def _sampled(args: argparse.Namespace, query: str) -> Why:
    """Explain from a few seconds of this node, or from an archive."""
    from dataclasses import replace

    if args.window is not None:
        raise CommandError("--window requires --from DIR, a recording, or --prometheus URL")
    if _moment(query, (0.0, 0.0)) is not None:
        what = "times require --from DIR, a recording, or --prometheus URL"
        raise CommandError(f"{query!r} is a time: {what}")
    if args.recording is not None:
        check_archive(args)
        window, cost = read_archived(args.recording)
    else:
        _look_up(args, query)
        window, cost = watch(args, "why")
    from sexton.explain.diagnosis import diagnose  # late: a typo needs no detectors
    from sexton.explain.subject import names_for
    from sexton.explain.why import explain

    names = names_for(query, window)  # before the diagnosis: a typo fails at once
    return replace(
        explain(query, diagnose(window, cost), window, names),
        not_aligned="too short for a baseline; use a recording",
        remedy=f"sudo sexton record DIR  # then: sexton why {_quoted(query)} --from DIR",
    )


def _scraped(args: argparse.Namespace, query: str) -> Why:
    """Explain from what Prometheus has: the minutes around a time, else the window."""
    import time
    from dataclasses import replace

    from sexton.cli.progress import working
    from sexton.explain.diagnosis import diagnose
    from sexton.explain.subject import names_for
    from sexton.explain.why import explain
    from sexton.model.diagnosis import Replayed

    now = time.time()
    moment = _moment(query, (now - AROUND_S, now))
    if moment is not None and args.window is None:
        args.around = f"@{moment.wall_s}"
    with working("reading Prometheus"):
        found = read_prometheus(args)
        names = None if moment is not None else names_for(query, found.window)
        diagnosis = diagnose(found.window)
    diagnosis = replace(
        diagnosis,
        cost=cost_of(found.window, "read from Prometheus"),
        replayed=Replayed(f"Prometheus at {args.prometheus}", found.notes, scraped=True),
    )
    then = f"sexton why {_quoted(query)} --from DIR"
    return replace(
        explain(moment or query, diagnosis, found.window, names),
        not_aligned="averages over scrapes are too coarse; use a recording",
        remedy=f"sudo sexton record DIR  # on the node; then: {then}",
    )


def _look_up(args: argparse.Namespace, query: str) -> None:
    """Refuse an unknown name before the node is watched.

    `task NAME` and `cgroup NAME` are not refused: they may appear while it is watched.
    """
    from sexton.cli.image import open_tree
    from sexton.explain.subject import (
        NAME_TABLES,
        QUICK_TABLES,
        WORDS,
        candidates,
        may_appear,
        names_for,
        names_of,
    )
    from sexton.record.sampler import Sampler
    from sexton.sources.registry import enabled_sources

    if may_appear(query, args.stacks):
        return
    for tables in (QUICK_TABLES, NAME_TABLES):
        sources = [
            source
            for source in enabled_sources()
            if tables.intersection(source.rows) and not source.id.startswith("tracefs.")
        ]
        with Sampler(open_tree(args.root, args.seconds or 10.0), sources) as sampler:
            window = sampler.run(0.0)
        if tables is QUICK_TABLES and candidates(query, names_of(window)):
            return
    try:
        names_for(query, window)
    except CommandError as error:
        words = query.split()
        if len(words) != 1 or words[0].startswith("/") or words[0].lower() in WORDS:
            raise
        wait = f"to wait for a task of that name: sexton why task {_quoted(query)}"
        raise CommandError(f"{error} ({wait})") from None


def _recorded(args: argparse.Namespace, query: str) -> Why:
    import gc
    import os
    from dataclasses import replace

    from sexton.cli.progress import working
    from sexton.model.diagnosis import Replayed

    check_recording(args)
    gc.disable()  # as for diagnose
    recording = open_recording(args.recording, key=args.key)
    from sexton.replay.query import Question, boot_of, why_in
    from sexton.replay.span import edges

    moment = _moment(query, edges(recording))
    span = _span(args, recording, moment)
    quiet = span if args.window else boot_of(recording, span)
    beside = len(os.sched_getaffinity(0)) > 1
    why, found = why_in(recording, Question(moment or query, span, quiet), working, beside=beside)
    replayed = Replayed(args.recording, found.notes)
    cost = cost_of(found.window, "replayed from a recording")
    diagnosis = replace(why.diagnosis, cost=cost, replayed=replayed)
    return replace(why, diagnosis=diagnosis, next=tuple(_next(why, args.recording, found.window)))


def _span(args: argparse.Namespace, recording: Recording, moment: Subject | None) -> Span:
    """The requested window, else minutes around a moment, else the whole recording."""
    from sexton.replay.span import around

    if moment is None or moment.wall_s is None:
        return requested_span(args, recording)
    if args.window is None:
        return around(recording, moment.wall_s, moment.wall_s + moment.lasts_s, AROUND_S)
    span = requested_span(args, recording)
    if not span.start[1] - moment.lasts_s <= moment.wall_s <= span.end[1]:
        raise CommandError(f"{moment.name} is not in the window {args.window!r}")
    return span


def _moment(query: str, edges: tuple[float, float]) -> Subject | None:
    """The query as a time; `None` if it is not one."""
    from sexton.model.why import Subject

    word, _, rest = query.strip().partition(" ")
    text = rest.strip() if word.lower() in _AT and rest.strip() else query.strip()
    try:
        return Subject("moment", text, parse_moment(text, edges), precision_s(text))
    except CommandError:
        if text != query.strip() or is_clock(text):
            raise  # "at noon", "99:99": it was meant as a time
        return None


def _next(why: Why, place: str, window: Window) -> Iterator[str]:
    """Commands that show its last occurrence in detail, ready to paste."""
    import shlex

    from sexton.model.rows.trace import StackCount
    from sexton.model.text import clock, day

    if not why.occasions.moments or not place.isprintable() or len(place) > 200:
        return
    moment = why.occasions.moments[-1].wall_s
    directory = shlex.quote(place)
    if why.about.kind != "moment":
        at = f"{day(moment)}T{clock(moment)}Z"
        yield f"sexton why {at} --from {directory}"
    if window.batches(StackCount):
        first, last = (f"{day(value)}T{clock(value)}Z" for value in (moment - 10, moment + 1))
        core = f" --cpu {why.about.name}" if why.about.kind == "core" else ""
        yield f"sexton profile flame {directory} --from {first} --to {last}{core}"


def _quoted(query: str) -> str:
    """The query, quoted for a shell."""
    import shlex

    from sexton.model.text import printable, shorten

    return " ".join(shlex.quote(word) for word in shorten(printable(query), 120).split())

"""Describe a capture: host, time range, events, cores, tasks, lost samples."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_json
from sexton.cli.output import print_result
from sexton.cli.profile.capture import add_files, capture_of, open_capture, terminal

if TYPE_CHECKING:
    from sexton.profile.captures import Opened
    from sexton.reports.text.profile import Contents


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.progress import working
    from sexton.reports.json.profile import info_json
    from sexton.reports.text.profile import info_text

    found = open_capture(args)
    with working("counting samples"):
        held = contents(found)
    capture = capture_of(found)
    print_result(args, info_json(capture, held), info_text(capture, held, terminal()))
    return 0


def contents(found: Opened) -> Contents:
    """Samples by event, task and core."""
    from collections import Counter

    import numpy as np

    from sexton.model.profile import Event
    from sexton.profile.flame import functions, tasks
    from sexton.profile.select import Selection
    from sexton.reports.text.profile import Contents

    events: Counter[str] = Counter()
    known: dict[str, Event] = {}
    cores: Counter[int] = Counter()
    seconds = 0
    for profile in found.profiles():
        weight = profile.weight
        per_event = np.bincount(profile.event, weight, minlength=len(profile.events))
        for event, number in zip(profile.events, per_event.tolist(), strict=True):
            known.setdefault(event.name, event)
            events[event.name] += int(number)
        cpus, row = np.unique(profile.cpu, return_inverse=True)
        counted = np.bincount(row, weight, minlength=len(cpus))
        cores.update(dict(zip(cpus.tolist(), counted.astype(int).tolist(), strict=True)))
        if profile.timed:
            seconds += len(np.unique(profile.time_ns // 1_000_000_000))
    flame = found.flame(Selection(idle=True))
    awake = found.flame(Selection())
    return Contents(
        events=[(known[name], number) for name, number in events.most_common()],
        tasks=[(task.name, task.total) for task in tasks(flame)],
        cores=cores.most_common(),
        stacks=int(np.count_nonzero(flame.own)),
        functions=len(functions(flame)),
        idle=flame.samples - awake.samples,
        seconds=seconds,
    )

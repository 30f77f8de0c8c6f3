"""What can be seen from here, and how to grant the rest.

Reads every source once and says what it gives, what one read costs, and for each
that gave nothing why not and the command or setting that would.

  sexton sources                what this user sees
  sudo sexton sources           what root would add
  sexton sources --root /host   what a container sees of its host
"""

from __future__ import annotations

import argparse

from sexton.cli.options import add_json, add_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> int:
    import json
    import shutil
    import sys

    from sexton.host.host import open_host
    from sexton.model.text import printable
    from sexton.model.unit import ServiceManager
    from sexton.model.window import SourceState
    from sexton.record.sampler import Sampler, default_sources
    from sexton.reports.text.sources import SourceLine, in_words, sources_json, sources_text
    from sexton.sources.registry import all_sources

    with Sampler(open_host(args.root), default_sources()) as sampler:
        window = sampler.run(0)
    states = dict(window.states)
    for manager in window.latest(ServiceManager) or ():
        if manager.name != "systemd":  # an answer to a detector, and nothing to see for a person
            why = f"no systemd; PID 1 is {printable(manager.name)}"
            state = states["systemd.units"]
            states[state.id] = SourceState(state.id, state.path, "absent", why)
    for each in all_sources():
        if each.asked_by:
            asked = f"only read when asked: sexton diagnose {each.asked_by}"
            states[each.id] = SourceState(each.id, each.path, "asked", asked)
    lines = [
        SourceLine(states[each.id], each.rows, each.period_s, in_words(each.page))
        for each in all_sources()
    ]
    if args.json:
        json.dump(sources_json(lines), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        width = shutil.get_terminal_size((88, 24)).columns
        sys.stdout.write(sources_text(lines, width, colour=sys.stdout.isatty()))
    return 0

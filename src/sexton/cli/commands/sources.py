"""What Sexton can read on this node, and how to enable the rest.

Reads every source once. Prints what each provides and what one read costs; for those
that cannot be read, the reason and the command or setting that would enable them.

  sexton sources                what this user can read
  sudo sexton sources           what root can read
  sexton sources --root /host   what a container can read of its host
"""

from __future__ import annotations

import argparse

from sexton.cli import output
from sexton.cli.options import add_json, add_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.cli.image import open_tree
    from sexton.model.rows.unit import ServiceManager
    from sexton.model.text import printable
    from sexton.model.window import SourceState
    from sexton.record.sampler import Sampler
    from sexton.reports.text.sources import SourceLine, in_words, sources_json, sources_text
    from sexton.sources.registry import all_sources, enabled_sources

    with Sampler(open_tree(args.root, 0.0), enabled_sources()) as sampler:
        window = sampler.run(0)
    states = dict(window.states)
    for manager in window.latest(ServiceManager) or ():
        if manager.name != "systemd":  # a row for detectors; for people systemd is absent
            why = f"no systemd: PID 1 is {printable(manager.name)}"
            state = states["systemd.units"]
            states[state.id] = SourceState(state.id, state.path, "absent", why)
    for source in all_sources():
        if source.opt_in:
            how = f"opt-in: sexton diagnose {source.opt_in}"
            states[source.id] = SourceState(source.id, source.path, "asked", how)
    lines = [
        SourceLine(states[source.id], source.rows, source.period_s, in_words(source.page))
        for source in all_sources()
    ]
    text = sources_text(lines, output.width(), colour=output.colour())
    output.print_result(args, sources_json(lines), text)
    return 0

"""Export samples for other tools: perf script text, folded, pprof, speedscope.

  sexton profile export perf.data --format pprof --out it.pb.gz       go tool pprof it.pb.gz
  sexton profile export perf.data --format speedscope --out it.json   speedscope.app
  sexton profile export perf.data --format perf-script --out it.txt   FlameScope reads it
  sexton profile export perf.data --format folded | flamegraph.pl

Takes the same filters as `flame`: --from, --to, --cpu, --task, …
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.profile.capture import (
    add_files,
    add_filters,
    add_out,
    capture_of,
    deliver,
    no_samples,
    open_capture,
    selection_of,
)
from sexton.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sexton.model.profile import Bools, Flame, Profile
    from sexton.profile.captures import Opened
    from sexton.profile.export import About
    from sexton.profile.select import Selection
    from sexton.reports.text.profile_head import Capture

FORMATS = ("perf-script", "folded", "pprof", "speedscope")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_filters(parser)
    parser.add_argument("--format", choices=FORMATS, required=True, help="output format")
    add_out(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    if args.format == "pprof" and args.out is None and sys.stdout.isatty():
        raise CommandError("pprof is binary: use --out FILE or a pipe")
    found = open_capture(args)
    selection = selection_of(args, found)
    about = about_of(capture_of(found), found.hertz, selection)
    deliver(_render(args.format, found, selection, about), args.out)
    return 0


def _render(chosen: str, found: Opened, selection: Selection, about: About) -> Iterable[bytes]:
    from sexton.profile.export import pprof, script, speedscope

    if chosen == "folded" or (found.span_ns is None and chosen != "perf-script"):
        flame = found.flame(selection)
        if not flame.samples:
            raise no_samples(found)
        return export_flame(chosen, flame, about)
    if chosen == "perf-script":
        return script.from_profiles(_parts(found, selection))
    if chosen == "pprof":
        return [pprof.from_profiles(_parts(found, selection), about)]
    return speedscope.from_profiles(_parts(found, selection), about)


def _parts(found: Opened, selection: Selection) -> Iterator[tuple[Profile, Bools | None]]:
    """The samples, piece by piece, with a mask of those that match."""
    from sexton.profile.select import mask

    some = False
    for profile in found.profiles(selection.start_ns, selection.end_ns):
        chosen = mask(profile, selection)
        some = some or bool(chosen.any())
        yield profile, chosen
    if not some:
        raise no_samples(found)


def export_flame(chosen: str, flame: Flame, about: About) -> Iterable[bytes]:
    """A flame graph in the chosen format."""
    from sexton.profile.export import flame_json, folded, pprof, speedscope

    if chosen == "folded":
        return folded.from_flame(flame)
    if chosen == "json":
        return flame_json.from_flame(flame)
    if chosen == "pprof":
        return [pprof.from_flame(flame, about)]
    return speedscope.from_flame(flame, about)


def about_of(capture: Capture, hertz: int | None, selection: Selection | None = None) -> About:
    """Metadata of the capture that the formats keep."""
    from sexton.profile.export import About

    if capture.end_ns is None:
        return About(name=capture.name, hertz=hertz)
    start, end = capture.times.start_ns, capture.end_ns
    if selection is not None:
        start = start if selection.start_ns is None else max(start, selection.start_ns)
        end = end if selection.end_ns is None else min(end, selection.end_ns)
    wall = capture.times.wall_s(start)
    return About(
        name=capture.name,
        hertz=hertz,
        wall_ns=None if wall is None else round(wall * 1e9),
        duration_ns=max(end - start, 0),
    )

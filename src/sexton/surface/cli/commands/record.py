"""Record this node: twelve hours of it, at hand when it fails.

Keeps cores, softirqs, the network, pressure, cgroups, units, processes (names only, no
arguments), kernel messages and cgroup deaths, every second or ten, in DIR. An alarm (a
core held in the kernel, a NIC reset, a soft lockup, zombies past the live ones, a mark)
pins the minutes around it and looks closer for a while.

  sudo sexton record /var/lib/sexton                until Ctrl-C or SIGTERM
  sexton record DIR --preflight                     what it would read, and what that costs
  sexton recording info DIR                         what is in there
  sexton recording mark DIR "job 17 died"           pin the minutes around now
  sexton diagnose --from DIR --around 02:14         the verdict on then

It measures itself, gives up the costliest source when it is over its budget, and says so.
The directory is bounded by --retain and --size whatever happens.
"""

from __future__ import annotations

import argparse

from sexton.surface.cli.options import add_root, seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="where to; made if it is not there")
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="stop by itself (default: go on)"
    )
    parser.add_argument(
        "--retain", type=_age, default=12 * 3600.0, metavar="AGE", help="how far back (default 12h)"
    )
    parser.add_argument(
        "--size", type=_bytes, default=2 << 30, metavar="BYTES", help="how much room (default 2G)"
    )
    add_root(parser)


def _age(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1:]) if text[-1:] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age like 12h, 90m or 3d") from None
    if not 60 <= value <= 366 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not between a minute and a year")
    return value


def _bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    trimmed = text.upper().removesuffix("B").removesuffix("I")
    number, unit = (trimmed[:-1], trimmed[-1:]) if trimmed[-1:] in units else (trimmed, "")
    try:
        value = float(number) * units.get(unit, 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 500M or 2G") from None
    if not (16 << 20) <= value <= (1 << 50):
        raise argparse.ArgumentTypeError(f"{text!r} is less than 16 MB or more than a disk has")
    return int(value)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sexton.record.recorder import Options, Recorder
    from sexton.sources.host import open_host
    from sexton.store.retention import Limits

    options = Options(Path(args.directory), Limits(args.retain, args.size), args.seconds)
    with Recorder(open_host(args.root), options) as recorder:
        recorder.run()
    return 2 if recorder.problem else 0

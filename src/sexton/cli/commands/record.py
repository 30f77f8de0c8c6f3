"""Flight recorder: keep the last 12 hours of this node.

Keeps cores, softirqs, the network, pressure, cgroups, units, processes (names only, no
arguments), kernel messages and cgroup removals in DIR, every second or every ten. An alarm
(a core held in the kernel, a NIC reset, a soft lockup, many dying cgroups, a mark) pins
the minutes around it, and tables are read every second for a minute.

  sudo sexton record /var/lib/sexton                until Ctrl-C or SIGTERM
  sexton record DIR --preflight                     what it would read, and the cost
  sexton recording info DIR                         what it holds
  sexton recording mark DIR "job 17 died"           pin the minutes around now
  sexton diagnose --from DIR --around 02:14         diagnose that moment
  sexton record DIR --listen :9643                  metrics for Prometheus, and the explorer

The recorder measures its own cost. Above its budget it pauses first what can be done later
(decoding), then the most expensive sources, and says so at once; core times and the kernel
log are never paused. What was paused resumes when there is room for it. The directory never
exceeds --retain and --size.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sexton.cli import output
from sexton.cli.configuration import add_config, config_files
from sexton.cli.listen import served_by
from sexton.cli.options import add_json, add_web_config, need_exporter, need_recorder
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.record.companions import Made
    from sexton.record.recorder import Options

_YEAR_S = 366 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    parser.add_argument(
        "--preflight",
        action="store_true",
        help="list every file, event, capability and cost, and start nothing",
    )
    add_recorder(parser)
    add_json(parser, when="with --preflight: ")
    add_config(parser)


def add_directory(parser: argparse.ArgumentParser) -> None:
    """``DIR``."""
    parser.add_argument("directory", metavar="DIR", help="where to record; created if missing")


def add_recorder(parser: argparse.ArgumentParser) -> None:
    """What a recorder reads, keeps and may cost."""
    parser.add_argument(
        "--seconds", type=_seconds, metavar="N", help="stop after N seconds (default: never)"
    )
    parser.add_argument(
        "--retain", type=_age, default=12 * 3600.0, metavar="AGE", help="maximum age (default 12h)"
    )
    parser.add_argument(
        "--size", type=_bytes, default=2 << 30, metavar="BYTES", help="maximum size (default 2G)"
    )
    parser.add_argument(
        "--stacks", action="store_true", help="sample kernel and user stacks with perf"
    )
    parser.add_argument(
        "--no-probe", action="store_true", help="do not measure softirq waits with BPF"
    )
    parser.add_argument(
        "--no-ring", action="store_true", help="do not keep a ring of scheduler and network events"
    )
    parser.add_argument(
        "--no-trace", action="store_true", help="do not trace cgroup events with tracefs"
    )
    parser.add_argument(
        "--ship", metavar="URL", help="copy pinned minutes to a directory or s3://, gs://…"
    )
    parser.add_argument(
        "--listen",
        metavar="ADDR",
        help="serve metrics and the explorer at HOST:PORT or :PORT (see sexton export)",
    )
    add_web_config(parser)
    parser.add_argument(
        "--sign-key",
        metavar="FILE",
        help="sign what is sealed with this private key (Ed25519, PEM, mode 0600)",
    )
    parser.add_argument(
        "--cpu",
        type=_percent,
        metavar="PERCENT",
        help="of one core; above it the recorder pauses what it needs least"
        " (default: the larger of 2 and cores / 16)",
    )


def _seconds(text: str) -> float:
    value = _duration(text)
    if not 0 < value <= _YEAR_S:
        raise argparse.ArgumentTypeError(f"must be over 0 and at most a year, not {text!r}")
    return value


def _age(text: str) -> float:
    value = _duration(text)
    if not 60 <= value <= _YEAR_S:
        raise argparse.ArgumentTypeError(f"must be between a minute and a year, not {text!r}")
    return value


def _duration(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1:]) if text[-1:] in units else (text, "s")
    try:
        return float(number) * units[unit]
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid duration {text!r}; use 12h, 90m or 45") from None


def _bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    trimmed = text.upper().removesuffix("B").removesuffix("I")
    number, unit = (trimmed[:-1], trimmed[-1:]) if trimmed[-1:] in units else (trimmed, "")
    try:
        value = float(number) * units.get(unit, 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid size {text!r}; use 500M or 2G") from None
    if not (16 << 20) <= value <= (1 << 50):
        raise argparse.ArgumentTypeError(f"must be at least 16 MB, not {text!r}")
    return int(value)


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid percentage {text!r}") from None
    if not 0.1 <= value <= 100:
        raise argparse.ArgumentTypeError(f"must be between 0.1 and 100 percent, not {text!r}")
    return value


def run(args: argparse.Namespace) -> int:
    need_recorder()
    if args.preflight:
        if args.sign_key is not None:
            _sign_key(args.sign_key)
        return _preflight(args)
    if args.json:
        raise CommandError("--json is for --preflight; a running recorder writes DIR/status.json")
    return record(*recorder_of(args))


def recorder_of(args: argparse.Namespace) -> tuple[Options, list[Made]]:
    """The recorder of these arguments, with its companions."""
    import sys
    from pathlib import Path

    from sexton.record.budget import memory_limit
    from sexton.record.companions import chosen
    from sexton.record.recorder import Options
    from sexton.store.retention import Limits

    options = Options(
        Path(args.directory),
        Limits(args.retain, args.size),
        args.seconds,
        probe=not args.no_probe,
        trace=not args.no_trace,
        cpu_percent=args.cpu,
        memory_bytes=memory_limit(args.stacks),
        config_files=config_files(args.config),
        sign_key="" if args.sign_key is None else _sign_key(args.sign_key),
    )
    made = chosen(stacks=args.stacks, ring=not args.no_ring, ship=args.ship)
    if args.listen is not None:
        need_exporter()
        served, url = served_by(args)
        made.append(served)
        print(f"sexton: metrics: {url}", file=sys.stderr, flush=True)
    elif args.web_config is not None:
        raise CommandError("--web.config.file requires --listen")
    return options, made


def _sign_key(path: str) -> str:
    """The key's absolute path; `CommandError` if nothing can be signed with it. Tried in a child:
    neither the key nor the library must stay in a recorder's memory."""
    import os

    from sexton.errors import SourceError
    from sexton.host.runner import module_command, run

    if "\0" in path:
        raise CommandError("a path cannot contain NUL")
    whole = os.path.abspath(path)
    try:
        ended = run(module_command("sexton.store.signing", whole), deadline_s=60.0)
    except SourceError as error:
        raise CommandError(f"--sign-key: {error}") from None
    if ended.status:
        said = ended.errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise CommandError(f"--sign-key {said}")
    return whole


def record(options: Options, made: Sequence[Made]) -> int:
    """Record until a signal, or until the time is over."""
    import os
    import signal
    import sys

    from sexton.cli.progress import recorder_line
    from sexton.host.host import open_host
    from sexton.record.recorder import Recorder

    os.nice(10)
    with Recorder(open_host(), options, made) as recorder:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # not under nohup
                signal.signal(number, lambda *_: recorder.stopping.set())
        for words in recorder.refused:
            print(f"sexton: continuing without {words}", file=sys.stderr)
        with recorder_line(str(options.directory)) as tick:
            recorder.run(tick)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C ends it at once
    if recorder.problem:
        raise CommandError(f"{options.directory}: last minutes not written: {recorder.problem}")
    return 0


def _preflight(args: argparse.Namespace) -> int:
    """Exit 0 if the recorder can start, else 2."""
    from pathlib import Path

    from sexton.host.host import open_host
    from sexton.record.budget import memory_limit
    from sexton.record.preflight import Parts, Wanted, preflight
    from sexton.reports.text.preflight import preflight_json, preflight_text
    from sexton.store.retention import Limits

    parts = Parts(
        probe=not args.no_probe, trace=not args.no_trace, ring=not args.no_ring, stacks=args.stacks
    )
    limits = Limits(args.retain, args.size)
    memory = memory_limit(args.stacks)
    wanted = Wanted(Path(args.directory), limits, parts, args.cpu, memory, args.ship or "")
    found = preflight(open_host(), wanted)
    text = preflight_text(found, output.width(), colour=output.colour())
    output.print_result(args, preflight_json(found), text)
    return 2 if found.problem else 0

"""The window that `diagnose`, `why` and `fix plan` judge: this node live, or a span of a recording.

Times of a recording are typed as::

    2026-11-15T10:15:00Z   2026-11-15 10:15   10:15   10:15:30   @1794737700   20m (before its end)

Without a zone they are in this machine's. A time without a date is the last such time in the
recording.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_key, add_root, need_recorder, seconds
from sexton.errors import CommandError, StoreError

if TYPE_CHECKING:
    import re

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from sexton.model.diagnosis import Cost
    from sexton.model.window import Window
    from sexton.replay.span import Span
    from sexton.store.recording import Recording
    from sexton.store.signing import Signed

#: New objects between two garbage collections.
_GC_THRESHOLD = 50_000
#: Whether the number of dying cgroups grows throughout a watch needs so many counts and one more.
_COUNTS = 4
#: `--around` covers this much on either side.
AROUND_S = 300.0
#: Not compiled: most commands have these options, and few runs use one.
_UNIX = r"(?:@(?=[0-9])|(?=[0-9]{9}))([0-9]{1,12}(?:\.[0-9]{1,9})?)"
_AGO = r"-?([0-9]{1,9}(?:\.[0-9]{1,9})?)(s|min|m|h|d)"
_CLOCK = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?"
_NO_SECOND = r"(?:^|[T ])[0-9]{1,2}:[0-9]{2}(?:Z|[+-][0-9:]+)?$"
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DAY_S = 86_400.0
#: A window that ends after the recording and is longer was meant the other way round.
_LONGEST_S = 43_200.0
_HOW = "like 10:15, 2026-11-15T10:15:00Z, @1794737700, or 20m before the end"


def add_live_options(parser: argparse.ArgumentParser) -> None:
    """``--seconds``, ``--root``, ``--stacks``, ``--probe``, ``--no-trace``."""
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="how long to watch (default 10)"
    )
    add_root(parser)
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="sample kernel stacks with perf (root; proves what held a core)",
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="measure with BPF how long softirqs wait for their core (root)",
    )
    parser.add_argument(
        "--no-trace", action="store_true", help="do not trace cgroup events (tracefs)"
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """``--from DIR`` and ``--key PUB``."""
    parser.add_argument(
        "--from",
        dest="recording",
        metavar="DIR",
        help="a recording instead of this node, or an archive of `sexton collect` (- for stdin)",
    )
    add_key(parser)


def add_archive(parser: argparse.ArgumentParser) -> None:
    """``ARCHIVE``, optional."""
    parser.add_argument(
        "archive",
        nargs="?",
        metavar="ARCHIVE",
        help="a tar made by the script of `sexton collect`; - reads it from standard input",
    )


def is_archive(place: str) -> bool:
    """Whether `--from` names a file or a pipe; a recording is a directory."""
    from pathlib import Path

    return place == "-" or (Path(place).exists() and not Path(place).is_dir())


def check_archive(args: argparse.Namespace) -> None:
    """Refuse options that only apply to a live node or to a recording."""
    if args.root != "/":
        raise CommandError("an archive and --root cannot be combined")
    if args.seconds is not None or getattr(args, "stacks", False) or getattr(args, "probe", False):
        raise CommandError("--seconds, --stacks and --probe have no effect on an archive")


def read_archived(path: str, *writable: str) -> tuple[Window, Cost]:
    """The window in an archive of `sexton collect`; `-` is standard input. `writable`: the files
    that the command writes."""
    import sys
    from pathlib import Path

    from sexton.host.archive import read_archive
    from sexton.host.host import Host
    from sexton.record.sampler import Sampler
    from sexton.sandbox import confine, limits_for

    if path == "-":
        if sys.stdin is None:
            raise CommandError("standard input is closed; pipe the collected tar into it")
        if sys.stdin.isatty():
            raise CommandError("standard input is a terminal; pipe the collected tar into it")
        confine(limits_for()._replace(alone=True, writable=with_temporary(writable)))
        snapshots = read_archive(sys.stdin.buffer)
    else:
        if Path(path).is_dir():  # else every file in it would be looked at for its size
            raise CommandError(
                f"{path}: Is a directory; for a recording: sexton diagnose --from DIR"
            )
        confine(limits_for(path)._replace(alone=True, writable=with_temporary(writable)))
        try:
            with Path(path).open("rb") as stream:
                snapshots = read_archive(stream)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from None
        except StoreError as error:
            raise CommandError(f"{path}: {error}") from None
    with Sampler(Host(snapshots[0].files, live=False)) as sampler:
        window = sampler.replay((snapshot.files, snapshot.moment) for snapshot in snapshots)
    return window, cost_of(window, "replayed from an archive")


def check_key(args: argparse.Namespace) -> None:
    """Refuse `--key` without a recording: nothing else is signed."""
    if args.key is not None and (args.recording is None or is_archive(args.recording)):
        raise CommandError("--key requires --from DIR")


def check_recording(args: argparse.Namespace) -> None:
    """Refuse options that only apply to a live node."""
    if args.root != "/":
        raise CommandError("--from cannot be combined with --root")
    if args.seconds is not None or args.stacks or args.probe or args.no_trace:
        raise CommandError(
            "--seconds, --stacks, --probe and --no-trace cannot be combined with --from"
        )
    need_recorder()


def open_recording(
    path: str,
    live: bool = False,
    times: int = 1,
    key: str | None = None,
    writable: tuple[str, ...] = (),
) -> Recording:
    """Open a recording in the sandbox: it is untrusted input. `live`: this node is read as well;
    `times`: how much CPU time is allowed for each MB, as for reading it so often; `key`: a public
    key with which everything that is sealed must be signed; `writable`: the files that the command
    writes (`sandbox.Limits`)."""
    from pathlib import Path

    need_recorder()
    wanted = None if key is None else _public_key(key)
    confine_to(path, live, times, writable)
    from sexton.store.recording import Recording

    if wanted is None:
        return Recording(Path(path))
    from sexton.store.signing import check_signed

    return Recording(Path(path), signed=check_signed(Path(path), wanted))


def check_signatures(path: str, key: str) -> Signed:
    """As `open_recording` does with a key, before all of it is read."""
    from pathlib import Path

    wanted = _public_key(key)
    confine_to(path, times=2)
    from sexton.store.signing import check_signed

    return check_signed(Path(path), wanted)


def _public_key(path: str) -> Ed25519PublicKey:
    """Read before the process confines itself: the key is not part of what is untrusted."""
    from sexton.store.signing import read_public

    return read_public(path)


def confine_to(
    path: str, live: bool = False, times: int = 1, writable: tuple[str, ...] = ()
) -> None:
    """Limit CPU time and memory by the recording's size. Call it before Arrow is imported."""
    from pathlib import Path

    from sexton.sandbox import confine, limits_for
    from sexton.store.layout import require_recording

    require_recording(Path(path))
    limits = limits_for(path, times=times)
    # Packed perf files that are not decoded yet are unpacked to a temporary file.
    confine(limits._replace(live=live, writable=with_temporary(writable, always=True)))


def with_temporary(writable: tuple[str, ...], always: bool = False) -> tuple[str, ...]:
    """These outputs, and where temporary files are made on the way to one; with `always`, there is
    such a file without an output too."""
    import os

    return (*writable, os.environ.get("TMPDIR") or "/tmp") if writable or always else ()


def watch(args: argparse.Namespace, verb: str) -> tuple[Window, Cost]:
    """Sample this node, or the one at `--root`; `verb` is the command, for its hints."""
    import gc
    from dataclasses import replace

    # Rows hold no cycles: looking for some costs more than most sources.
    gc.set_threshold(_GC_THRESHOLD)
    from sexton.cli.image import open_tree
    from sexton.cli.progress import countdown
    from sexton.model.rows.cgroup import CgroupCensus
    from sexton.record.sampler import Sampler
    from sexton.sources.registry import disabled, enabled_sources

    span = args.seconds or 10.0
    options = [name for name in ("--stacks", "--probe") if getattr(args, name[2:])]
    chosen = enabled_sources(*options)
    if args.no_trace:
        again = f"sudo sexton {verb}  # without --no-trace"
        chosen = tuple(
            disabled(source, "disabled by --no-trace", again)
            if source.id.startswith("tracefs.")
            else source
            for source in chosen
        )
    chosen = tuple(
        replace(source, period_s=min(source.period_s, span / _COUNTS))
        if CgroupCensus in source.rows
        else source
        for source in chosen
    )
    html = getattr(args, "html", None)
    host = open_tree(args.root, span, with_temporary(() if html is None else (html,)))
    with Sampler(host, chosen) as sampler, countdown(span) as tick:
        window = sampler.run(span, tick)
    return window, cost_of(window, _touched(window))


def _touched(window: Window) -> str:
    """What the diagnosis changes on the node, for the footer."""
    ok = {name.partition(".")[0] for name, state in window.states.items() if state.state == "ok"}
    more = [
        words
        for family, words in (
            ("tracefs", "a private trace instance (removed)"),
            ("perf", "perf samples (deleted)"),
            ("bpf", "two BPF programs (unloaded)"),
        )
        if family in ok
    ]
    return f"read-only except {' and '.join(more)}" if more else "read-only"


def requested_span(args: argparse.Namespace, recording: Recording) -> Span:
    """The span given by `--around` or `--window`; all of the last boot without them."""
    from sexton.replay.span import around, between, edges, everything, reach

    try:
        if args.around is not None:
            moment = parse_moment(args.around, edges(recording))
            return around(recording, moment, moment, AROUND_S)
        wanted = parse_span(args, edges(recording))
    except CommandError as error:
        raise CommandError(f"{error}; {reach(recording)}") from None
    return everything(recording) if wanted is None else between(recording, *wanted)


def cost_of(window: Window, touched: str) -> Cost:
    """CPU time and memory used so far, children included."""
    import resource

    from sexton.model.diagnosis import Cost

    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return Cost(window.seconds, spent, own.ru_maxrss * 1024, touched)


def add_span(parser: argparse.ArgumentParser) -> None:
    """``--around T`` or ``--window A..B``."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--around", metavar="TIME", help=f"five minutes before and after TIME: {_HOW}"
    )
    which.add_argument(
        "--window", metavar="A..B", help="from time A to time B; either may be empty"
    )


def parse_span(args: argparse.Namespace, edges: tuple[float, float]) -> tuple[float, float] | None:
    """First and last UNIX second given by `add_span`'s options; `edges` are the recording's."""
    import re

    if args.around is not None:
        moment = parse_moment(args.around, edges)
        return moment - AROUND_S, moment + AROUND_S
    if args.window is None:
        return None
    first, dots, last = args.window.partition("..")
    if not dots:
        raise CommandError(f"invalid window {args.window!r}: use A..B, each {_HOW}")
    start = parse_moment(first, edges) if first.strip() else edges[0]
    end = parse_moment(last, edges) if last.strip() else edges[1]
    if first.strip() and (clock := re.fullmatch(_CLOCK, last.strip())):
        # The next such time after the start, which may be later than the recording's end.
        end = _last_time(*_numbers(clock), start + _DAY_S - 1)
    if end < start or (end > edges[1] and end - start > _LONGEST_S):
        raise CommandError(f"window {args.window!r} ends before it begins")
    return start, end


def parse_moment(text: str, edges: tuple[float, float]) -> float:
    """UNIX seconds; `CommandError` for an invalid time.

    >>> parse_moment("@1000", (0.0, 5000.0)), parse_moment("20m", (0.0, 5000.0))
    (1000.0, 3800.0)
    >>> parse_moment("1970-01-01T01:00:00Z", (0.0, 5000.0)), parse_moment("1794737700", (0.0, 1.0))
    (3600.0, 1794737700.0)
    """
    import re
    from datetime import datetime

    typed = text.strip()
    if found := re.fullmatch(_UNIX, typed):
        return float(found[1])
    if found := re.fullmatch(_AGO, typed):
        return edges[1] - float(found[1]) * _UNITS[found[2]]
    try:
        if found := re.fullmatch(_CLOCK, typed):
            return _last_time(*_numbers(found), edges[1])
        return datetime.fromisoformat(typed).timestamp()
    except (ValueError, OverflowError, OSError):
        raise CommandError(f"invalid time {text!r}: use a time {_HOW}") from None


def is_clock(text: str) -> bool:
    """Whether it is written like a time of day, valid or not.

    >>> is_clock("99:99"), is_clock("03:12:07"), is_clock("eth0:5")
    (True, True, False)
    """
    import re

    return re.fullmatch(_CLOCK, text) is not None


def precision_s(text: str) -> float:
    """Seconds that such a time covers: a minute if it has no seconds.

    >>> [precision_s(text) for text in ("03:12", "03:12:07", "1999-12-31T03:12Z", "2m", "9s", "@1")]
    [60.0, 0.0, 60.0, 60.0, 0.0, 0.0]
    """
    import re

    typed = text.strip()
    ago = re.fullmatch(_AGO, typed)
    if ago is not None:
        return 0.0 if ago[2] == "s" else 60.0
    return 60.0 if re.search(_NO_SECOND, typed) else 0.0


def _numbers(clock: re.Match[str]) -> tuple[int, int, int]:
    """Hour, minute and second of a `_CLOCK`."""
    return int(clock[1]), int(clock[2]), int(clock[3] or 0)


def _last_time(hour: int, minute: int, second: int, last_s: float) -> float:
    """The last moment up to `last_s` with this local time."""
    from datetime import datetime, timedelta

    end = datetime.fromtimestamp(last_s)
    moment = end.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if moment > end:
        moment -= timedelta(days=1)
    return moment.timestamp()

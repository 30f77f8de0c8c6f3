"""Serve Prometheus metrics: the verdict, its findings and chains, and what they rest on.

A recorder serves its own: `sexton record DIR --listen :9643`. This command is for nodes
where nobody records, for a recorder that runs without --listen, and for node_exporter:

  sexton export                                  at http://127.0.0.1:9643/metrics
  sexton export --listen :9643 --web.config.file web.yml   for other machines
  sexton export --from /var/lib/sexton           metrics of a recorder that runs already
  sexton export --once FILE.prom                 one file for the textfile collector

The same port has the explorer, and the page of each detector at /runbooks/NAME.
Without --from it records the last 15 minutes into memory (/run), and keeps nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sexton.cli.configuration import add_config, config_files
from sexton.cli.listen import LISTEN, inherited_address, open_address, say_page, served_by, url_at
from sexton.cli.options import add_web_config, need_exporter, seconds
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.export.samples import Samples

#: What is recorded where nobody records.
_KEEP_S, _KEEP_BYTES = 15 * 60.0, 64 << 20
#: Where. One that is not locked after this long has lost its recorder.
_PREFIX, _STARTS_S = "sexton-export-", 60.0
#: node_exporter runs as another user.
_READABLE = 0o644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", metavar="ADDR", help=f"HOST:PORT or :PORT (default {LISTEN})")
    add_web_config(parser)
    parser.add_argument(
        "--from", dest="recording", metavar="DIR", help="the directory of a running recorder"
    )
    parser.add_argument(
        "--once",
        metavar="FILE",
        help="write one file and exit; node_exporter reads *.prom (- prints)",
    )
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="with --once: how long to watch (default 10)"
    )
    parser.add_argument("--listen-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--token-fd", type=int, help=argparse.SUPPRESS)
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    need_exporter()
    if args.once is not None:
        return _once(args)
    if args.seconds is not None:
        raise CommandError("--seconds requires --once")
    if args.recording is not None:
        return _serve(args)
    return _record(args)


def _serve(args: argparse.Namespace) -> int:
    """Serve a recording that a recorder writes."""
    from sexton.export.server import Site, serve
    from sexton.store.layout import require_recording

    directory = Path(args.recording)
    require_recording(directory)
    if args.listen_fd is not None:
        address, web = inherited_address(args)
    else:
        address, web = open_address(args)
        print(url_at(address, web), flush=True)
    token = None if args.token_fd is None else _inherited_token(args.token_fd)
    return serve(Site(directory, address, web, say_page, token))


def _inherited_token(handle: int) -> str:
    """The token that a recorder printed, out of a file in memory: all users see our arguments."""
    import os

    with open(handle, "rb", closefd=True) as stream:
        return os.pread(stream.fileno(), 4096, 0).decode("ascii")


def _record(args: argparse.Namespace) -> int:
    """Record a quarter of an hour into memory, and serve that."""
    from sexton.cli.commands.record import record
    from sexton.record.budget import memory_limit
    from sexton.record.recorder import Options
    from sexton.store.retention import Limits

    served, url = served_by(args)
    print(url, flush=True)
    with _private_directory() as directory:
        options = Options(
            directory,
            Limits(_KEEP_S, _KEEP_BYTES),
            memory_bytes=memory_limit(False),
            config_files=config_files(args.config),
        )
        return record(options, [served])


@contextmanager
def _private_directory() -> Iterator[Path]:
    """A directory of ours in memory, if there is one, that is removed at the end."""
    import os
    import shutil
    import tempfile
    import time
    from stat import S_ISDIR

    from sexton.store.layout import is_locked

    runtime = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "")
    place = runtime if runtime and os.access(runtime, os.W_OK) else tempfile.gettempdir()
    for left in Path(place).glob(f"{_PREFIX}*"):  # by one that was killed: it holds memory
        with suppress(OSError):
            about = left.lstat()
            mine = S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
            old = time.time() - about.st_mtime > _STARTS_S
            if mine and old and not is_locked(left):
                shutil.rmtree(left, ignore_errors=True)
    made = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _once(args: argparse.Namespace) -> int:
    """Write the metrics of now to a file, whole or not at all."""
    import sys

    from sexton.cli.output import write_whole
    from sexton.export.exposition import Page

    if args.listen is not None or args.web_config is not None:
        raise CommandError("--once writes a file; --listen and --web.config.file serve")
    if args.once != "-" and not args.once.endswith(".prom"):
        raise CommandError(f"{args.once}: node_exporter reads only files that end in .prom")
    content, _ = Page(_recorded(args) if args.recording else _watched(args)).body("", False)
    if args.once == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    else:
        write_whole(args.once, (content,), _READABLE)
    return 0


def _recorded(args: argparse.Namespace) -> Samples:
    if args.seconds is not None:
        raise CommandError("--seconds is for this node; --from has its own")
    from sexton.cli.window import confine_to

    confine_to(args.recording, writable=(args.once,))  # before Arrow is imported
    from sexton.export.exporter import once

    return once(Path(args.recording))


def _watched(args: argparse.Namespace) -> Samples:
    """Watch this node as `diagnose` does."""
    from math import inf

    from sexton import __version__
    from sexton.cli.window import watch
    from sexton.explain.diagnosis import diagnose
    from sexton.export import families
    from sexton.export.current import current
    from sexton.export.judged import judged

    args.root, args.stacks, args.probe, args.no_trace = "/", False, False, False
    window, cost = watch(args, "export")
    found = current(window, -inf, window.seconds).samples
    found.update(judged(window, diagnose(window, cost)))
    found.add(families.BUILD, 1, __version__)
    return found

"""Explore a recording in your browser.

Serves DIR, a recording of `sexton record`, on one time axis: every core, NAPI, dying cgroups,
restarts, NICs, pressure and stacks, with the flame graph and the explanation of any span.
A recording that is still being written is followed live.

  sexton serve                              /var/lib/sexton, at http://127.0.0.1:8477/
  sexton serve DIR --port 0                 another recording, any free port
  ssh -L 8477:127.0.0.1:8477 node           from your own machine, through a tunnel
  sexton serve DIR --host 0.0.0.0           for other machines; prints a token
  sexton serve DIR --host 0.0.0.0 --web.config.file web.yml    with TLS and users instead

Read-only. Press Ctrl-C to stop.
"""

from __future__ import annotations

import argparse

from sexton.cli import output
from sexton.cli.configuration import add_config
from sexton.cli.options import add_web_config, need_web, read_web_config
from sexton.errors import CommandError

DEFAULT = "/var/lib/sexton"
PORT = 8477


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", nargs="?", default=DEFAULT, metavar="DIR", help=f"default {DEFAULT}"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: loopback)",
    )
    parser.add_argument(
        "--port", type=port, default=PORT, metavar="N", help=f"default {PORT}; 0: any free port"
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="require the token in FILE, on loopback too"
    )
    add_web_config(parser)
    parser.add_argument("--open", action="store_true", help="open a browser")
    parser.add_argument(
        "--openapi", action="store_true", help="print the OpenAPI description and exit"
    )
    add_config(parser)


def port(text: str) -> int:
    """A port, or 0."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"invalid port {text!r}: must be 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    if args.openapi:
        from sexton.explorer.server.openapi import description

        output.print_json(description())
        return 0

    need_web()
    from functools import partial

    from sexton.cli.progress import working
    from sexton.explorer.server.server import Setup, serve
    from sexton.web.address import read_token

    if not args.host:
        raise CommandError("--host: an empty address; 0.0.0.0 or :: are all")
    token = None if args.token_file is None else read_token(args.token_file)
    web = read_web_config(args.web_config)
    if token is not None and web is not None and web.authenticates:
        raise CommandError(
            "--token-file: the web configuration already demands passwords or certificates"
        )
    reading = partial(working, "reading the recording", 0.5)
    where = Path(args.directory), args.host, args.port
    return serve(Setup(*where, token, open=args.open, reading=reading, web=web))

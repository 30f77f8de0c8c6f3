"""``--listen``: where metrics are served, and by which rules."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from sexton.cli.options import read_web_config

if TYPE_CHECKING:
    from sexton.record.companions import Made
    from sexton.web.address import Address
    from sexton.web.config import WebConfig

LISTEN = "127.0.0.1:9643"
_WHAT = "this node's metrics"


def open_address(args: argparse.Namespace) -> tuple[Address, WebConfig | None]:
    """The listening socket of --listen, and the web configuration; warns if anybody can read."""
    from sexton.web.address import Address, bind, parse_listen, warn_if_open

    web = read_web_config(args.web_config)
    host, port = parse_listen(args.listen or LISTEN)
    bound = bind(host, port)
    warn_if_open(_WHAT, bound, web)
    return Address(*bound, host), web


def inherited_address(args: argparse.Namespace) -> tuple[Address, WebConfig | None]:
    """The socket that a recorder bound for us."""
    import socket

    from sexton.web.address import Address, parse_listen

    web = read_web_config(args.web_config)
    listening = socket.socket(fileno=args.listen_fd)
    return Address(listening, str(listening.getsockname()[0]), parse_listen(args.listen)[0]), web


def url_at(address: Address, web: WebConfig | None) -> str:
    """The URL of the metrics."""
    from sexton.export import METRICS
    from sexton.web.address import url_of

    return url_of(address.host, (address.socket, address.name), web).rstrip("/") + METRICS


def say_page(url: str) -> None:
    """Print the URL of the explorer, if it needs one of its own: with a token."""
    if "?" in url:
        print(f"sexton: explorer: {url}", file=sys.stderr, flush=True)


def served_by(args: argparse.Namespace) -> tuple[Made, str]:
    """The companion of a recorder that serves --listen, and the URL of its metrics; the socket is
    bound here and now. The page's token is made here, so that it lasts as long as the recorder."""
    from sexton.export.companion import MetricsServer
    from sexton.web.address import door_of

    address, web = open_address(args)
    options = {"--listen": args.listen or LISTEN, "--web.config.file": args.web_config,
               "--config": args.config}  # fmt: skip
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    door, page = door_of(address.host, (address.socket, address.name), web)
    say_page(page)
    return lambda place: MetricsServer(place, address.socket, given, door.token), url_at(
        address, web
    )

"""``--listen`` and ``--web.config.file``: where metrics are served, and by which rules."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sexton.export.server import Address
    from sexton.record.companions import Made
    from sexton.web.config import WebConfig

LISTEN = "127.0.0.1:9643"
_WHAT = "this node's metrics"


def add_web_config(parser: argparse.ArgumentParser) -> None:
    """``--web.config.file FILE``."""
    parser.add_argument(
        "--web.config.file",
        dest="web_config",
        metavar="FILE",
        help="TLS, client certificates and users, as Prometheus' exporters read them",
    )


def open_address(args: argparse.Namespace) -> tuple[Address, WebConfig | None]:
    """The listening socket of --listen, and the web configuration; warns if anybody can read."""
    from sexton.export.server import Address
    from sexton.web.config import WebConfig
    from sexton.web.server import bind, parse_listen, warn_if_open

    web = None if args.web_config is None else WebConfig(args.web_config)
    host, port = parse_listen(args.listen or LISTEN)
    bound = bind(host, port)
    warn_if_open(_WHAT, bound, web)
    return Address(*bound, host), web


def inherited_address(args: argparse.Namespace) -> tuple[Address, WebConfig | None]:
    """The socket that a recorder bound for us."""
    import socket

    from sexton.export.server import Address
    from sexton.web.config import WebConfig
    from sexton.web.server import parse_listen

    web = None if args.web_config is None else WebConfig(args.web_config)
    listening = socket.socket(fileno=args.listen_fd)
    return Address(listening, str(listening.getsockname()[0]), parse_listen(args.listen)[0]), web


def url_at(address: Address, web: WebConfig | None) -> str:
    from sexton.export.server import METRICS
    from sexton.web.server import url_of

    return url_of(address.host, (address.socket, address.name), web).rstrip("/") + METRICS


def served_by(args: argparse.Namespace) -> tuple[Made, str]:
    """The companion of a recorder that serves --listen, and the URL of its metrics; the socket is
    bound here and now."""
    from sexton.export.companion import MetricsServer

    address, web = open_address(args)
    options = {"--listen": args.listen or LISTEN, "--web.config.file": args.web_config,
               "--config": args.config}  # fmt: skip
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return lambda place: MetricsServer(place, address.socket, given), url_at(address, web)

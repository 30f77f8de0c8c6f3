"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.web.config import WebConfig


def add_root(parser: argparse.ArgumentParser) -> None:
    """``--root DIR``."""
    parser.add_argument(
        "--root",
        metavar="DIR",
        default="/",
        type=_directory,
        help="read another host's file tree, mounted or copied at DIR",
    )


def add_json(parser: argparse.ArgumentParser, when: str = "") -> None:
    """``--json``; `when` says what it needs."""
    parser.add_argument("--json", action="store_true", help=f"{when}print JSON (docs/json.md)")


def add_json_format(parser: argparse.ArgumentParser) -> None:
    """``--json`` of a command with ``--format``."""
    parser.add_argument(
        "--json",
        dest="format",
        action="store_const",
        const="json",
        help="the same as --format json (docs/json.md)",
    )


def need_recorder() -> None:
    """Fail if pyarrow is missing: only recordings need it, not a diagnosis."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise CommandError("recordings need pyarrow: pip install 'sexton[recorder]'")


def add_key(parser: argparse.ArgumentParser) -> None:
    """``--key PUB``."""
    parser.add_argument(
        "--key",
        metavar="PUB",
        help="a public key in PEM: read only what was signed with its private key (Ed25519)",
    )


def need_web() -> None:
    """Fail if the web server is missing: only the explorer needs it, not a recorder."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "pyarrow")):
        raise CommandError("the explorer needs starlette and uvicorn: pip install 'sexton[web]'")


def add_web_config(parser: argparse.ArgumentParser) -> None:
    """``--web.config.file FILE``, named as in Prometheus' exporters."""
    parser.add_argument(
        "--web.config.file",
        dest="web_config",
        metavar="FILE",
        help="TLS, client certificates and users, in the format of Prometheus' exporters",
    )


def read_web_config(path: str | None) -> WebConfig | None:
    """The web configuration of ``--web.config.file``; as for Prometheus' exporters, '' is none."""
    if not path:
        return None
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("yaml", "bcrypt")):
        raise CommandError("--web.config.file needs PyYAML and bcrypt: pip install 'sexton[web]'")
    from sexton.web.config import WebConfig

    return WebConfig(path)


def seconds(text: str) -> float:
    """A duration between 0 and an hour."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid number of seconds {text!r}") from None
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} seconds: must be over 0 and at most 3600")
    return value


def whole_up_to(most: int, spelled: str = "") -> Callable[[str], int]:
    """A parser of whole numbers from 1 to `most`, which an error message shows as `spelled`."""

    def whole(text: str) -> int:
        plain = text.isascii() and text.isdecimal() and len(text) <= 9
        if not plain or not 1 <= int(text) <= most:
            range_ = f"from 1 to {spelled or most}"
            raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number {range_}")
        return int(text)

    return whole


def _directory(text: str) -> str:
    if text == "/":
        return text
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        os.close(os.open(text, flags))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.strerror}") from None
    try:
        return "/" + os.path.abspath(text).lstrip("/")
    except FileNotFoundError:  # the current directory was removed
        raise argparse.ArgumentTypeError("the current directory no longer exists") from None


def need_exporter() -> None:
    """Fail if what serves metrics is missing."""
    from importlib.util import find_spec

    wanted = ("prometheus_client", "starlette", "uvicorn", "pyarrow", "yaml", "bcrypt")
    if any(find_spec(name) is None for name in wanted):
        raise CommandError("metrics need more packages: pip install 'sexton[exporter]'")

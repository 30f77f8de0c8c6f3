"""Options of commands that talk to an API server, and what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.cluster.access import Access

_NODE_NAME = "NODE_NAME"
#: A name of an object in Kubernetes (RFC 1123).
_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"


def add_node(parser: argparse.ArgumentParser) -> None:
    """``--node NAME``."""
    parser.add_argument(
        "--node", metavar="NAME", help=f"name of the Node (default ${_NODE_NAME}, else host name)"
    )


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """``--kubeconfig FILE``."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="how to reach the API server (default: as in a pod)"
    )


def node_name(given: str | None) -> str:
    import os
    import re

    name = given or os.environ.get(_NODE_NAME) or os.uname().nodename.lower()
    if not re.fullmatch(_NAME, name, re.ASCII):
        raise CommandError(f"{name!r} cannot be the name of a Node; use --node NAME")
    return name


def access_of(kubeconfig: str | None, variables: Mapping[str, str]) -> Access | None:
    """By the kubeconfig, else as in a pod; `None` if neither is there."""
    from sexton.cluster.access import from_kubeconfig, in_cluster

    return in_cluster(variables) if kubeconfig is None else from_kubeconfig(kubeconfig)

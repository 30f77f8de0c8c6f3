"""What `gate` and `audit` share: opening an image within limits, the node's list of protected
units, and `--kubelet-out`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sexton.errors import SourceAbsent
from sexton.host.reader import LiveFiles, read_regular
from sexton.model.text import printable
from sexton.prevent.image import Image
from sexton.sandbox import Limits, confine, limits_for

if TYPE_CHECKING:
    from sexton.cure.protected import Rule
    from sexton.host.host import Host

#: Unit files and configuration of a directory: a large image has 20 MB of them.
_DIRECTORY_BYTES, _DIRECTORY_S = 500 << 20, 60
_BOOTED_BYTES = 2 << 30
_MOST_RULES_BYTES = 1 << 20


@contextmanager
def opened(path: str) -> Iterator[Image]:
    """The image at `path`. A file is read by a confined process from its first byte on."""
    if not os.path.isdir(path):
        confine(limits_for(path))
    with Image(path) as image:
        yield image


def confine_directory(path: str, booted: bool) -> None:
    """Limit the reading of a directory, once it is known whether a host runs in it: such a tree is
    watched for as long as the policy says, and its cgroups are counted by programs."""
    if not os.path.isdir(path):
        return
    if booted:
        confine(Limits(_BOOTED_BYTES, None, live=True, what=path))
    else:
        confine(Limits(_DIRECTORY_BYTES, _DIRECTORY_S, what=path))


def protected_rules() -> tuple[Rule, ...]:
    """This node's own list of protected units. An image's list is not trusted."""
    from sexton.cure.protected import CONFIG, rules_of

    try:
        content = read_regular(LiveFiles(), CONFIG, _MOST_RULES_BYTES)
    except SourceAbsent:
        return ()
    return rules_of(content.decode("utf-8", "surrogateescape"))


def write_kubelet(host: Host, path: str) -> None:
    """Write the corrected kubelet configuration; of several the first that could be parsed."""
    from sexton.cli.profile.capture import emit
    from sexton.prevent.kubelet import corrected, inspect

    for file in inspect(host):
        content = corrected(file)
        if content is not None:
            emit((content.encode("utf-8", "surrogateescape"),), path)
            print(f"sexton: wrote {printable(path)}, corrected from {file.path}", file=sys.stderr)
            return
    what = "no readable kubelet configuration found"
    print(f"sexton: {printable(path)} not written: {what}", file=sys.stderr)

"""What `gate` and `audit` share: opening an image within limits, the node's list of protected
units, and `--kubelet-out`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import LiveFiles, RootedFiles, read_regular
from sexton.model.text import printable
from sexton.sandbox import Limits, confine, limits_for

if TYPE_CHECKING:
    from sexton.cure.protected import Rule
    from sexton.host.host import Host
    from sexton.prevent.image import Image
    from sexton.prevent.kubelet import KubeletFile

#: Unit files and configuration of a directory: a large image has 20 MB of them.
_DIRECTORY_BYTES, _DIRECTORY_S = 500 << 20, 60
_BOOTED_BYTES = 2 << 30
_MOST_RULES_BYTES = 1 << 20


@contextmanager
def opened(path: str, outputs: tuple[str, ...]) -> Iterator[Image]:
    """The image at `path`. A file is read by a confined process from its first byte on, which
    writes only `outputs`."""
    from sexton.prevent.image import Image

    if not os.path.isdir(path):
        confine(limits_for(path)._replace(alone=True, writable=outputs))
    with Image(path) as image:
        yield image


def outputs_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The files that a command writes, by its options."""
    given = vars(args)
    named = (given.get(name) for name in ("save", "write_policy", "kubelet_out"))
    return tuple(name for name in (*(given.get("out") or ()), *named) if name is not None)


def confine_directory(path: str, booted: bool, outputs: tuple[str, ...]) -> None:
    """Limit the reading of a directory, once it is known whether a host runs in it: such a tree is
    watched for as long as the policy says, and its cgroups are counted by programs."""
    if not os.path.isdir(path):
        return
    if booted:
        confine(Limits(_BOOTED_BYTES, None, live=True, what=path))
    else:
        confine(Limits(_DIRECTORY_BYTES, _DIRECTORY_S, alone=True, writable=outputs, what=path))


def open_tree(
    root: str, seconds: float | None, outputs: tuple[str, ...] = (), thorough: bool = False
) -> Host:
    """This node, or the one whose tree is at `root`, for a command that watches it for `seconds`
    (`None`: until it is stopped) and writes only `outputs`. A tree without procfs is no node's: it
    may hold anything."""
    from sexton.host.host import open_host

    host = open_host(root, thorough)
    if isinstance(host.files, RootedFiles):
        limits = Limits(_BOOTED_BYTES, None, live=True, what=root)
        if not _on_procfs(host.files):
            cpu_s = None if seconds is None else _DIRECTORY_S + int(seconds)
            limits = Limits(_DIRECTORY_BYTES, cpu_s, writable=outputs, what=root)
        confine(limits)
    return host


def _on_procfs(files: RootedFiles) -> bool:
    try:
        return files.on_procfs("/proc")
    except SourceError:
        return False


def protected_rules() -> tuple[Rule, ...]:
    """This node's own list of protected units. An image's list is not trusted."""
    from sexton.cure.protected import CONFIG, rules_of

    try:
        content = read_regular(LiveFiles(), CONFIG, _MOST_RULES_BYTES)
    except SourceAbsent:
        return ()
    return rules_of(content.decode("utf-8", "surrogateescape"))


def write_kubelet(host: Host, path: str, running: KubeletFile | None = None) -> None:
    """Write the corrected kubelet configuration; of several the first that could be parsed, and
    what the kubelet runs with if there is no file."""
    from sexton.cli.profile.capture import emit
    from sexton.prevent.kubelet import corrected, inspect

    for file in (*inspect(host), *([] if running is None else [running])):
        content = corrected(file)
        if content is not None:
            emit((content.encode("utf-8", "surrogateescape"),), path)
            print(f"sexton: wrote {printable(path)}, corrected from {file.path}", file=sys.stderr)
            return
    what = "no readable kubelet configuration found"
    print(f"sexton: {printable(path)} not written: {what}", file=sys.stderr)

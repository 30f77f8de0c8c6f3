"""The host a source reads from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import Files, LiveFiles, RootedFiles

#: Why a source that is not a file cannot be read through another machine's tree.
ONLY_LIVE = "only on the node itself, not through --root or an archive"
ON_THE_NODE = "sudo sexton diagnose  # on the node itself"


@dataclass(slots=True)
class Host:
    """A file tree, and whether this process's system calls concern the same machine.

    `live` is true only on the machine itself: an ioctl, a D-Bus call or `/dev/kmsg` would describe
    *this* node, not the one whose tree is at ``--root``. `moment` is when a snapshot was taken
    (monotonic, wall), `None` on a running host. While an archive is replayed, `files` and `moment`
    move from snapshot to snapshot under the opened sources. `lasting` means that the host is read
    for hours, so files may stay open. `thorough` makes sources read what they skip by default.
    `memo` passes findings between sources, so that nothing is read twice.
    """

    files: Files
    live: bool
    root: str = "/"
    moment: tuple[float, float] | None = None
    thorough: bool = False
    lasting: bool = False
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def self_dir(self) -> str:
        """The process directory for the host's `mountinfo`: our own, or its init's from outside."""
        return "/proc/self" if self.live else "/proc/1"

    @property
    def net_dir(self) -> str:
        """The host's `/proc/…/net`. `/proc/net` is a link to the *reader's* own, so through a root
        it would be ours; a snapshot may hold it as a plain directory."""
        directory = f"{self.self_dir}/net"
        if not self.live:
            try:
                self.files.names(directory)
            except SourceError:
                return "/proc/net"
        return directory

    def require_live(self, path: str) -> None:
        """Refuse a host that is not live, for sources that are system calls."""
        if not self.live:
            raise SourceAbsent(path, ONLY_LIVE, grant=ON_THE_NODE)


def open_host(root: str = "/", thorough: bool = False) -> Host:
    """This machine, or the tree under `root`."""
    if root == "/":
        return Host(LiveFiles(), live=True, thorough=thorough)
    return Host(RootedFiles(root), live=False, root=root, thorough=thorough)

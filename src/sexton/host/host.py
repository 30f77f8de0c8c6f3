"""The host a source reads from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import Files, LiveFiles, RootedFiles

#: Why a source that is no file has nothing to say about another machine's tree.
ONLY_LIVE = "only on the node itself, not through --root or an archive"
ON_THE_NODE = "sudo sexton diagnose  # on the node itself"


@dataclass(slots=True)
class Host:
    """A file tree, and whether system calls of this process speak about the same machine.

    `live` is true only on the machine itself: an ioctl, a D-Bus call or `/dev/kmsg` would tell
    about *this* node, not about the one whose tree ``--root`` shows. `moment` is the time a
    snapshot was taken at (monotonic, wall), `None` where the clock is running. While an archive is
    replayed, `files` and `moment` move on from snapshot to snapshot under the opened sources.
    `lasting` says that it will be asked for hours: what is read again and again may stay open.
    `thorough` asks a source for what a glance would leave out. `memo` is what one source found and
    another may use in the same breath, so that the node is not asked twice.
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
        """Whose `/proc/…/mountinfo` is the host's: our own, or its init's seen from outside."""
        return "/proc/self" if self.live else "/proc/1"

    @property
    def net_dir(self) -> str:
        """Whose `/proc/…/net` is the host's. `/proc/net` is a link to the *reader's* own, so
        through a root it would tell about us; a snapshot may hold it as a plain directory."""
        directory = f"{self.self_dir}/net"
        if not self.live:
            try:
                self.files.names(directory)
            except SourceError:
                return "/proc/net"
        return directory

    def require_live(self, path: str) -> None:
        """For sources that are system calls and not files."""
        if not self.live:
            raise SourceAbsent(
                path,
                ONLY_LIVE,
                grant=ON_THE_NODE,
            )


def open_host(root: str = "/", thorough: bool = False) -> Host:
    """This machine, or the tree under `root`."""
    if root == "/":
        return Host(LiveFiles(), live=True, thorough=thorough)
    return Host(RootedFiles(root), live=False, root=root, thorough=thorough)

r"""`/var/log/containers`: names of containers by their id.

The kubelet makes a symbolic link per container when it starts it, and removes it with the dead
container: one dead container of each is kept by default. The link's name has the container's id and
names (`legacyLogSymlink` in pkg/kubelet/kuberuntime/legacy.go), its target the pod's uid and how
often this container was started before (`BuildContainerLogsDirectory` and `buildContainerLogsPath`
in helpers.go). When the link was made is when the container was started. Readable without root on
most nodes. A listing::

    api-7c9f_prod_app-0f3a….log -> /var/log/pods/prod_api-7c9f_0a1b2c3d-…/app/57.log

Quirks: no link is followed, only its text is read, and only of names that are new. The kubelet cuts
a link's name to 255 bytes, so that a long one may lack its id: it is skipped. Sandboxes have no
log. A log agent that does not mount /var/log/pods sees dangling links, which are enough. An archive
has no targets.

>>> parse("api-7c9f_prod_app-" + "0f" * 32 + ".log")[1:]
('prod', 'api-7c9f', 'app')
>>> parse_target("/var/log/pods/prod_api-7c9f_0a1b2c3d-1111-2222-3333-444455556666/app/57.log")
('0a1b2c3d-1111-2222-3333-444455556666', 57)
>>> parse_target("../pods/x"), parse_target("")
((None, None), (None, None))
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.model.rows.kubernetes import Container
from sexton.sources.kubernetes.names import News, is_name, is_uid, limited
from sexton.sources.registry import Reading, source

PATH = "/var/log/containers"
GRANT = "mount the node's /var/log, read-only  # if this is a container on a Kubernetes node"
_LINK = re.compile(
    r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<name>.+)-(?P<id>[0-9a-f]{64})\.log", re.DOTALL
)
#: A container's directory and file in the pod's; `0.log.20260101-000000` is a rotated one.
_TARGET = re.compile(r".*_(?P<uid>[^_/]+)/[^/]+/(?P<restarts>[0-9]{1,9})\.log", re.ASCII)


class Names(NamedTuple):
    """What a link's name says."""

    id: str
    namespace: str
    pod: str
    name: str


def parse(entry: str) -> Names | None:
    """The names in a link's name; `None` if it is no container's."""
    found = _LINK.fullmatch(entry)
    if found is None or not all(map(is_name, found.group("pod", "namespace", "name"))):
        return None
    return Names(*found.group("id", "namespace", "pod", "name"))


def parse_target(target: str) -> tuple[str | None, int | None]:
    """The pod's uid and the restart count in a link's target."""
    found = _TARGET.fullmatch(target) if len(target) < 4096 else None
    if found is None or not is_uid(found["uid"]):
        return None, None
    return found["uid"], int(found["restarts"])


@source(PATH, rows=(Container,), period_s=10.0, grant=GRANT)
class ContainerLogs(Reading):
    """A row per link that is new."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._news = News(host)

    def collect(self) -> Iterator[Container]:
        names, self.note = limited(self._files.names(PATH), PATH)
        yield from self._news.of(names, self._row)

    def _row(self, entry: str) -> Container | None:
        known = parse(entry)
        if known is None:
            return None
        uid, restarts = parse_target(self._target(entry))
        return Container(*known, uid, restarts, self._made_s(entry))

    def _made_s(self, entry: str) -> float | None:
        try:
            return self._files.status(f"{PATH}/{entry}").modified_s
        except SourceError:
            return None

    def _target(self, entry: str) -> str:
        try:
            return self._files.link(f"{PATH}/{entry}")
        except SourceError:  # removed meanwhile, or not a link: its name is enough
            return ""

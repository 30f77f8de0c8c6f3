r"""State of the container runtime: names of containers and sandboxes.

Read as root, where the runtime keeps a file per container:

- containerd: the running ones' OCI bundles, ``config.json`` below `CONTAINERD`. The annotations are
  those of internal/cri/annotations/annotations.go (`DefaultCRIAnnotations`);
- CRI-O: ``userdata/config.json`` below `CRIO`; it copies the kubelet's labels
  (pkg/kubelet/types/labels.go) into the annotations;
- Docker: ``config.v2.json`` below `DOCKER`, with the same labels under ``Config``.

An excerpt of containerd's::

    "annotations": {
      "io.kubernetes.cri.container-name": "app",
      "io.kubernetes.cri.container-type": "container",
      "io.kubernetes.cri.sandbox-name": "api-7c9f",
      "io.kubernetes.cri.sandbox-namespace": "prod",
      "io.kubernetes.cri.sandbox-uid": "0a1b2c3d-1111-2222-3333-444455556666"
    },

Quirks: it is the only one of the three sources that names sandboxes, each of which has a cgroup of
its own. k3s and others keep containerd's state elsewhere. Old versions of containerd write no uid.
A pod's author chooses other annotations and labels, so these files are untrusted: at most
`MOST_BYTES` of each, `MOST_NEW` a reading (a file is read once), nested at most as deep as Python's
parser allows.

>>> annotations = '{"annotations": {"io.kubernetes.cri.container-type": "sandbox",'
>>> annotations += '"io.kubernetes.cri.sandbox-name": "api", "io.kubernetes.cri.sandbox-namespace":'
>>> found = parse("0f" * 32, annotations + '"prod"}}')
>>> found.namespace, found.pod, found.name
('prod', 'api', None)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sexton.errors import SourceAbsent, SourceDenied, SourceError
from sexton.host.host import Host
from sexton.host.reader import read_regular
from sexton.model.rows.kubernetes import Container
from sexton.sources.kubernetes.names import News, is_id, is_name, is_uid, limited
from sexton.sources.registry import Reading, source

_TASKS = "io.containerd.runtime.v2.task/k8s.io"
CONTAINERD = f"/run/containerd/{_TASKS}"
CRIO = "/run/containers/storage/overlay-containers"
DOCKER = "/var/lib/docker/containers"
#: A directory with one per container, and the file in each.
_PLACES = (
    (CONTAINERD, "config.json"),
    (f"/run/k3s/containerd/{_TASKS}", "config.json"),
    (f"/var/snap/microk8s/common/run/containerd/{_TASKS}", "config.json"),
    (CRIO, "userdata/config.json"),
    (DOCKER, "config.v2.json"),
)
#: Real ones have 8 to 60 KB.
MOST_BYTES = 1 << 20
MOST_NEW = 500
_CRI, _LABEL = "io.kubernetes.cri.", "io.kubernetes."


class _File(NamedTuple):
    directory: str
    id: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.id}/{self.name}"


def parse(container_id: str, content: str) -> Container | None:
    """The names in a container's file; `None` if it is not a pod's, or not readable."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    config = _mapping(found, "Config") or found
    labels = _mapping(config, "annotations") or _mapping(config, "Labels")
    if f"{_CRI}sandbox-name" in labels:
        pod, namespace = labels[f"{_CRI}sandbox-name"], labels.get(f"{_CRI}sandbox-namespace")
        uid, name = labels.get(f"{_CRI}sandbox-uid"), labels.get(f"{_CRI}container-name")
        sandbox = labels.get(f"{_CRI}container-type") == "sandbox"
    else:
        pod, namespace = labels.get(f"{_LABEL}pod.name"), labels.get(f"{_LABEL}pod.namespace")
        uid, name = labels.get(f"{_LABEL}pod.uid"), labels.get(f"{_LABEL}container.name")
        sandbox = name == "POD"
    if not (is_name(pod) and is_name(namespace) and (sandbox or is_name(name))):
        return None
    return Container(
        container_id, str(namespace), str(pod), None if sandbox else str(name),
        str(uid) if is_uid(uid) else None, _restarts(labels),
    )  # fmt: skip


def _mapping(found: Any, key: str) -> Mapping[str, Any]:
    inside = found.get(key) if isinstance(found, dict) else None
    return inside if isinstance(inside, dict) else {}


def _restarts(labels: Mapping[str, Any]) -> int | None:
    keys = (f"{_LABEL}container.restartCount", f"annotation.{_LABEL}container.restartCount")
    text = next((labels[key] for key in keys if key in labels), None)
    is_number = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if is_number and text is not None else None


@source(CONTAINERD, rows=(Container,), period_s=10.0)
class RuntimeState(Reading):
    """A row per container and sandbox that is new, of whichever runtimes there are."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._news = News(host)

    def collect(self) -> Iterator[Container]:
        files, self.note = self._listed()
        yield from self._news.of(files, self._row, MOST_NEW)

    def _listed(self) -> tuple[list[_File], str]:
        """The files of all runtimes. Docker may be there without Kubernetes."""
        found, note, there = [], "", False
        refused: SourceDenied | None = None
        for directory, name in _PLACES:
            try:
                names, cut = limited(self._files.names(directory), directory)
            except SourceAbsent:
                continue
            except SourceDenied as error:
                refused = error
                continue
            there, note = True, note or cut
            found += [_File(directory, entry, name) for entry in names if is_id(entry)]
        if not there:
            raise refused or SourceAbsent(CONTAINERD, "no runtime of a kubelet keeps state here")
        return found, note

    def _row(self, file: _File) -> Container | None:
        try:
            content = read_regular(self._files, file.path, MOST_BYTES)
        except SourceError:  # removed meanwhile, or larger than any real one
            return None
        return parse(file.id, content.decode("utf-8", "surrogateescape"))

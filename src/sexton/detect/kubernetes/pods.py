r"""Which pod and container a cgroup belongs to: the only place that knows kubelets' cgroup paths.

The kubelet makes a cgroup per pod below `kubepods`, named by the pod's uid
(`GetPodCgroupNameSuffix` and `cgroup_manager_linux.go` in pkg/kubelet/cm); the runtime makes one
per container below that, named by its id. With the systemd driver both are units and a uid's dashes
are underscores, with cgroupfs plain directories:

>>> uid, id = "0a1b2c3d-1111-2222-3333-444455556666", "0f" * 32
>>> slice = "kubepods-burstable-pod" + uid.replace("-", "_") + ".slice"
>>> [place] = places(f"/kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{id}.scope")
>>> place.uid == uid, place.id == id
(True, True)
>>> [place] == list(places(f"/kubepods/burstable/pod{uid}/{id}"))
True

A container may have cgroups of its own below, even pods (a cluster in a container): the deepest one
that has a name counts. Names come from the rows of the sources in `sexton.sources.kubernetes`, and
in a recording also from those before the judged window. So what died has its name as long as the
recording has the hour in which it was last seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from sexton.detect.findings import unread
from sexton.detect.rows_read import remembered
from sexton.model.finding import Finding, Missing
from sexton.model.row import fields_of
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.text import printable
from sexton.model.window import Window

#: A pod's uid as in a cgroup's name; the hash of a static pod's file has no dashes.
UID = r"[0-9a-f]{8}[-_0-9a-f]{20,28}"
#: The name of a pod's cgroup, with either driver.
POD = rf"(?:[^/]*kubepods-(?:[^/]*-)?)?pod(?P<uid>{UID})(?:\.slice)?"
_POD = re.compile(POD)
_CONTAINER = re.compile(
    r"(?:(?:cri-containerd|crio|crio-conmon|docker|libpod)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?"
)
#: Every path with a pod or a container contains this: a quick check that rules out most.
_HINT = re.compile(r"pod[0-9a-f]{8}|[0-9a-f]{64}")
#: A path, or the unit of a container without its path, in a sentence.
_IN_TEXT = re.compile(r"/[^\s,;()'\"]+|(?<![^\s(])[a-z-]+-[0-9a-f]{64}\.scope")
#: What Kubernetes adds to the names of a workload's pods: letters of `SafeEncodeString` in
#: k8s.io/apimachinery/pkg/util/rand, after a Deployment's hash or a CronJob's minute.
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_GENERATED = re.compile(
    rf"(?P<workload>.+?)(?:-{_LETTERS}{{6,10}}|-[0-9]{{8,10}})?-{_LETTERS}{{5}}", re.DOTALL
)
_KEEP = "sudo sexton record  # keeps the names of pods from now on"


class Place(NamedTuple):
    """A pod's uid and a container's id in a path, and how many parts of it name the pod."""

    uid: str | None
    id: str | None
    depth: int


def places(path: str) -> Iterator[Place]:
    """The pods and containers in a cgroup's path, the deepest first."""
    if not _HINT.search(path):
        return
    parts = path.split("/")
    id = None
    for at in range(len(parts) - 1, -1, -1):
        pod, inside = _POD.fullmatch(parts[at]), id
        found = _CONTAINER.fullmatch(parts[at])
        id = None if found is None else found["id"]
        if pod is not None:
            yield Place(pod["uid"].replace("_", "-"), inside, at + 1)
        elif id is not None and (at == 0 or _POD.fullmatch(parts[at - 1]) is None):
            yield Place(None, id, at + 1)


def pod_path(path: str) -> str | None:
    """The cgroup of the outermost pod that this path is in.

    >>> pod_path("/kubepods/pod" + "0f" * 16 + "/x/y") == "/kubepods/pod" + "0f" * 16
    True
    >>> pod_path("/system.slice/a.service") is None
    True
    """
    depths = [place.depth for place in places(path) if place.uid is not None]
    return "/".join(path.split("/")[: depths[-1]]) if depths else None


class PodPart(NamedTuple):
    """A pod, or a container of it; `is_sandbox` for the pause container.

    >>> PodPart("prod", "api-7c9", "app").words
    'container app of pod prod/api-7c9'
    """

    namespace: str
    pod: str
    container: str | None = None
    is_sandbox: bool = False

    @property
    def name(self) -> str:
        """As `why pod` takes it."""
        return f"{self.namespace}/{self.pod}"

    @property
    def words(self) -> str:
        """For a sentence."""
        pods = f"{'pods' if self.pod.endswith('*') else 'pod'} {self.name}"
        if self.is_sandbox:
            return f"sandbox of {pods}"
        return f"container {self.container} of {pods}" if self.container is not None else pods

    @property
    def fields(self) -> dict[str, str]:
        """For JSON, escaped; without `container` if it is not one's.

        >>> PodPart("prod", "api-7c9").fields
        {'namespace': 'prod', 'pod': 'api-7c9'}
        """
        parts = {"namespace": self.namespace, "pod": self.pod, "container": self.container}
        return {key: printable(name) for key, name in parts.items() if name is not None}

    @property
    def family(self) -> PodPart:
        """The same of any pod of its workload.

        >>> [PodPart("a", name).family.pod for name in ("api-7c9f4d5b6-x2k4z", "db-0", "ds-2v7xq")]
        ['api-*', 'db-0', 'ds-*']
        """
        found = _GENERATED.fullmatch(self.pod)
        return self if found is None else self._replace(pod=f"{found['workload']}-*")


class PodNames:
    """Names by container id and by pod uid; the newest row of each counts."""

    def __init__(self) -> None:
        self._containers: dict[str, PodPart] = {}
        self._pods: dict[str, PodPart] = {}

    def add(self, rows: Iterable[Container | Pod]) -> None:
        for row in rows:
            if isinstance(row, Pod):
                self._pods[row.uid] = PodPart(row.namespace, row.name)
                continue
            part = PodPart(row.namespace, row.pod, row.name, row.name is None)
            self._containers[row.id] = part
            if row.pod_uid is not None:
                self._pods[row.pod_uid] = PodPart(row.namespace, row.pod)

    def __bool__(self) -> bool:
        return bool(self._containers or self._pods)

    def of(self, path: str) -> PodPart | None:
        """Whose cgroup this is; `None` if it is no pod's or nothing names it."""
        if not self:
            return None
        for place in places(path):
            part = self._containers.get(place.id or "") or self._pods.get(place.uid or "")
            if part is not None:
                return part
        return None

    def in_text(self, text: str) -> str:
        """A sentence with names in place of paths and of containers' units."""
        if not self or not _HINT.search(text):
            return text

        def named(found: re.Match[str]) -> str:
            part = self.of(found[0])
            return found[0] if part is None else part.words

        return _IN_TEXT.sub(named, text)

    def common(self, paths: Iterable[str]) -> PodPart | None:
        """Whose cgroups all of these are: one container's, one pod's or one workload's."""
        parts = {self.of(path) for path in paths}
        return None if None in parts else common(part for part in parts if part is not None)


def common(parts: Iterable[PodPart]) -> PodPart | None:
    """What all of these are parts of.

    >>> common([PodPart("a", "b", "c"), PodPart("a", "b", "d")])
    PodPart(namespace='a', pod='b', container=None, is_sandbox=False)
    """
    found = {*parts}
    for wider in (
        lambda part: part,
        lambda part: part.family,
        lambda part: PodPart(part.namespace, part.pod),
        lambda part: PodPart(part.namespace, part.pod).family,
    ):
        if len(made := {wider(part) for part in found}) == 1:
            return made.pop()
    return None


@remembered
def pods(window: Window) -> PodNames:
    """Every name that the window knows, also of what died before it."""
    names = PodNames()
    for kind in (Pod, Container):
        names.add(kind(*values) for values in window.distinct(kind, fields_of(kind)))
    return names


def with_pods(finding: Finding, window: Window) -> Finding:
    """The finding, also about the pods whose cgroups it is about; its summary has their names, its
    evidence the paths."""
    named = pods(window)
    if not named:
        return finding
    parts = (named.of(path) for path in finding.entities.get("cgroup", ()))
    mine = finding.entities.get("pod", ())
    every = dict.fromkeys([*mine, *(printable(part.name) for part in parts if part is not None)])
    entities = {**finding.entities, "pod": tuple(every)}
    return replace(finding, summary=named.in_text(finding.summary), entities=entities)


def missing(window: Window, paths: Iterable[str]) -> tuple[Missing, ...]:
    """What would name the pods of these cgroups, if some have no name."""
    names = pods(window)
    bare = [path for path in paths if pod_path(path) is not None and names.of(path) is None]
    if not bare:
        return ()
    not_read = unread(window, *(kind for kind in (Pod, Container) if not window.read(kind)))
    gone = Missing(f"the name of the pod at {pod_path(bare[0])}: it was gone before", _KEEP)
    return not_read or (gone,)

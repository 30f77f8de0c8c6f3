r"""`/var/log/pods`: names of pods by their uid.

The kubelet makes a directory for each pod's logs and removes it once the pod and its containers are
gone (`BuildPodLogsDirectory` in pkg/kubelet/kuberuntime/helpers.go). Its name has the pod's
namespace, name and uid; none of them is opened. A listing::

    kube-system_etcd-node1_0f3a77bc0e6d4b1e0f3a77bc0e6d4b1e
    prod_api-7c9f_0a1b2c3d-1111-2222-3333-444455556666

Quirks: a static pod's uid is the hash of its file, 32 digits without dashes, and so is its
cgroup's. Before Kubernetes 1.14 the directory was called by the uid alone: it is skipped.

>>> parse("prod_api-7c9f_0a1b2c3d-1111-2222-3333-444455556666")
Pod(uid='0a1b2c3d-1111-2222-3333-444455556666', namespace='prod', name='api-7c9f')
>>> parse("0a1b2c3d-1111-2222-3333-444455556666"), parse("a_b_..")
(None, None)
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.host.host import Host
from sexton.model.rows.kubernetes import Pod
from sexton.sources.kubernetes.container_logs import GRANT
from sexton.sources.kubernetes.names import News, is_name, is_uid, limited
from sexton.sources.registry import Reading, source

PATH = "/var/log/pods"


def parse(entry: str) -> Pod | None:
    """The pod of a directory's name; `None` if it is none."""
    namespace, _, rest = entry.partition("_")
    name, _, uid = rest.rpartition("_")
    if not (is_name(namespace) and is_name(name) and is_uid(uid)):
        return None
    return Pod(uid, namespace, name)


@source(PATH, rows=(Pod,), period_s=10.0, grant=GRANT)
class PodLogs(Reading):
    """A row per directory that is new."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._news = News(host)

    def collect(self) -> Iterator[Pod]:
        names, self.note = limited(self._files.names(PATH), PATH)
        yield from self._news.of(names, parse)

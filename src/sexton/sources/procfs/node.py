r"""Host name, kernel, hardware and cloud of this node.

Read from the node's own files, never over the network.

`/proc/sys/kernel/{hostname,osrelease,random/boot_id}`, `/proc/uptime` and `/proc/stat` (cores
online) are the kernel's (Documentation/admin-guide/sysctl/kernel.rst); os-release(5) names the
distribution. `/sys/class/dmi/id/{sys_vendor,product_name}` are the machine's maker and model, and
`/run/cloud-init/instance-data.json` keeps the cloud's metadata from boot (cloud-init's "Instance
metadata" page); both are absent on many nodes, and their fields are `None` then. Excerpts::

    /proc/uptime:                       113243.71 226255.63
    /sys/class/dmi/id/sys_vendor:       Amazon EC2
    /sys/class/dmi/id/product_name:     p4d.24xlarge
    /run/cloud-init/instance-data.json: {"ds": {"meta_data": {"instance_type": "p4d.24xlarge",
        "ami_id": "ami-0123"}}, "v1": {"availability_zone": "us-east-1b", "region": "us-east-1"}}

Quirks: cloud-init writes the keys of `ds` with ``_`` or ``-``, by release. It hides some values
from other users as ``redacted for non-root user``: those are `None`. **On Azure its
`availability_zone` is the fault domain**; the zone is `imds.compute.zone`, and is written here as
Kubernetes does, ``eastus-1``. On Google's cloud it has neither the machine type nor the image. On
EC2's own hardware the model *is* the instance type, which helps where cloud-init is not installed.
Malformed JSON makes its fields `None` and never fails the source.

`container` is the kind of container the host's tree is, by the marks of systemd
(`/run/systemd/container`, `container=` in init's environment), podman, docker and Kubernetes. A
mark file alone may be a leftover of the machine's image: it is ignored if all of our namespaces are
the initial ones, and in a tree that does not show them.

>>> parse_os_release('NAME="Debian GNU/Linux"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
'Debian GNU/Linux 12 (bookworm)'
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed
from sexton.host.host import Host
from sexton.host.reader import Files, text
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.node import Node
from sexton.sources.procfs import stat
from sexton.sources.procfs.irq_affinity import cpu_list
from sexton.sources.registry import Reading, source

PATH = "/proc/sys/kernel"
#: A container without a mark: bare runc, `unshare`.
UNNAMED = "its own PID namespace"
CLOUD_INIT = "/run/cloud-init/instance-data.json"
#: Inode numbers of the namespaces the kernel starts with (include/linux/proc_ns.h).
_FIRST = {"ipc": 4026531839, "uts": 4026531838, "pid": 4026531836, "cgroup": 4026531835}
_MARKS = (
    ("/run/.containerenv", "podman"),
    ("/.dockerenv", "docker"),
    ("/run/secrets/kubernetes.io", "kubernetes"),
    ("/var/run/secrets/kubernetes.io", "kubernetes"),
)


class Cloud(NamedTuple):
    """Cloud metadata; `None` = unknown."""

    zone: str | None = None
    region: str | None = None
    instance_type: str | None = None
    image: str | None = None


@source(PATH, rows=(Node,), period_s=0.0)
class Identity(Reading):
    """One row, from the files that exist."""

    def collect(self) -> Iterator[Node]:
        files = self._files
        hostname = text(files, f"{PATH}/hostname").strip()
        kernel = text(files, f"{PATH}/osrelease").strip()
        vendor = _line(files, "/sys/class/dmi/id/sys_vendor")
        machine = _line(files, "/sys/class/dmi/id/product_name")
        cloud = parse_cloud(_text(files, CLOUD_INIT) or "")
        from_model = machine if vendor == "Amazon EC2" else None
        yield Node(
            hostname=hostname,
            kernel=kernel,
            cores=_cores(files),
            boot_id=_line(files, f"{PATH}/random/boot_id"),
            uptime_s=_uptime(files),
            os=_os(files),
            zone=cloud.zone,
            region=cloud.region,
            instance_type=cloud.instance_type or from_model,
            image=cloud.image,
            vendor=vendor,
            machine=machine,
            container=_container(self._host),
            isolated=_isolated(files),
        )


def _isolated(files: Files) -> tuple[int, ...] | None:
    listed = _line(files, "/sys/devices/system/cpu/isolated")
    try:
        return None if listed is None else cpu_list(listed)
    except ValueError:
        return None


def parse_os_release(content: str) -> str | None:
    """PRETTY_NAME, unquoted as a shell would."""
    for line in content.split("\n"):
        name, _, value = line.strip().partition("=")
        if name == "PRETTY_NAME":
            import shlex

            try:
                return " ".join(shlex.split(value)) or None
            except ValueError:
                return None
    return None


def parse_cloud(content: str) -> Cloud:
    """Zone, region, type and image out of cloud-init's instance data.

    >>> parse_cloud('{"v1": {"availability_zone": "us-central1-a", "region": "us-central1"}}')
    Cloud(zone='us-central1-a', region='us-central1', instance_type=None, image=None)
    >>> parse_cloud('{"v1": ')
    Cloud(zone=None, region=None, instance_type=None, image=None)
    """
    if not content:
        return Cloud()
    import json  # here: most nodes have no such file

    try:
        data: object = json.loads(content)
    except (ValueError, RecursionError):
        return Cloud()
    meta = _under(data, "ds", "meta_data")
    compute = _under(meta, "imds", "compute")
    region = _string(data, "v1", "region") or _string(compute, "location")
    zone = _string(data, "v1", "availability_zone")
    if compute is not None:  # Azure, where cloud-init's zone is something else
        zone = _string(compute, "zone")
        zone = f"{region}-{zone}" if region and zone else zone
    instance_type = (
        _string(meta, "instance_type")
        or _string(compute, "vmSize")
        or _string(data, "ds", "dynamic", "instance_identity", "document", "instanceType")
    )
    image = (
        _string(meta, "ami_id")
        or _string(meta, "image")
        or _azure_image(_under(compute, "storageProfile", "imageReference"))
        or _string(data, "ds", "dynamic", "instance_identity", "document", "imageId")
    )
    return Cloud(zone, region, instance_type, image)


def _azure_image(reference: object) -> str | None:
    """A gallery image's id, or the marketplace's publisher:offer:sku:version."""
    parts = [_string(reference, part) for part in ("publisher", "offer", "sku", "version")]
    known = [part for part in parts if part]
    return _string(reference, "id") or ":".join(known) or None


def _under(data: object, *keys: str) -> object:
    for key in keys:
        if not isinstance(data, dict):
            return None
        data = data.get(key, data.get(key.replace("_", "-")))
    return data


def _string(data: object, *keys: str) -> str | None:
    found = _under(data, *keys)
    if isinstance(found, str) and found and not found.startswith("redacted for"):
        return found
    return None


def _text(files: Files, path: str) -> str | None:
    try:
        return text(files, path)
    except SourceError:
        return None


def _line(files: Files, path: str) -> str | None:
    return (_text(files, path) or "").strip() or None


def _cores(files: Files) -> int | None:
    try:
        rows = stat.parse(text(files, stat.PATH))
        return sum(isinstance(row, CoreTimes) for row in rows) or None
    except SourceError:
        return None


def _uptime(files: Files) -> float | None:
    content = _line(files, "/proc/uptime")
    if content is None:
        return None
    try:
        uptime_s = float(content.split()[0])
    except ValueError:
        raise SourceMalformed("/proc/uptime", 1, "not a number of seconds") from None
    if not 0 <= uptime_s < 1e11:  # refuses NaN as well
        raise SourceMalformed("/proc/uptime", 1, "an impossible number of seconds")
    return uptime_s


def _os(files: Files) -> str | None:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        content = _text(files, path)
        if content is not None:
            return parse_os_release(content)
    return None


def _container(host: Host) -> str | None:
    files = host.files
    for word in (_text(files, "/proc/1/environ") or "").split("\0"):
        name, _, value = word.partition("=")
        if name == "container" and value:
            return value
    named = _line(files, "/run/systemd/container")
    if named:
        return named
    if _in_first_namespaces(host) is not False:
        return None
    for path, kind in _MARKS:
        try:
            files.status(path)
        except (SourceAbsent, SourceDenied, SourceMalformed):
            continue
        return kind
    return UNNAMED if _own_pid_namespace(host) else None


def _own_pid_namespace(host: Host) -> bool:
    """In a PID namespace whose first process is not systemd: some kind of container."""
    try:
        own = host.files.link(f"{host.self_dir}/ns/pid")
    except SourceError:
        return False
    return own != f"pid:[{_FIRST['pid']}]" and _line(host.files, "/proc/1/comm") != "systemd"


def _in_first_namespaces(host: Host) -> bool | None:
    """`None` if unknown: in a bare tree, or without permission to look at init's."""
    try:
        return all(
            host.files.link(f"{host.self_dir}/ns/{kind}") == f"{kind}:[{inode}]"
            for kind, inode in _FIRST.items()
        )
    except SourceError:
        return None

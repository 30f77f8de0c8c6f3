"""Where a node or an image keeps its kubelet's configuration, and with what flags it starts.

The truth is ``--config`` and ``--config-dir`` in kubelet's unit, its drop-ins and the environment
files they name, or on a live node the running process's own command line; usual places are looked
at only where nothing names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.host.reader import Files, exists, text
from sexton.prevent.kubelet.model import Flag

#: By kubeadm, EKS on Amazon Linux 2023 and 2, GKE, kOps and Kubespray, Bottlerocket, MicroK8s.
USUAL = (
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/config.json",
    "/etc/kubernetes/kubelet/kubelet-config.json",
    "/home/kubernetes/kubelet-config.yaml",
    "/etc/kubernetes/kubelet-config.yaml",
    "/etc/kubernetes/kubelet/config",
    "/var/lib/kubelet/kubelet-config.yaml",
)
_UNITS = (
    "/etc/systemd/system/kubelet.service",
    "/run/systemd/system/kubelet.service",
    "/usr/local/lib/systemd/system/kubelet.service",
    "/usr/lib/systemd/system/kubelet.service",
    "/lib/systemd/system/kubelet.service",
)
_ENVIRONMENTS = (
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/eks/kubelet/environment",
    "/etc/kubernetes/kubelet.env",
)
_FLAG = re.compile(r"(?<!\S)--?([A-Za-z][A-Za-z0-9-]*)(?:=(\S+)|[ \t]+(?=[^-\s])(\S+))?")
_MOST_FLAGS = 500
_MOST_DROP_INS = 50
_MOST_PROCESSES = 50_000
_LIMIT = 256 << 10


def flags_of(host: Host) -> list[Flag]:
    """Every flag kubelet is, or will be, started with; the running process's first."""
    found = list(_running(host)) if host.live else []
    for path in _start_files(host.files):
        try:
            content = text(host.files, path, _LIMIT)
        except SourceError:  # one that cannot be read names nothing; the file itself may
            continue
        found += [Flag(*each, path) for each in parse_flags(content)]
    return found[:_MOST_FLAGS]


def parse_flags(content: str) -> list[tuple[str, str]]:
    """Flags as they stand in a unit or an environment file, quoted or not.

    >>> parse_flags('KUBELET_ARGS="--config=/etc/k.yaml --v 2"\\n# --config=/no')
    [('config', '/etc/k.yaml'), ('v', '2')]
    """
    kept = [line for line in content.splitlines() if not line.lstrip().startswith(("#", ";"))]
    joined = "\n".join(kept).replace("\\\n", " ")
    plain = joined.replace('"', " ").replace("'", " ")
    plain = re.sub(r"(?m)^\w+=|\b[A-Za-z_]\w*=(?=\s*--)", " ", plain)  # names of variables
    plain = re.sub(r"\b[A-Za-z_]\w*=(?=\s*--)", " ", plain)  # and of those in Environment="A=…"
    return [(name, first or second) for name, first, second in _FLAG.findall(plain)]


def config_paths(flags: list[Flag], files: Files) -> list[tuple[str, str]]:
    """Paths of configuration files and what named them; drop-ins after their file."""
    found: dict[str, str] = {}
    for flag in flags:
        if flag.name == "config" and flag.value.startswith("/"):
            found.setdefault(flag.value, f"--config in {flag.read_from}")
    for flag in flags:
        if flag.name == "config-dir" and flag.value.startswith("/"):
            for path in _conf_files(files, flag.value):
                found.setdefault(path, f"--config-dir in {flag.read_from}")
    if not found:
        found = {path: "a usual place" for path in USUAL if exists_quietly(files, path)}
    return list(found.items())


def exists_quietly(files: Files, path: str) -> bool:
    """Is it there? What may not be looked at is there, and its reading will say so."""
    try:
        return exists(files, path)
    except SourceError:
        return True


def present(host: Host) -> bool:
    """Is there a kubelet here at all: a unit of that name, or its program?"""
    programs = ("/usr/bin/kubelet", "/usr/local/bin/kubelet", "/opt/bin/kubelet")
    return any(exists_quietly(host.files, path) for path in (*_UNITS, *programs))


def _start_files(files: Files) -> Iterator[str]:
    for unit in _UNITS:
        if exists_quietly(files, unit):
            yield unit
        try:
            names = sorted(files.names(f"{unit}.d"))
        except SourceError:
            continue
        drop_ins = [name for name in names if name.endswith(".conf")]
        yield from (f"{unit}.d/{name}" for name in drop_ins[:_MOST_DROP_INS])
    yield from (path for path in _ENVIRONMENTS if exists_quietly(files, path))


def _conf_files(files: Files, directory: str) -> list[str]:
    """Kubelet reads ``*.conf`` in there, in the order of their names."""
    try:
        names = sorted(files.names(directory))
    except SourceError:
        return []
    kept = [name for name in names if name.endswith(".conf")][:_MOST_DROP_INS]
    return [f"{directory.rstrip('/')}/{name}" for name in kept]


def _running(host: Host) -> Iterator[Flag]:
    """The flags of a kubelet that runs."""
    try:
        pids = [name for name in host.files.names("/proc") if name.isdigit()][:_MOST_PROCESSES]
    except SourceError:
        return
    for pid in pids:
        try:
            if text(host.files, f"/proc/{pid}/comm", 64) != "kubelet\n":
                continue
            line = host.files.read(f"/proc/{pid}/cmdline", _LIMIT)
        except SourceError:  # it ended meanwhile, or is not ours to look at
            continue
        words = line.decode("utf-8", "surrogateescape").split("\0")[1:]
        for name, value in parse_flags(" ".join(words)):
            yield Flag(name, value, f"kubelet[{pid}]'s command line")

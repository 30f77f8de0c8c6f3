"""What Sexton never stops, disables, masks or takes memory from without being told twice.

The list that `sexton diagnose` goes by (`sexton.detect.protected`), our own units, and what the
node's owner adds in ``/etc/sexton/protected.toml``::

    [[protect]]
    name = "gpu-broker*.service"    # as in a shell: * ? [..]; a unit, a process or a cgroup's name
    why = "bills the tenants"

A configuration adds; nothing takes away.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from sexton.detect.protected import protected
from sexton.errors import CommandError
from sexton.model.text import printable

CONFIG = "/etc/sexton/protected.toml"

#: Our own units, whatever they are called: recorder, exporter, audit timer.
_OWN = re.compile(r"sexton[-.@\w]*\.(service|timer|socket|path|slice)", re.ASCII)
#: Processes by comm, which the kernel cuts at 15 characters; what stopping one would cost.
_PROCESSES = {
    "systemd": "the system itself depends on it",
    "init": "the system itself depends on it",
    "containerd-shim": "a container runs under it",
    "conmon": "a container runs under it",
    "dockerd": "every container depends on it",
    "runc": "a container runs under it",
    "raylet": "a Ray job runs under it",
    "gcs_server": "a Ray cluster is led by it",
}
_POD = "pods run here"
_CONTAINERS = "containers run here"
#: The beginnings of cgroup names below which workloads live, by runtime and cgroup driver.
_WORKLOADS = (
    ("kubepods", _POD),
    ("libpod", _CONTAINERS),
    ("docker-", _CONTAINERS),
    ("cri-containerd-", _CONTAINERS),
    ("crio-", _CONTAINERS),
    ("ecs", "ECS tasks run here"),
    ("machine.slice", "virtual machines or containers run here"),
    ("user.slice", "people are logged in here"),
    ("session-", "somebody is logged in here"),
)
_WHOLE = {"docker": _CONTAINERS, "ecstasks": "ECS tasks run here", "user": "people are logged in"}


class Rule(NamedTuple):
    """One line of the configuration: a shell pattern and the reason."""

    name: str
    why: str


def why_protected(name: str, extra: Iterable[Rule] = ()) -> str | None:
    """Why this unit, process or cgroup must be left alone; `None` where nothing forbids it.

    >>> why_protected("kubelet.service"), why_protected("containerd-shim")
    ('the node leaves its cluster', 'every container depends on it')
    >>> why_protected("ecs.service") is None
    True
    >>> why_protected("gpu-broker@1.service", (Rule("gpu-broker*.service", "bills the tenants"),))
    'bills the tenants (by configuration)'
    """
    if name == "sexton" or _OWN.fullmatch(name):
        return "it is Sexton's own"
    for rule in extra:
        if fnmatchcase(name, rule.name):
            return f"{printable(rule.why)} (by configuration)"
    return protected(name) or _PROCESSES.get(name)


def why_workload(name: str) -> str | None:
    """Whose workloads a cgroup of this name holds, by its last path component.

    >>> why_workload("kubepods.slice"), why_workload("cri-containerd-4f2.scope")
    ('pods run here', 'containers run here')
    >>> why_workload("ecs.service") is None
    True
    """
    if name.endswith((".service", ".socket", ".timer")):
        return None
    whole = _WHOLE.get(name)
    return whole or next((why for start, why in _WORKLOADS if name.startswith(start)), None)


def why_protected_path(path: str, extra: Iterable[Rule] = ()) -> str | None:
    """The same of a cgroup path: protected if it is, or lies in, something protected.

    >>> why_protected_path("/kubepods.slice/kubepods-burstable.slice/pod1")
    'kubepods.slice: pods run here'
    >>> why_protected_path("/system.slice/kubelet.service")
    'kubelet.service: the node leaves its cluster'
    >>> why_protected_path("/system.slice/ecs.service") is None
    True
    """
    rules = tuple(extra)
    for part in path.split("/"):
        if part and (why := why_workload(part) or why_protected(part, rules)) is not None:
            return f"{printable(part)}: {why}"
    return None


def rules_of(text: str, path: str = CONFIG) -> tuple[Rule, ...]:
    """The rules of a configuration; one that cannot be read is a failure, never an empty list.

    >>> rules_of('[[protect]]\\nname = "a*.service"\\nwhy = "ours"')
    (Rule(name='a*.service', why='ours'),)
    """
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{path}: {error}") from None
    if unknown := sorted(set(told) - {"protect"}):
        raise CommandError(f"{path}: {printable(unknown[0])!r} is not known; [[protect]] is")
    rules = []
    for entry in told.get("protect", []):
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(key), str) and entry[key] for key in ("name", "why")
        ):
            raise CommandError(f"{path}: every [[protect]] needs a name and a why, both texts")
        rules.append(Rule(entry["name"], entry["why"]))
    return tuple(rules)

"""What Sexton never stops, disables or masks, and reclaims from only with explicit consent.

The built-in list (`sexton.detect.protected`), Sexton's own units, and what the node's owner adds in
``/etc/sexton/protected.toml``::

    [[protect]]
    name = "gpu-broker*.service"    # shell pattern (* ? [..]) for a unit, process or cgroup name
    why = "bills the tenants"

The configuration can only add entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from sexton.detect.protected import protected
from sexton.errors import CommandError
from sexton.model.text import printable
from sexton.model.toml import parse_toml

CONFIG = "/etc/sexton/protected.toml"

#: Our own units: recorder, exporter, audit timer.
_OWN = re.compile(r"sexton[-.@\w]*\.(service|timer|socket|path|slice)", re.ASCII)
#: Processes by comm (truncated to 15 characters by the kernel), with the reason.
_PROCESSES = {
    "systemd": "the system itself depends on it",
    "init": "the system itself depends on it",
    "containerd-shim": "a container runs under it",
    "conmon": "a container runs under it",
    "dockerd": "every container depends on it",
    "runc": "a container runs under it",
    "raylet": "a Ray job runs under it",
    "gcs_server": "it controls a Ray cluster",
}
_POD = "pods run here"
_CONTAINERS = "containers run here"
#: Prefixes of cgroup names that hold workloads, by runtime and cgroup driver.
_WORKLOADS = (
    ("kubepods", _POD),
    ("libpod", _CONTAINERS),
    ("docker-", _CONTAINERS),
    ("cri-containerd-", _CONTAINERS),
    ("crio-", _CONTAINERS),
    ("ecs", "ECS tasks run here"),
    ("machine.slice", "virtual machines or containers run here"),
    ("user.slice", "users are logged in here"),
    ("session-", "a user is logged in here"),
)
_WHOLE = {
    "docker": _CONTAINERS,
    "ecstasks": "ECS tasks run here",
    "user": "users are logged in here",
}


class Rule(NamedTuple):
    """One entry of the configuration: a shell pattern and the reason."""

    name: str
    why: str


def why_protected(name: str, extra: Iterable[Rule] = ()) -> str | None:
    """Why this unit, process or cgroup must not be touched; `None` if it may be.

    >>> why_protected("kubelet.service"), why_protected("containerd-shim")
    ('the node leaves its cluster', 'every container depends on it')
    >>> why_protected("ecs.service") is None
    True
    >>> why_protected("gpu-broker@1.service", (Rule("gpu-broker*.service", "bills the tenants"),))
    'bills the tenants (configured)'
    """
    if name == "sexton" or _OWN.fullmatch(name):
        return "it belongs to Sexton"
    for rule in extra:
        if fnmatchcase(name, rule.name):
            return f"{printable(rule.why)} (configured)"
    return protected(name) or _PROCESSES.get(name)


def why_workload(name: str) -> str | None:
    """Which workloads a cgroup with this name (last path component) holds.

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
    """Why a cgroup path is protected: it is, or is below, something protected.

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
    """The rules of a configuration; a malformed one is an error, never an empty list.

    >>> rules_of('[[protect]]\\nname = "a*.service"\\nwhy = "ours"')
    (Rule(name='a*.service', why='ours'),)
    """
    try:
        content = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: {error}") from None
    if unknown := sorted(set(content) - {"protect"}):
        raise CommandError(f"{path}: unknown key {printable(unknown[0])!r}, expected [[protect]]")
    rules = []
    for entry in content.get("protect", []):
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(key), str) and entry[key] for key in ("name", "why")
        ):
            raise CommandError(f"{path}: every [[protect]] needs name and why, both strings")
        rules.append(Rule(entry["name"], entry["why"]))
    return tuple(rules)

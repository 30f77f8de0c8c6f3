r"""What a family of cgroup names has in common, and which names are containers.

A crash loop seldom uses one name twice: ``run-17``, ``run-18``, a container id, a pod's UUID. The
stem is the name with its unique part replaced by ``*``, so that dead cgroups can be grouped by what
left them.

>>> [stem(name) for name in ("run-123", "session-4.scope", "run-r0f3a77bc0e6d4b1e.scope")]
['run-*', 'session-*.scope', 'run-r*.scope']
>>> stem("kubepods-burstable-pod0a1b2c3d_1111_2222_3333_444455556666.slice")
'kubepods-burstable-pod*.slice'

A service or slice keeps its digits, which distinguish units; an instance does not:

>>> [stem(name) for name in ("k3s.service", "user-1000.slice", "getty@tty1.service")]
['k3s.service', 'user-1000.slice', 'getty@tty*.service']
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from sexton.detect.kubernetes.pods import POD, UID

_ESCAPE = r"\\x[0-9a-f]{2}|"  # systemd's escape of one character: part of the name, kept
#: Tried in order: the last letter of ``pod`` is a hexadecimal digit, too.
_IDS = tuple(
    re.compile(_ESCAPE + pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        rf"(?<=pod){UID}"
        r"|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}",  # a UUID, as pods have
        r"(?=[a-f]*[0-9])[0-9a-f]{8,}",  # a hash or a container id
    )
)
_NUMBERS = (*_IDS, re.compile(_ESCAPE + r"[0-9]+", re.IGNORECASE | re.ASCII))
_NAMED_UNITS = (".service", ".slice", ".mount", ".socket", ".swap")
_UNITS = (*_NAMED_UNITS, ".scope")

#: Names container runtimes give their cgroups; the first that matches a part of a path wins.
_RUNTIMES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("containerd container", r"cri-containerd-[0-9a-f]{12,}.*|nerdctl-[0-9a-f]{12,}.*"),
        ("CRI-O container", r"crio-(conmon-)?[0-9a-f]{12,}.*"),
        ("podman container", r"libpod-(conmon-|payload-)?[0-9a-f]{12,}.*"),
        ("docker container", r"docker-[0-9a-f]{12,}\.scope"),
        ("Kubernetes pod", POD),
        ("LXC container", r"lxc\.(payload|monitor)\..+"),
        ("container", r"[0-9a-f]{64}"),
    )
)
#: Every one of those names contains this: a quick check that rules out most paths.
_HINT = re.compile(r"[0-9a-f]{8}|lxc\.")
#: Directories in which a 64-digit name belongs to a certain runtime.
_HOMES = {"docker": "docker container", "ecs": "ECS container", "buildkit": "build container"}


def stem(name: str) -> str:
    """A cgroup's name with its unique part replaced."""
    if name.endswith(_NAMED_UNITS) and not name.startswith("run-"):
        head, at, instance = name.partition("@")
        return _replace(_IDS, head) + at + (_replace(_NUMBERS, instance) if at else "")
    return _replace(_NUMBERS, name)


def _replace(patterns: Iterable[re.Pattern[str]], text: str) -> str:
    for pattern in patterns:
        text = pattern.sub(lambda match: match[0] if match[0].startswith("\\") else "*", text)
    return text


@lru_cache(10_000)  # churn, owners and ledger ask for the same names
def path_stem(path: str) -> str:
    """The stem of every part of a relative path.

    >>> path_stem("run-17/inner-3")
    'run-*/inner-*'
    """
    return "/".join(map(stem, path.split("/")))


def pattern(names: Iterable[str]) -> str:
    """One name for names of one stem: the name if all are equal, else the stem.

    >>> pattern(["ecs2.service", "ecs2.service"]), pattern(["run-1", "run-2"])
    ('ecs2.service', 'run-*')
    """
    known = set(names)
    return known.pop() if len(known) == 1 else path_stem(min(known))


def split(path: str) -> tuple[str, str]:
    """Parent and name.

    >>> split("/system.slice/ecs.service"), split("/top"), split("/")
    (('/system.slice', 'ecs.service'), ('/', 'top'), ('/', ''))
    """
    parent, _, name = path.rstrip("/").rpartition("/")
    return parent or "/", name


def join(parent: str, name: str) -> str:
    """The inverse of `split`."""
    return f"{parent.rstrip('/')}/{name}" if name else parent


def unit_of(path: str) -> str | None:
    """The systemd unit of a path: the deepest part with the name of a unit.

    >>> unit_of("/system.slice/ecs.service/inner"), unit_of("/docker/abc"), unit_of("/a.slice")
    ('ecs.service', None, None)

    A pattern stands for many units, so it has none:

    >>> unit_of("/system.slice/run-r*.scope") is None
    True
    """
    for part in reversed(path.split("/")):
        if part.endswith(_UNITS) and not part.endswith(".slice"):
            return None if "*" in part else part
    return None


def container(path: str) -> str | None:
    """The kind of container whose cgroup this is; `None` if it is not a known kind.

    >>> container("/docker/" + "0f" * 32), container("/system.slice/ssh.service")
    ('docker container', None)
    """
    if not _HINT.search(path):
        return None
    parts = path.strip("/").split("/")
    for index in range(len(parts) - 1, -1, -1):
        for kind, known in _RUNTIMES:
            if known.fullmatch(parts[index]):
                if kind != "container":
                    return kind
                home = next((_HOMES[part] for part in parts[:index] if part in _HOMES), None)
                pods = any(part.startswith("kubepods") for part in parts[:index])
                return home or ("Kubernetes container" if pods else kind)
    return None

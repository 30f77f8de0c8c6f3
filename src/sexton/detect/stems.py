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

Other names are random: ``tmp.Xy3kQ9`` of mktemp, ``job-wgjzp``. No rule tells such a name from
``database``, but many in one directory, each used once, are of one kind (`kinds`). Units keep their
names, so they are never that.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from sexton.detect.kubernetes.pods import POD, UID
from sexton.detect.registry import Threshold
from sexton.model.rows.cgroup import CgroupDir
from sexton.model.window import Window

RANDOM = Threshold(
    "random names",
    10,
    "names in one directory, each used once",
    "a handful of daemons have names of their own; so many, each used once, are random",
)
#: All of a name up to its last word: ``tmp.`` of ``tmp.Xy3kQ9``, ``build-web-`` of ``build-web-x``.
_HEAD = re.compile(r".*[^A-Za-z0-9](?=[A-Za-z0-9]+\Z)")

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
    if _is_named(name):
        head, at, instance = name.partition("@")
        return _replace(_IDS, head) + at + (_replace(_NUMBERS, instance) if at else "")
    return _replace(_NUMBERS, name)


def is_named_unit(name: str) -> bool:
    """Whether a part of it is a unit with a name of its own, not a transient one or an instance.

    >>> [is_named_unit(name) for name in ("ssh.service/a", "run-17.service", "getty@tty1.service")]
    [True, False, False]
    """
    return any(_is_named(part) and "@" not in part for part in name.split("/"))


def _is_named(part: str) -> bool:
    return part.endswith(_NAMED_UNITS) and not part.startswith("run-")


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

    Of names without a common stem, what they begin with:

    >>> pattern(["tmp.Xy3kQ9", "tmp.hPGWcu", "tmp.biPKGS"])
    'tmp.*'
    """
    first, last = min(known := set(names)), max(known)
    if first == last:
        return first
    stem = path_stem(first)
    if stem == path_stem(last):
        return stem
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(letter for letter, _ in same) + "*"


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


class Kind(NamedTuple):
    """The deepest live directory above a dead cgroup, its name below that, and its stem."""

    path: str
    name: str
    stem: str


def kinds(window: Window, *sources: Iterable[str]) -> Callable[[str], Kind]:
    """A function from the path of a cgroup to its kind. `sources` are the paths of dead and new
    ones as each method knows them; several may know the same."""
    place = placer(window)
    used: Counter[str] = Counter()
    for paths in sources:
        used |= Counter(paths)
    known: dict[str, Kind] = {}
    alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for dead in used:
        path, name = place(dead)
        kind = known[dead] = Kind(path, name, path_stem(name))
        alike[path, kind.stem].append(dead)
    once: defaultdict[str, list[str]] = defaultdict(list)
    for (path, _), same in alike.items():
        if len(same) == 1 and used[same[0]] == 1 and not is_named_unit(known[same[0]].name):
            once[path] += same
    for same in once.values():
        for stem, dead in _random(same, known):
            known[dead] = known[dead]._replace(stem=stem)

    def of(dead: str) -> Kind:
        found = known.get(dead)
        if found is None:
            path, name = place(dead)
            found = known[dead] = Kind(path, name, path_stem(name))
        return found

    return of


def _random(once: list[str], known: dict[str, Kind]) -> Iterable[tuple[str, str]]:
    """Those of them whose names are random, each with its new stem."""
    if len(once) < RANDOM.value:
        return
    by_head: defaultdict[str, list[str]] = defaultdict(list)
    for dead in once:
        found = _HEAD.match(known[dead].name.removesuffix(".scope"))
        by_head[found[0] if found else ""].append(dead)
    rest = by_head.pop("", [])
    for head, same in by_head.items():
        if len(same) >= RANDOM.value:
            yield from ((f"{head}*", dead) for dead in same)
        else:
            rest += same
    if len(rest) >= RANDOM.value:
        yield from (("*", dead) for dead in rest)


def placer(window: Window) -> Callable[[str], tuple[str, str]]:
    """A function that splits the path of a dead cgroup at the deepest live directory."""
    rows = window.latest(CgroupDir)
    live = None if rows is None else {row.path for row in rows}

    def place(path: str) -> tuple[str, str]:
        parent, name = split(path)
        while live is not None and parent != "/" and parent not in live:
            parent, above = split(parent)
            name = f"{above}/{name}"
        return parent, name

    return place

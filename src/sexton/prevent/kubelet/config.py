"""Finds kubelet's configuration files and start flags on a node or in an image, and checks them.

``--config`` and ``--config-dir`` in kubelet's unit, its drop-ins and their environment files, or on
a live node the running process's command line, say which files kubelet reads. A relative path
starts at the process's working directory, or at the unit's ``WorkingDirectory=``. A process with a
root or mounts of its own has its own paths: its files are read below its root. The usual paths are
tried only if none of these names a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import Files, RootedFiles, exists, read_regular, text
from sexton.prevent.kubelet.checks import (
    ERROR,
    NOTE,
    WARNING,
    Flag,
    Problem,
    check_fields,
    check_settings,
)
from sexton.prevent.kubelet.tree import LibraryMissing, Node, TreeError, read_tree

#: Real files have a few kilobytes.
MOST_BYTES = 256 << 10
#: Problems reported per file; more than this is noise.
MOST_PROBLEMS = 100
#: kubeadm, EKS on Amazon Linux 2023 and 2, GKE, kOps and Kubespray, Bottlerocket, MicroK8s.
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
_PROGRAMS = ("/usr/bin/kubelet", "/usr/local/bin/kubelet", "/opt/bin/kubelet")
_ENVIRONMENTS = (
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/eks/kubelet/environment",
    "/etc/kubernetes/kubelet.env",
)
_FLAG = re.compile(r"(?<!\S)--?([A-Za-z][A-Za-z0-9-]*)(?:=(\S+)|[ \t]+(?=[^-\s])(\S+))?")
_DIRECTORY = re.compile(r"(?m)^WorkingDirectory=-?(/\S*)")
_FLAG_NAME = re.compile(r"--?([A-Za-z][A-Za-z0-9-]*)")
_LOST = "a relative path, and kubelet's working directory cannot be read or is gone"
#: What the kernel appends to the path of a removed directory.
_REMOVED = " (deleted)"
_MOST_FLAGS = 500
_MOST_DROP_INS = 50
_MOST_PROCESSES = 50_000


@dataclass(frozen=True, slots=True)
class KubeletFile:
    """One configuration file and its problems. `unread` says why it could not be read ("" if it
    was), `absent` that it does not exist; `named_by` says what pointed to it ("--config in …", "a
    usual path")."""

    path: str
    named_by: str
    format: str = ""
    text: str = field(default="", repr=False)
    tree: Node | None = field(default=None, repr=False)
    problems: tuple[Problem, ...] = ()
    unread: str = ""
    absent: bool = False


def inspect(host: Host, flags: list[Flag] | None = None) -> tuple[KubeletFile, ...]:
    """Every kubelet configuration file of a node or an image, checked; empty if there is none.

    A file that a flag names but that does not exist is `unread`: many images create theirs at first
    boot.
    """
    known = flags_of(host) if flags is None else flags
    lost = {flag.value: flag for flag in known if _is_lost(flag)}
    return (
        *(_inspect(host, place) for place in config_paths(known, host.files)),
        *(KubeletFile(value, _named_by(flag), unread=_LOST) for value, flag in lost.items()),
        *(KubeletFile(path, "kubelet's flags", unread=why) for path, why in _unread(host.files)),
    )


def _unread(files: Files) -> Iterator[tuple[str, str]]:
    """Files that may hold kubelet's flags, and thus name its configuration, but cannot be read."""
    for path in _start_files(files):
        try:
            read_regular(files, path, MOST_BYTES)
        except SourceAbsent:
            continue
        except SourceError as error:
            yield path, error.detail or "cannot be read"


def _inspect(host: Host, place: ConfigPath) -> KubeletFile:
    path, named_by, root = place
    try:
        with _below(host.files, root) as files:
            content = read_regular(files, path.removeprefix(root), MOST_BYTES).decode("utf-8")
    except SourceAbsent:
        why = "not found" if host.live else "not found (created at first boot?)"
        return KubeletFile(path, named_by, unread=why, absent=True)
    except SourceError as error:
        return KubeletFile(path, named_by, unread=error.detail or "cannot be read")
    except UnicodeDecodeError:
        wrong = Problem(ERROR, "", "not UTF-8: kubelet refuses to start")
        return KubeletFile(path, named_by, problems=(wrong,))
    return judge(content, path, named_by)


@contextmanager
def _below(files: Files, root: str) -> Iterator[Files]:
    """The files of a process with this root ("": ours): an absolute link there starts at it."""
    if not root:
        yield files
        return
    rooted = RootedFiles(root)
    try:
        yield rooted
    finally:
        rooted.close()


def judge(text: str, path: str, named_by: str = "given") -> KubeletFile:
    """Check the text of one configuration file.

    >>> file = judge('{"kind": "KubeletConfiguration", "cgroupVersion": "v2"}', "/k.json")
    >>> [problem.field for problem in file.problems if problem.level == "error"]
    ['apiVersion', 'cgroupVersion']
    """
    try:
        tree, form = read_tree(text)
    except LibraryMissing as error:
        return KubeletFile(path, named_by, unread=str(error))
    except TreeError as error:
        wrong = Problem(ERROR, "", f"{error}: kubelet refuses to start", error.line)
        return KubeletFile(path, named_by, text=text, problems=(wrong,))
    # Finding the closest match for each of ten thousand unknown fields would take minutes.
    problems = list(islice(chain(check_fields(tree), check_settings(tree)), MOST_PROBLEMS + 1))
    order = {ERROR: 0, WARNING: 1, NOTE: 2}
    problems.sort(key=lambda problem: (order[problem.level], problem.line))
    if len(problems) > MOST_PROBLEMS:
        problems[-1] = Problem(ERROR, "", f"more than {MOST_PROBLEMS} problems: checking stopped")
    return KubeletFile(path, named_by, form, text, tree, tuple(problems))


def flags_of(host: Host) -> list[Flag]:
    """Every flag kubelet is, or will be, started with; flags of the running process first."""
    found = list(_running_flags(host)) if host.live else []
    directory = "/"  # systemd's own default
    for path in _start_files(host.files):
        try:
            content = read_regular(host.files, path, MOST_BYTES).decode("utf-8", "surrogateescape")
        except SourceError:  # a missing flag is no error; the configuration file may still be found
            continue
        if changed := _DIRECTORY.findall(content):
            directory = changed[-1]
        found += [Flag(*flag, path, directory) for flag in parse_flags(content)]
    return found[:_MOST_FLAGS]


def parse_flags(content: str) -> list[tuple[str, str]]:
    """Flags as written in a unit or an environment file, quoted or not.

    >>> parse_flags('KUBELET_ARGS="--config=/etc/k.yaml --v 2"\\n# --config=/no')
    [('config', '/etc/k.yaml'), ('v', '2')]
    """
    kept = [line for line in content.splitlines() if not line.lstrip().startswith(("#", ";"))]
    joined = "\n".join(kept).replace("\\\n", " ")
    plain = joined.replace('"', " ").replace("'", " ")
    plain = re.sub(r"(?m)^\w+=|\b[A-Za-z_]\w*=(?=\s*--)", " ", plain)  # variable names
    plain = re.sub(r"\b[A-Za-z_]\w*=(?=\s*--)", " ", plain)  # and those in Environment="A=…"
    return [(name, first or second) for name, first, second in _FLAG.findall(plain)]


class ConfigPath(NamedTuple):
    """A configuration file, what names it, and the root it is below ("": ours)."""

    path: str
    named_by: str
    root: str = ""


def config_paths(flags: list[Flag], files: Files) -> list[ConfigPath]:
    """Configuration files of kubelet; drop-ins after the main file."""
    found: dict[str, ConfigPath] = {}
    for flag in flags:
        if flag.name == "config" and _is_path(flag) and flag.path is not None:
            found.setdefault(flag.path, ConfigPath(flag.path, _named_by(flag), flag.root))
    for flag in flags:
        if flag.name == "config-dir" and _is_path(flag) and flag.path is not None:
            for path in _drop_ins(files, flag.path, flag.root):
                found.setdefault(path, ConfigPath(path, _named_by(flag), flag.root))
    if not found and not any(map(_is_lost, flags)):
        return [ConfigPath(path, "a usual path") for path in USUAL if _may_exist(files, path)]
    return list(found.values())


def _drop_ins(files: Files, directory: str, root: str) -> list[str]:
    try:
        with _below(files, root) as inside:
            return [root + path for path in _conf_files(inside, directory.removeprefix(root))]
    except SourceAbsent:  # the process exited
        return []


def _is_path(flag: Flag) -> bool:
    """Variables of a unit are not expanded here: the files that set them are read as well."""
    return bool(flag.value) and "$" not in flag.value


def _is_lost(flag: Flag) -> bool:
    return flag.name in ("config", "config-dir") and _is_path(flag) and flag.path is None


def _named_by(flag: Flag) -> str:
    return f"--{flag.name} in {flag.read_from}"


def is_installed(host: Host) -> bool:
    """Whether the host has a kubelet unit or program."""
    return any(_may_exist(host.files, path) for path in (*_UNITS, *_PROGRAMS))


def _may_exist(files: Files, path: str) -> bool:
    """Whether it exists; also true if permission is denied: reading it then reports that."""
    try:
        return exists(files, path)
    except SourceError:
        return True


def _start_files(files: Files) -> Iterator[str]:
    """Unit files, drop-ins and environment files that may hold kubelet's flags."""
    for unit in _UNITS:
        if _may_exist(files, unit):
            yield unit
        yield from _conf_files(files, f"{unit}.d")
    yield from (path for path in _ENVIRONMENTS if _may_exist(files, path))


def _conf_files(files: Files, directory: str) -> list[str]:
    """``*.conf`` in a drop-in directory, sorted by name as systemd and kubelet read them; the
    directory itself if it cannot be listed, so that reading it reports that."""
    try:
        names = sorted(files.names(directory))
    except SourceAbsent:
        return []
    except SourceError:
        return [directory]
    kept = [name for name in names if name.endswith(".conf")][:_MOST_DROP_INS]
    return [f"{directory.rstrip('/')}/{name}" for name in kept]


def running(host: Host) -> list[str]:
    """The process ids of the kubelets that run here."""
    if not host.live:
        return []
    try:
        pids = [name for name in host.files.names("/proc") if name.isdigit()][:_MOST_PROCESSES]
    except SourceError:
        return []
    return [pid for pid in pids if _is_kubelet(host.files, pid)]


def _is_kubelet(files: Files, pid: str) -> bool:
    try:
        return text(files, f"/proc/{pid}/comm", 64) == "kubelet\n"
    except SourceError:  # it exited
        return False


def _running_flags(host: Host) -> Iterator[Flag]:
    for pid in running(host):
        try:
            line = host.files.read(f"/proc/{pid}/cmdline", MOST_BYTES)
        except SourceError:  # it exited, or we may not read it
            continue
        directory, root = _place(host.files, pid)
        words = line.decode("utf-8", "surrogateescape").split("\0")[1:]
        for name, value in _flags_in(words):
            yield Flag(name, value, f"command line of kubelet[{pid}]", directory, root)


def _flags_in(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags of a command line, whose words may contain spaces.

    >>> list(_flags_in(["--config", "/a b.yaml", "-v=2", "--windows-service"]))
    [('config', '/a b.yaml'), ('v', '2'), ('windows-service', '')]
    """
    for word, after in zip(words, [*words[1:], "-"], strict=True):
        flag, equals, value = word.partition("=")
        if (named := _FLAG_NAME.fullmatch(flag)) is not None:
            yield named[1], value if equals or after.startswith("-") else after


def _place(files: Files, pid: str) -> tuple[str | None, str]:
    """Where relative and absolute paths of a process start, as paths of this host.

    With other mounts than ours (a container) that is below ``/proc/PID/root``; the kernel gives its
    working directory as a path of those mounts.
    """
    directory, root, mounts, ours = (
        _link(files, f"/proc/{one}")
        for one in (f"{pid}/cwd", f"{pid}/root", f"{pid}/ns/mnt", "self/ns/mnt")
    )
    root = (root or "").rstrip("/")
    if directory is not None and f"{directory}/".startswith(f"{root}/"):
        inside = directory.removeprefix(root)
    else:
        inside = None
    if mounts is not None and mounts != ours:
        root = f"/proc/{pid}/root"
    if inside is None or _is_removed(files, inside, root):
        return None, root
    return root + inside, root


def _is_removed(files: Files, directory: str, root: str) -> bool:
    """Whether a working directory is gone; " (deleted)" may also be a part of its name."""
    if not directory.endswith(_REMOVED):
        return False
    try:
        with _below(files, root) as inside:
            return not exists(inside, directory)
    except SourceError:
        return True


def _link(files: Files, path: str) -> str | None:
    try:
        return files.link(path)
    except SourceError:
        return None

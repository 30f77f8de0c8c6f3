"""Kubelet's configuration: found, checked against the fields there really are, and corrected."""

from __future__ import annotations

from itertools import chain, islice

from sexton.errors import SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.prevent.kubelet.correction import corrected
from sexton.prevent.kubelet.harm import harm, harmful_flags
from sexton.prevent.kubelet.model import ERROR, NOTE, WARNING, Flag, KubeletFile, Problem
from sexton.prevent.kubelet.places import config_paths, flags_of, present
from sexton.prevent.kubelet.shape import shape
from sexton.prevent.kubelet.tree import LibraryMissing, TreeError, read_tree

__all__ = (
    "ERROR", "NOTE", "WARNING", "Flag", "KubeletFile", "Problem", "corrected", "flags_of",
    "harmful_flags", "inspect", "judge", "present",
)  # fmt: skip

#: A real one has a few kilobytes.
MOST_BYTES = 256 << 10
#: More than this of one file is noise: the first hundred are told.
MOST_PROBLEMS = 100


def inspect(host: Host, flags: list[Flag] | None = None) -> tuple[KubeletFile, ...]:
    """Every kubelet configuration of a node or an image, judged; empty where there is none.

    A file that is named and is not there is told as `unread`: an image often gets its own at first
    boot, and then nothing can be said of it here.
    """
    known = flags_of(host) if flags is None else flags
    return tuple(_look(host, path, by) for path, by in config_paths(known, host.files))


def _look(host: Host, path: str, named_by: str) -> KubeletFile:
    try:
        content = host.files.read(path, MOST_BYTES).decode("utf-8")
    except SourceAbsent:
        return KubeletFile(path, named_by, unread="it is not there (made at first boot?)")
    except SourceError as error:
        return KubeletFile(path, named_by, unread=error.detail or "it cannot be read")
    except UnicodeDecodeError:
        wrong = Problem(ERROR, "", "this is no UTF-8 text: kubelet refuses to start")
        return KubeletFile(path, named_by, problems=(wrong,))
    return judge(content, path, named_by)


def judge(text: str, path: str, named_by: str = "given") -> KubeletFile:
    """One configuration's text.

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
    # Looking for what each of ten thousand fields may have meant would take minutes.
    problems = list(islice(chain(shape(tree), harm(tree)), MOST_PROBLEMS + 1))
    order = {ERROR: 0, WARNING: 1, NOTE: 2}
    problems.sort(key=lambda each: (order[each.level], each.line))
    if len(problems) > MOST_PROBLEMS:
        problems[-1] = Problem(ERROR, "", "and more: not looked at any further")
    return KubeletFile(path, named_by, form, text, tree, tuple(problems))

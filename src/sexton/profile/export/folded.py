r"""Folded stacks: ``comm;root;…;leaf N``, as ``stackcollapse-perf.pl`` writes them.

One line per stack and its samples, sorted; equal names in different modules are one, and what has
no name is called by its module, ``[libfoo.so]``, as there. What would break a line is replaced:
``;`` in a name by ``:`` (it parts frames), a line's first ``#`` by ``_`` (it makes a comment), and
control and other invisible characters by their escapes (a newline is ``\n``). With `annotate`
kernel frames end in ``_[k]``, which flamegraph.pl colours.
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.model.flame import Flame
from sexton.model.profile import UNKNOWN, Kind
from sexton.profile.export.about import paths, shown, shown_names

_PIECE = 1 << 12


def from_flame(flame: Flame, annotate: bool = False) -> Iterator[bytes]:
    """The lines, some thousand at a time."""
    frames = flame.tree.frames
    names = [name.replace(";", ":") for name in shown_names(frames)]
    for at, module in enumerate(frames.modules):
        if frames.names[at] == UNKNOWN and module and module != UNKNOWN:
            names[at] = f"[{_file(module)}]"
    if annotate:
        kernel = (frames.kinds == Kind.KERNEL).tolist()
        names = [f"{name}_[k]" if kernel[at] else name for at, name in enumerate(names)]
    counts: dict[str, int] = {}
    own = flame.own.tolist()
    for node, path in paths(flame.tree, flame.own > 0):
        # Samples of no stack at all end in the root itself, which has no name of its own.
        stack = ";".join([names[frame] for frame in path or [int(flame.tree.frame[0])]])
        if stack.startswith("#"):
            stack = f"_{stack[1:]}"
        counts[stack] = counts.get(stack, 0) + own[node]
    lines = [f"{stack} {count}\n" for stack, count in sorted(counts.items())]
    for at in range(0, len(lines), _PIECE):
        yield "".join(lines[at : at + _PIECE]).encode()


def _file(module: str) -> str:
    """A module's own name; what is no file stands in brackets already."""
    name = module.removesuffix(" (deleted)").rpartition("/")[2]
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return shown(name).replace(";", ":")

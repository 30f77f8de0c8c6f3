r"""Folded stacks: ``comm;root;…;leaf N``, as ``stackcollapse-perf.pl`` writes them.

One line per stack, sorted. Equal names in different modules are merged, and a function without a
name is shown as its module, ``[libfoo.so]``. Characters that would break a line are replaced: ``;``
in a name by ``:`` (frame separator), ``#`` at the start of a line by ``_`` (comment), and control
and other invisible characters by escapes (newline: ``\n``). With `annotate` kernel frames end in
``_[k]``, which flamegraph.pl colours.
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.model.profile import UNKNOWN, Flame, Kind
from sexton.profile.export import paths, shown, shown_names

_PIECE = 1 << 12


def from_flame(flame: Flame, annotate: bool = False) -> Iterator[bytes]:
    """The lines, a few thousand at a time."""
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
        # Samples without a stack end in the root.
        stack = ";".join([names[frame] for frame in path or [int(flame.tree.frame[0])]])
        if stack.startswith("#"):
            stack = f"_{stack[1:]}"
        counts[stack] = counts.get(stack, 0) + own[node]
    lines = [f"{stack} {count}\n" for stack, count in sorted(counts.items())]
    for at in range(0, len(lines), _PIECE):
        yield "".join(lines[at : at + _PIECE]).encode()


def _file(module: str) -> str:
    """The file name of a module, without brackets."""
    name = module.removesuffix(" (deleted)").rpartition("/")[2]
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return shown(name).replace(";", ":")

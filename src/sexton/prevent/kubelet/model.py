"""What is said of a kubelet's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from sexton.model.text import printable, shorten
from sexton.prevent.kubelet.tree import Node

#: An error keeps kubelet from starting or undoes what was meant; a warning hurts the node;
#: a note is worth knowing.
ERROR, WARNING, NOTE = "error", "warning", "note"
#: A file may hold a key of any length.
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Fix:
    """How the corrected file differs, at the top-level field `name` or inside it at `path`.

    `kind`: "remove" the field, "rename" it to `value`, "set" it to the YAML text `value`, or
    "add" it with that text.
    """

    kind: str
    path: tuple[str, ...]
    value: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. `field` is its dotted path ("evictionHard.memory.available"), `line` from 1, 0
    where it is about what is not there; `nearest` the real field an unknown one may have meant."""

    level: str
    field: str
    message: str
    line: int = 0
    nearest: str = ""
    fix: Fix | None = None

    def __post_init__(self) -> None:
        for name in ("field", "message"):
            told = shorten(printable(getattr(self, name)), _LONGEST)
            object.__setattr__(self, name, told)


@dataclass(frozen=True, slots=True)
class KubeletFile:
    """One configuration file, judged. `unread` says why there is nothing to judge, "" where
    there is; `named_by` is what led us to it ("--config in …", "a usual place")."""

    path: str
    named_by: str
    format: str = ""
    text: str = field(default="", repr=False)
    tree: Node | None = field(default=None, repr=False)
    problems: tuple[Problem, ...] = ()
    unread: str = ""

    @property
    def broken(self) -> bool:
        """Was it read and found to be no configuration at all?"""
        return self.tree is None and not self.unread


@dataclass(frozen=True, slots=True)
class Flag:
    """A kubelet flag as some file or process has it."""

    name: str
    value: str
    read_from: str

    def __post_init__(self) -> None:
        for name in ("name", "value", "read_from"):
            object.__setattr__(self, name, printable(getattr(self, name)))

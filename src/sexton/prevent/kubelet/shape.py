"""Is every field one that kubelet knows, and is every value of its kind?

An unknown field is *ignored* by kubelet, with one line in its log ("Using lenient decoding as
strict decoding failed"): what somebody wanted is silently not so. A value of the wrong kind makes
it refuse to start ("failed to decode: json: cannot unmarshal …").
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sexton.model.text import printable, shorten
from sexton.prevent.kubelet.fields import (
    ANY,
    API_VERSION,
    AS_OF,
    BOOL,
    DURATION,
    FIELDS,
    FLOAT,
    GATES,
    INT,
    INTS,
    INVENTED,
    INVENTED_GATES,
    KIND,
    LISTS,
    MEANT,
    QUANTITIES,
    STRING,
    STRINGS,
    Field,
)
from sexton.prevent.kubelet.model import ERROR, NOTE, Fix, Problem
from sexton.prevent.kubelet.tree import Entry, Node
from sexton.prevent.kubelet.units import duration

_REFUSES = "kubelet refuses to start"
_WORDS = {
    STRING: "text",
    BOOL: "true or false",
    INT: "a whole number",
    FLOAT: "a number",
    DURATION: 'a duration such as "10s"',
    STRINGS: "a list of texts",
    INTS: "a list of whole numbers",
    QUANTITIES: "a map of texts to texts",
    GATES: "a map of names to true or false",
    LISTS: "a map of names to lists of texts",
    "object": "a map",
    "objects": "a list of maps",
}


def shape(tree: Node) -> Iterator[Problem]:
    """Everything that is wrong with the form of a configuration."""
    if tree.entries is None:
        yield Problem(ERROR, "", f"this is no map of fields: {_REFUSES}", tree.line)
        return
    yield from _head(tree.entries)
    for problem in _mapping(tree.entries, FIELDS, ()):
        # An item of a list has no line of its own to be mended in.
        listed = problem.fix is not None and any(part.endswith("]") for part in problem.fix.path)
        yield replace(problem, fix=None) if listed else problem


def _head(entries: dict[str, Entry]) -> Iterator[Problem]:
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        entry = entries.get(name)
        if entry is None:
            message = f"{name} is missing: {_REFUSES} without {name}: {wanted}"
            yield Problem(ERROR, name, message, 0, "", Fix("add", (name,), wanted))
        elif entry.node.value != wanted:
            found = _shown(entry.node)
            message = f"{name} is {found} and not {wanted}: {_REFUSES}"
            yield Problem(ERROR, name, message, entry.line, "", Fix("set", (name,), wanted))


def _mapping(
    entries: dict[str, Entry], known: dict[str, Field], path: tuple[str, ...]
) -> Iterator[Problem]:
    for name, entry in entries.items():
        here = (*path, name)
        if name not in known:
            yield _unknown(here, entry, known)
        else:
            yield from _value(entry.node, known[name], here, entry.line)


def _unknown(path: tuple[str, ...], entry: Entry, known: dict[str, Field]) -> Problem:
    name = path[-1]
    where = f"{'.'.join(path[:-1])} of " if len(path) > 1 else ""
    told = f"no field of {where}{KIND} v1beta1 (list of {AS_OF}): kubelet ignores it"
    taken = {each for each in known if each != name}
    same = next((each for each in taken if _folded(each) == _folded(name)), "")
    nearest = same or next(iter(difflib.get_close_matches(name, sorted(taken), 1, 0.75)), "")
    invented = INVENTED.get(name) if len(path) == 1 else None
    if invented is not None:
        nearest = MEANT.get(name, "")
        message = f"{told}; {invented}"
    elif nearest:
        message = f"{told}; did you mean {nearest}?"
    else:
        message = told
    # Renamed only where nothing but the spelling differs; a guess must not set anything.
    sure = same or MEANT.get(name, "")
    fix = Fix("rename", path, sure) if sure else Fix("remove", path)
    return Problem(ERROR, ".".join(path), message, entry.line, nearest, fix)


def _folded(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _value(node: Node, field: Field, path: tuple[str, ...], line: int) -> Iterator[Problem]:
    name = ".".join(path)
    if field.idle and node.value is not None:
        yield Problem(NOTE, name, f"{field.idle}", line, "", Fix("remove", path))
    empty = node.value is None and node.entries is None and node.items is None
    if empty or field.kind == ANY:  # null is "not set", for every kind
        return
    if not _fits(node, field.kind):
        message = f"{_shown(node)} is not {_WORDS[field.kind]}: {_REFUSES}"
        yield Problem(ERROR, name, message, line, "", _mended(node, field.kind, path))
        return
    if node.entries is not None and field.kind == "object":
        yield from _mapping(node.entries, field.fields, path)
    elif node.entries is not None:
        yield from _map(node.entries, field.kind, path)
    elif node.items is not None:
        yield from _list(node.items, field, path)
    else:
        yield from _bounds(node, field, path, line)


def _fits(node: Node, kind: str) -> bool:
    value = node.value
    if kind in (QUANTITIES, GATES, LISTS, "object"):
        return node.entries is not None
    if kind in (STRINGS, INTS, "objects"):
        return node.items is not None
    if node.entries is not None or node.items is not None:
        return False
    if kind == BOOL:
        return isinstance(value, bool)
    if kind == INT:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == FLOAT:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) and (kind != DURATION or duration(value) is not None)


def _mended(node: Node, kind: str, path: tuple[str, ...]) -> Fix | None:
    """Where only quotation marks are missing, or are too many."""
    value = node.value
    if kind == STRING and isinstance(value, int | float) and not isinstance(value, bool):
        return Fix("set", path, f'"{value}"')
    if kind == BOOL and isinstance(value, str) and value in ("true", "false"):
        return Fix("set", path, value)
    if kind == INT and isinstance(value, str) and value.isascii() and value.isdigit():
        return Fix("set", path, value)
    return None


def _map(entries: dict[str, Entry], kind: str, path: tuple[str, ...]) -> Iterator[Problem]:
    for name, entry in entries.items():
        here = (*path, name)
        if kind == GATES:
            if name in INVENTED_GATES:
                message = f"{INVENTED_GATES[name]}: {_REFUSES} with an unknown gate"
                yield Problem(ERROR, ".".join(here), message, entry.line, "", Fix("remove", here))
                continue
            inner = BOOL
        else:
            inner = STRING if kind == QUANTITIES else STRINGS
        yield from _value(entry.node, Field(inner), here, entry.line)


def _list(items: list[Node], field: Field, path: tuple[str, ...]) -> Iterator[Problem]:
    for number, item in enumerate(items):
        here = (*path[:-1], f"{path[-1]}[{number}]")
        if field.kind == "objects":
            if item.entries is None:
                message = f"{_shown(item)} is not a map: {_REFUSES}"
                yield Problem(ERROR, ".".join(here), message, item.line)
            else:
                yield from _mapping(item.entries, field.fields, here)
            continue
        inner = Field(INT if field.kind == INTS else STRING, choices=field.choices)
        yield from _value(item, inner, here, item.line)


def _bounds(node: Node, field: Field, path: tuple[str, ...], line: int) -> Iterator[Problem]:
    value: Any = node.value
    name = ".".join(path)
    if field.choices and value != "" and value not in field.choices:  # "" is "not set"
        allowed = ", ".join(each or '""' for each in field.choices)
        yield Problem(ERROR, name, f"{_shown(node)} is none of {allowed}: {_REFUSES}", line)
    least, most = field.least, field.most
    if least is not None and value < least:
        yield Problem(ERROR, name, f"{value} is less than {least:g}: {_REFUSES}", line)
    if most is not None and value > most:
        yield Problem(ERROR, name, f"{value} is more than {most:g}: {_REFUSES}", line)


def _shown(node: Node) -> str:
    if node.entries is not None:
        return "a map"
    if node.items is not None:
        return "a list"
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    text = shorten(printable(str(node.value)), 40)
    return f'"{text}"' if isinstance(node.value, str) else text

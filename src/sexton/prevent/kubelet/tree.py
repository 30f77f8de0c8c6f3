"""Parses untrusted YAML or JSON into values with line numbers.

Uses PyYAML's *events*, not its loader: the loader recurses as deep as the file does, keeps the last
of two equal keys, and expands aliases (billion laughs). Here depth and size are bounded, a
duplicate key is an error (as in kubelet), and aliases are refused: no kubelet configuration needs
one.

Scalars follow YAML 1.1 (``yes`` is true), as in kubelet's parser.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sexton.errors import SextonError
from sexton.model.text import printable, shorten

#: Real files have three levels and about a hundred values.
MOST_DEPTH = 20
MOST_NODES = 20_000
NEEDS_YAML = "PyYAML is required for YAML: pip install 'sexton[gate]'"

Scalar = str | int | float | bool | None


class TreeError(SextonError):
    """The text cannot be parsed; `line` counts from 1, 0 if unknown."""

    def __init__(self, detail: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {detail}" if line else detail)
        self.line = line


class LibraryMissing(TreeError):
    """The text is YAML and PyYAML is not installed."""


class Entry(NamedTuple):
    """One key of a mapping: its line, its value, and the line after its end."""

    line: int
    node: Node
    end: int


@dataclass(slots=True)
class Node:
    """`value` is a scalar, or `None` beside `entries` (a mapping) or `items` (a list).

    `block` is true for a mapping written with one key per line.
    """

    line: int
    value: Scalar = None
    entries: dict[str, Entry] | None = None
    items: list[Node] | None = None
    block: bool = False

    @property
    def plain(self) -> Any:
        """The value without line numbers."""
        if self.entries is not None:
            return {key: entry.node.plain for key, entry in self.entries.items()}
        if self.items is not None:
            return [item.plain for item in self.items]
        return self.value


def read_tree(text: str) -> tuple[Node, str]:
    """The document and its format, "json" or "yaml"; `TreeError` if it is neither."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            return _json(text), "json"
        except json.JSONDecodeError as error:
            # A YAML flow mapping starts the same way; if both fail, report the JSON error.
            try:
                return _yaml(text), "yaml"
            except TreeError:
                raise TreeError(f"invalid JSON: {error.msg}", error.lineno) from None
    return _yaml(text), "yaml"


def _json(text: str) -> Node:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in found:
            if key in values:
                raise TreeError(f"{_shown(key)} is a duplicate key", _line_of(text, key))
            values[key] = value
        return values

    def refuse(word: str) -> float:
        raise TreeError(f"{word} is not valid in JSON")

    if text.count("{") + text.count("[") > MOST_NODES:
        raise TreeError(f"more than {MOST_NODES:,} values")
    try:
        value = json.loads(
            text.lstrip("\ufeff"), object_pairs_hook=pairs, parse_constant=refuse, parse_int=_whole
        )
    except RecursionError:
        raise TreeError(f"more than {MOST_DEPTH} levels deep") from None
    return _JsonNodes(text).node(value, 1, 0)


class _JsonNodes:
    """JSON values as nodes; a key's line is found by searching the text for it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = 0
        self.at = 0
        self.line = 1

    def node(self, value: Any, line: int, depth: int) -> Node:
        self.nodes += 1
        if depth > MOST_DEPTH:
            raise TreeError(f"more than {MOST_DEPTH} levels deep", line)
        if self.nodes > MOST_NODES:
            raise TreeError(f"more than {MOST_NODES:,} values", line)
        if isinstance(value, dict):
            entries = {}
            for key, inner in value.items():
                place = self.find(key) or line
                node = self.node(inner, place, depth + 1)
                entries[key] = Entry(place, node, place + 1)
            return Node(line, entries=entries)
        if isinstance(value, list):
            return Node(line, items=[self.node(item, line, depth + 1) for item in value])
        return Node(line, value=value)

    def find(self, key: str) -> int:
        """The line of the next occurrence of `key`; keys come in the order of the text."""
        found = self.text.find(json.dumps(key, ensure_ascii=False), self.at)
        if found < 0:
            return 0
        self.line += self.text.count("\n", self.at, found)
        self.at = found + 1
        return self.line


def _line_of(text: str, key: str) -> int:
    found = text.rfind(json.dumps(key, ensure_ascii=False))
    return text.count("\n", 0, found) + 1 if found >= 0 else 0


def _whole(digits: str) -> int:
    if len(digits) > 30:  # Python raises ValueError at 4,300 digits
        raise TreeError(f"a number with {len(digits):,} digits")
    return int(digits)


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been read yet."""

    node: Node
    key: tuple[str, int] | None = None
    lines: list[tuple[str, int]] = field(default_factory=list)


class _Builder:
    """Nodes from YAML events, without recursion."""

    def __init__(self, resolve: Callable[[Any], Scalar]) -> None:
        self.resolve = resolve
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.nodes = 0

    def scalar(self, event: Any) -> None:
        node = Node(event.start_mark.line + 1, value=self.resolve(event))
        holder = self.stack[-1] if self.stack else None
        if holder is not None and holder.node.entries is not None and holder.key is None:
            # kubelet's parser turns every key into a string; an empty one is an error.
            if not event.value:
                raise TreeError("empty key", node.line)
            if event.value in holder.node.entries:
                raise TreeError(f"{_shown(event.value)} is a duplicate key", node.line)
            holder.key = (event.value, node.line)
            return
        self._place(node)

    def begin(self, event: Any, mapping: bool) -> None:
        line = event.start_mark.line + 1
        if event.tag and event.tag.rpartition(":")[2] not in ("map", "seq"):
            raise TreeError(f"the tag {_shown(event.tag)} is not supported", line)
        if len(self.stack) >= MOST_DEPTH:
            raise TreeError(f"more than {MOST_DEPTH} levels deep", line)
        if self.stack and self.stack[-1].node.entries is not None and self.stack[-1].key is None:
            raise TreeError("a key must be a string", line)
        node = Node(line, entries={} if mapping else None, items=None if mapping else [])
        node.block = mapping and not event.flow_style
        self.stack.append(_Open(node))

    def end(self, event: Any) -> None:
        closed = self.stack.pop()
        node = closed.node
        if node.entries is not None:
            ends = [line for _, line in closed.lines[1:]] + [event.end_mark.line + 1]
            for (key, line), end in zip(closed.lines, ends, strict=False):  # {} has only an end
                node.entries[key] = Entry(line, node.entries[key].node, max(end, line + 1))
        self._place(node)

    def _place(self, node: Node) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise TreeError(f"more than {MOST_NODES:,} values", node.line)
        if not self.stack:
            self.root = node
            return
        holder = self.stack[-1]
        if holder.node.items is not None:
            holder.node.items.append(node)
            return
        assert holder.node.entries is not None
        assert holder.key is not None
        key, line = holder.key
        holder.node.entries[key] = Entry(line, node, line + 1)
        holder.lines.append((key, line))
        holder.key = None


def _yaml(text: str) -> Node:
    try:
        import yaml
    except ImportError:
        raise LibraryMissing(NEEDS_YAML) from None
    builder = _Builder(_resolver(yaml))
    documents = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise TreeError("more than one document", event.start_mark.line + 1)
            elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise TreeError("anchors and aliases are not supported", event.start_mark.line + 1)
            elif isinstance(event, yaml.ScalarEvent):
                builder.scalar(event)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                builder.begin(event, isinstance(event, yaml.MappingStartEvent))
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                builder.end(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        detail = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise TreeError(
            f"invalid YAML: {printable(detail)}", mark.line + 1 if mark else 0
        ) from None
    except RecursionError:
        raise TreeError(f"more than {MOST_DEPTH} levels deep") from None
    if builder.root is None:
        raise TreeError("empty document")
    return builder.root


def _resolver(yaml: Any) -> Callable[[Any], Scalar]:
    """Resolves scalars by the rules of YAML 1.1; dates and other types stay strings."""
    loader = yaml.SafeLoader("")

    def resolve(event: Any) -> Scalar:
        tag = event.tag or loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        kind = tag.rpartition(":")[2]
        text: str = event.value
        if event.tag and kind not in ("str", "bool", "int", "float", "null"):
            raise TreeError(
                f"the tag {_shown(event.tag)} is not supported", event.start_mark.line + 1
            )
        if kind not in ("bool", "int", "float", "null"):
            return text
        if kind == "int" and len(text) > 30:
            raise TreeError(f"a number with {len(text):,} digits", event.start_mark.line + 1)
        node = yaml.ScalarNode(f"tag:yaml.org,2002:{kind}", text, event.start_mark, event.end_mark)
        try:
            value: Scalar = loader.construct_object(node)
        except (ValueError, KeyError, IndexError):
            wrong = f"{_shown(text)} is not a valid {kind}"
            raise TreeError(wrong, event.start_mark.line + 1) from None
        return value

    return resolve


def _shown(text: str) -> str:
    return repr(shorten(printable(text), 40))

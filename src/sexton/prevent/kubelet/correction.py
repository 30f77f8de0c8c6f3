"""The corrected file: the same text, comments and order kept, with only the faults mended.

Every change is said in a comment above it, so that a reviewer sees what and why. What has no one
right answer (how much memory to reserve) is said at the top and left to its owner. A file whose
faults cannot be mended line by line (one-line maps) is written anew from its values, and the
changes are said at its top. JSON has no place for a word about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sexton.model.text import printable
from sexton.prevent.kubelet.model import ERROR, WARNING, Fix, KubeletFile, Problem
from sexton.prevent.kubelet.tree import Node, TreeError, read_tree

_HEAD = "# Corrected by sexton from {path}: {told}."


def corrected(file: KubeletFile) -> str | None:
    """The text of the corrected file; `None` where it could not be read at all."""
    if file.tree is None:
        return None
    if file.format == "json":
        mended = _mended(file.tree.plain, file.problems)
        return json.dumps(mended, indent=2, ensure_ascii=False) + "\n"
    by_lines = _by_lines(file)
    if by_lines is not None and _says(by_lines) == _mended(file.tree.plain, file.problems):
        return by_lines
    return _head(file) + _changes(file) + _anew(_mended(file.tree.plain, file.problems))


def _mended(values: Any, problems: Iterable[Problem]) -> Any:
    """The values with every fix applied: what the corrected text must say."""
    whole = json.loads(json.dumps(values))
    for problem in problems:
        if problem.fix is not None:
            _apply(whole, problem.fix)
    return whole


def _apply(whole: Any, fix: Fix) -> None:
    holder = whole
    for name in fix.path[:-1]:
        if not isinstance(holder, dict) or name not in holder:
            return  # inside a list, or already gone with what held it
        holder = holder[name]
    name = fix.path[-1]
    if not isinstance(holder, dict):
        return
    if fix.kind == "add":
        holder.setdefault(name, _read(fix.value))
    elif name in holder and fix.kind == "remove":
        del holder[name]
    elif name in holder and fix.kind == "set":
        holder[name] = _read(fix.value)
    elif name in holder and fix.kind == "rename" and fix.value not in holder:
        holder[fix.value] = holder.pop(name)


def _read(value: str) -> Any:
    """A fix's value as YAML would read it; fixes are ours, so few kinds are enough."""
    if value.startswith("\n"):
        pairs = (line.strip().split(": ", 1) for line in value.strip().splitlines())
        return {key: amount.strip('"') for key, amount in pairs}
    if value in ("true", "false"):
        return value == "true"
    if value.startswith('"'):
        return value.strip('"')
    return int(value) if value.lstrip("-").isdigit() else value


def _by_lines(file: KubeletFile) -> str | None:
    tree = file.tree
    if tree is None or tree.entries is None or not tree.block:
        return None
    lines = file.text.splitlines()
    above: dict[int, list[str]] = {}
    gone: set[int] = set()
    added: list[str] = []
    for problem in file.problems:
        fix = problem.fix
        if fix is None:
            continue
        note = f"# sexton: {_flat(f'{problem.field}: {problem.message}')}"
        if fix.kind == "add":
            added += [note, f"{fix.path[-1]}: {fix.value}"]
            continue
        place = _find(tree, fix.path)
        if place is None:
            return None
        line, end = place
        indent = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
        above.setdefault(line, []).append(indent + note)
        if fix.kind == "remove":
            for number in range(line, _trimmed(lines, line, end)):
                lines[number - 1] = f"# {lines[number - 1]}"  # nothing anybody wrote is lost
        elif fix.kind == "rename":
            lines[line - 1] = lines[line - 1].replace(fix.path[-1], fix.value, 1)
        else:
            gone.update(range(line + 1, _trimmed(lines, line, end)))
            gap = "" if fix.value.startswith("\n") else " "
            lines[line - 1] = f"{indent}{fix.path[-1]}:{gap}{fix.value}"
    told = [_head(file).rstrip("\n")]
    for number, line_text in enumerate(lines, 1):
        told += above.get(number, [])
        if number not in gone:
            told.append(line_text)
    return "\n".join([*told, *added]) + "\n"


def _find(tree: Node, path: tuple[str, ...]) -> tuple[int, int] | None:
    """The line of a key and the line after its value, if it stands on lines of its own."""
    node = tree
    found = None
    for name in path:
        if node.entries is None or not node.block or name not in node.entries:
            return None
        entry = node.entries[name]
        found = (entry.line, entry.end)
        node = entry.node
    return found


def _trimmed(lines: list[str], line: int, end: int) -> int:
    """Without the comments and empty lines before the next key: those are the next key's."""
    end = min(end, len(lines) + 1)
    while end > line + 1 and (
        not lines[end - 2].strip() or lines[end - 2].lstrip().startswith(("#", "...", "---"))
    ):
        end -= 1
    return end


def _head(file: KubeletFile) -> str:
    fixed = sum(problem.fix is not None for problem in file.problems)
    lines = [_HEAD.format(path=printable(file.path), told=f"{fixed} changed")]
    left = [p for p in file.problems if p.fix is None and p.level in (ERROR, WARNING)]
    if left:
        lines.append("# Left to you:")
        lines += [f"#   {_flat(f'{each.field}: {each.message}')}" for each in left]
    return "\n".join(lines) + "\n"


def _changes(file: KubeletFile) -> str:
    """All of them at the top, where the lines they stood on are no more."""
    fixed = [each for each in file.problems if each.fix is not None]
    lines = ["# Written anew from its values, without its comments. What was changed:"]
    lines += [f"#   {_flat(f'{each.field}: {each.message}')}" for each in fixed]
    return "\n".join(lines) + "\n" if fixed else ""


def _flat(text: str) -> str:
    return printable(text)


def _anew(values: Any) -> str:
    import yaml

    dumped: str = yaml.safe_dump(values, sort_keys=False, default_flow_style=False, width=1000)
    return dumped


def _says(text: str) -> Any:
    try:
        return read_tree(text)[0].plain
    except TreeError:
        return None

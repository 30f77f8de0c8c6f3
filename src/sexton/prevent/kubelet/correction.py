"""Writes a corrected kubelet configuration: same text, comments and order, problems fixed.

Each change has a comment above it that gives the reason. Problems without a single right answer
(how much memory to reserve) are listed at the top for the owner. A file that cannot be fixed line
by line (one-line maps) is rewritten from its values, with the changes listed at the top. JSON has
no comments, so there the changes are not listed.
"""

from __future__ import annotations

import json
from typing import Any

from sexton.model.text import count, printable
from sexton.prevent.kubelet.checks import ERROR, WARNING, Fix
from sexton.prevent.kubelet.config import KubeletFile
from sexton.prevent.kubelet.tree import Node, TreeError, read_tree


def corrected(file: KubeletFile) -> str | None:
    """The text of the corrected file; `None` if the original could not be parsed."""
    if file.tree is None:
        return None
    if file.format == "json":
        return json.dumps(_fixed(file), indent=2, ensure_ascii=False) + "\n"
    edited = _edit_lines(file)
    if edited is not None and _parse(edited) == _fixed(file):
        return edited
    return _head(file) + _changes(file) + _dump(_fixed(file))


def _fixed(file: KubeletFile) -> Any:
    """The values with every fix applied, which the corrected text must contain."""
    assert file.tree is not None
    whole = json.loads(json.dumps(file.tree.plain))
    for problem in file.problems:
        if problem.fix is not None:
            _apply(whole, problem.fix)
    return whole


def _apply(whole: Any, fix: Fix) -> None:
    holder = whole
    for name in fix.path[:-1]:
        if not isinstance(holder, dict) or name not in holder:
            return  # inside a list, or removed with its parent
        holder = holder[name]
    name = fix.path[-1]
    if not isinstance(holder, dict):
        return
    if fix.kind == "add":
        holder.setdefault(name, _value(fix.value))
    elif name in holder and fix.kind == "remove":
        del holder[name]
    elif name in holder and fix.kind == "set":
        holder[name] = _value(fix.value)
    elif name in holder and fix.kind == "rename" and fix.value not in holder:
        holder[fix.value] = holder.pop(name)


def _value(value: str) -> Any:
    """A fix's value as YAML would read it; our own fixes use only these types."""
    if value.startswith("\n"):
        pairs = (line.strip().split(": ", 1) for line in value.strip().splitlines())
        return {key: amount.strip('"') for key, amount in pairs}
    if value in ("true", "false"):
        return value == "true"
    if value.startswith('"'):
        return value.strip('"')
    return int(value) if value.lstrip("-").isdigit() else value


def _edit_lines(file: KubeletFile) -> str | None:
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
        note = f"# sexton: {printable(f'{problem.field}: {problem.message}')}"
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
                lines[number - 1] = f"# {lines[number - 1]}"  # kept as a comment
        elif fix.kind == "rename":
            lines[line - 1] = lines[line - 1].replace(fix.path[-1], fix.value, 1)
        else:
            gone.update(range(line + 1, _trimmed(lines, line, end)))
            gap = "" if fix.value.startswith("\n") else " "
            lines[line - 1] = f"{indent}{fix.path[-1]}:{gap}{fix.value}"
    output = [_head(file).rstrip("\n")]
    for number, line_text in enumerate(lines, 1):
        output += above.get(number, [])
        if number not in gone:
            output.append(line_text)
    return "\n".join([*output, *added]) + "\n"


def _find(tree: Node, path: tuple[str, ...]) -> tuple[int, int] | None:
    """The line of a key and the line after its value; `None` if it shares a line with others."""
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
    """Leave out comments and empty lines before the next key: they belong to that key."""
    end = min(end, len(lines) + 1)
    while end > line + 1 and (
        not lines[end - 2].strip() or lines[end - 2].lstrip().startswith(("#", "...", "---"))
    ):
        end -= 1
    return end


def _head(file: KubeletFile) -> str:
    fixed = sum(problem.fix is not None for problem in file.problems)
    lines = [f"# Corrected by sexton from {printable(file.path)}: {count(fixed, 'change')}."]
    left = [p for p in file.problems if p.fix is None and p.level in (ERROR, WARNING)]
    if left:
        lines.append("# Left for you to decide:")
        lines += [f"#   {printable(f'{problem.field}: {problem.message}')}" for problem in left]
    return "\n".join(lines) + "\n"


def _changes(file: KubeletFile) -> str:
    fixed = [problem for problem in file.problems if problem.fix is not None]
    lines = ["# Rewritten from its values, without its comments. Changes:"]
    lines += [f"#   {printable(f'{problem.field}: {problem.message}')}" for problem in fixed]
    return "\n".join(lines) + "\n" if fixed else ""


def _dump(values: Any) -> str:
    import yaml

    dumped: str = yaml.safe_dump(values, sort_keys=False, default_flow_style=False, width=1000)
    return dumped


def _parse(text: str) -> Any:
    try:
        return read_tree(text)[0].plain
    except TreeError:
        return None

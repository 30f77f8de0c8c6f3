"""Finds where code subtracts one reading from another, by reading the code.

Nothing says of a number in Python that it is a counter's. So this goes by where the two sides of a
subtraction come from, whatever they are called:

- the same field of two things: ``b.counter - a.counter``, ``getattr(b, name) - getattr(a, name)``,
  ``runs.times - sample.runs.times``;
- two elements of one collection, or an element and something made of the collection:
  ``points[-1][1] - points[0][1]``, what `pairwise` gives, ``value - mean``;
- a value and what another mapping holds under the same key: ``ms - counts.get(key, 0)``, or what a
  mapping that was kept holds under any: ``ms - self._seen[name]``, ``ms - before[name]``;
- two values whose names say that one is the earlier: ``last - first``, ``float(before) - now``;
- `np.diff` and its like.

Moments are left out, by name: their difference is a duration.

A counter's change divided by a time is a rate: `divisions` finds what is divided by `seconds`, by
`spent`, by what ends in `_s` or by a difference of moments, and calls of `percent_of`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

PAIRS = tuple(map(frozenset, (
    {"before", "after"}, {"earlier", "later"}, {"earlier", "row"}, {"first", "last"},
    {"old", "new"}, {"was", "now"}, {"then", "now"}, {"before", "now"}, {"previous", "current"},
)))  # fmt: skip
#: Names and fields that are moments; `cpu_time` is a counter, so these words count only alone.
_MOMENT = re.compile(
    r"(?:(?:.*_)?(?:mono|wall|start|begin|began|ended|now|moments?|died|deadline)|end|time|at)"
    r"(?:_(?:s|us|ms|ns|mono|wall))?"
)
#: Mappings that hold earlier readings.
_EARLIER = frozenset({"before", "earlier", "last", "old", "previous", "then", "was"})
_NUMPY = ("diff", "subtract", "ediff1d")
#: Calls that give back what they were given, a number or a collection of the same elements.
_SAME = frozenset({"abs", "float", "int", "round", "enumerate", "iter", "list", "pairwise",
                   "reversed", "sorted", "tuple", "zip"})  # fmt: skip
#: Methods that give a collection's elements.
_ELEMENTS = frozenset({"items", "values", "keys", "tolist", "copy"})
#: What makes one value of all elements.
_TOTALS = frozenset({"cumsum", "max", "mean", "median", "min", "next", "sum"})
#: Names and fields that are durations.
_SECONDS = re.compile(r"(?:.*_)?(?:seconds|spent|span|watched)(?:_s)?|.*_s")
_Roots = frozenset[str]
_NONE: _Roots = frozenset()


def subtractions(code: str) -> Iterator[str]:
    """The suspicious expressions of a module, in its order."""
    yield from _Scope({}, {}).of(ast.parse(code).body)


def divisions(code: str) -> Iterator[str]:
    """Expressions of a module that divide by a time, in its order."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            if _is_duration(node.right):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and _word(node) == "percent_of":
            yield ast.unparse(node)


def _is_duration(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_duration(node.value)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub):
            return _is_moment(node.left) and _is_moment(node.right)
        return _is_duration(node.left) or _is_duration(node.right)
    if isinstance(node, ast.Call) and _word(node) in ("max", "min"):
        return any(map(_is_duration, node.args))
    return _SECONDS.fullmatch(_word(node)) is not None


class _Scope:
    """Where the names of one function come from."""

    def __init__(self, roots: Mapping[str, _Roots], keyed: Mapping[str, str]) -> None:
        #: The collections that a name is an element of, or is made of.
        self._roots = dict(roots)
        #: Values of mappings, each with the name of its key.
        self._keyed = dict(keyed)
        #: What names were last set to.
        self._values: dict[str, ast.expr] = {}

    def of(self, nodes: Iterable[ast.AST]) -> Iterator[str]:
        for node in nodes:
            yield from self._visit(node)

    def _visit(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            body = node.body if isinstance(node.body, list) else [node.body]
            yield from _Scope(self._roots, self._keyed).of(body)
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for part in node.generators:
                yield from self._visit(part.iter)
                self._bind(part.target, part.iter)
                yield from self.of(part.ifs)
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            yield from self.of(parts)
            return
        if isinstance(node, ast.For | ast.AsyncFor):
            yield from self._visit(node.iter)
            self._bind(node.target, node.iter)
            yield from self.of([*node.body, *node.orelse])
            return
        yield from self.of(ast.iter_child_nodes(node))
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._assign(node.target, node.value)
        if self._is_suspect(node):
            yield ast.unparse(node)

    def _bind(self, target: ast.expr, iterated: ast.expr) -> None:
        roots = self._collections(iterated)
        for name in _names(target):
            self._roots[name] = roots
        if isinstance(target, ast.Tuple) and _method(iterated) == "items":
            key, value = target.elts
            if isinstance(key, ast.Name):
                self._keyed |= dict.fromkeys(_names(value), key.id)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._assign(one, its)
            return
        for name in _names(target):
            self._roots[name] = self._made_of(value)
            self._values[name] = value

    def _collections(self, node: ast.expr) -> _Roots:
        """The collections whose elements somebody goes through here."""
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else None
            if called in _SAME:
                return _NONE.union(*map(self._collections, node.args))
            if isinstance(node.func, ast.Attribute) and node.func.attr in _ELEMENTS:
                return self._collections(node.func.value)
            return _NONE
        if isinstance(node, ast.Subscript):
            return self._collections(node.value)
        if isinstance(node, ast.BoolOp):
            return _NONE.union(*map(self._collections, node.values))
        if isinstance(node, ast.Name | ast.Attribute):
            return frozenset({ast.unparse(node)}) | self._made_of(node)
        return _NONE

    def _made_of(self, node: ast.AST) -> _Roots:
        """The collections that go into a value."""
        if isinstance(node, ast.Name):
            return self._roots.get(node.id, _NONE)
        if isinstance(node, ast.Subscript):
            element = self._collections(node.value) if _is_element(node.slice) else _NONE
            return element | self._made_of(node.value)
        if isinstance(node, ast.Call):
            named = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            named = node.func.id if isinstance(node.func, ast.Name) else named
            if named == "len":
                return _NONE
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            found = _NONE.union(*map(self._made_of, given))
            if named in _TOTALS:
                found = found.union(*map(self._collections, node.args))
            return found
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
            return _NONE.union(*(self._collections(part.iter) for part in node.generators))
        return _NONE.union(*map(self._made_of, ast.iter_child_nodes(node)))

    def _is_suspect(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            numpy = isinstance(node.func.value, ast.Name) and node.func.value.id == "np"
            return numpy and node.func.attr in _NUMPY and not _is_moment(node.args[0])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            left, right = node.left, node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub):
            left, right = node.target, node.value
        else:
            return False
        left, right = _bare(left), _bare(right)
        if isinstance(left, ast.Constant) or isinstance(right, ast.Constant):
            return False
        if _is_pair(left, right):
            return True
        if _is_moment(left) or _is_moment(right):
            return False
        return (
            _is_same_field(left, right)
            or self._is_same_call(left, right)
            or self._is_keyed(left, right)
            or self._is_keyed(right, left)
            or bool(self._made_of(left) & self._made_of(right))
            or bool(self._made_of(left) & {ast.unparse(right)})
            or bool(self._made_of(right) & {ast.unparse(left)})
        )

    def _is_same_call(self, left: ast.expr, right: ast.expr) -> bool:
        """The same function at two places: ``np.interp(end, x, y) - np.interp(start, x, y)``."""
        calls = [self._values.get(side.id) if isinstance(side, ast.Name) else side
                 for side in (left, right)]  # fmt: skip
        one, other = calls
        if not isinstance(one, ast.Call) or not isinstance(other, ast.Call):
            return False
        shared = {*map(ast.unparse, one.args)} & {*map(ast.unparse, other.args)}
        return ast.unparse(one.func) == ast.unparse(other.func) and bool(shared)

    def _is_keyed(self, value: ast.expr, other: ast.expr) -> bool:
        """A value and what a mapping has under its key, or what an object kept under any."""
        key = self._keyed.get(value.id) if isinstance(value, ast.Name) else None
        mapping: ast.expr | None = None
        at: ast.expr | None = None
        if isinstance(other, ast.Subscript):
            mapping, at = other.value, other.slice
        elif isinstance(other, ast.Call) and _method(other) == "get":
            mapping, at = other.func.value, other.args[0]  # type: ignore[attr-defined]
        if mapping is None or at is None or _is_element(at):
            return False
        if isinstance(other, ast.Call) or ast.unparse(mapping).startswith("self."):
            return True
        return _word(mapping) in _EARLIER or (isinstance(at, ast.Name) and at.id == key)


def _names(target: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def _method(node: ast.expr) -> str | None:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.func.attr if called else None  # type: ignore[attr-defined]


def _is_element(at: ast.expr) -> bool:
    """``[0]``, ``[-1]``, ``[:-1]``, and not a look-up by name."""
    return not isinstance(at, ast.Name | ast.Attribute) and not (
        isinstance(at, ast.Constant) and isinstance(at.value, str)
    )


def _bare(node: ast.expr) -> ast.expr:
    """Without what leaves a number what it is: ``float(x)``, ``x or 0``."""
    if isinstance(node, ast.BoolOp):
        return _bare(node.values[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        return _bare(node.args[0]) if node.func.id in _SAME else node
    return node


def _field(node: ast.expr) -> tuple[str, str] | None:
    """The thing and the field of ``a.x``, ``a["x"]`` and ``getattr(a, "x")``."""
    if isinstance(node, ast.Attribute):
        return ast.unparse(node.value), node.attr
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        return ast.unparse(node.value), ast.unparse(node.slice)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
        return ast.unparse(node.args[0]), ast.unparse(node.args[1])
    return None


def _is_moment(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_moment(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("min", "max") and any(map(_is_moment, node.args))
    named = node.id if isinstance(node, ast.Name) else None
    field = named or (node.attr if isinstance(node, ast.Attribute) else "")
    return _MOMENT.fullmatch(field.lstrip("_")) is not None


def _is_same_field(left: ast.expr, right: ast.expr) -> bool:
    one, other = _field(left), _field(right)
    return (
        one is not None
        and other is not None
        and one[0] != other[0]
        and (one[1].lstrip("_") == other[1].lstrip("_"))
    )


def _is_pair(left: ast.expr, right: ast.expr) -> bool:
    return frozenset({_word(left), _word(right)}) in PAIRS


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr.lstrip("_")
    if isinstance(node, ast.Subscript | ast.Call):
        inner = node.value if isinstance(node, ast.Subscript) else node.func
        return _word(inner)
    return node.id if isinstance(node, ast.Name) else ""

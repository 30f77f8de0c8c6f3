"""No file outside `series` subtracts two readings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "sexton"
#: Packages in which no readings are compared, with what they subtract instead.
ELSEWHERE = {
    "series": "the one place",
    "sources": "reads the kernel's files, one reading at a time: bytes and offsets",
    "profile": "samples of stacks: times and weights, no counters",
    "store": "files: sizes, offsets and times of segments",
}
PAIRS = (
    {"before", "after"}, {"earlier", "later"}, {"earlier", "row"}, {"first", "last"},
    {"old", "new"}, {"was", "now"}, {"then", "now"}, {"before", "now"}, {"previous", "current"},
)  # fmt: skip
#: Of names alone: `last - first` is a length more often than not.
BARE = ({"before", "after"}, {"earlier", "later"}, {"was", "now"}, {"before", "now"})
#: Fields that are moments: their difference is a duration, not what a counter moved by.
TIMES = ("mono", "wall", "start", "end", "time")
#: What looks like it and is not: no counter of the kernel that is in a table.
ALLOWED = {
    "cure/reclaim/cost.py: before.seconds - after.seconds": "how long two walks of ours took",
    "cure/reclaim/free.py: before - after": "what a reclaim of ours freed",
    "cure/remedies/drop_caches.py: before - after": "what dropping caches freed",
    "cure/reclaim/free.py: before.number - after.number": "what a reclaim of ours freed",
    "cure/reclaim/free.py: before.bytes - after.bytes": "what a reclaim of ours freed",
    "cure/reclaim/free.py: self.before.number - self.after.number": "the same, of all passes",
    "cure/reclaim/free.py: self.before.bytes - self.after.bytes": "the same, of all passes",
    "detect/churn.py: later - earlier": "moments of deaths",
    "detect/waits.py: after - before": "running sums of a series, at two moments",
    "explain/aligned/measure.py: np.diff(kept, prepend=-2)": "places in an array",
    "explain/aligned/measure.py: np.diff(mono)": "moments of readings",
    "explain/occasions.py: after - before": "moments of events",
    "explorer/files/capture.py: np.diff(column, prepend=-1)": "columns of a picture",
    "explorer/files/profile.py: np.diff(keys, prepend=0)": "keys of cells, packed for a page",
    "explorer/lanes/cores.py: np.diff(second[hot])": "seconds of a picture",
    "explorer/lanes/memcgs.py: np.diff(moments, prepend=self._last)": "moments of readings",
    "explorer/tiles/build.py: np.diff(columns.mono, prepend=self._last)": "moments of readings",
    "explorer/tiles/build.py: np.diff(end)": "moments of readings",
    "explorer/tiles/pyramid.py: np.diff(numbers)": "columns of a picture",
    "explorer/tiles/pyramid.py: np.diff(which)": "numbers of tiles",
    "prevent/audit/unit_files.py: after - before": "minutes of a calendar",
    "record/budget.py: after.all_s - before.all_s": "the recorder's own CPU time",
    "record/preflight.py: last.reads - first.reads": "the recorder's own reads",
    "record/preflight.py: last.spent_s - first.spent_s": "the recorder's own CPU time",
    "replay/matrix.py: np.diff(np.append(starts, len(mono)))": "places in an array",
    "replay/span_reader.py: np.diff(kept, prepend=kept[0] - 1)": "places in an array",
    "replay/span_reader.py: np.diff(mine.mono)": "moments of readings",
    "replay/span_reader.py: np.diff(mine.mono[order])": "moments of readings",
    "replay/span_reader.py: np.diff(mono)": "moments of readings",
    "replay/span_reader.py: np.diff(np.append(starts, found.num_rows))": "places in an array",
    "replay/stacks.py: np.diff(mono, prepend=-np.inf)": "moments of samples",
    "reports/text/fix.py: before - now": "dying cgroups before a cure and now, both published",
    "reports/text/fix.py: now - before": "dying cgroups before a cure and now, both published",
}


def test_no_file_outside_series_subtracts_two_readings():
    found = set(findings())
    assert found - ALLOWED.keys() == set(), "make it a function of sexton.series"


def test_what_it_would_find():
    for code in ("after.user_ms - before.user_ms", "step.after.x - step.before.x", "now - was",
                 "np.diff(counter)", "later['n'] - earlier['n']", "row.n - earlier.n",
                 "getattr(after, name) - getattr(before, name)"):  # fmt: skip
        assert is_suspect(ast.parse(code, mode="eval").body), code
    for code in ("after.mono_s - before.mono_s", "width - room", "after.x - before.y"):
        assert not is_suspect(ast.parse(code, mode="eval").body), code


def findings() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        where = path.relative_to(SOURCE)
        if where.parts[0] in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if is_suspect(node):
                yield f"{where}: {ast.unparse(node)}"


def is_suspect(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        numpy = isinstance(node.func.value, ast.Name) and node.func.value.id == "np"
        return numpy and node.func.attr in ("diff", "subtract", "ediff1d")
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    left, right = _row_and_field(node.left), _row_and_field(node.right)
    if left is None or right is None or left[1] != right[1]:
        return False
    pairs = PAIRS if left[1] else BARE
    return {left[0], right[0]} in pairs and not left[1].startswith(TIMES)


def _row_and_field(node: ast.expr) -> tuple[str, str] | None:
    """Of `after.x`, `step.after.x`, `after["x"]`, `getattr(after, "x")` or `after` alone."""
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id == "getattr"
        return (_name(node.args[0]), ast.unparse(node.args[1])) if named else None
    if isinstance(node, ast.Name):
        return node.id, ""
    if isinstance(node, ast.Subscript):
        return _name(node.value), ast.unparse(node.slice)
    return (_name(node.value), node.attr) if isinstance(node, ast.Attribute) else None


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""

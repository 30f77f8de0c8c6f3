r"""Log patterns of the node's owner: files in ``/etc/sexton/patterns.d``, checked and bounded.

::

    [[pattern]]
    name = "bmc-silent"
    regex = 'ipmi_si \S{1,40}: IPMI message handler: BMC returned incorrect response'
    severity = "warning"            # info, warning or critical
    meaning = "the BMC answers a different request"
    example = "ipmi_si IPI0001:00: IPMI message handler: BMC returned incorrect response"

An entry becomes a finding ``pattern_bmc_silent`` if a line of the last day matches. With ``family``
its lines count as lines of that family of the catalogue, and the detectors of that family judge
them; the regex must then have the named groups that all entries of the family have.

No regex may take long on any line: only the first `MOST_OWN` characters are matched, from the first
one on; a repetition holds neither another one nor alternatives, there are no look-arounds and back
references, and the number of ways to match is limited. Every entry needs some fixed characters,
which are looked for first.

>>> problem_of(r"(a+)+b"), problem_of(r"link .* down: \d{1,3}")
('a repetition within a repetition', '')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple, NoReturn

from sexton.errors import CommandError
from sexton.model.finding import Severity
from sexton.model.rows.event import FLAGGED
from sexton.model.text import printable
from sexton.model.toml import parse_toml
from sexton.sources.kmsg.catalogue import MOST_OWN, Pattern, patterns

MOST_PATTERNS = 200
_MOST_REGEX = 500
_MOST_TEXT = 200
#: Steps for one line: one `.*` and a bounded word behind it. They take milliseconds at the worst;
#: the ring is read 256 lines at a time between looks at the clock.
_MOST_STEPS = (MOST_OWN + 1) * 128
_LEAST_FIXED = 3
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_KEYS = ("name", "regex", "severity", "meaning", "example", "family")
_SINGLE = frozenset((ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN))
_REPEATS = frozenset((ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT))
#: What is refused, in the words of manuals of regular expressions.
_CALLED = {
    ops.ASSERT: "look-arounds",
    ops.ASSERT_NOT: "look-arounds",
    ops.GROUPREF: "back references",
    ops.GROUPREF_EXISTS: "conditions",
    ops.ATOMIC_GROUP: "atomic groups",
}


def parse(text: str, path: str) -> tuple[Pattern, ...]:
    """The entries of one file; every mistake is a `CommandError` with file, entry and key."""
    try:
        document = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not TOML: {error}") from None
    entries = document.get("pattern")
    if set(document) != {"pattern"} or not isinstance(entries, list):
        raise CommandError(f"{path}: write [[pattern]] and nothing else")
    return tuple(_entry(entry, f"{path}: pattern {at}") for at, entry in enumerate(entries, 1))


def check_all(found: Iterable[Pattern]) -> tuple[Pattern, ...]:
    """The entries of all files together: not too many, and no name twice.

    A finding's id has ``_`` for ``-``. A shipped pattern's name would take that pattern's part in
    messages of two lines, and in what ends a problem.
    """
    taken = {_key(one.id): "a shipped pattern" for one in patterns()}
    kept: dict[str, Pattern] = {}
    for pattern in found:
        if other := taken.get(_key(pattern.id)):
            raise CommandError(f"{pattern.note}: name: {pattern.id!r} is the name of {other}")
        taken[_key(pattern.id)] = pattern.note
        kept[pattern.id] = pattern
    if len(kept) > MOST_PATTERNS:
        raise CommandError(f"{len(kept)} log patterns; at most {MOST_PATTERNS}")
    return tuple(kept.values())


def _key(name: str) -> str:
    return name.replace("-", "_")


def _entry(entry: object, where: str) -> Pattern:
    def wrong(key: str, what: str) -> NoReturn:
        raise CommandError(printable(f"{where}: {key}: {what}"))

    if not isinstance(entry, dict):
        wrong("pattern", "write [[pattern]]")
    texts = _texts(entry, wrong)
    if not _NAME.fullmatch(texts["name"]):
        wrong("name", "use lowercase letters, digits, - and _, at most 40")
    if texts["severity"] not in list(Severity):
        wrong("severity", f"must be one of {', '.join(Severity)}")
    if problem := problem_of(texts["regex"]):
        wrong("regex", problem)
    compiled = re.compile(texts["regex"], re.ASCII)
    if not compiled.match(texts["example"][:MOST_OWN]):
        wrong("example", "the regex does not match it (it is matched from the first character on)")
    for group in ("severity", "meaning"):
        if group in compiled.groupindex:
            wrong("regex", f"a group cannot be called {group}")
    family = texts.get("family", FLAGGED)
    if family != FLAGGED:
        lacking = _lacking(family, compiled.groupindex)
        if lacking:
            wrong("family", lacking)
    return Pattern(
        id=texts["name"],
        family=family,
        severity=Severity(texts["severity"]),
        origin="kernel",
        hint=_fixed(texts["regex"]),
        expression=texts["regex"],
        constants={"severity": texts["severity"], "meaning": texts["meaning"]},
        swap=None,
        pair=None,
        after=None,
        note=where,
        examples={"match": texts["example"]},
    )


def _texts(entry: Mapping[str, Any], wrong: Any) -> dict[str, str]:
    for key in entry:
        if key not in _KEYS:
            wrong(key, f"no such key; there are {', '.join(_KEYS)}")
    texts = {}
    for key in _KEYS:
        value = entry.get(key)
        if value is None and key != "family":
            wrong(key, "is required")
        if value is None:
            continue
        most = _MOST_TEXT if key in ("meaning", "family") else _MOST_REGEX
        if not isinstance(value, str) or not value.strip() or len(value) > most:
            wrong(key, f"must be a string of 1 to {most} characters")
        texts[key] = " ".join(value.split()) if key == "meaning" else value
    return texts


def _lacking(family: str, groups: Mapping[str, int]) -> str:
    """Why an entry cannot count as a line of this family; "" if it can."""
    known = [one for one in patterns() if one.family == family and one.origin == "kernel"]
    if not known:
        families = sorted({one.family for one in patterns() if one.origin == "kernel"})
        return f"no family {family!r}; there are {', '.join(families)}"
    common = set.intersection(*(set(_fields(one)) for one in known))
    without = sorted(common - set(groups))
    return f"the regex needs the named groups {', '.join(without)}" if without else ""


def _fields(pattern: Pattern) -> Iterable[str]:
    fields: Mapping[str, object] = pattern.examples["fields"]
    return fields


class _Refused(Exception):
    """What is wrong with a regex."""


class _Size(NamedTuple):
    """In how many ways a part can match, and the characters looked at to try them all."""

    ways: int
    steps: int


def problem_of(expression: str) -> str:
    """Why a regex is not accepted; "" if it is."""
    try:
        tree = parser.parse(expression, re.ASCII)
        re.compile(expression, re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        return f"not a regular expression: {error}"
    if tree.state.flags != re.ASCII:
        return "flags are not supported"
    try:
        size = _walk(tree, repeated=False)
    except _Refused as refused:
        return str(refused)
    if size.steps > _MOST_STEPS:
        return "too many ways to match: bound repetitions, \\w{1,32} instead of .*"
    if len(_fixed(expression)) < _LEAST_FIXED:
        return f"needs {_LEAST_FIXED} fixed characters in a row, outside of repetitions"
    return ""


def _walk(tree: Iterable[Any], repeated: bool) -> _Size:
    """How large the search is at most; a `_Refused` for what is not supported."""
    ways, steps = 1, 1
    items = list(_flat(tree))
    for at, (op, value) in enumerate(items):
        if op in _SINGLE or op is ops.AT:
            continue
        if op in _REPEATS:
            if repeated:
                raise _Refused("a repetition within a repetition")
            least, most, body = value
            most = min(int(most), MOST_OWN)
            inner = _walk(body, repeated=most > 1)
            steps += ways * most * inner.steps
            ways *= inner.ways
            if not _ends_at(body, items[at + 1 : at + 2]):
                ways *= max(most - least + 1, 1)
        elif op is ops.BRANCH:
            if repeated:
                raise _Refused("alternatives within a repetition")
            parts = [_walk(branch, repeated) for branch in value[1]]
            steps += ways * sum(part.steps for part in parts)
            ways *= sum(part.ways for part in parts)
        elif op is ops.SUBPATTERN:
            raise _Refused("flags are not supported")
        else:
            raise _Refused(f"{_CALLED.get(op, str(op).lower())} are not supported")
    return _Size(ways, steps + ways)


def _flat(tree: Iterable[Any]) -> Iterator[Any]:
    """A sequence with its groups opened; one that has flags of its own stays closed."""
    for op, value in tree:
        if op is ops.SUBPATTERN and not value[1] and not value[2]:
            yield from _flat(value[3])
        else:
            yield op, value


def _ends_at(body: Iterable[Any], following: Sequence[Any]) -> bool:
    """Can the repeated character not be the one that must follow? Then it ends in one place only.

    ``[^:]{1,40}:`` matches in one way, ``.{1,40}:`` in forty.
    """
    held = list(_flat(body))
    if len(held) != 1 or held[0][0] not in _SINGLE:
        return False
    if not following or following[0][0] is not ops.LITERAL:
        return False
    op, value = held[0]
    return not _takes(op, value, following[0][1])


def _takes(op: Any, value: Any, letter: int) -> bool:
    if op is ops.IN:
        negated = value[0][0] is ops.NEGATE
        members = value[1:] if negated else value
        return any(_is_in(kind, member, letter) for kind, member in members) != negated
    if op is ops.ANY:
        return letter != ord("\n")
    return bool((value == letter) == (op is ops.LITERAL))


def _is_in(op: Any, value: Any, letter: int) -> bool:
    if op is ops.LITERAL:
        return bool(value == letter)
    if op is ops.RANGE:
        return bool(value[0] <= letter <= value[1])
    kind = _CATEGORIES.get(value)
    return kind is None or re.match(kind, chr(letter), re.ASCII) is not None


_CATEGORIES = {
    ops.CATEGORY_DIGIT: r"\d",
    ops.CATEGORY_NOT_DIGIT: r"\D",
    ops.CATEGORY_SPACE: r"\s",
    ops.CATEGORY_NOT_SPACE: r"\S",
    ops.CATEGORY_WORD: r"\w",
    ops.CATEGORY_NOT_WORD: r"\W",
}


def _fixed(expression: str) -> str:
    """The longest run of characters that every matching line has."""
    runs = [""]
    _literals(parser.parse(expression, re.ASCII), runs)
    return max(runs, key=len)


def _literals(tree: Iterable[Any], runs: list[str]) -> None:
    for op, value in tree:
        if op is ops.LITERAL:
            runs[-1] += chr(value)
        elif op is ops.SUBPATTERN:
            _literals(value[3], runs)
        else:
            runs.append("")

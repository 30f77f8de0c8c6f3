"""What a request asks for: parameters that are described once, checked and documented from that.

Everything that arrives is text from a stranger. A value is taken if it is what its parameter
describes, and refused by name in one line otherwise; nothing is rounded, cut or guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from sexton.errors import SextonError
from sexton.model.text import printable, shorten

#: UNIX seconds up to the year 5138.
LATEST_S = 1e11
#: What the recorder keeps at most, and a month to spare.
LONGEST_S = 400 * 86400.0
#: More parameters than any request has.
_MOST = 32
_WHOLE = re.compile(r"-?[0-9]{1,18}(?:\.0{1,9})?", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)

Values = Mapping[str, Any]


class Refused(SextonError):
    """What was asked for cannot be given; `status` is the HTTP one."""

    def __init__(self, words: str, status: int = 422) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value of a request. `kind` is ``number``, ``integer`` or ``string``.

    Bounds are inclusive; of a string they count characters. `place` is where it stands.
    """

    name: str
    kind: str
    about: str
    least: float = 0
    most: float = LATEST_S
    required: bool = True
    default: Any = None
    pattern: str | None = None
    place: str = "query"

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        if self.kind == "string":
            told: dict[str, Any] = {
                "type": "string",
                "minLength": int(self.least),
                "maxLength": int(self.most),
            }
            if self.pattern is not None:
                told["pattern"] = f"^{self.pattern}$"
        else:
            told = {"type": self.kind, "minimum": self.least, "maximum": self.most}
        return told if self.default is None else {**told, "default": self.default}

    def read(self, text: str) -> Any:
        """The value; `Refused` where it is none."""
        if self.kind == "string":
            return self._string(text)
        shape = _WHOLE if self.kind == "integer" else _NUMBER
        if shape.fullmatch(text) is None:
            raise self._no(text, "is no whole number" if self.kind == "integer" else "is no number")
        number = int(text.partition(".")[0]) if self.kind == "integer" else float(text)
        if not math.isfinite(number) or not self.least <= number <= self.most:
            raise self._no(text, f"is not between {self.least:.15g} and {self.most:.15g}")
        return number

    def _string(self, text: str) -> str:
        if not self.least <= len(text) <= self.most:
            raise self._no(text, f"has not {self.least:.0f} to {self.most:.0f} characters")
        if self.pattern is not None and re.fullmatch(self.pattern, text, re.ASCII) is None:
            raise self._no(text, f"is not like {self.pattern}")
        return text

    def _no(self, text: str, why: str) -> Refused:
        return Refused(f"{self.name}: {shorten(printable(text), 40)!r} {why}")


def read_query(query: bytes, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Every parameter's value, defaults filled in; `Refused` names the first that is wrong."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST
        )
    except (UnicodeError, ValueError):
        raise Refused("the query is not made of at most 32 name=value in UTF-8") from None
    known = {each.name: each for each in parameters if each.place == "query"}
    given: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            raise Refused(f"{shorten(printable(name), 40)!r} is no parameter here{_rest(known)}")
        if name in given:
            raise Refused(f"{name} is given twice")
        given[name] = known[name].read(text)
    for name, each in known.items():
        if name not in given:
            if each.required:
                raise Refused(f"{name} is missing")
            given[name] = each.default
    return given


def read_path(values: Mapping[str, str], parameters: Iterable[Parameter]) -> dict[str, Any]:
    """The parts of the path that are values."""
    found = {}
    for each in parameters:
        if each.place == "path":
            try:
                found[each.name] = each.read(values[each.name])
            except Refused as error:
                raise Refused(str(error), 404) from None
    return found


def span_of(values: Values, start: str = "from", end: str = "to") -> tuple[float, float]:
    """A span of time that goes forward."""
    earliest, latest = values[start], values[end]
    if not 0 < latest - earliest <= LONGEST_S:
        raise Refused(f"{end} is not after {start}, by at most 400 days")
    return earliest, latest


def _rest(known: Mapping[str, Parameter]) -> str:
    return f"; there are {', '.join(sorted(known))}" if known else ", and there is none"

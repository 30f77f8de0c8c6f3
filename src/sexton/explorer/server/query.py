"""Request parameters: declared once, then validated and documented from the declaration.

All input is untrusted text. A value either matches its parameter or is rejected with one line that
names the parameter; nothing is rounded, truncated or guessed.
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
#: More than the recorder's longest retention.
LONGEST_S = 400 * 86400.0
#: More parameters than any request needs.
_MOST = 32
_WHOLE = re.compile(r"-?[0-9]{1,18}(?:\.0{1,9})?", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)

Values = Mapping[str, Any]


class Refused(SextonError):
    """The request is rejected; `status` is the HTTP status."""

    def __init__(self, words: str, status: int = 422) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `kind` is ``number``, ``integer`` or ``string``.

    Bounds are inclusive; for a string they are its length. `place` is ``query`` or ``path``.
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
        """As JSON Schema."""
        if self.kind == "string":
            schema: dict[str, Any] = {
                "type": "string",
                "minLength": int(self.least),
                "maxLength": int(self.most),
            }
            if self.pattern is not None:
                schema["pattern"] = f"^{self.pattern}$"
        else:
            schema = {"type": self.kind, "minimum": self.least, "maximum": self.most}
        return schema if self.default is None else {**schema, "default": self.default}

    def read(self, text: str) -> Any:
        """The parsed value, or `Refused`."""
        if self.kind == "string":
            return self._string(text)
        shape = _WHOLE if self.kind == "integer" else _NUMBER
        if shape.fullmatch(text) is None:
            raise self._no(
                text, "is not an integer" if self.kind == "integer" else "is not a number"
            )
        number = int(text.partition(".")[0]) if self.kind == "integer" else float(text)
        if not math.isfinite(number) or not self.least <= number <= self.most:
            raise self._no(text, f"is not between {self.least:.15g} and {self.most:.15g}")
        return number

    def _string(self, text: str) -> str:
        if not self.least <= len(text) <= self.most:
            raise self._no(text, f"must have {self.least:.0f} to {self.most:.0f} characters")
        if self.pattern is not None and re.fullmatch(self.pattern, text, re.ASCII) is None:
            raise self._no(text, f"does not match {self.pattern}")
        return text

    def _no(self, text: str, why: str) -> Refused:
        return Refused(f"{self.name}: {shorten(printable(text), 40)!r} {why}")


def read_query(query: bytes, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """All parameter values with defaults filled in; `Refused` names the first invalid one."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST
        )
    except (UnicodeError, ValueError):
        raise Refused("the query must be at most 32 name=value pairs in UTF-8") from None
    known = {parameter.name: parameter for parameter in parameters if parameter.place == "query"}
    given: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            raise Refused(f"unknown parameter {shorten(printable(name), 40)!r}{_rest(known)}")
        if name in given:
            raise Refused(f"{name} is given twice")
        given[name] = known[name].read(text)
    for name, value in known.items():
        if name not in given:
            if value.required:
                raise Refused(f"{name} is missing")
            given[name] = value.default
    return given


def read_path(values: Mapping[str, str], parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Values of the path parameters."""
    found = {}
    for parameter in parameters:
        if parameter.place == "path":
            try:
                found[parameter.name] = parameter.read(values[parameter.name])
            except Refused as error:
                raise Refused(str(error), 404) from None
    return found


def span_of(values: Values, start: str = "from", end: str = "to") -> tuple[float, float]:
    """A valid time span."""
    earliest, latest = values[start], values[end]
    if not 0 < latest - earliest <= LONGEST_S:
        raise Refused(f"{end} must be after {start}, by at most 400 days")
    return earliest, latest


def _rest(known: Mapping[str, Parameter]) -> str:
    return f"; parameters: {', '.join(sorted(known))}" if known else "; none are accepted"

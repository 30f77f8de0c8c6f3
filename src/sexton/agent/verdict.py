"""A node's verdict in the few words that a condition, an event or a plug-in's line has room for.

Made of a `Diagnosis` by a process that may crash (`sexton.agent.judging`), and passed on as JSON.
The words have no numbers: text that changes with every reading would be a write with every reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from sexton.errors import SourceMalformed
from sexton.model.diagnosis import Exit
from sexton.model.text import printable

#: Causes that are reported; a node in trouble has one or two.
MOST_CAUSES = 5
_SOURCE = "verdict"


class Cause(NamedTuple):
    """A cause chain from `root` to `symptom` (ids of findings), or one problem without a chain:
    then both are the same, and `strength` is empty."""

    root: str
    symptom: str
    culprit: str
    strength: str
    sentence: str

    @property
    def key(self) -> str:
        """The same for the same chain about the same culprit."""
        return "\0".join((self.root, self.symptom, self.culprit))

    @property
    def words(self) -> str:
        return f"{self.sentence} ({self.strength})" if self.strength else self.sentence


class NodeVerdict(NamedTuple):
    """The verdict on the minutes before `mono_s` of the boot `boot_id`, which were until `wall_s`.

    `unknown` are the titles of essential checks without an answer.
    """

    exit: Exit
    boot_id: str
    mono_s: float
    wall_s: float
    seconds: float
    causes: tuple[Cause, ...] = ()
    unknown: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(self._asdict())


def from_json(text: str | bytes) -> NodeVerdict:
    """What `to_json` wrote; `SourceMalformed` if it is something else."""
    try:
        found = json.loads(text)
        return NodeVerdict(
            next(each for each in Exit if each == found["exit"]),
            str(found["boot_id"]),
            float(found["mono_s"]),
            float(found["wall_s"]),
            float(found["seconds"]),
            tuple(_cause(each) for each in found["causes"][:MOST_CAUSES]),
            tuple(printable(str(each)) for each in found["unknown"]),
        )
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError) as error:
        raise SourceMalformed(_SOURCE, 0, f"{type(error).__name__}: {error}") from None


def _cause(parts: Iterable[Any]) -> Cause:
    return Cause(*(printable(str(part)) for part in parts))

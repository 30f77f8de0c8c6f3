"""How links are declared and found.

A link is one module below `sexton.explain.links`, in the folder of its effect's subject, named as a
sentence: cause, verb, effect. Its docstring holds the written rule by which it is *proven*,
*likely* or *possible*::

    @link(
        cause=CAUSE,  # the ids of two detectors
        effect=EFFECT,
        story="each restart leaves a dying memory cgroup behind",
        proof="a trace of its deaths (sudo sexton zombies --watch)",
    )
    def join(cause: Finding, effect: Finding, window: Window) -> Bond | None: ...

A link needs something both findings share (the same core, unit, queue) and the right order in
time; None means that they are unrelated. `story` is the link as a clause of the timeline, and
`proof` what would make it *proven* if it is not. `advice` are steps that stop the cause, if the
link knows more about it than the cause's own detector.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import sexton.explain.links
from sexton.detect.kubernetes.pods import pods
from sexton.detect.rows_read import witness
from sexton.model.chain import Bond, Link
from sexton.model.diagnosis import Step
from sexton.model.finding import Finding
from sexton.model.window import Window

Join = Callable[[Finding, Finding, Window], Bond | None]
Advise = Callable[[Window], Sequence[Step]]
_PACKAGE = "sexton.explain.links."


class Rule(NamedTuple):
    """A possible link between two symptoms."""

    id: str
    cause: str
    effect: str
    join: Join
    story: str
    proof: str
    advice: Advise | None = None

    def run(self, cause: Finding, effect: Finding, window: Window) -> Link | None:
        """The link, with the rows it rests on: those its rule read, else those of its findings."""
        seen = witness(window)
        with seen.noting() as noted:
            found = self.join(cause, effect, seen)
        if found is None:
            return None
        named = pods(seen)
        found = found._replace(
            sentence=named.in_text(found.sentence), against=tuple(map(named.in_text, found.against))
        )
        both = {row.table: row for row in (*cause.rows, *effect.rows)}
        theirs = tuple(both[name] for name in sorted(both))
        return Link(self.id, cause.id, effect.id, *found, rows=seen.rows(noted) or theirs)


_found: dict[str, Rule] = {}


def link(
    *, cause: str, effect: str, story: str, proof: str, advice: Advise | None = None
) -> Callable[[Join], Join]:
    """Register the decorated function under its module's stem."""

    def register(join: Join) -> Join:
        name = join.__module__.rpartition(".")[2]
        _found[name] = Rule(name, cause, effect, join, story, proof, advice)
        return join

    return register


@cache
def all_rules() -> tuple[Rule, ...]:
    """All links in the folders, sorted by id."""
    for module in pkgutil.walk_packages(sexton.explain.links.__path__, _PACKAGE):
        if not module.ispkg:
            importlib.import_module(module.name)
    return tuple(_found[name] for name in sorted(_found))


def rule_of(link_id: str) -> Rule | None:
    """The rule by which a link was judged."""
    return next((rule for rule in all_rules() if rule.id == link_id), None)

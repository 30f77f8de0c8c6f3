"""An answer to words: what they name here, and the chain through it."""

from __future__ import annotations

from sexton.errors import CommandError
from sexton.explain.subject import Names, candidates, names_of, nearest
from sexton.explain.why import answer, likeliest
from sexton.model.diagnosis import Diagnosis
from sexton.model.text import printable, shorten
from sexton.model.why import Subject, Why
from sexton.model.window import Window


def asked(what: str | Subject, diagnosis: Diagnosis, window: Window) -> Why:
    """Of a name or of a subject that is known; `CommandError` where nothing is called so."""
    if isinstance(what, Subject):
        return answer(what, diagnosis, window)
    names = names_of(window, diagnosis.findings)
    meant = likeliest(candidates(what, names), diagnosis)
    if not meant:
        raise CommandError(_unknown(what, nearest(what, names), names))
    return answer(meant[0], diagnosis, window, meant[1:])


def _unknown(said: str, near: tuple[str, ...], names: Names) -> str:
    """One line: what is called like it, or else what there is to ask about."""
    what = f"nothing here is called {shorten(printable(said), 80)!r}"
    if near:
        return f"{what}; near it: {', '.join(near)}"
    there = [
        f"{len(names.get(kind, ())):,} {many} ({shorten(names[kind][0], 40)}, …)"
        for kind, many in (("nic", "interfaces"), ("unit", "units"), ("task", "tasks"))
        if names.get(kind)
    ]
    cores = sorted(map(int, names.get("core", ())))
    if cores:
        there.insert(0, f"core {cores[0]} to core {cores[-1]}")
    return f"{what}; there are {', '.join(there)}" if there else what

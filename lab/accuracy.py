"""docs/accuracy.md: how often Sexton is right on recorded incidents, and what peers would show.

::

    python -m lab.accuracy            checks that the page is up to date; exit 1 if not
    python -m lab.accuracy --update   rewrites it
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lab.hidden_source import decisive_tables, effect, overreach, trials
from lab.incident import (
    INCIDENTS,
    Incident,
    false_alarms,
    incidents,
    mismatches,
    strength,
    top_cause,
)
from lab.peers import node_problem_detector, prometheus
from lab.peers.bakeoff import PEERS, cells, chosen
from sexton.model.diagnosis import Exit
from sexton.model.text import count

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
LEFT_OUT = INCIDENTS / "left_out.toml"
_TEMPLATE = Path(__file__).with_name("accuracy.template.md")


def page(every: Sequence[Incident]) -> str:
    """The whole page."""
    npd, mixin = node_problem_detector.book(), prometheus.book()
    mistakes = [*_mistakes(every)]
    values = {
        "summary": summary(every),
        "table": _lines(_table(every)),
        "left_out_note": _left_out_note(),
        "left_out": _lines([*_left_out(), "", ""]) if left_out() else "",
        "mistakes": _lines(["What is wrong:", "", *mistakes, "", ""]) if mistakes else "",
        "hidden": _lines(_hidden(every)),
        "bakeoff": _lines(_bakeoff(every)),
        "npd_rules": str(len(npd["rule"])),
        "npd_source": _source(npd),
        "mixin_rules": str(len(mixin["alert"])),
        "mixin_source": _source(mixin),
        "mixin_others": str(sum(len(group["names"]) for group in mixin["not_evaluated"])),
        "mixin_why": "; ".join(group["why"] for group in mixin["not_evaluated"]),
    }
    text = _TEMPLATE.read_text("utf-8")
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def left_out() -> list[dict[str, str]]:
    """Recordings that were diagnosed and left out of the set."""
    document = tomllib.loads(LEFT_OUT.read_text("utf-8")) if LEFT_OUT.exists() else {}
    return [*document.get("recording", ())]


def _left_out_note() -> str:
    number = len(left_out())
    if not number:
        return ""
    words = count(number, "more recording was", "more recordings were")
    return (
        f"**This is a selection, not a rate: {words} diagnosed and left out, most of them wrong or"
        " undecided; they are listed below.**\n"
    )


def _left_out() -> Iterator[str]:
    yield "## Left out"
    yield ""
    yield "Diagnosed, but not listed above. *Seen*: the recorded rows show the reason;"
    yield "*supposed*: not checked, it may be a mistake of Sexton's."
    yield ""
    yield "| recording | verdict | why | |"
    yield "|---|---|---|---|"
    for name in left_out():
        yield f"| {name['name']} | {name['said']} | {name['why']} | {name['cause']} |"


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _source(book: Mapping[str, Any]) -> str:
    return f"{book['source']} at {book['commit'][:12]}, {book['date']}"


def summary(every: Sequence[Incident]) -> str:
    """One line: how many are right."""
    right = sum(not _wrong(part) for part in every)
    alarms = sum(len(_alarms(part)) for part in every)
    scenes = len({part.key[0] for part in every})
    places = len({part.key[1:] for part in every})
    return (
        f"{count(len(every), 'recording')} of {count(scenes, 'scene')} on"
        f" {count(places, 'kernel and hierarchy', 'kernels and hierarchies')}:"
        f" {right} right, {len(every) - right} wrong, {count(alarms, 'false alarm')}."
    )


def _table(every: Sequence[Incident]) -> Iterator[str]:
    yield "| scene | kernel | cgroup | expected | top cause | strength | right | false alarms |"
    yield "|---|---|---|---|---|---|---|---|"
    for part in every:
        scene, kernel, hierarchy = part.key
        expected = _cause(part.expected.root, part.expected.exit)
        found = _cause(top_cause(part.diagnosis), int(part.diagnosis.exit))
        right = "**no**" if _wrong(part) else "yes"
        alarms = ", ".join(_alarms(part)) or "none"
        sure = strength(part.diagnosis) or "–"
        cell = (scene, kernel, hierarchy, expected, found, sure, right, alarms)
        yield f"| {' | '.join(cell)} |"


def _cause(root: str | None, status: int) -> str:
    if root is not None:
        return f"`{root}`"
    return {Exit.HEALTHY: "healthy", Exit.CANNOT_TELL: "cannot tell"}.get(Exit(status), "none")


def _wrong(incident: Incident) -> list[str]:
    return [*mismatches(incident.diagnosis, incident.expected)]


def _alarms(incident: Incident) -> list[str]:
    return false_alarms(incident.diagnosis, incident.expected)


def _mistakes(every: Sequence[Incident]) -> Iterator[str]:
    for part in every:
        for line in _wrong(part):
            yield f"- {part.name}: {line}"


@cache
def hidden(incident: Incident) -> tuple[Counter[str], tuple[str, ...]]:
    """Effects on the verdict of hiding each table, and overreaching claims."""
    window, before = incident.replay.window, incident.diagnosis
    effects: Counter[str] = Counter()
    overreached = []
    for trial in trials(window, decisive_tables(before, window)):
        effects[effect(before, trial.diagnosis)] += 1
        for line in overreach(before, trial.diagnosis, incident.expected):
            overreached.append(f"without {trial.hidden}: {line}")
    return effects, tuple(overreached)


def _hidden(every: Sequence[Incident]) -> Iterator[str]:
    yield "| recording | hidden in turn | effect on the verdict | overreach |"
    yield "|---|---|---|---|"
    for part in every:
        effects, overreached = hidden(part)
        words = ", ".join(f"{number} {word}" for word, number in sorted(effects.items()))
        yield f"| {part.name} | {effects.total()} | {words} | {'; '.join(overreached) or 'none'} |"


def _bakeoff(every: Sequence[Incident]) -> Iterator[str]:
    yield f"| recording | {' | '.join(PEERS)} |"
    yield "|---" * (len(PEERS) + 1) + "|"
    for incident in chosen([*every]):
        row = cells(incident)
        yield f"| {incident.name} | {' | '.join(row[peer] for peer in PEERS)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.accuracy")
    parser.add_argument("--update", action="store_true", help="write the page")
    args = parser.parse_args(arguments)
    now = page(incidents())
    before = PAGE.read_text("utf-8") if PAGE.exists() else ""
    if args.update:
        PAGE.write_text(now, "utf-8")
    elif now != before:
        print(f"{PAGE} is not up to date: python -m lab.accuracy --update", file=sys.stderr)
        return 1
    print(summary(incidents()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

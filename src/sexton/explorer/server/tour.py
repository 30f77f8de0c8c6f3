"""The guided tour of a recording, made from its diagnosis: no time, core or unit is fixed here.

It begins where a dashboard ends: with the machine's average, one point a minute. The second step
shows every core, and the stall appears. Then it follows the best chain back, link by link, from the
symptom to its cause, and the last step shows measurements before and after a cure.

A step is data (`sexton.tour/1`): text, facts, and a view which the page applies: the visible span,
the open lanes, the selected span and the place in the chain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.detect.registry import detector_of, title_of
from sexton.errors import CommandError
from sexton.explain.registry import rule_of
from sexton.explain.story import short
from sexton.model.chain import Chain, Link
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding
from sexton.model.lane import COLUMNS, MOST_TILES, Strip, column_s
from sexton.model.text import clock, count, seconds, shorten, size

if TYPE_CHECKING:
    from sexton.explorer.tiles.view import View

SCHEMA = "sexton.tour/1"
#: The recording in this package; its README says what is real in it.
INCIDENT = Path(__file__).parent / "incident"
#: Columns of 2^6 s: one point a minute, as on most dashboards.
MINUTE_LEVEL = 6
#: The lane that hides the stall and the one that shows it.
AVERAGE, CORES = "average", "cores"
#: Seconds shown on either side of a step's span, besides the length of that span.
_AROUND_S = 8.0
_MOST_OF_IT = 0.8
_MOST_FACTS = 2
_LONG = 240

_KERNEL_LOG = ("/dev/kmsg", "kernel log")


class Scene(NamedTuple):
    """What a tour is made from: the diagnosis, the lanes, and the averages by minute."""

    diagnosis: Diagnosis
    lanes: Sequence[str]
    #: Busy percent of the whole machine, one per minute; None if nothing was read.
    minutes: Sequence[float | None]
    #: Kernel log lines that the lab injected.
    injected: Sequence[str] = ()
    #: Lanes that are zero throughout: no step opens them.
    quiet: Sequence[str] = ()


def scene_of(view: View, injected: Sequence[str] = ()) -> Scene:
    """The scene of a whole recording."""
    view.warm()  # lanes know their rows only after this
    about = view.about()
    lanes = [lane["id"] for lane in about["lanes"] if lane["series"] or lane["kind"] == "marks"]
    diagnosis = view.diagnosis(about["start"], about["end"])
    minutes = _minutes(view, diagnosis) if AVERAGE in lanes else ()
    lines = [lane["id"] for lane in about["lanes"] if lane["kind"] == "lines"]
    quiet = [line for line in lines if line in lanes and _is_quiet(view, line, diagnosis)]
    return Scene(diagnosis, lanes, minutes, injected, quiet)


def _is_quiet(view: View, lane: str, diagnosis: Diagnosis) -> bool:
    strip = _coarse(view, lane, diagnosis)
    return not (strip.planes["peak"] > 0).any()  # false for NaN, too


def _minutes(view: View, diagnosis: Diagnosis) -> list[float | None]:
    """The machine's average as the page draws it, in columns of a minute."""
    busy = _coarse(view, AVERAGE, diagnosis).planes["mean"][0].sum(axis=0)
    return [None if share != share else float(share) for share in busy.tolist()]


def _coarse(view: View, lane: str, diagnosis: Diagnosis) -> Strip:
    """The whole lane, one column a minute."""
    tile_s = COLUMNS * column_s(MINUTE_LEVEL)
    first, last = (int(edge // tile_s) for edge in (diagnosis.start, diagnosis.end))
    return view.strip(lane, MINUTE_LEVEL, first, min(last - first + 1, MOST_TILES))


def read_injected(folder: Path = INCIDENT) -> tuple[str, ...]:
    """The lines that the lab wrote into the kernel log."""
    return tuple(json.loads((folder / "scene.json").read_text("utf-8"))["injected"])


def read_cure(folder: Path = INCIDENT) -> dict[str, Any]:
    """The measurements of a cure (`cure.json` next to the recording)."""
    found: dict[str, Any] = json.loads((folder / "cure.json").read_text("utf-8"))
    return found


def tour(scene: Scene, cure: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The steps; `CommandError` if the recording has no chain."""
    diagnosis = scene.diagnosis
    if not diagnosis.chains:
        raise CommandError("a tour follows a chain of causes, and this recording has none")
    chain = diagnosis.chains[0]
    steps = [_average(scene, chain)]
    held = next(filter(_holds_core, chain.findings), None)
    if held is not None:
        steps.append(_unfolded(scene, chain, diagnosis.by_id[held]))
    steps += [_link(scene, chain, at) for at in range(len(chain.findings) - 1, -1, -1)]
    if cure is not None:
        steps.append(_cured(scene, cure))
    for number, step in enumerate(steps):
        step["number"] = number + 1
    return {
        "schema": SCHEMA,
        "title": f"{count(len(steps), 'step')} from the symptom to the cause",
        "recording": _recording_line(diagnosis),
        "steps": steps,
        # Changes to a step's view when the tour ends: the span stays, every lane is shown.
        "after": {
            "open": list(scene.lanes),
            "grain": None,
            "plane": "peak",
            "tall": [],
            "core": None,
        },
    }


def _recording_line(diagnosis: Diagnosis) -> str:
    node = diagnosis.node
    cores = f", {count(node.cores, 'core')}" if node is not None and node.cores else ""
    kernel = f"Linux {node.kernel}{cores}" if node is not None else "kernel unknown"
    return f"{kernel}, {seconds(diagnosis.end - diagnosis.start)} recorded"


def _average(scene: Scene, chain: Chain) -> dict[str, Any]:
    known = [minute for minute in scene.minutes if minute is not None]
    average = "The average over all cores, one point a minute, shows nothing unusual."
    if known:
        low, high = f"{min(known):.0f}", f"{max(known):.0f}"
        between = f"{low} %" if low == high else f"between {low} and {high} %"
        average = f"One point a minute, as on a dashboard: the machine was {between} busy."
    symptom = scene.diagnosis.by_id[chain.symptom]
    text = [f"{_sentence(symptom.summary)} What happened?", average]
    step = _step("average", "The average hides it", text, [])
    step["next"] = "Press → to see each core."
    step["view"] = {**_view(scene, None, (AVERAGE,)), "grain": MINUTE_LEVEL, "plane": "mean"}
    return step


def _unfolded(scene: Scene, chain: Chain, held: Finding) -> dict[str, Any]:
    cores = ", ".join(held.entities.get("core", ())) or "one"
    lasted = ""
    if held.start is not None and held.end is not None:
        lasted = f" for {seconds(held.end - held.start)}"
    several = len(held.entities.get("core", ())) > 1
    text = [
        f"The same seconds, one row per core: {'cores' if several else 'core'} {cores} "
        f"{'are' if several else 'is'} in the kernel without a break{lasted}.",
        "Almost nothing else runs there; averaged over all cores and a minute, it disappears.",
    ]
    step = _step("unfolded", "One core is stuck in the kernel", text, [])
    step["view"] = _view(scene, held, (AVERAGE, CORES))
    step["view"].update({"from": scene.diagnosis.start, "to": scene.diagnosis.end, "focus": CORES})
    step["view"]["link"] = chain.findings.index(held.id)
    return step


def _link(scene: Scene, chain: Chain, at: int) -> dict[str, Any]:
    """One finding of the chain, and how the one before caused it, or that it is the root cause."""
    diagnosis = scene.diagnosis
    finding = diagnosis.by_id[chain.findings[at]]
    detector = detector_of(finding.id)
    name = title_of(finding.id).capitalize() if detector is None else detector.heading
    lanes = (CORES,) if detector is None else detector.lanes
    text = [_when(diagnosis, finding) + _sentence(short(finding.summary))]
    text.append(_why(chain.links[at - 1]) if at else _beginning(chain))
    facts = _facts(finding, text)
    if scene.injected and _rests_on_the_log(finding):
        later = [diagnosis.by_id[item] for item in chain.findings[at + 1 :]]
        text.append(_injected(scene, any(map(_rests_on_the_log, later))))
    title = f"{name}: the cause" if at == 0 else name
    step = _step(finding.id, title, text, facts)
    cause = diagnosis.by_id[chain.findings[at - 1]] if at else None
    step["view"] = {**_view(scene, finding, lanes, cause), "link": at}
    if _holds_core(finding.id):
        cores = finding.entities.get("core", ())
        step["view"] |= {"flame": True, "core": cores[0] if len(cores) == 1 else None}
        step["view"]["tall"] = _open(scene, (CORES,))  # leave room for the flame graph
    return step


def _holds_core(name: str) -> bool:
    known = detector_of(name)
    return known is not None and known.holds_core


def _rests_on_the_log(finding: Finding) -> bool:
    return any(evidence.source in _KERNEL_LOG for evidence in finding.evidence)


def _injected(scene: Scene, again: bool) -> str:
    """Which log lines were injected; in full the first time."""
    if again:
        return "These driver messages were injected, too."
    return (
        f"{count(len(scene.injected), 'driver message')} in this kernel log were injected: "
        "a virtual machine has no such NIC."
    )


def _beginning(chain: Chain) -> str:
    """That it is the root cause, and what it leads to."""
    rule = rule_of(chain.links[0].id)
    return f"This is the root cause{f': {rule.story}' if rule is not None and rule.story else ''}."


def _when(diagnosis: Diagnosis, finding: Finding) -> str:
    """The time of day; empty if it lasts for most of the recording."""
    at = None if _lasts(diagnosis, finding) else finding.start
    return f"At {clock(at)} UTC: " if clock(at) else ""


def _lasts(diagnosis: Diagnosis, finding: Finding) -> bool:
    """Does it last for most of the recording?"""
    end = finding.end if finding.end is not None else finding.start
    if finding.start is None or end is None:
        return True
    return end - finding.start >= _MOST_OF_IT * (diagnosis.end - diagnosis.start)


def _why(link: Link) -> str:
    against = f" Against it: {'; '.join(link.against)}." if link.against else ""
    text = f"Why ({link.sure}): {link.sentence}."
    return shorten(text + against, 2 * _LONG)


def _cured(scene: Scene, cure: Mapping[str, Any]) -> dict[str, Any]:
    """The measurements of a real cure, with its kernel and date."""
    facts = [_compared(row) for row in cure["rows"]]
    when = " and ".join(run["when"] for run in cure["runs"])
    text = [
        _stopping(scene.diagnosis),
        "Then its zombies are freed and the result is verified (sexton fix plan).",
        f"Measured {when} on Linux {cure['kernel']}, {cure['where']}; {cure['note']}.",
    ]
    step = _step("cure", "The cure, before and after", text, facts)
    step["view"] = {**_view(scene, None, ("memcgs", "restarts")), "link": 0, "tall": []}
    step["columns"] = ["", "before", "after", "both"]
    step["next"] = "On your own node: sudo sexton record DIR, then sexton serve DIR."
    return step


def _compared(row: Mapping[str, Any]) -> dict[str, Any]:
    """Before and after as text, and as numbers if both are numbers."""
    after, before = (_number(row[side], row["unit"]) for side in ("after", "before"))
    both = [row["before"], row["after"]]
    fact: dict[str, Any] = _fact(row["what"], after, before)
    return fact if any(isinstance(side, str) for side in both) else {**fact, "numbers": both}


def _stopping(diagnosis: Diagnosis) -> str:
    """The first step of the diagnosis' own plan."""
    for step in diagnosis.plan:
        if step.do.startswith("systemctl disable"):
            return f"First the source is stopped: {step.do}."
    return f"First: {diagnosis.plan[0].do}." if diagnosis.plan else "First the source is stopped."


def _number(value: float | str, unit: str) -> str:
    """
    >>> _number(1244, ""), _number(268468224, "bytes"), _number(0.065, "s"), _number("none", "")
    ('1,244', '256.0 MiB', '65 ms', 'none')
    """
    if isinstance(value, str):
        return value
    if unit == "bytes":
        return size(value)
    if unit == "s":
        return seconds(value)
    return f"{value:,.{0 if value == int(value) else 1}f}" + (f" {unit}" if unit else "")


def _step(name: str, title: str, text: list[str], facts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": name, "title": title, "text": text, "next": "", "facts": facts}


def _view(
    scene: Scene, finding: Finding | None, lanes: Sequence[str], cause: Finding | None = None
) -> dict[str, Any]:
    """The span around a finding and its cause; all of it for one that lasts throughout."""
    diagnosis = scene.diagnosis
    first, last = diagnosis.start, diagnosis.end
    chosen = _moment(diagnosis, finding)
    if chosen is not None:
        moments = [span for span in (chosen, _moment(diagnosis, cause)) if span is not None]
        start, end = min(moment[0] for moment in moments), max(moment[1] for moment in moments)
        room = _AROUND_S + (chosen[1] - chosen[0])
        first, last = max(first, start - room), min(last, end + room)
    opened = _open(scene, lanes)
    return {
        "from": first,
        "to": last,
        "open": opened,
        "focus": opened[0] if opened else None,
        "select": chosen,
        "link": None,
        "flame": False,
        "grain": None,
        "plane": "peak",
        "tall": opened,
        "core": None,
    }


def _moment(diagnosis: Diagnosis, finding: Finding | None) -> list[float] | None:
    """Start and end, at least a second apart; `None` if it lasts for most of the recording."""
    if finding is None or finding.start is None or _lasts(diagnosis, finding):
        return None
    end = finding.end if finding.end is not None else finding.start
    return [finding.start, max(end, finding.start + 1)]


def _open(scene: Scene, lanes: Sequence[str]) -> list[str]:
    """Those of the lanes that are recorded and not quiet."""
    return [lane for lane in lanes if lane in scene.lanes and lane not in scene.quiet]


def _facts(finding: Finding, text: Sequence[str]) -> list[dict[str, str]]:
    """The first pieces of evidence of the current state, without repetitions."""
    facts: dict[str, dict[str, str]] = {}
    for evidence in finding.evidence:
        if not evidence.outlook and not any(evidence.value in sentence for sentence in text):
            value, normal = shorten(evidence.value, 120), shorten(evidence.normal, 60)
            facts.setdefault(evidence.what, _fact(evidence.what, value, normal, evidence.source))
    return list(facts.values())[:_MOST_FACTS]


def _fact(what: str, here: str, normal: str, source: str = "") -> dict[str, str]:
    return {"what": what, "here": here, "normal": normal, "source": source}


def _sentence(text: str) -> str:
    return shorten(text, _LONG) + "."

"""The bake-off table: for one incident, one cell per tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from lab.incident import Incident, mismatches, replayed, strength, top_cause
from lab.peers import node_problem_detector, prometheus, screens
from lab.peers.series import scraped
from sexton.errors import StoreError
from sexton.explain.diagnosis import diagnose
from sexton.model.window import Window
from sexton.replay.span import Span, everything
from sexton.store.recording import Recording

#: Sexton diagnoses prefixes of the recording in these steps, to find when it first knew.
_STEP_S = 10.0

PEERS = ("Sexton", "node-problem-detector", "node_exporter + mixin", "mpstat -P ALL 1",
         "all CPU, a minute's mean", "below, first screen")  # fmt: skip
#: Preferred recordings of a scene: closest to the original incident first.
_ORDER = (("6.1", "v1"), ("6.18", "v1"), ("5.10", "v1"), ("6.1", "v2"), ("6.12", "v2"))


def chosen(every: list[Incident]) -> list[Incident]:
    """One recording per scene."""
    best: dict[str, Incident] = {}
    for incident in every:
        scene = incident.key[0]
        if scene not in best or _rank(incident) < _rank(best[scene]):
            best[scene] = incident
    return [best[scene] for scene in sorted(best)]


def _rank(incident: Incident) -> tuple[int, str]:
    place = incident.key[1:]
    return (_ORDER.index(place) if place in _ORDER else len(_ORDER), incident.name)


@cache
def cells(incident: Incident) -> Mapping[str, str]:
    """What each tool would have shown, in words."""
    window, zero_s = incident.replay.window, trouble(incident)
    shown = (_sexton(incident), _npd(window, zero_s), _mixin(window, zero_s),
             _mpstat(window, zero_s), _graph(window), _below(window, zero_s))  # fmt: skip
    return dict(zip(PEERS, shown, strict=True))


def trouble(incident: Incident) -> float:
    """When the scene started to cause trouble, in seconds since the first reading; 0 if unknown."""
    start = incident.replay.window.start
    moments = (float(moment["at"]) - start for moment in incident.scene.get("moments", ()))
    return next((moment for moment in moments if moment > 0), 0.0)


def _when(after_s: float, zero_s: float) -> str:
    """
    >>> _when(52.4, 40.0), _when(20.0, 40.0)
    ('after 12 s', 'already before')
    """
    return f"after {after_s - zero_s:.0f} s" if after_s > zero_s else "already before"


def _sexton(incident: Incident) -> str:
    diagnosis = incident.diagnosis
    if [*mismatches(diagnosis, incident.expected)]:
        return f"**wrong**: {top_cause(diagnosis) or _quiet(int(diagnosis.exit))}"
    top = top_cause(diagnosis)
    if top is None:
        return _quiet(int(diagnosis.exit))
    how = f", {strength(diagnosis)}" if strength(diagnosis) else ""
    return f"`{top}`{how}, {_when(known_after(incident), trouble(incident))}"


def _quiet(status: int) -> str:
    return {0: "no alarm", 3: "cannot tell"}.get(status, f"exit {status}")


def known_after(incident: Incident) -> float:
    """Seconds of recording after which Sexton first named the right top cause."""
    span = everything(Recording(incident.recording))
    length = span.end[0] - span.start[0]
    for end_s in _ends(length):
        end = (span.start[0] + end_s, span.start[1] + end_s)
        try:
            part = replayed(incident.recording, Span(span.boot_id, span.start, end))
        except StoreError:
            continue
        if top_cause(diagnose(part.window)) == incident.expected.root:
            return end_s
    return length


def _ends(length: float) -> Iterator[float]:
    end = _STEP_S
    while end < length:
        yield end
        end += _STEP_S
    yield length


def _npd(window: Window, zero_s: float) -> str:
    found = node_problem_detector.matched(window)
    if found is None:
        return "no log recorded"
    return (
        ", ".join(f"{match.reason} {_when(match.after_s, zero_s)}" for match in found) or "nothing"
    )


def _mixin(window: Window, zero_s: float) -> str:
    found = prometheus.raised(scraped(window))
    return "; ".join(_alert(alarm, zero_s) for alarm in found) or "nothing"


def _alert(alarm: prometheus.Raised, zero_s: float) -> str:
    name = alarm.alert.name
    if alarm.fired:
        return f"{name} fires {_when(alarm.fires_s, zero_s)}"
    later = (alarm.fires_s - zero_s) / 60
    return f"{name} pending {_when(alarm.pending_s, zero_s)}, would fire after {later:.0f} min"


def _mpstat(window: Window, zero_s: float) -> str:
    found = screens.mpstat(window)
    if found is None:
        return "no core times recorded"
    if not found:
        return "no core at 90 %"
    return "; ".join(
        f"core {column.core} at {column.most:.0f} % {column.kind} {_when(column.after_s, zero_s)}"
        f" ({column.seconds:.0f} s in all)"
        for column in found[:3]
    ) + (f"; {len(found) - 3} more" if len(found) > 3 else "")


def _graph(window: Window) -> str:
    found = screens.graph(window)
    if found is None:
        return "no core times recorded"
    return f"at most {found[0]:.0f} % (one second: {found[1]:.0f} %)"


def _below(window: Window, zero_s: float) -> str:
    found = screens.below(window)
    if found is None:
        return "no core times recorded"
    words = f"CPU at most {found.busy:.0f} %, of it system {found.system:.0f} %"
    if found.dying is None:
        return f"{words}; no column for dying cgroups on cgroup v1"
    dying = f"{words}; dying cgroups at most {found.dying:,}"
    if found.many_after_s is None:
        return dying
    return f"{dying}, {screens.MANY_DYING} {_when(found.many_after_s, zero_s)}"

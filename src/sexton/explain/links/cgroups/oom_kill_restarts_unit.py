"""The OOM killer kills a process of a unit, and systemd restarts the unit.

**Rule.** The killed process must have been in the unit's cgroup, and the unit must have started
within its restart delay plus 30 s after the kill. *Proven*: systemd gives `oom-kill` as the unit's
result, or at least half of its restarts in the window follow such a kill. *Likely*: a start follows
a kill. *Possible*: the unit restarts, but no start has a time. No link if every known start came
before the kills.

**Evidence against.** Far more restarts in the window than kills in the unit: most of them have
another cause.
"""

from __future__ import annotations

from sexton.detect.oom import Kill, kills
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.rows.unit import RestartMark, Unit
from sexton.model.text import count, printable
from sexton.model.window import Window
from sexton.series.restarts import restarts

SOON_S = 30.0
#: The clocks of systemd and of the log differ by less than this.
_CLOCKS_S = 1.0
_RESULT = "oom-kill"


@link(
    cause="oom_kills",
    effect="crash_looping_unit",
    story="systemd restarted its unit",
    proof="the unit's result (systemctl show -p Result UNIT) right after a kill",
)
def join(_cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The crash-looping unit with the most kills."""
    units = effect.entities.get("unit", ())
    by_unit: dict[str, list[Kill]] = {}
    for kill in kills(window):
        name = printable(kill.unit or "")
        if name in units:
            by_unit.setdefault(name, []).append(kill)
    for name in sorted(by_unit, key=lambda item: (-len(by_unit[item]), units.index(item))):
        found = _judged(name, by_unit[name], window)
        if found is not None:
            strength, words, against = found
            return Bond(strength, words, shared=(name,), against=against)
    return None


def _judged(
    name: str, mine: list[Kill], window: Window
) -> tuple[Strength, str, tuple[str, ...]] | None:
    rows = [row for row in window.changes(Unit) if printable(row.name) == name]
    delay = max((row.restart_delay_us or 0 for row in rows), default=0) / 1e6
    starts = _starts(name, rows, window)
    moments = [kill.wall_s for kill in mine if kill.wall_s is not None]
    answered = sum(
        any(at - _CLOCKS_S <= start <= at + delay + SOON_S for start in starts) for at in moments
    )
    if starts and moments and not answered and max(starts) < min(moments) - _CLOCKS_S:
        return None
    counted = restarts(window).get(name)
    number = max(counted.recent if counted is not None else 0, 1)
    recent = sum(window.start <= at <= window.end for at in moments)
    by_systemd = any(row.result == _RESULT for row in rows)
    text = f"{count(len(mine), 'process', 'processes')} of {name} killed"
    if by_systemd:
        return Strength.PROVEN, f"{text}; systemd reports Result=oom-kill", ()
    against: tuple[str, ...] = ()
    if number > 2 * max(recent, 1):
        against = (f"{count(number, 'restart')} in this window, {count(recent, 'kill')}",)
    if not answered:
        return Strength.POSSIBLE, f"{text}; no start after a kill is dated", against
    words = f"{text}, {count(answered, 'start')} of it within {SOON_S:.0f} s of a kill"
    proven = recent and 2 * min(answered, recent) >= number
    return Strength.PROVEN if proven else Strength.LIKELY, words, against


def _starts(name: str, rows: list[Unit], window: Window) -> list[float]:
    """When the unit was started (UNIX), by systemd's times and by the journal."""
    found = {window.wall(row.main_start_us / 1e6) for row in rows if row.main_start_us}
    found |= {mark.wall_s for mark in window.all(RestartMark) or () if printable(mark.unit) == name}
    return sorted(found)

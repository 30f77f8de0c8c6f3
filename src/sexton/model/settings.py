"""The node owner's settings for detectors: thresholds, disabled detectors, silences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sexton.model.finding import Finding, Silenced
from sexton.model.frozen import Frozen, frozen
from sexton.model.text import count, printable


class Changed(NamedTuple):
    """A threshold other than the detector's default; `detectors` are all that share it, the one
    named in the configuration first."""

    detectors: tuple[str, ...]
    name: str
    value: float
    default: float
    unit: str


class Silence(NamedTuple):
    """Findings of `detector` are not a problem until then (UNIX seconds); of one entity or all."""

    detector: str
    entity: str | None
    until: float
    reason: str


@frozen
class Settings(Frozen):
    """The configuration in force; `path` is the file it was read from, "" if there is none.

    `expired` silences have no effect. They are kept because a report names them.
    """

    path: str = ""
    thresholds: tuple[Changed, ...] = ()
    off: tuple[str, ...] = ()
    silences: tuple[Silence, ...] = ()
    expired: tuple[Silence, ...] = ()
    #: Names of the owner's log patterns, and the directory they were read from.
    patterns: tuple[str, ...] = ()
    patterns_from: str = ""

    @property
    def changes(self) -> bool:
        """Whether anything differs from the defaults."""
        every = (self.thresholds, self.off, self.silences, self.expired, self.patterns)
        return any(every)

    @property
    def document(self) -> dict[str, Any] | None:
        """As JSON, in verdicts and recordings; `None` if nothing was configured."""
        if not self.path and not self.patterns:
            return None
        return {
            "path": printable(self.path) or None,
            "thresholds": [
                {**changed._asdict(), "detectors": list(changed.detectors)}
                for changed in self.thresholds
            ],
            "off": list(self.off),
            "silences": [silence._asdict() for silence in self.silences],
            "expired": [silence._asdict() for silence in self.expired],
            "patterns": list(self.patterns),
            "patterns_from": printable(self.patterns_from) or None,
        }

    def silenced(self, finding: Finding) -> Silenced | None:
        """The silence that covers a finding.

        A silence of one entity covers a finding only if all entities of that kind are silenced:
        a second crash-looping unit is still a problem.

        >>> from sexton.model.finding import Severity, Verdict
        >>> loop = Finding("loop", Verdict.PRESENT, Severity.WARNING, "x", {"unit": ("a", "b")})
        >>> a, b = Silence("loop", "a", 9.0, "new image"), Silence("loop", "b", 8.0, "")
        >>> Settings(silences=(a,)).silenced(loop) is None
        True
        >>> Settings(silences=(a, b)).silenced(loop)
        Silenced(until=8.0, reason='new image')

        A unit may be named without `.service`, and a task without its PID:

        >>> for things in ({"unit": ("a.service",)}, {"task": ("a[7]", "a[8]")}):
        ...     found = Finding("loop", Verdict.PRESENT, Severity.WARNING, "x", things)
        ...     print(Settings(silences=(a,)).silenced(found))
        Silenced(until=9.0, reason='new image')
        Silenced(until=9.0, reason='new image')
        """
        mine = [silence for silence in self.silences if silence.detector == finding.id]
        whole = [silence for silence in mine if silence.entity is None]
        if whole:
            return _joined(whole[:1])
        for names in finding.entities.values():
            covering = [silence for silence in mine if any(_is(silence, name) for name in names)]
            if names and all(any(_is(silence, name) for silence in covering) for name in names):
                return _joined(covering)
        return None


def _is(silence: Silence, name: str) -> bool:
    """Is the silence about this entity?"""
    entity = silence.entity
    task = name.partition("[")[0] if name.endswith("]") else None
    return entity is not None and entity in (name, name.removesuffix(".service"), task)


def _joined(silences: list[Silence]) -> Silenced:
    """Several silences as one, which ends with the first of them."""
    reasons = dict.fromkeys(silence.reason for silence in silences if silence.reason)
    return Silenced(min(silence.until for silence in silences), "; ".join(reasons))


def settings_from(document: object) -> Settings | None:
    """Settings from `Settings.document`; `None` if it is invalid: recordings are untrusted.

    >>> held = Changed(("hot_core",), "held", 4.0, 2.0, "s in a row")
    >>> mine = Settings("/etc/sexton/config.toml", (held,), ("odd_clock",))
    >>> settings_from(mine.document) == mine, settings_from(Settings().document) == Settings()
    (True, True)
    >>> settings_from({"thresholds": 5}) is None
    True
    """
    if document is None:
        return Settings()
    try:
        return _settings_from(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _settings_from(document: Any) -> Settings:
    return Settings(
        _text(document["path"]),
        tuple(
            Changed(
                _texts(entry["detectors"]),
                _text(entry["name"]),
                float(entry["value"]),
                float(entry["default"]),
                _text(entry["unit"]),
            )
            for entry in document["thresholds"]
            if entry["detectors"]
        ),
        _texts(document["off"]),
        tuple(map(_silence_from, document["silences"])),
        tuple(map(_silence_from, document["expired"])),
        _texts(document["patterns"]),
        _text(document["patterns_from"]),
    )


def _silence_from(entry: Mapping[str, Any]) -> Silence:
    entity = entry["entity"]
    return Silence(
        _text(entry["detector"]),
        None if entity is None else _text(entity),
        float(entry["until"]),
        _text(entry["reason"]),
    )


def _text(value: object) -> str:
    return "" if value is None else printable(str(value))


def _texts(values: list[object]) -> tuple[str, ...]:
    return tuple(map(_text, values))


def differences(then: Settings, now: Settings) -> list[str]:
    """What was configured differently, in words. Silences that expired meanwhile do not count.

    >>> held = Changed(("hot_core",), "held", 4.0, 2.0, "s in a row")
    >>> differences(Settings("a", (held,), ("odd_clock",)), Settings())
    ['hot_core.held was 4 s in a row (now 2)', 'odd_clock was off (now on)']
    >>> differences(Settings(), Settings("a", (held,), ("odd_clock",)))
    ['hot_core.held was 2 s in a row (now 4)', 'odd_clock was on (now off)']
    """
    return list(_differences(then, now))


def _differences(then: Settings, now: Settings) -> Iterator[str]:
    before, after = (
        {(one.detectors[0], one.name): one for one in side.thresholds} for side in (then, now)
    )
    for key in sorted({*before, *after}):
        known = before.get(key) or after[key]
        was = before[key].value if key in before else known.default
        value = after[key].value if key in after else known.default
        if was != value:
            yield f"{'.'.join(key)} was {was:g} {known.unit} (now {value:g})"
    for name in sorted({*then.off} ^ {*now.off}):
        yield f"{name} was off (now on)" if name in then.off else f"{name} was on (now off)"
    old, new = ({*side.silences, *side.expired} for side in (then, now))
    for gone, words in ((old - new, "no longer in force"), (new - old, "not in force then")):
        if gone:
            yield f"{count(len(gone), 'silence')} {words}"
    for name in sorted({*then.patterns} ^ {*now.patterns}):
        known_then = name in then.patterns
        yield f"log pattern {name} was {'there (now gone)' if known_then else 'not there yet'}"

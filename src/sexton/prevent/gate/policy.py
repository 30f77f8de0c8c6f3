"""The policy: data that says how strict a gate is, and what is excused until when.

Somebody else wrote the file. Whatever is wrong with it is one line that names the place and what
would be right, and exit 2: a gate that guesses at its own rules is no gate.
"""

from __future__ import annotations

import datetime
import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files as packaged
from typing import Any

from sexton.errors import CommandError
from sexton.model.text import printable, shorten
from sexton.prevent.gate.model import Waiver

SCHEMA = "sexton.policy/1"
#: A thousand waivers of a thousand characters fit.
MOST_BYTES = 1 << 20
MOST_WAIVERS = 1000
_LONGEST = 1000
LEVELS = ("error", "warning")
ON_UNKNOWN = ("fail", "pass")
#: Every rule has these, whatever else it has.
_SHARED: dict[str, tuple[str, ...]] = {"level": LEVELS, "on_unknown": ON_UNKNOWN}
_CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    ("cgroup_version", "require"): ("any", "v1", "v2"),
}
_TOP = ("schema", "on_unknown", "observe_seconds", "warn_days", "waiver_days", "rules", "waivers")
_WAIVER = ("rule", "subject", "owner", "expires", "reason")
_MOST_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Policy:
    """All a gate goes by. `rules` holds every rule's settings, "level", "on_unknown" and "enabled"
    among them; `name` is the file, or "built-in"."""

    name: str
    observe_seconds: float
    warn_days: int
    rules: Mapping[str, Mapping[str, Any]]
    waivers: tuple[Waiver, ...] = ()
    #: Units that are meant to be here, by the policy file of `sexton audit`.
    agents: tuple[Waiver, ...] = ()
    #: Where an editor would go to change it; "" for the built-in one.
    path: str = field(default="")
    #: How far ahead a waiver may end; 0: as far as it likes.
    waiver_days: int = 0


def builtin_text() -> str:
    """The built-in policy, as it is printed."""
    return packaged("sexton.prevent.gate").joinpath("policy.toml").read_text(encoding="utf-8")


@cache
def _builtin() -> dict[str, Any]:
    return tomllib.loads(builtin_text())


def builtin() -> Policy:
    """The policy of who gave none."""
    return _made({}, "built-in", "")


def rule_ids() -> tuple[str, ...]:
    """Every rule the built-in policy knows, in its order."""
    return tuple(_builtin()["rules"])


def parse(content: bytes, path: str) -> Policy:
    """A policy file laid over the built-in one; `CommandError` (exit 2) says what is wrong."""
    try:
        told = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _wrong(path, f"no UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise _wrong(path, f"no TOML: {error}") from None
    except RecursionError:
        raise _wrong(path, "no TOML: nested too deep") from None
    except ValueError as error:  # a date such as 2026-02-30, a number of 5,000 digits
        raise _wrong(path, f"no TOML: {error}") from None
    return _made(told, path, path)


def _made(told: dict[str, Any], name: str, path: str) -> Policy:
    base = _builtin()
    _known(path, "", told, _TOP)
    if told.get("schema", SCHEMA) != SCHEMA:
        raise _wrong(path, f"schema is {_shown(told['schema'])}; this Sexton reads {SCHEMA}")
    on_unknown = _one_of(path, "on_unknown", told.get("on_unknown", base["on_unknown"]), ON_UNKNOWN)
    rules = _rules(path, told.get("rules", {}), on_unknown)
    waivers = _waivers(path, told.get("waivers", []), tuple(base["rules"]))
    _once(path, waivers)
    seconds = _number(path, "observe_seconds", told.get("observe_seconds", base["observe_seconds"]))
    if not 0 < seconds <= _MOST_SECONDS:
        raise _wrong(path, f"observe_seconds is {seconds:g}, not more than 0 and at most 3600")
    warn, most = (
        _like(path, key, told.get(key, base[key]), 0) for key in ("warn_days", "waiver_days")
    )
    return Policy(name, float(seconds), warn, rules, waivers, path=path, waiver_days=most)


def _rules(path: str, told: Any, on_unknown: str) -> dict[str, dict[str, Any]]:
    base: dict[str, dict[str, Any]] = _builtin()["rules"]
    _table(path, "rules", told)
    _known(path, "rules.", told, tuple(base))
    made = {}
    for rule, defaults in base.items():
        here = f"rules.{rule}"
        mine = told.get(rule, {})
        _table(path, here, mine)
        _known(path, f"{here}.", mine, (*defaults, *_SHARED, "enabled"))
        settings = {"enabled": True, "level": "error", "on_unknown": on_unknown, **defaults}
        for key, value in mine.items():
            place = f"{here}.{key}"
            choices = _SHARED.get(key) or _CHOICES.get((rule, key))
            if choices is not None:
                settings[key] = _one_of(path, place, value, choices)
            else:
                settings[key] = _like(path, place, value, settings[key])
        made[rule] = settings
    return made


def _like(path: str, place: str, value: Any, model: Any) -> Any:
    """`value`, if it is of the kind of the built-in one."""
    if isinstance(model, bool):
        if not isinstance(value, bool):
            raise _wrong(path, f"{place} is {_shown(value)}, not true or false")
        return value
    number = _number(path, place, value)
    if isinstance(model, int) and not isinstance(number, int):
        raise _wrong(path, f"{place} is {_shown(value)}, not a whole number")
    if number < 0:
        raise _wrong(path, f"{place} is {_shown(value)}, less than 0")
    return number


def _number(path: str, place: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _wrong(path, f"{place} is {_shown(value)}, not a number")
    return value


def _waivers(path: str, told: Any, known: tuple[str, ...]) -> tuple[Waiver, ...]:
    made = []
    for number, entry in enumerate(_tables(path, "waivers", told), 1):
        here = f"waiver {number}"
        _known(path, f"{here}: ", entry, _WAIVER)
        for key in ("rule", "subject", "owner", "expires"):
            if key not in entry:
                raise _wrong(path, f"{here} has no {key}; every waiver has one")
        rule = _text(path, f"{here}: rule", entry["rule"])
        if rule not in known:
            raise _wrong(path, f"{here}: there is no rule {_shown(rule)}{_nearest(rule, known)}")
        made.append(
            Waiver(
                rule,
                _text(path, f"{here}: subject", entry["subject"]),
                _text(path, f"{here}: owner", entry["owner"]),
                _date(path, f"{here}: expires", entry["expires"]),
                _text(path, f"{here}: reason", entry.get("reason", "none given")),
                here,
            )
        )
    return tuple(made)


def _once(path: str, waivers: Iterable[Waiver]) -> None:
    seen: dict[tuple[str, str], Waiver] = {}
    for waiver in waivers:
        key = (waiver.rule, waiver.subject)
        if key in seen:
            what = f"{waiver.rule} for {_shown(waiver.subject)}"
            raise _wrong(path, f"{waiver.at} repeats {seen[key].at}: both excuse {what}")
        seen[key] = waiver


def _tables(path: str, place: str, told: Any) -> list[dict[str, Any]]:
    if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
        raise _wrong(path, f"{place} is {_shown(told)}; write each as [[{place}]]")
    if len(told) > MOST_WAIVERS:
        raise _wrong(path, f"{len(told):,} {place}; at most {MOST_WAIVERS:,} are read")
    return told


def _table(path: str, place: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise _wrong(path, f"{place} is {_shown(value)}; write it as [{place}]")


def _text(path: str, place: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(path, f"{place} is {_shown(value)}, not a text")
    if not value.strip():
        raise _wrong(path, f"{place} is empty")
    if len(value) > _LONGEST:
        raise _wrong(path, f"{place} has {len(value):,} characters; at most {_LONGEST:,} are read")
    return value


def _date(path: str, place: str, value: Any) -> datetime.date:
    """A TOML date, or the same as text; a moment within a day would need a time zone."""
    if isinstance(value, str):
        try:
            value = datetime.date.fromisoformat(value.strip())
        except ValueError:
            raise _wrong(path, f"{place} is {_shown(value)}, not a date: 2027-01-31") from None
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
        raise _wrong(path, f"{place} is {_shown(value)}, not a date: 2027-01-31")
    return value


def _one_of(path: str, place: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise _wrong(path, f"{place} is {_shown(value)}, none of {', '.join(choices)}")
    return value


def _known(path: str, place: str, told: Mapping[str, Any], known: Iterable[str]) -> None:
    names = tuple(known)
    for key in told:
        if key not in names:
            hint = _nearest(key, names)
            raise _wrong(path, f"{place}{printable(shorten(key, 60))} is not known{hint}")


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return '"' + printable(shorten(value, 60)) + '"'
    return printable(shorten(str(value), 60))


def _wrong(path: str, detail: str) -> CommandError:
    return CommandError(f"{path or 'the built-in policy'}: {detail}")

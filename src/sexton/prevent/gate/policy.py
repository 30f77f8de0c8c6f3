"""The policy file: how strict each rule is, and which violations are waived until when.

An error in the file is reported in one line with its place and the valid values, and exit 2.
Nothing in a policy is guessed.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files as packaged
from typing import Any

from sexton.errors import CommandError
from sexton.model.text import printable, shorten
from sexton.model.toml import parse_toml
from sexton.prevent.audit import policy as audit_policy
from sexton.prevent.gate.model import Waiver

SCHEMA = "sexton.policy/1"
#: Room for a thousand waivers of a thousand characters.
MOST_BYTES = 1 << 20
MOST_WAIVERS = 1000
_LONGEST = 1000
LEVELS = ("error", "warning")
ON_UNKNOWN = ("fail", "pass")
#: Settings that every rule has.
_SHARED: dict[str, tuple[str, ...]] = {"level": LEVELS, "on_unknown": ON_UNKNOWN}
_CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    ("cgroup_version", "require"): ("any", "v1", "v2")
}
_TOP = ("schema", "on_unknown", "observe_seconds", "warn_days", "waiver_days", "rules", "waivers")
_WAIVER = ("rule", "subject", "owner", "expires", "reason")
_MOST_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Policy:
    """`rules` holds every rule's settings, including "level", "on_unknown" and "enabled"; `name` is
    the file, or "built-in"."""

    name: str
    observe_seconds: float
    warn_days: int
    rules: Mapping[str, Mapping[str, Any]]
    waivers: tuple[Waiver, ...] = ()
    #: Waivers of `unneeded_units` from the policy file of `sexton audit`.
    agents: tuple[Waiver, ...] = ()
    #: "" for the built-in policy.
    path: str = field(default="")
    #: How many days ahead a waiver may expire; 0: no limit.
    waiver_days: int = 0


def builtin_text() -> str:
    """The built-in policy file."""
    return packaged("sexton.prevent.gate").joinpath("policy.toml").read_text(encoding="utf-8")


@cache
def _builtin() -> dict[str, Any]:
    return parse_toml(builtin_text())


def builtin() -> Policy:
    """The policy used without --policy."""
    return _policy({}, "built-in", "")


def rule_ids() -> tuple[str, ...]:
    """Every rule, in the order of the built-in policy."""
    return tuple(_builtin()["rules"])


def parse(content: bytes, path: str) -> Policy:
    """A policy file merged over the built-in one; `CommandError` (exit 2) says what is wrong."""
    try:
        values = parse_toml(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise CommandError(f"{path}: invalid TOML: nested too deep") from None
    except ValueError as error:  # also a date such as 2026-02-30, a number of 5,000 digits
        raise CommandError(f"{path}: invalid TOML: {error}") from None
    try:
        return _policy(values, path, path)
    except CommandError as error:
        raise CommandError(f"{path}: {error}") from None


def agents_of(content: bytes, path: str) -> tuple[Waiver, ...]:
    """Waivers of `unneeded_units` from a `sexton audit` policy: its entries with an owner and an
    expiry.

    Entries that match nothing are not reported: the file covers a whole fleet, not one image.
    """
    try:
        entries = audit_policy.parse(content.decode("utf-8"), printable(path))
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not UTF-8 (byte {error.start})") from None
    except (RecursionError, ValueError) as error:
        raise CommandError(f"{path}: invalid TOML: {error}") from None
    return tuple(
        Waiver(
            "unneeded_units",
            entry.unit,
            entry.owner,
            entry.expires,
            entry.why or "listed in the audit policy",
            path,
        )
        for entry in entries
        if entry.owner and entry.expires is not None
    )


def _policy(values: dict[str, Any], name: str, path: str) -> Policy:
    base = _builtin()
    _known("", values, _TOP)
    if values.get("schema", SCHEMA) != SCHEMA:
        raise CommandError(f"schema is {_shown(values['schema'])}; expected {SCHEMA}")
    on_unknown = _one_of("on_unknown", values.get("on_unknown", base["on_unknown"]), ON_UNKNOWN)
    rules = _rules(values.get("rules", {}), on_unknown)
    waivers = _waivers(values.get("waivers", []), tuple(base["rules"]))
    _reject_duplicates(waivers)
    seconds = _number("observe_seconds", values.get("observe_seconds", base["observe_seconds"]))
    if not 0 < seconds <= _MOST_SECONDS:
        raise CommandError(
            f"observe_seconds is {seconds:g}; must be over 0 and at most {_MOST_SECONDS}"
        )
    warn, most = (_like(key, values.get(key, base[key]), 0) for key in ("warn_days", "waiver_days"))
    return Policy(name, float(seconds), warn, rules, waivers, path=path, waiver_days=most)


def _rules(values: Any, on_unknown: str) -> dict[str, dict[str, Any]]:
    base: dict[str, dict[str, Any]] = _builtin()["rules"]
    _table("rules", values)
    _known("rules.", values, tuple(base))
    rules = {}
    for rule, defaults in base.items():
        place = f"rules.{rule}"
        own = values.get(rule, {})
        _table(place, own)
        _known(f"{place}.", own, (*defaults, *_SHARED, "enabled"))
        settings = {"enabled": True, "level": "error", "on_unknown": on_unknown, **defaults}
        for key, value in own.items():
            choices = _SHARED.get(key) or _CHOICES.get((rule, key))
            if choices is not None:
                settings[key] = _one_of(f"{place}.{key}", value, choices)
            else:
                settings[key] = _like(f"{place}.{key}", value, settings[key])
        rules[rule] = settings
    return rules


def _like(place: str, value: Any, model: Any) -> Any:
    """`value`, checked to have the type of the built-in one."""
    if isinstance(model, bool):
        if not isinstance(value, bool):
            raise CommandError(f"{place} is {_shown(value)}; must be true or false")
        return value
    number = _number(place, value)
    if isinstance(model, int) and not isinstance(number, int):
        raise CommandError(f"{place} is {_shown(value)}; must be a whole number")
    if number < 0:
        raise CommandError(f"{place} is {_shown(value)}; must be 0 or more")
    return number


def _number(place: str, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CommandError(f"{place} is {_shown(value)}; must be a number")
    return value


def _waivers(entries: Any, known: tuple[str, ...]) -> tuple[Waiver, ...]:
    waivers = []
    for number, entry in enumerate(_tables("waivers", entries), 1):
        place = f"waiver {number}"
        _known(f"{place}: ", entry, _WAIVER)
        for key in ("rule", "subject", "owner", "expires"):
            if key not in entry:
                raise CommandError(f"{place} has no {key}; every waiver needs one")
        rule = _text(f"{place}: rule", entry["rule"])
        if rule not in known:
            raise CommandError(f"{place}: unknown rule {_shown(rule)}{_nearest(rule, known)}")
        waivers.append(
            Waiver(
                rule,
                _text(f"{place}: subject", entry["subject"]),
                _text(f"{place}: owner", entry["owner"]),
                _date(f"{place}: expires", entry["expires"]),
                _text(f"{place}: reason", entry.get("reason", "none given")),
                place,
            )
        )
    return tuple(waivers)


def _reject_duplicates(waivers: Iterable[Waiver]) -> None:
    seen: dict[tuple[str, str], Waiver] = {}
    for waiver in waivers:
        key = (waiver.rule, waiver.subject)
        if key in seen:
            what = f"{waiver.rule} for {_shown(waiver.subject)}"
            raise CommandError(f"{waiver.at} repeats {seen[key].at}: both waive {what}")
        seen[key] = waiver


def _tables(place: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(element, dict) for element in value):
        raise CommandError(f"{place} is {_shown(value)}; write each as [[{place}]]")
    if len(value) > MOST_WAIVERS:
        raise CommandError(f"{len(value):,} {place}; at most {MOST_WAIVERS:,} are allowed")
    return value


def _table(place: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise CommandError(f"{place} is {_shown(value)}; write it as [{place}]")


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str):
        raise CommandError(f"{place} is {_shown(value)}; must be a string")
    if not value.strip():
        raise CommandError(f"{place} is empty")
    if len(value) > _LONGEST:
        raise CommandError(
            f"{place} has {len(value):,} characters; at most {_LONGEST:,} are allowed"
        )
    return value


def _date(place: str, value: Any) -> datetime.date:
    """A TOML date, or the same as a string. A time of day is refused: it would need a time zone."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = datetime.date.fromisoformat(value.strip())
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
        raise CommandError(f"{place} is {_shown(value)}; must be a date such as 2027-01-31")
    return value


def _one_of(place: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise CommandError(f"{place} is {_shown(value)}; must be one of {', '.join(choices)}")
    return value


def _known(place: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    names = tuple(known)
    for key in table:
        if key not in names:
            waiver, colon, table_name = place.rpartition(": ")
            name = f"{table_name}{printable(shorten(key, 60))}"
            raise CommandError(f"{waiver}{colon}unknown key {name}{_nearest(key, names)}")


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

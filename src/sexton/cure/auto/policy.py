"""The policy of `sexton fix auto`: what it may do, where, how often, and when.

A TOML file. What is not allowed in it is forbidden; a key that is not known is an error, since it
may be a misspelt limit. ``docs/kubernetes-remedies.md`` has one with every key.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sexton.cure.remedy import remedy_names
from sexton.detect.registry import detector_of
from sexton.errors import CommandError
from sexton.model.chain import Strength
from sexton.model.text import printable

#: Never unattended: they concern the whole node, or destroy data.
NEVER = ("reboot_node", "drop_caches", "delete_tmpfs_files")
ON_NODE = ("cordon_node", "taint_node", "drain_node")
#: Weaker chains are guesses.
STRENGTHS = (Strength.PROVEN, Strength.LIKELY)
WEEK_S = 7 * 86_400.0
_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_LABEL = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(rf"!?{_LABEL}|{_LABEL}(==?|!=){_VALUE}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """One cause chain that may be acted on, and the remedies for it."""

    root: str
    symptom: str
    steps: tuple[str, ...]
    strength: Strength = Strength.PROVEN


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes among which this one is counted, and how many may be out of service."""

    selector: str
    max_nodes: int | None = None
    max_percent: int | None = None
    one_per_zone: bool = True


@dataclass(frozen=True, slots=True)
class Drain:
    """What a drain may evict, and how long it may take."""

    delete_emptydir_data: bool = False
    evict_unmanaged: bool = False
    seconds: int = 900


@dataclass(frozen=True, slots=True)
class Named:
    """An object in a namespace."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Policy:
    """`enforce_after` is UNIX time; `lease_seconds` how long a dead holder keeps its lease."""

    rules: tuple[Rule, ...]
    pool: Pool
    drain: Drain = Drain()
    dry_run: bool = True
    enforce_after: float | None = None
    cool_down_s: float = 6 * 3600.0
    lease: Named = Named("sexton", "sexton-fix")
    lease_seconds: int = 60
    kill_switch: Named = Named("sexton", "sexton-fix")
    path: str = field(default="policy", compare=False)

    def why_dry(self, started: float, now: float) -> str:
        """Why nothing is enforced yet; `started` is when the first pass was. Empty: it is."""
        if self.dry_run:
            return "dry_run is not false in the policy"
        if self.enforce_after is not None:
            after = self.enforce_after
            return "" if now >= after else f"enforce_after is {_time(after)}"
        if now < started + WEEK_S:
            return f"the first week ends {_time(started + WEEK_S)} (or set enforce_after)"
        return ""


def _time(unix: float) -> str:
    moment = datetime.datetime.fromtimestamp(unix, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def policy_of(text: str, path: str = "policy") -> Policy:
    """The policy in a file; `CommandError` with one line if anything in it is not as it should be.

    >>> policy_of("[pool]")
    Traceback (most recent call last):
    sexton.errors.CommandError: policy: no [[rule]]: nothing would be allowed
    """
    try:
        table = _Table(tomllib.loads(text), path)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not TOML: {error}") from None
    rules = tuple(_rule(rule) for rule in table.tables("rule"))
    if not rules:
        raise CommandError(f"{path}: no [[rule]]: nothing would be allowed")
    pairs = [(rule.root, rule.symptom) for rule in rules]
    for pair in pairs:
        if pairs.count(pair) > 1:
            raise CommandError(f"{path}: two rules for {pair[0]} -> {pair[1]}")
    pace, lease = table.table("pace"), table.table("lease")
    drain, switch = table.table("drain"), table.table("kill_switch")
    policy = Policy(
        rules,
        _pool(table.table("pool")),
        Drain(
            drain.flag("delete_emptydir_data", False),
            drain.flag("evict_unmanaged", False),
            drain.number("seconds", 900, 10, 86_400),
        ),
        table.flag("dry_run", True),
        table.moment("enforce_after"),
        pace.number("cool_down_minutes", 360, 1, 525_600) * 60.0,
        _named(lease, "lease"),
        lease.number("seconds", 60, 2, 600),
        _named(switch, "configmap"),
        path,
    )
    for each in (pace, lease, drain, switch, table):
        each.done()
    if policy.dry_run and policy.enforce_after is not None:
        raise CommandError(f"{path}: enforce_after has no effect without dry_run = false")
    return policy


def _rule(table: _Table) -> Rule:
    ends = table.text("root"), table.text("symptom")
    for name in ends:
        if detector_of(name) is None:
            raise table.error(f"{name!r} is not a finding (sexton diagnose --json names them)")
    if ends[0] == ends[1]:
        raise table.error("root and symptom are the same: that is no chain")
    known = [name for name in remedy_names() if name not in NEVER]
    steps = table.texts("steps")
    for name in steps:
        if name in NEVER:
            raise table.error(f"{name} is never done unattended")
        if name not in known:
            raise table.error(f"{name!r} is not a step ({', '.join(known)})")
    if "drain_node" in steps and "cordon_node" not in steps:
        raise table.error("drain_node needs cordon_node: evicted pods would come back")
    strength = table.text("strength", Strength.PROVEN.value)
    if strength not in [each.value for each in STRENGTHS]:
        raise table.error(f"strength {strength!r} is not one of proven, likely")
    table.done()
    return Rule(*ends, steps, Strength(strength))


def _pool(table: _Table) -> Pool:
    selector = table.text("selector")
    for requirement in selector.split(","):
        if not _REQUIREMENT.fullmatch(requirement.strip()):
            raise table.error(f"{requirement.strip()!r} is not a label requirement (KEY=VALUE)")
    pool = Pool(
        ",".join(part.strip() for part in selector.split(",")),
        table.optional("max_nodes", 1, 100_000),
        table.optional("max_percent", 1, 50),
        table.flag("one_per_zone", True),
    )
    if pool.max_nodes is None and pool.max_percent is None:
        raise table.error("needs max_nodes or max_percent")
    table.done()
    return pool


def _named(table: _Table, key: str) -> Named:
    given = table.text("name" if key == "lease" else key, "sexton/sexton-fix")
    namespace, slash, name = given.partition("/")
    if not slash or not all(re.fullmatch(_NAME, part, re.ASCII) for part in (namespace, name)):
        raise table.error(f"{given!r} is not NAMESPACE/NAME")
    return Named(namespace, name)


class _Table:
    """A table of the file. Every key is taken once; `done` refuses what is left."""

    def __init__(self, content: Mapping[str, Any], path: str) -> None:
        self._left = dict(content)
        self._path = path

    def error(self, what: str) -> CommandError:
        return CommandError(f"{self._path}: {printable(what)}")

    def done(self) -> None:
        if self._left:
            raise self.error(f"unknown key {min(self._left)!r}")

    def table(self, key: str) -> _Table:
        found = self._left.pop(key, {})
        if not isinstance(found, dict):
            raise self.error(f"[{key}] must be a table")
        return _Table(found, f"{self._path}: [{key}]")

    def tables(self, key: str) -> list[_Table]:
        found = self._left.pop(key, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.error(f"write [[{key}]]")
        return [
            _Table(each, f"{self._path}: [[{key}]] {number}")
            for number, each in enumerate(found, 1)
        ]

    def text(self, key: str, default: str | None = None) -> str:
        found = self._left.pop(key, default)
        if not isinstance(found, str) or not found:
            raise self.error(f"{key} is missing" if found is None else f"{key} must be text")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._left.pop(key, None)
        if not isinstance(found, list) or not found or not all(isinstance(x, str) for x in found):
            raise self.error(f"{key} must be a list of names")
        return tuple(dict.fromkeys(found))

    def flag(self, key: str, default: bool) -> bool:
        found = self._left.pop(key, default)
        if not isinstance(found, bool):
            raise self.error(f"{key} must be true or false")
        return found

    def number(self, key: str, default: int, least: int, most: int) -> int:
        found = self.optional(key, least, most)
        return default if found is None else found

    def optional(self, key: str, least: int, most: int) -> int | None:
        found = self._left.pop(key, None)
        if found is None:
            return None
        if type(found) is not int or not least <= found <= most:
            raise self.error(f"{key} must be a whole number from {least} to {most:,}")
        return found

    def moment(self, key: str) -> float | None:
        found = self._left.pop(key, None)
        if found is None:
            return None
        if not isinstance(found, datetime.datetime) or found.tzinfo is None:
            raise self.error(f"{key} must be a time with its zone, like 2027-01-31T08:00:00Z")
        return found.timestamp()

"""Checks of a kubelet configuration: fields, types and ranges first, then harmful settings.

kubelet *ignores* an unknown field, with one line in its log ("Using lenient decoding as strict
decoding failed"), so the setting silently has no effect. A value of the wrong type makes it refuse
to start ("failed to decode: json: cannot unmarshal …"), and so do some combinations of valid
values.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from posixpath import normpath
from typing import Any, NamedTuple

from sexton.model.text import printable, seconds, shorten
from sexton.prevent.kubelet.fields import (
    ANY,
    API_VERSION,
    AS_OF,
    BOOL,
    DEFAULT_HARD,
    DURATION,
    FIELDS,
    FLOAT,
    GATES,
    INT,
    INTS,
    KIND,
    LISTS,
    NOT_FIELDS,
    NOT_GATES,
    QUANTITIES,
    REPLACEMENTS,
    SIGNALS,
    STRING,
    STRINGS,
    Field,
    duration,
    quantity,
    threshold,
)
from sexton.prevent.kubelet.tree import Entry, Node

#: An error keeps kubelet from starting or makes it ignore the setting; a warning harms the node;
#: a note is only information.
ERROR, WARNING, NOTE = "error", "warning", "note"
#: A file may hold a key of any length.
_LONGEST = 500
#: cAdvisor's default; each round reads the memory statistics of every container cgroup.
HOUSEKEEPING_S = 10.0
#: Walking volumes more often than this loads the node; the default is a minute.
VOLUMES_S = 30.0
#: Below this a failing container restarts too often: each start is a new memory cgroup.
RESTARTS_S = 10.0
LEAST_MEMORY = 100 * 2**20
_REFUSES = "kubelet refuses to start"
_WORDS = {
    STRING: "a string",
    BOOL: "true or false",
    INT: "a whole number",
    FLOAT: "a number",
    DURATION: 'a duration such as "10s"',
    STRINGS: "a list of strings",
    INTS: "a list of whole numbers",
    QUANTITIES: "a map of strings to strings",
    GATES: "a map of names to true or false",
    LISTS: "a map of names to lists of strings",
    "object": "a map",
    "objects": "a list of maps",
}


@dataclass(frozen=True, slots=True)
class Fix:
    """A change in the corrected file, at the field `path`.

    `kind`: "remove" the field, "rename" it to `value`, "set" it to the YAML text `value`, or
    "add" it with that text.
    """

    kind: str
    path: tuple[str, ...]
    value: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. `field` is a dotted path ("evictionHard.memory.available"); `line` counts from
    1, and is 0 if the problem is something missing."""

    level: str
    field: str
    message: str
    line: int = 0
    fix: Fix | None = None

    def __post_init__(self) -> None:
        for name in ("field", "message"):
            shown = shorten(printable(getattr(self, name)), _LONGEST)
            object.__setattr__(self, name, shown)


@dataclass(frozen=True, slots=True)
class Flag:
    """A kubelet flag and the file or process it was read from.

    A path in it is relative to `directory` (`None`: that could not be read), an absolute one is
    below `root`: a kubelet in a container or a chroot has its own.
    """

    name: str
    value: str
    read_from: str
    directory: str | None = "/"
    root: str = ""

    def __post_init__(self) -> None:
        for name in ("name", "value", "read_from"):
            object.__setattr__(self, name, printable(getattr(self, name)))

    @property
    def path(self) -> str | None:
        """The file or directory it names; `None` if that is unknown.

        >>> Flag("config", "/etc/k.yaml", "unit").path, Flag("config", "k.yaml", "unit").path
        ('/etc/k.yaml', '/k.yaml')
        >>> Flag("config", "./k.yaml", "kubelet[7]", "/srv/k").path
        '/srv/k/k.yaml'
        """
        if self.value.startswith("/"):
            return self.root + self.value
        if self.directory is None:
            return None
        return normpath(f"{self.directory.rstrip('/')}/{self.value}")


def check_fields(tree: Node) -> Iterator[Problem]:
    """Unknown fields, wrong types, values out of range."""
    if tree.entries is None:
        yield Problem(ERROR, "", f"not a map of fields: {_REFUSES}", tree.line)
        return
    yield from _head(tree.entries)
    for problem in _mapping(tree.entries, FIELDS, ()):
        # Items of a list cannot be fixed line by line.
        listed = problem.fix is not None and any(part.endswith("]") for part in problem.fix.path)
        yield replace(problem, fix=None) if listed else problem


def _head(entries: dict[str, Entry]) -> Iterator[Problem]:
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        entry = entries.get(name)
        if entry is None:
            message = f"{name} is missing, must be {wanted}: {_REFUSES}"
            yield Problem(ERROR, name, message, 0, Fix("add", (name,), wanted))
        elif entry.node.value != wanted:
            found = _shown(entry.node)
            message = f"{name} is {found}, must be {wanted}: {_REFUSES}"
            yield Problem(ERROR, name, message, entry.line, Fix("set", (name,), wanted))


def _mapping(
    entries: dict[str, Entry], known: dict[str, Field], path: tuple[str, ...]
) -> Iterator[Problem]:
    for name, entry in entries.items():
        here = (*path, name)
        if name not in known:
            yield _unknown(here, entry, known)
        else:
            yield from _value(entry.node, known[name], here, entry.line)


def _unknown(path: tuple[str, ...], entry: Entry, known: dict[str, Field]) -> Problem:
    name = path[-1]
    where = f"{'.'.join(path[:-1])} of " if len(path) > 1 else ""
    ignored = f"not a field of {where}{KIND} v1beta1 (as of {AS_OF}): kubelet ignores it"
    same = next((other for other in known if _folded(other) == _folded(name)), "")
    nearest = same or next(iter(difflib.get_close_matches(name, sorted(known), 1, 0.75)), "")
    advice = NOT_FIELDS.get(name) if len(path) == 1 else None
    if advice is None and nearest:
        advice = f"did you mean {nearest}?"
    message = f"{ignored}; {advice}" if advice else ignored
    # Renamed only if nothing but the spelling differs: the fix must not set anything by guess.
    sure = same or REPLACEMENTS.get(name, "")
    fix = Fix("rename", path, sure) if sure else Fix("remove", path)
    return Problem(ERROR, ".".join(path), message, entry.line, fix)


def _folded(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _value(node: Node, field: Field, path: tuple[str, ...], line: int) -> Iterator[Problem]:
    name = ".".join(path)
    if field.no_effect and node.value is not None:
        yield Problem(NOTE, name, field.no_effect, line, Fix("remove", path))
    empty = node.value is None and node.entries is None and node.items is None
    if empty or field.kind == ANY:  # null means "not set" for every type
        return
    if not _fits(node, field.kind):
        message = f"{_shown(node)} is not {_WORDS[field.kind]}: {_REFUSES}"
        yield Problem(ERROR, name, message, line, _quoting_fix(node, field.kind, path))
        return
    if node.entries is not None and field.kind == "object":
        yield from _mapping(node.entries, field.fields, path)
    elif node.entries is not None:
        yield from _map(node.entries, field.kind, path)
    elif node.items is not None:
        yield from _list(node.items, field, path)
    else:
        yield from _bounds(node, field, path, line)


def _fits(node: Node, kind: str) -> bool:
    value = node.value
    if kind in (QUANTITIES, GATES, LISTS, "object"):
        return node.entries is not None
    if kind in (STRINGS, INTS, "objects"):
        return node.items is not None
    if node.entries is not None or node.items is not None:
        return False
    if kind == BOOL:
        return isinstance(value, bool)
    if kind == INT:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == FLOAT:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) and (kind != DURATION or duration(value) is not None)


def _quoting_fix(node: Node, kind: str, path: tuple[str, ...]) -> Fix | None:
    """The fix if only quotes are missing or superfluous."""
    value = node.value
    if kind == STRING and isinstance(value, int | float) and not isinstance(value, bool):
        return Fix("set", path, f'"{value}"')
    if kind == BOOL and isinstance(value, str) and value in ("true", "false"):
        return Fix("set", path, value)
    if kind == INT and isinstance(value, str) and value.isascii() and value.isdigit():
        return Fix("set", path, value)
    return None


def _map(entries: dict[str, Entry], kind: str, path: tuple[str, ...]) -> Iterator[Problem]:
    for name, entry in entries.items():
        here = (*path, name)
        if kind == GATES:
            if name in NOT_GATES:
                message = f"{NOT_GATES[name]}: {_REFUSES} with an unknown gate"
                yield Problem(ERROR, ".".join(here), message, entry.line, Fix("remove", here))
                continue
            inner = BOOL
        else:
            inner = STRING if kind == QUANTITIES else STRINGS
        yield from _value(entry.node, Field(inner), here, entry.line)


def _list(items: list[Node], field: Field, path: tuple[str, ...]) -> Iterator[Problem]:
    for number, item in enumerate(items):
        here = (*path[:-1], f"{path[-1]}[{number}]")
        if field.kind == "objects":
            if item.entries is None:
                message = f"{_shown(item)} is not a map: {_REFUSES}"
                yield Problem(ERROR, ".".join(here), message, item.line)
            else:
                yield from _mapping(item.entries, field.fields, here)
            continue
        inner = Field(INT if field.kind == INTS else STRING, choices=field.choices)
        yield from _value(item, inner, here, item.line)


def _bounds(node: Node, field: Field, path: tuple[str, ...], line: int) -> Iterator[Problem]:
    value: Any = node.value
    name = ".".join(path)
    if field.choices and value != "" and value not in field.choices:  # "" means "not set"
        allowed = ", ".join(choice or '""' for choice in field.choices)
        yield Problem(ERROR, name, f"{_shown(node)} must be one of {allowed}: {_REFUSES}", line)
    least, most = field.least, field.most
    if least is not None and value < least:
        yield Problem(ERROR, name, f"{value} is below {least:g}: {_REFUSES}", line)
    if most is not None and value > most:
        yield Problem(ERROR, name, f"{value} is above {most:g}: {_REFUSES}", line)


def _shown(node: Node) -> str:
    if node.entries is not None:
        return "a map"
    if node.items is not None:
        return "a list"
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    text = shorten(printable(str(node.value)), 40)
    return f'"{text}"' if isinstance(node.value, str) else text


class Settings(NamedTuple):
    """A configuration's values and the lines they are on. Values of the wrong type, which
    `check_fields` reports, count as not set."""

    values: dict[str, Any]
    lines: dict[str, int]

    def map(self, name: str) -> dict[str, str]:
        """A map of strings, without values of other types; empty if not set."""
        found = self.values.get(name)
        if not isinstance(found, dict):
            return {}
        return {key: value for key, value in found.items() if isinstance(value, str)}

    def text(self, name: str) -> str:
        found = self.values.get(name)
        return found if isinstance(found, str) else ""

    def seconds(self, name: str) -> float | None:
        return duration(self.text(name))

    def number(self, name: str) -> float | None:
        found = self.values.get(name)
        return found if isinstance(found, int | float) and not isinstance(found, bool) else None

    def problem(self, level: str, name: str, message: str, fix: Fix | None = None) -> Problem:
        line = self.lines.get(name) or self.lines.get(name.partition(".")[0], 0)
        return Problem(level, name, message, line, fix)


def check_settings(tree: Node) -> Iterator[Problem]:
    """Valid values that kubelet refuses together, or that harm the node."""
    if tree.entries is None:
        return
    lines = {name: entry.line for name, entry in tree.entries.items()}
    settings = Settings(tree.plain, lines)
    for check in _CHECKS:
        yield from check(settings)


def _evictions(config: Settings) -> Iterator[Problem]:
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        for signal, amount in config.map(name).items():
            path = f"{name}.{signal}"
            if signal not in SIGNALS:
                message = f"unknown eviction signal: {_REFUSES}; known: {', '.join(SIGNALS)}"
                yield config.problem(ERROR, path, message)
            elif threshold(amount) is None:
                shown = shorten(printable(amount), 40)
                message = f'"{shown}" is neither a quantity nor a percentage: {_REFUSES}'
                yield config.problem(ERROR, path, message)
    graces = config.map("evictionSoftGracePeriod")
    for signal in config.map("evictionSoft"):
        if signal not in graces:
            message = f"has no evictionSoftGracePeriod: {_REFUSES}"
            yield config.problem(ERROR, f"evictionSoft.{signal}", message)


def _hard_eviction(config: Settings) -> Iterator[Problem]:
    hard = config.map("evictionHard")
    if not hard or config.values.get("mergeDefaultEvictionSettings") is True:
        return
    lost = [signal for signal in DEFAULT_HARD if signal not in hard]
    # If images share the root file system, nodefs.available covers both.
    if set(lost) - {"imagefs.available"}:
        message = (
            f"sets only {', '.join(hard)}, which disables {', '.join(lost)}:"
            " signals left out become 0, not their default"
        )
        yield config.problem(WARNING, "evictionHard", message, _with_defaults(config, lost))
    found = threshold(hard.get("memory.available", ""))
    if found is None:
        return
    amount, unit = found
    if amount == 0 or (unit == "%" and amount == 100):
        message = (
            "no hard eviction on memory: under pressure every allocation enters direct reclaim"
            " until the OOM killer runs"
        )
        yield config.problem(WARNING, "evictionHard.memory.available", message)
    elif not unit and amount < LEAST_MEMORY:
        message = "below kubelet's default of 100Mi: direct reclaim starts before eviction"
        yield config.problem(WARNING, "evictionHard.memory.available", message)


def _soft_eviction(config: Settings) -> Iterator[Problem]:
    hard = config.map("evictionHard")
    for signal, amount in config.map("evictionSoft").items():
        soft, limit = threshold(amount), threshold(hard.get(signal) or DEFAULT_HARD.get(signal, ""))
        if soft and limit and soft[1] == limit[1] and soft[0] <= limit[0]:
            message = (
                "is not above the hard threshold: pods are killed without their grace period before"
                " the soft one is reached"
            )
            yield config.problem(WARNING, f"evictionSoft.{signal}", message)


def _with_defaults(config: Settings, lost: Iterable[str]) -> Fix | None:
    """The complete `evictionHard`; `None` if some values are not strings or need quoting."""
    whole = config.values["evictionHard"]
    if not all(isinstance(value, str) for value in whole.values()):
        return None
    wanted = {**whole, **{signal: DEFAULT_HARD[signal] for signal in lost}}
    inner = "".join(f'\n  {signal}: "{amount}"' for signal, amount in wanted.items())
    safe = all(
        key.isascii() and key.isprintable() and '"' not in value and "\\" not in value
        for key, value in wanted.items()
    )
    return Fix("set", ("evictionHard",), inner) if safe else None


def _reserved(config: Settings) -> Iterator[Problem]:
    for name in ("systemReserved", "kubeReserved"):
        for resource, amount in config.map(name).items():
            value = quantity(amount)
            if value is None or value < 0:
                shown = shorten(printable(amount), 40)
                message = f'"{shown}" is not a quantity of 0 or more: {_REFUSES}'
                yield config.problem(ERROR, f"{name}.{resource}", message)
    if config.text("reservedSystemCPUs"):
        for name in ("systemReservedCgroup", "kubeReservedCgroup"):
            if config.text(name):
                message = f"cannot be combined with reservedSystemCPUs: {_REFUSES}"
                yield config.problem(ERROR, name, message)
    if _total_reserved(config, "memory") == 0:
        message = (
            "neither systemReserved nor kubeReserved reserves memory: pods can use all of it, and"
            " system daemons hit direct reclaim first; choose a size for your node"
        )
        yield config.problem(WARNING, "systemReserved", message)


def _total_reserved(config: Settings, resource: str) -> float:
    kept = (config.map(name).get(resource, "0") for name in ("systemReserved", "kubeReserved"))
    return sum(quantity(amount) or 0 for amount in kept)


def _managers(config: Settings) -> Iterator[Problem]:
    if (
        config.text("cpuManagerPolicy") == "static"
        and not config.text("reservedSystemCPUs")
        and _total_reserved(config, "cpu") <= 0
    ):
        message = (
            "static needs reserved CPUs (reservedSystemCPUs, or cpu in kubeReserved or"
            f" systemReserved): {_REFUSES}"
        )
        yield config.problem(ERROR, "cpuManagerPolicy", message)
    if config.text("memoryManagerPolicy") == "Static" and not config.values.get("reservedMemory"):
        message = f"Static needs reservedMemory for at least one NUMA node: {_REFUSES}"
        yield config.problem(ERROR, "memoryManagerPolicy", message)


def _enforcement(config: Settings) -> Iterator[Problem]:
    enforced = config.values.get("enforceNodeAllocatable")
    names = (
        [word for word in enforced if isinstance(word, str)] if isinstance(enforced, list) else None
    )
    if config.values.get("cgroupsPerQOS") is False and (names is None or set(names) - {"none"}):
        message = (
            "false requires enforceNodeAllocatable to be empty or none, but it is"
            f" {'pods by default' if names is None else ', '.join(names)}: {_REFUSES}"
        )
        yield config.problem(ERROR, "cgroupsPerQOS", message)
    for start in ("system", "kube"):
        wanted = [name for name in names or () if name.startswith(f"{start}-reserved")]
        if wanted and not config.text(f"{start}ReservedCgroup"):
            message = f"{wanted[0]} needs {start}ReservedCgroup: {_REFUSES}"
            yield config.problem(ERROR, "enforceNodeAllocatable", message)
        if len(wanted) > 1:
            message = f"{' and '.join(wanted)} cannot be combined: {_REFUSES}"
            yield config.problem(ERROR, "enforceNodeAllocatable", message)
    if config.text("systemCgroups") and not config.text("cgroupRoot"):
        yield config.problem(ERROR, "systemCgroups", f"needs cgroupRoot: {_REFUSES}")


def _cgroups(config: Settings) -> Iterator[Problem]:
    if config.text("cgroupDriver") == "cgroupfs":
        message = (
            "two managers of one cgroup tree: systemd does not know kubelet's cgroups and may"
            " overwrite their settings; change it to systemd here and in the container runtime"
            " together, on a drained node"
        )
        yield config.problem(WARNING, "cgroupDriver", message)
    if config.values.get("failCgroupV1") is False:
        message = "kubelet starts on cgroup v1, where dying memcgs are hardest to count and to free"
        yield config.problem(NOTE, "failCgroupV1", message)


def _periods(config: Settings) -> Iterator[Problem]:
    volumes = config.seconds("volumeStatsAggPeriod")
    if volumes is not None and 0 < volumes < VOLUMES_S:
        message = f"walks every pod volume's files every {seconds(volumes)}; the default is 1m"
        yield config.problem(WARNING, "volumeStatsAggPeriod", message)
    backoff = config.values.get("crashLoopBackOff")
    period = backoff.get("maxContainerRestartPeriod") if isinstance(backoff, dict) else None
    limit = duration(period) if isinstance(period, str) else None
    if limit is not None and not 1 <= limit <= 300:
        message = f"{seconds(limit)} is not between 1s and 300s: {_REFUSES}"
        yield config.problem(ERROR, "crashLoopBackOff.maxContainerRestartPeriod", message)
    elif limit is not None and limit < RESTARTS_S:
        message = (
            f"a failing container restarts every {seconds(limit)} forever, each time in a new"
            f" memory cgroup: {86400 / limit:,.0f} a day; the default backs off to 5 min"
        )
        yield config.problem(WARNING, "crashLoopBackOff.maxContainerRestartPeriod", message)
    grace, critical = (
        config.seconds("shutdownGracePeriod") or 0.0,
        config.seconds("shutdownGracePeriodCriticalPods") or 0.0,
    )
    if critical > grace:
        message = f"is longer than shutdownGracePeriod: {_REFUSES}"
        yield config.problem(ERROR, "shutdownGracePeriodCriticalPods", message)


def _images(config: Settings) -> Iterator[Problem]:
    high = config.number("imageGCHighThresholdPercent")
    low = config.number("imageGCLowThresholdPercent")
    if (85 if high is None else high) <= (80 if low is None else low):
        name = "imageGCHighThresholdPercent" if high is not None else "imageGCLowThresholdPercent"
        message = f"the high threshold must be above the low one: {_REFUSES}"
        yield config.problem(ERROR, name, message)
    if high == 100:
        message = (
            "images are never removed by their disk use, only under disk pressure, when pods are"
            " about to be evicted; the default is 85"
        )
        yield config.problem(WARNING, "imageGCHighThresholdPercent", message)
    evicted = threshold(config.map("evictionHard").get("imagefs.available", "15%"))
    if high is not None and high < 100 and evicted and evicted[1] and high > 100 - evicted[0]:
        message = (
            f"images are removed at {high:g} % used, pods evicted at {100 - evicted[0]:g} %"
            " (evictionHard.imagefs.available): eviction comes first"
        )
        yield config.problem(WARNING, "imageGCHighThresholdPercent", message)
    least, most = config.seconds("imageMinimumGCAge"), config.seconds("imageMaximumGCAge")
    if most and most <= (120.0 if least is None else least):
        message = f"must be longer than imageMinimumGCAge (2m by default): {_REFUSES}"
        yield config.problem(ERROR, "imageMaximumGCAge", message)
    pulls = config.number("maxParallelImagePulls")
    if pulls is not None and pulls > 1 and config.values.get("serializeImagePulls") is not False:
        message = f"more than 1 needs serializeImagePulls: false: {_REFUSES}"
        yield config.problem(ERROR, "maxParallelImagePulls", message)


def _access(config: Settings) -> Iterator[Problem]:
    if config.number("readOnlyPort"):
        message = (
            "unauthenticated: anyone who can reach it can list this node's pods; 0 disables it"
        )
        yield config.problem(WARNING, "readOnlyPort", message, Fix("set", ("readOnlyPort",), "0"))
    auth = config.values.get("authentication")
    anonymous = auth.get("anonymous") if isinstance(auth, dict) else None
    if isinstance(anonymous, dict) and anonymous.get("enabled") is True:
        message = "anyone who can reach kubelet's port can send it requests"
        yield config.problem(WARNING, "authentication.anonymous.enabled", message)


_CHECKS: tuple[Callable[[Settings], Iterator[Problem]], ...] = (
    _evictions,
    _hard_eviction,
    _soft_eviction,
    _reserved,
    _managers,
    _enforcement,
    _cgroups,
    _periods,
    _images,
    _access,
)


def check_flags(
    flags: Iterable[Flag], read_s: float | None = None
) -> Iterator[tuple[Flag, Problem]]:
    """Problems with start flags that have no field in the file. `read_s`: what one read of the
    root's memory statistics takes on this node, if that is known."""
    for flag in flags:
        period = duration(flag.value)
        if flag.name == "housekeeping-interval" and period is not None and period < HOUSEKEEPING_S:
            message = (
                f"reads the memory statistics of every container every {seconds(period)};"
                " with many dying memcgs each read keeps a core busy; the default is 10s"
            )
            if read_s is not None and period > 0:
                message += (
                    f". One read at the root takes {seconds(read_s)} here: {read_s / period:.2%} of"
                    f" a core at this interval, {read_s / HOUSEKEEPING_S:.3%} at the default"
                )
            yield flag, Problem(WARNING, "--housekeeping-interval", message)
        elif flag.name == "feature-gates" and "CgroupV2=" in flag.value:
            message = f"CgroupV2 has never been a feature gate: {_REFUSES}"
            yield flag, Problem(ERROR, "--feature-gates", message)
        elif flag.name == "cgroup-version":
            yield flag, Problem(ERROR, "--cgroup-version", f"not a kubelet flag: {_REFUSES}")

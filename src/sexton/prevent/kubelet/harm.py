"""Settings that are well formed and do harm: kubelet refuses them together, or the node suffers.

Each rule is a function over the plain values; what was not of its kind is `shape`'s to tell and
counts as not set here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from sexton.model.text import printable, seconds, shorten
from sexton.prevent.kubelet.fields import DEFAULT_HARD, SIGNALS
from sexton.prevent.kubelet.model import ERROR, NOTE, WARNING, Fix, Flag, Problem
from sexton.prevent.kubelet.tree import Node
from sexton.prevent.kubelet.units import duration, quantity, threshold

_REFUSES = "kubelet refuses to start"
#: cAdvisor's default; each round reads the memory statistics of every container cgroup.
HOUSEKEEPING_S = 10.0
#: How often volumes may be walked before that is felt: the default is a minute.
VOLUMES_S = 30.0
#: A container that fails is then restarted so often, and each start is a new memory cgroup.
RESTARTS_S = 10.0
LEAST_MEMORY = 100 * 2**20


class Settings(NamedTuple):
    """A configuration's values with the lines they stand on."""

    values: dict[str, Any]
    lines: dict[str, int]

    def map(self, name: str) -> dict[str, str]:
        """A map of texts; what is not is left out, none is empty."""
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
        return Problem(level, name, message, line, "", fix)


def harm(tree: Node) -> Iterator[Problem]:
    """Everything that is wrong with what a configuration says."""
    if tree.entries is None:
        return
    lines = {name: entry.line for name, entry in tree.entries.items()}
    settings = Settings(tree.plain, lines)
    for rule in _RULES:
        yield from rule(settings)


def _evictions(told: Settings) -> Iterator[Problem]:
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        for signal, amount in told.map(name).items():
            path = f"{name}.{signal}"
            if signal not in SIGNALS:
                message = f"no eviction signal: {_REFUSES}; they are {', '.join(SIGNALS)}"
                yield told.problem(ERROR, path, message)
            elif threshold(amount) is None:
                shown = shorten(printable(amount), 40)
                message = f'"{shown}" is neither a quantity nor a percentage: {_REFUSES}'
                yield told.problem(ERROR, path, message)
    graces = told.map("evictionSoftGracePeriod")
    for signal in told.map("evictionSoft"):
        if signal not in graces:
            message = f"no evictionSoftGracePeriod for it: {_REFUSES}"
            yield told.problem(ERROR, f"evictionSoft.{signal}", message)


def _hard_eviction(told: Settings) -> Iterator[Problem]:
    hard = told.map("evictionHard")
    if not hard or told.values.get("mergeDefaultEvictionSettings") is True:
        return
    lost = [signal for signal in DEFAULT_HARD if signal not in hard]
    # Where images share the root file system, its own threshold holds for both.
    if set(lost) - {"imagefs.available"}:
        message = (
            f"names {', '.join(hard)} alone, which switches {', '.join(lost)} off:"
            " what is not named is 0, not its default"
        )
        yield told.problem(WARNING, "evictionHard", message, _with_defaults(told, lost))
    found = threshold(hard.get("memory.available", ""))
    if found is None:
        return
    amount, unit = found
    if amount == 0 or (unit == "%" and amount == 100):
        message = (
            "no hard eviction by memory: under pressure every allocation reclaims by itself"
            " (direct reclaim) until the kernel kills something"
        )
        yield told.problem(WARNING, "evictionHard.memory.available", message)
    elif not unit and amount < LEAST_MEMORY:
        message = "less than kubelet's own default of 100Mi: eviction comes after direct reclaim"
        yield told.problem(WARNING, "evictionHard.memory.available", message)


def _with_defaults(told: Settings, lost: Iterable[str]) -> Fix | None:
    """All of `evictionHard`, where it can be written without touching what is not text."""
    whole = told.values["evictionHard"]
    if not all(isinstance(value, str) for value in whole.values()):
        return None
    wanted = {**whole, **{signal: DEFAULT_HARD[signal] for signal in lost}}
    inner = "".join(f'\n  {signal}: "{amount}"' for signal, amount in wanted.items())
    safe = all(
        key.isascii() and key.isprintable() and '"' not in value and "\\" not in value
        for key, value in wanted.items()
    )
    return Fix("set", ("evictionHard",), inner) if safe else None


def _reserved(told: Settings) -> Iterator[Problem]:
    for name in ("systemReserved", "kubeReserved"):
        for resource, amount in told.map(name).items():
            value = quantity(amount)
            if value is None or value < 0:
                shown = shorten(printable(amount), 40)
                message = f'"{shown}" is no quantity of 0 or more: {_REFUSES}'
                yield told.problem(ERROR, f"{name}.{resource}", message)
    if told.text("reservedSystemCPUs"):
        for name in ("systemReservedCgroup", "kubeReservedCgroup"):
            if told.text(name):
                message = f"with reservedSystemCPUs {_REFUSES}"
                yield told.problem(ERROR, name, message)
    if _memory_reserved(told) == 0:
        message = (
            "neither systemReserved nor kubeReserved keeps memory: pods may take all of it, and"
            " the node's own daemons meet direct reclaim first; the size is yours to choose"
        )
        yield told.problem(WARNING, "systemReserved", message)


def _memory_reserved(told: Settings) -> float:
    kept = (told.map(name).get("memory", "0") for name in ("systemReserved", "kubeReserved"))
    return sum(quantity(each) or 0 for each in kept)


def _cpu_reserved(told: Settings) -> float:
    kept = (told.map(name).get("cpu", "0") for name in ("systemReserved", "kubeReserved"))
    return sum(quantity(each) or 0 for each in kept)


def _managers(told: Settings) -> Iterator[Problem]:
    if (
        told.text("cpuManagerPolicy") == "static"
        and not told.text("reservedSystemCPUs")
        and _cpu_reserved(told) <= 0
    ):
        message = (
            f"static needs CPU set aside (reservedSystemCPUs, or cpu in kubeReserved or"
            f" systemReserved): {_REFUSES}"
        )
        yield told.problem(ERROR, "cpuManagerPolicy", message)
    if told.text("memoryManagerPolicy") == "Static" and not told.values.get("reservedMemory"):
        message = f"Static needs reservedMemory for at least one NUMA node: {_REFUSES}"
        yield told.problem(ERROR, "memoryManagerPolicy", message)


def _enforcement(told: Settings) -> Iterator[Problem]:
    asked = told.values.get("enforceNodeAllocatable")
    names = [each for each in asked if isinstance(each, str)] if isinstance(asked, list) else None
    if told.values.get("cgroupsPerQOS") is False and (names is None or set(names) - {"none"}):
        message = (
            "without cgroups per QoS class nothing can be enforced, and enforceNodeAllocatable"
            f" is {'pods unless it is set' if names is None else ', '.join(names)}: {_REFUSES}"
        )
        yield told.problem(ERROR, "cgroupsPerQOS", message)
    for start in ("system", "kube"):
        wanted = [each for each in names or () if each.startswith(f"{start}-reserved")]
        if wanted and not told.text(f"{start}ReservedCgroup"):
            message = f"{wanted[0]} needs {start}ReservedCgroup: {_REFUSES}"
            yield told.problem(ERROR, "enforceNodeAllocatable", message)
        if len(wanted) > 1:
            message = f"{' and '.join(wanted)} exclude each other: {_REFUSES}"
            yield told.problem(ERROR, "enforceNodeAllocatable", message)
    if told.text("systemCgroups") and not told.text("cgroupRoot"):
        yield told.problem(ERROR, "systemCgroups", f"needs cgroupRoot: {_REFUSES}")


def _cgroups(told: Settings) -> Iterator[Problem]:
    if told.text("cgroupDriver") == "cgroupfs":
        message = (
            "two managers of one tree: systemd does not know kubelet's cgroups and may take away"
            " what it set; change it to systemd here and in the container runtime at once, on a"
            " drained node"
        )
        yield told.problem(WARNING, "cgroupDriver", message)
    if told.values.get("failCgroupV1") is False:
        message = "kubelet starts on cgroup v1, where zombies are hardest to count and to free"
        yield told.problem(NOTE, "failCgroupV1", message)


def _periods(told: Settings) -> Iterator[Problem]:
    volumes = told.seconds("volumeStatsAggPeriod")
    if volumes is not None and 0 < volumes < VOLUMES_S:
        message = (
            f"walks the files of every pod's volumes each {seconds(volumes)}; the default is 1m"
        )
        yield told.problem(WARNING, "volumeStatsAggPeriod", message)
    backoff = told.values.get("crashLoopBackOff")
    period = backoff.get("maxContainerRestartPeriod") if isinstance(backoff, dict) else None
    limit = duration(period) if isinstance(period, str) else None
    if limit is not None and not 1 <= limit <= 300:
        message = f"{seconds(limit)} is not between 1s and 300s: {_REFUSES}"
        yield told.problem(ERROR, "crashLoopBackOff.maxContainerRestartPeriod", message)
    elif limit is not None and limit < RESTARTS_S:
        message = (
            f"a failing container comes back every {seconds(limit)} for ever, each time in a new"
            f" memory cgroup: {86400 / limit:,.0f} a day; the default backs off to 5 min"
        )
        yield told.problem(WARNING, "crashLoopBackOff.maxContainerRestartPeriod", message)
    grace, critical = (
        told.seconds("shutdownGracePeriod") or 0.0,
        told.seconds("shutdownGracePeriodCriticalPods") or 0.0,
    )
    if critical > grace:
        message = f"is longer than shutdownGracePeriod: {_REFUSES}"
        yield told.problem(ERROR, "shutdownGracePeriodCriticalPods", message)


def _images(told: Settings) -> Iterator[Problem]:
    high = told.number("imageGCHighThresholdPercent")
    low = told.number("imageGCLowThresholdPercent")
    if (85 if high is None else high) <= (80 if low is None else low):
        name = "imageGCHighThresholdPercent" if high is not None else "imageGCLowThresholdPercent"
        message = f"the high threshold must be above the low one: {_REFUSES}"
        yield told.problem(ERROR, name, message)
    pulls = told.number("maxParallelImagePulls")
    if pulls is not None and pulls > 1 and told.values.get("serializeImagePulls") is not False:
        message = f"more than 1 needs serializeImagePulls: false: {_REFUSES}"
        yield told.problem(ERROR, "maxParallelImagePulls", message)


def _doors(told: Settings) -> Iterator[Problem]:
    if told.number("readOnlyPort"):
        message = "anybody who reaches it reads this node's pods; 0 closes it"
        yield told.problem(WARNING, "readOnlyPort", message, Fix("set", ("readOnlyPort",), "0"))
    allowed = told.values.get("authentication")
    anonymous = allowed.get("anonymous") if isinstance(allowed, dict) else None
    if isinstance(anonymous, dict) and anonymous.get("enabled") is True:
        message = "anybody who reaches kubelet's port may ask it"
        yield told.problem(WARNING, "authentication.anonymous.enabled", message)


_RULES: tuple[Callable[[Settings], Iterator[Problem]], ...] = (
    _evictions,
    _hard_eviction,
    _reserved,
    _managers,
    _enforcement,
    _cgroups,
    _periods,
    _images,
    _doors,
)


def harmful_flags(flags: Iterable[Flag]) -> Iterator[tuple[Flag, Problem]]:
    """The same of what kubelet is started with; these have no field in the file."""
    for flag in flags:
        period = duration(flag.value)
        if flag.name == "housekeeping-interval" and period is not None and period < HOUSEKEEPING_S:
            message = (
                f"the memory statistics of every container are read each {seconds(period)};"
                " where zombies pile up each read holds a core; the default is 10s"
            )
            yield flag, Problem(WARNING, "--housekeeping-interval", message)
        elif flag.name == "feature-gates" and "CgroupV2=" in flag.value:
            message = f"there has never been a gate CgroupV2: {_REFUSES}"
            yield flag, Problem(ERROR, "--feature-gates", message)
        elif flag.name == "cgroup-version":
            yield flag, Problem(ERROR, "--cgroup-version", f"kubelet has no such flag: {_REFUSES}")

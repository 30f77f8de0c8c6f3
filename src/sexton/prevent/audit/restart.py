"""Finds restart policies that never give up, and timers that elapse too often.

Each start of a unit creates a memory cgroup, and on the affected kernels each may leave a dying one
behind. systemd's start limit stops a unit after `StartLimitBurst=` starts within
`StartLimitIntervalSec=` (5 in 10 s by default). A unit that waits between attempts never reaches
it: with ``RestartSec=10s`` five starts take 50 s, and the limit of 5 in 10 s never trips. That is
the deb package's ecs.service: 8,640 starts a day.

>>> ecs = RestartPolicy("on-failure", delay_s=10.0)
>>> endless_restart(ecs).starts_a_day
8640.0
>>> endless_restart(RestartPolicy("always", delay_s=0.1)) is None
True
"""

from __future__ import annotations

import re
from math import inf

from sexton.model.audit import ENDLESS_RESTART, FREQUENT_TIMER, Fault, RestartPolicy
from sexton.model.text import seconds as in_words
from sexton.prevent.audit.unit_files import Settings, UnitTree, calendar_s, span_s

#: A unit that waits this long between attempts creates at most 288 cgroups a day.
SLOW_S = 300.0
#: A timer that elapses more often creates more than 1,440 cgroups a day.
OFTEN_S = 60.0
_DAY_S = 86400.0
#: A limit that trips at any delay below `SLOW_S`; every systemd knows it.
_LIMIT = "[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=6"
_STEPS = "\n[Service]\nRestartSteps=6\nRestartMaxDelaySec=10min"
#: The first systemd with `RestartSteps=`.
STEPS_SINCE = 254
#: Its private library carries the version in its name: ``libsystemd-shared-252.so`` (Debian),
#: ``libsystemd-shared-254.10-1.fc39.so`` (Fedora).
_LIBRARY = re.compile(r"libsystemd-shared-([0-9]{1,4})(?=[.~-])[^/]*\.so")
_LIBRARIES = ("/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd")
_VERSION = re.compile(r"(?:systemd )?v?([0-9]{1,4})(?![0-9])")
_CONFIGURATIONS = ("/usr/lib/systemd/system.conf", "/etc/systemd/system.conf")
_CONFIGURATION_FOLDERS = ("/usr/lib/systemd/system.conf.d", "/etc/systemd/system.conf.d")


def defaults(tree: UnitTree) -> RestartPolicy:
    """Defaults for settings a unit leaves out: systemd's own, or those of system.conf."""
    settings = Settings()
    places = list(_CONFIGURATIONS)
    for folder in _CONFIGURATION_FOLDERS:
        places += [f"{folder}/{name}" for name in tree.listing(folder) if name.endswith(".conf")]
    for path in places:
        content = tree.text(path)
        if content is not None:
            settings.read(content, path)
    stock = RestartPolicy()
    return RestartPolicy(
        delay_s=_span(settings, "Manager", "DefaultRestartSec", stock.delay_s),
        limit_interval_s=_span(
            settings, "Manager", "DefaultStartLimitIntervalSec", stock.limit_interval_s
        ),
        limit_burst=_number(settings, "Manager", "DefaultStartLimitBurst", stock.limit_burst),
    )


def policy_of(settings: Settings, stock: RestartPolicy) -> RestartPolicy:
    """A service's restart policy, including old names and sections of the start limit."""
    interval = stock.limit_interval_s
    burst = stock.limit_burst
    for section in ("Service", "Unit"):
        for key in ("StartLimitInterval", "StartLimitIntervalSec"):
            interval = _span(settings, section, key, interval)
        burst = _number(settings, section, "StartLimitBurst", burst)
    written = [
        f"{key}={value}"
        for section, key in (
            ("Service", "Restart"),
            ("Service", "RestartSec"),
            ("Service", "RestartSteps"),
            ("Service", "RestartMaxDelaySec"),
            ("Service", "RestartPreventExitStatus"),
            ("Unit", "StartLimitIntervalSec"),
            ("Unit", "StartLimitInterval"),
            ("Unit", "StartLimitBurst"),
            ("Service", "StartLimitInterval"),
            ("Service", "StartLimitBurst"),
        )
        if (value := settings.last(section, key)) is not None
    ]
    return RestartPolicy(
        restart=(settings.last("Service", "Restart") or "no").lower(),
        delay_s=_span(settings, "Service", "RestartSec", stock.delay_s),
        limit_interval_s=interval,
        limit_burst=burst,
        steps=_number(settings, "Service", "RestartSteps", 0),
        max_delay_s=_span(settings, "Service", "RestartMaxDelaySec", inf),
        prevent_status=" ".join(settings.words("Service", "RestartPreventExitStatus")),
        written=tuple(written),
    )


def systemd_version(tree: UnitTree, reported: str | None = None) -> int | None:
    """The version of a tree's systemd: as reported, or from its library's name; else `None`."""
    if reported is not None and (found := _VERSION.match(reported)):
        return int(found[1])
    folders = [*_LIBRARIES]
    folders += [
        f"/usr/lib/{name}/systemd" for name in tree.listing("/usr/lib") if "-linux-" in name
    ]
    names = (name for folder in folders for name in tree.listing(folder))
    versions = (int(found[1]) for name in names if (found := _LIBRARY.fullmatch(name)))
    return min(versions, default=None)  # of two, after an upgrade: what both know


def backoff(version: int | None) -> str:
    """Lines of a drop-in that end an endless restart, as far as this systemd knows them.

    >>> ["RestartSteps" in backoff(version) for version in (254, 252, None)]
    [True, False, False]
    """
    return _LIMIT + _STEPS if version is not None and version >= STEPS_SINCE else _LIMIT


def endless_restart(
    policy: RestartPolicy, origin: str = "", version: int | None = None
) -> Fault | None:
    """The fault of a unit that is restarted forever and often if it fails at once; else `None`."""
    if policy.restart in ("no", "false", ""):
        return None
    longest = policy.delay_s
    if policy.steps > 0 and policy.max_delay_s < inf:
        longest = max(policy.max_delay_s, policy.delay_s)
    if longest >= SLOW_S:
        return None
    off = policy.limit_interval_s <= 0 or policy.limit_burst <= 0
    if not off and policy.limit_burst * longest < policy.limit_interval_s:
        return None
    a_day = _DAY_S / max(longest, 0.01)
    wait = f"Restart={policy.restart} waits {_seconds(longest)} between attempts"
    if off:
        limit = "the start limit is disabled"
    else:
        burst, interval = policy.limit_burst, _seconds(policy.limit_interval_s)
        taken = _seconds(burst * longest)
        limit = f"{burst} starts take {taken}, so the limit of {burst} in {interval} never trips"
    most = f"up to {a_day:,.0f} starts a day, each with a new memory cgroup"
    return Fault(ENDLESS_RESTART, f"{wait}: {limit}; {most}", backoff(version), origin, a_day)


def timer_period(settings: Settings) -> float | None:
    """The shortest interval of a repeating timer."""
    periods = [
        span_s(line.value)
        for key in ("OnUnitActiveSec", "OnUnitInactiveSec")
        for line in settings.lines("Timer", key)
    ]
    periods += [calendar_s(line.value) for line in settings.lines("Timer", "OnCalendar")]
    return min((period for period in periods if period), default=None)


def frequent_timer(period_s: float | None, origin: str = "") -> Fault | None:
    """The fault of a timer that starts its unit more than once a minute; else `None`."""
    if period_s is None or period_s >= OFTEN_S:
        return None
    a_day = _DAY_S / max(period_s, 0.01)
    return Fault(
        FREQUENT_TIMER,
        f"elapses every {_seconds(period_s)}: up to {a_day:,.0f} starts a day, each with a new"
        " memory cgroup",
        "use a service that stays up and sleeps between runs, or a longer period",
        origin,
        a_day,
    )


def _seconds(value: float) -> str:
    """Whole seconds as in a unit file: 10 s, not 10.0 s."""
    return f"{value:g} s" if 1 <= value < 120 else in_words(value)


def _span(settings: Settings, section: str, key: str, otherwise: float) -> float:
    found = span_s(settings.last(section, key))
    return otherwise if found is None else found


def _number(settings: Settings, section: str, key: str, otherwise: int) -> int:
    text = settings.last(section, key) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise

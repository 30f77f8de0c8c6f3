"""An audit: which units run or will run on a node, and whether anything needs them.

Four verdicts: *needed* (a user of it was seen, or it is configured for use here), *unneeded* (what
would make it needed was checked and is not there), *protected* (the node depends on it, used or
not) and *unknown*, which is the verdict if nothing was seen: not seen is not unneeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sexton.model.row import Row, row
from sexton.model.text import escape

SCHEMA = "sexton.audit/1"
#: Values of `Fault.id`: two faults of unit files, and one that is happening now.
ENDLESS_RESTART, FREQUENT_TIMER, CRASH_LOOP = "endless-restart", "frequent-timer", "crash-loop"


class Need(StrEnum):
    """In the order of the report."""

    UNNEEDED = "unneeded"
    UNKNOWN = "unknown"
    NEEDED = "needed"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True)
class Reason:
    """One piece of evidence: what, its value here, where it was read."""

    what: str
    value: str
    read_from: str

    def __post_init__(self) -> None:
        escape(self, "what", "value", "read_from")


@dataclass(frozen=True, slots=True)
class Fault:
    """A harmful restart policy, timer or crash loop: `id` is one of the three above.

    `detail` gives the numbers, `fix` the lines that fix it. `starts_a_day` is how many cgroups it
    can create (and leave behind) in a day at worst, `None` if it does not apply.
    """

    id: str
    detail: str
    fix: str
    read_from: str
    starts_a_day: float | None = None

    def __post_init__(self) -> None:
        escape(self, "detail", "read_from")


@dataclass(frozen=True, slots=True)
class Enabling:
    """One way a unit gets started.

    `kind`: "wants", "requires", "upholds" (a link in a target's directory or a line in a unit),
    "timer", "socket", "path" (that unit starts it), "alias", "preset" (enabled at first boot),
    "sysv" (systemd's generator makes a unit of an init script), "bus" (on demand over D-Bus),
    "generator" (made at boot), "manual" (it runs, but no file starts it). `by` is the unit that
    pulls it in, `at` the link or file that declares it.
    """

    kind: str
    by: str
    at: str

    def __post_init__(self) -> None:
        escape(self, "by", "at")


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """`Restart=` and its limits; times in seconds, infinity as `float("inf")`.

    Unset values are systemd's defaults, as changed by `system.conf`. `written` are the lines of
    the unit file.
    """

    restart: str = "no"
    delay_s: float = 0.1
    limit_interval_s: float = 10.0
    limit_burst: int = 5
    steps: int = 0
    max_delay_s: float = float("inf")
    prevent_status: str = ""
    written: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnabledUnit:
    """A unit that will run, from its files. `fragment` is its file, "" if it has none.

    `program` is the first word of `ExecStart`; `conditions` are its `Condition…=` and `Assert…=`
    lines, `timer_s` the shortest period of a repeating timer; `program_missing` is true if the
    program is not in the tree, `None` if unknown.
    """

    name: str
    how: tuple[Enabling, ...]
    fragment: str = ""
    drop_ins: tuple[str, ...] = ()
    description: str = ""
    program: str = ""
    program_missing: bool | None = None
    restart: RestartPolicy = RestartPolicy()
    conditions: tuple[str, ...] = ()
    timer_s: float | None = None
    faults: tuple[Fault, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        escape(self, "name", "fragment", "description", "program")
        escape(self, "drop_ins", "conditions", "aliases")

    @property
    def at_boot(self) -> bool:
        """Whether it starts at boot and not only on demand."""
        return any(way.kind not in ("bus", "alias") for way in self.how)


@dataclass(frozen=True, slots=True)
class Subject:
    """One unit with its verdict.

    `agent` is the catalogue's id ("ecs"), "" if the unit is not in the catalogue. `reasons` support
    the verdict, `against` contradicts it, `wrong_if` says what would make it wrong, `unseen` what
    could not be checked. `state` is systemd's ("active (running)") on a live node, "" in an image.
    `owner`, `expires` and `policy` ("", "expired", "not in the policy", "no owner") come from the
    policy file.
    """

    unit: str
    verdict: Need
    agent: str = ""
    title: str = ""
    state: str = ""
    reasons: tuple[Reason, ...] = ()
    against: tuple[Reason, ...] = ()
    unseen: tuple[str, ...] = ()
    wrong_if: str = ""
    faults: tuple[Fault, ...] = ()
    enabled: EnabledUnit | None = None
    restarts: int | None = None
    deaths: int | None = None
    owner: str = ""
    expires: str = ""
    policy: str = ""

    def __post_init__(self) -> None:
        escape(self, "unit", "title", "state", "wrong_if", "owner", "expires", "unseen")

    @property
    def harmful(self) -> bool:
        """Has a fault that makes the exit status 1. Protected units are meant to restart forever,
        so theirs counts only if it crash-loops now."""
        protected = self.verdict is Need.PROTECTED
        return any(not protected or fault.id == CRASH_LOOP for fault in self.faults)

    @property
    def is_finding(self) -> bool:
        """Unneeded, harmful, or against the policy: makes the exit status 1."""
        return self.verdict is Need.UNNEEDED or self.harmful or bool(self.policy)


@dataclass(frozen=True, slots=True)
class Workload:
    """Containers or jobs on the node: `kind` is "kubernetes", "docker", "ecs", …; `count` is how
    many, by their cgroups; `example` is one of their paths."""

    kind: str
    count: int
    example: str

    def __post_init__(self) -> None:
        escape(self, "example")


@dataclass(frozen=True, slots=True)
class KubeletProblem:
    """A problem in kubelet's configuration: `level` is "error" (kubelet refuses to start, or
    ignores the setting), "warning" (harmful) or "note"; `line` is 0 if it has none."""

    level: str
    message: str
    read_from: str
    line: int = 0

    def __post_init__(self) -> None:
        escape(self, "message", "read_from")


@dataclass(frozen=True, slots=True)
class Audit:
    """A node or an image with the verdicts on its units.

    `workloads` is `None` if cgroups could not be read (always in an image). `notes` are about the
    reading itself, `unseen` lists what could not be checked, `unread` which unit files or parts of
    an image exist but are damaged or could not be read: units may be missing from `subjects`.
    """

    place: str
    live: bool
    made_unix: float
    subjects: tuple[Subject, ...]
    workloads: tuple[Workload, ...] | None = None
    watched_s: float = 0.0
    notes: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    kubelet: tuple[KubeletProblem, ...] = ()
    #: Units could be listed; if not, there is nothing to judge and the exit status is 3.
    has_units: bool = True

    def __post_init__(self) -> None:
        escape(self, "place", "notes", "unseen", "unread")

    def of(self, need: Need) -> tuple[Subject, ...]:
        """The subjects with that verdict."""
        return tuple(subject for subject in self.subjects if subject.verdict is need)

    @property
    def found(self) -> tuple[Subject, ...]:
        """The units that make the exit status 1."""
        return tuple(subject for subject in self.subjects if subject.is_finding)


@row
class CgroupUsage(Row):
    """What one cgroup has used since it was created; `None` without the controller."""

    entity = ("path",)

    path: str
    cpu_us: int | None
    io_bytes: int | None

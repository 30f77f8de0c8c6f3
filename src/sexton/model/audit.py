"""What an audit says: which units run or will run on a node, and who needs them.

Four answers and no fifth: *needed* (somebody was seen using it, or what it is for is set up here),
*unneeded* (what would make it needed was looked for where it shows, and is not there), *protected*
(the node cannot live without it, whoever uses it) and *unknown*, which is the answer wherever
nothing was seen: not seen is not unneeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sexton.model.row import Row, row
from sexton.model.text import printable

SCHEMA = "sexton.audit/1"
#: Faults by what they are (`Fault.id`): two that a file has, and one that is happening.
ENDLESS_RESTART, FREQUENT_TIMER, CRASH_LOOP = "endless-restart", "frequent-timer", "crash-loop"


class Need(StrEnum):
    """In the order a person wants to read them."""

    UNNEEDED = "unneeded"
    UNKNOWN = "unknown"
    NEEDED = "needed"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that was seen: what, its value here, where it was read."""

    what: str
    value: str
    read_from: str

    def __post_init__(self) -> None:
        _escape(self, "what", "value", "read_from")


@dataclass(frozen=True, slots=True)
class Fault:
    """A unit that will hurt, or does: `id` is one of the three above.

    `detail` says why with the numbers, `fix` the lines that would cure it. `starts_a_day` is how
    many cgroups it can make (and leave) in a day at worst, `None` where that is not the point.
    """

    id: str
    detail: str
    fix: str
    read_from: str
    starts_a_day: float | None = None

    def __post_init__(self) -> None:
        _escape(self, "detail", "read_from")


@dataclass(frozen=True, slots=True)
class Enabling:
    """One way by which a unit gets started.

    `kind`: "wants", "requires", "upholds" (a link in a target's directory or a line in a unit),
    "timer", "socket", "path" (that unit starts it), "alias", "preset" (the first boot will enable
    it), "sysv" (systemd's generator makes a unit of an init script), "bus" (on demand over D-Bus),
    "generator" (made at boot), "manual" (it runs, and no file says why). `by` is the unit that
    pulls it in, `at` the link or file that says so.
    """

    kind: str
    by: str
    at: str

    def __post_init__(self) -> None:
        _escape(self, "by", "at")


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """`Restart=` and all that slows it down; times in seconds, infinity as `float("inf")`.

    Values nobody wrote are systemd's defaults, with the image's own `system.conf` in mind.
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
    """A unit that will run, as its files say. `fragment` is its file, "" where it has none.

    `program` is the first word of `ExecStart`; `conditions` are its `Condition…=` and `Assert…=`
    lines, `timer_s` the shortest period of a timer that repeats; `program_missing` is true where
    the program is not in the tree, `None` where that could not be looked up.
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
        _escape(self, "name", "fragment", "description", "program")
        for name in ("drop_ins", "conditions", "aliases"):
            object.__setattr__(self, name, tuple(map(printable, getattr(self, name))))

    @property
    def at_boot(self) -> bool:
        """Does it start without being asked for?"""
        return any(each.kind not in ("bus", "alias") for each in self.how)


@dataclass(frozen=True, slots=True)
class Subject:
    """A unit, or the agent it is, judged.

    `agent` is the catalogue's id ("ecs"), "" where the catalogue does not know it. `reasons` speak
    for the verdict, `against` is what speaks otherwise, `wrong_if` what would make it wrong.
    `unseen` is what could not be looked at. `state` is systemd's ("active (running)") on a live
    node, "" in an image. `owner`, `expires` and `policy` ("", "expired", "not in the policy",
    "no owner") are the policy file's.
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
        _escape(self, "unit", "title", "state", "wrong_if", "owner", "expires")
        object.__setattr__(self, "unseen", tuple(map(printable, self.unseen)))

    @property
    def harmful(self) -> bool:
        """Has a fault that costs the exit code. Protected units are made to restart for ever; but
        one that does so now is a fault like any other."""
        kept = self.verdict is Need.PROTECTED
        return any(not kept or each.id == CRASH_LOOP for each in self.faults)


@dataclass(frozen=True, slots=True)
class Workload:
    """Something the node is for: `kind` is "kubernetes", "docker", "ecs", …; `count` containers or
    pods, by their cgroups; `example` is one of their paths."""

    kind: str
    count: int
    example: str

    def __post_init__(self) -> None:
        _escape(self, "example")


@dataclass(frozen=True, slots=True)
class KubeletProblem:
    """What is wrong with kubelet's configuration: `level` is "error" (kubelet does not start, or
    does not do what was meant), "warning" (it hurts) or "note"; `line` 0 where it has none."""

    level: str
    message: str
    read_from: str
    line: int = 0

    def __post_init__(self) -> None:
        _escape(self, "message", "read_from")


@dataclass(frozen=True, slots=True)
class Audit:
    """A node or an image, judged.

    `workloads` is `None` where cgroups could not be seen (always in an image). `notes` are what a
    reader must know about the reading itself, `unseen` what nobody could look at.
    """

    place: str
    live: bool
    made_unix: float
    subjects: tuple[Subject, ...]
    workloads: tuple[Workload, ...] | None = None
    watched_s: float = 0.0
    notes: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    kubelet: tuple[KubeletProblem, ...] = ()
    #: Units were listed; without that there is nothing to judge and the exit is 3.
    told: bool = True

    def __post_init__(self) -> None:
        _escape(self, "place")
        for name in ("notes", "unseen"):
            object.__setattr__(self, name, tuple(map(printable, getattr(self, name))))

    def of(self, need: Need) -> tuple[Subject, ...]:
        """The subjects with that verdict."""
        return tuple(each for each in self.subjects if each.verdict is need)

    @property
    def found(self) -> tuple[Subject, ...]:
        """What costs the exit code: unneeded, harmful, or against the policy."""
        return tuple(
            each
            for each in self.subjects
            if each.verdict is Need.UNNEEDED or each.harmful or each.policy
        )


@row
class CgroupUsage(Row):
    """What one cgroup has used since it was made; `None` where its controller does not tell."""

    entity = ("path",)

    path: str
    cpu_us: int | None
    io_bytes: int | None


def _escape(owner: object, *names: str) -> None:
    for name in names:
        object.__setattr__(owner, name, printable(getattr(owner, name)))

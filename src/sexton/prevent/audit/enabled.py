"""Which units will be started, and by what: follows boot dependencies through unit files and links.

Follows ``default.target`` as systemd would at boot: `Wants=`, `Requires=`, `BindsTo=`, `Upholds=`
and the links in ``.wants``, ``.requires``, ``.upholds`` directories, then what timers, sockets and
paths start. Then what presets enable at first boot, what systemd's generators make of init scripts,
and what D-Bus starts on demand. Generators are programs and are never run: those with known output
are followed, the others are reported as not seen.

Presets (systemd.preset(5)): without ``/etc/machine-id``, or with ``uninitialized`` in it
(machine-id(5), "First boot semantics"), systemd enables what the presets allow, and allows a unit
that no rule names.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from sexton.model.audit import EnabledUnit, Enabling, RestartPolicy
from sexton.prevent.audit.restart import (
    defaults,
    endless_restart,
    frequent_timer,
    policy_of,
    systemd_version,
    timer_period,
)
from sexton.prevent.audit.unit_files import Pull, UnitTree, is_unit

#: Bounds the walk; far more than any tree has.
MOST_STEPS = 50_000
_MOST_WAYS = 8
#: Targets every boot reaches; services depend on them by default.
_ROOTS = (
    "default.target",
    "sysinit.target",
    "basic.target",
    "sockets.target",
    "timers.target",
    "paths.target",
    "local-fs.target",
    "swap.target",
    "getty.target",
)
_FALLBACK = ("graphical.target", "multi-user.target")
#: Units enabled for these targets do not run during normal operation.
_NOT_AT_BOOT = re.compile(
    r"(shutdown|reboot|halt|poweroff|kexec|soft-reboot|final|umount|sleep|suspend|hibernate"
    r"|hybrid-sleep|suspend-then-hibernate|rescue|emergency|initrd.*|system-update"
    r"|ctrl-alt-del|exit)\.target"
)
_LINES = (
    ("Wants", "wants"),
    ("Requires", "requires"),
    ("BindsTo", "requires"),
    ("Upholds", "upholds"),
)
_GENERATORS = tuple(
    f"{place}/systemd/system-generators" for place in ("/etc", "/usr/local/lib", "/usr/lib", "/lib")
)
#: Generators whose output does not matter for an audit, or is followed here.
_KNOWN_GENERATORS = re.compile(
    r"systemd-(bless-boot|cryptsetup|debug|factory-reset|fstab|getty|gpt-auto|hibernate-resume"
    r"|import|integritysetup|run|ssh|system-update|tpm2|veritysetup|xdg-autostart|sysv|rc-local)"
    r"-generator|lvm2-activation-generator|netplan|snapd-generator|kdump-dep-generator\.sh"
    r"|friendly-recovery|selinux-autorelabel-generator\.sh|ostree-system-generator"
    r"|cloud-init-generator|ds-identify|zram-generator|rpc-pipefs-generator|nfs-server-generator"
)
_RUNLEVELS = ("/etc/rc2.d", "/etc/rc3.d", "/etc/rc5.d")
_SYSV_LINK = re.compile(r"S\d\d([A-Za-z0-9_.-]{1,200})", re.ASCII)
_BUS_SERVICES = "/usr/share/dbus-1/system-services"
_PROGRAM = re.compile(r"[-@:+!|]*\"?([^\s\"]+)")
_INSTALLS = ("WantedBy", "RequiredBy", "UpheldBy", "Also")
_PRESET_FOLDERS = (
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
)
_MOST_RULES = 5_000
_MOST_PATTERN = 300


class PresetRule(NamedTuple):
    """One line of a preset file; the first match wins."""

    enable: bool
    pattern: str


def is_first_boot(tree: UnitTree) -> bool:
    """Whether systemd will treat the next boot as the first one."""
    if tree.has("/etc/machine-id") is False:
        return True
    return (tree.text("/etc/machine-id", 4096) or "").strip() == "uninitialized"


def preset_rules(tree: UnitTree) -> list[PresetRule]:
    """All preset rules in order; a file hides files of the same name in later folders."""
    chosen: dict[str, str] = {}
    for folder in _PRESET_FOLDERS:
        for name in tree.listing(folder):
            if name.endswith(".preset"):
                chosen.setdefault(name, f"{folder}/{name}")
    rules: list[PresetRule] = []
    for _, path in sorted(chosen.items()):
        rules += parse_presets(tree.text(path) or "")
    return rules[:_MOST_RULES]


def parse_presets(text: str) -> list[PresetRule]:
    r"""``enable`` and ``disable`` lines; others are skipped.

    >>> rules = parse_presets("# x\ndisable ecs.service\nenable getty@.service tty1\nenable *\n")
    >>> [preset_allows(rules, unit) for unit in ("ecs.service", "ssh.service")]
    [False, True]
    """
    rules = []
    for line in text.split("\n"):
        words = line.split()
        if len(words) >= 2 and words[0] in ("enable", "disable") and len(words[1]) < _MOST_PATTERN:
            rules.append(PresetRule(words[0] == "enable", words[1]))
    return rules


def preset_allows(rules: Sequence[PresetRule], unit: str) -> bool:
    """Whether presets enable this unit."""
    return next((rule.enable for rule in rules if fnmatchcase(unit, rule.pattern)), True)


class Enabled:
    """The units that will be started; `unseen` lists what could not be followed.

    `version` is reported by a running systemd; without it, the tree's files show it.
    """

    def __init__(self, tree: UnitTree, version: str | None = None) -> None:
        self.tree = tree
        self.unseen: list[str] = []
        self._ways: dict[str, list[Enabling]] = defaultdict(list)
        self._names: dict[str, set[str]] = defaultdict(set)
        self._pending: deque[str] = deque()
        self._seen: set[str] = set()
        self._sysv: dict[str, str] = {}
        self._generators = self._find_generators()
        self._follow_boot()
        self._follow_etc_links()
        self._follow_generators()
        self._follow_presets()
        self._follow_bus()
        stock = defaults(tree)
        self._version = systemd_version(tree, version)
        self.units = [self._unit(name, stock) for name in sorted(self._ways)]

    def manual(self, name: str) -> EnabledUnit:
        """A unit that runs but that no file starts: started by hand, or by a program over D-Bus."""
        self._ways[name].append(Enabling("manual", "", self.tree.path(name)))
        return self._unit(name, defaults(self.tree))

    def _follow_boot(self) -> None:
        if self.tree.path("default.target") == "":
            roots: tuple[str, ...] = (*_ROOTS, *_FALLBACK)
        elif self.tree.canonical("default.target") == "graphical.target":
            roots = (*_ROOTS, "multi-user.target")
        else:
            roots = _ROOTS
        self._pending.extend(roots)
        self._drain()

    def _follow_etc_links(self) -> None:
        """Links in /etc are an administrator's, and count even if no boot target leads there."""
        for puller in self.tree.pulling:
            if _NOT_AT_BOOT.fullmatch(puller):
                continue
            for pull in self.tree.linked(puller):
                if pull.at.startswith("/etc/"):
                    self._start(pull, puller)
        self._drain()

    def _follow_generators(self) -> None:
        if "cloud-init-generator" in self._generators and self.tree.path("cloud-init.target"):
            at = self._generators["cloud-init-generator"]
            self._start(Pull("generator", "cloud-init.target", at), "multi-user.target")
        if "systemd-rc-local-generator" in self._generators and self.tree.has("/etc/rc.local"):
            at = self._generators["systemd-rc-local-generator"]
            self._start(Pull("generator", "rc-local.service", at), "multi-user.target")
        if "systemd-sysv-generator" in self._generators:
            self._follow_init_scripts()
        self._drain()
        unknown = [name for name in self._generators if not _KNOWN_GENERATORS.fullmatch(name)]
        if unknown:
            shown = ", ".join(unknown[:5]) + (" …" if len(unknown) > 5 else "")
            self.unseen.append(f"units from generators, which are not run: {shown}")

    def _follow_init_scripts(self) -> None:
        for directory in _RUNLEVELS:
            for name in self.tree.listing(directory):
                found = _SYSV_LINK.fullmatch(name)
                unit = f"{found[1].removesuffix('.sh')}.service" if found else ""
                if found and not self.tree.path(unit) and is_unit(unit):
                    self._sysv.setdefault(unit, f"/etc/init.d/{found[1]}")
                    pull = Pull("sysv", unit, f"{directory}/{name}")
                    self._start(pull, directory.rpartition("/")[2])

    def _follow_presets(self) -> None:
        if not is_first_boot(self.tree):
            return
        rules = preset_rules(self.tree)
        self.tree.note(
            "no /etc/machine-id: the next boot is a first boot and enables what presets allow"
        )
        for name in self.tree.names:
            if name in self._ways or self.tree.canonical(name) != name or name.endswith(".target"):
                continue
            if "@." in name or not preset_allows(rules, name) or self.tree.masked(name):
                continue
            settings = self.tree.settings(name)
            by = [unit for key in _INSTALLS[:3] for unit in settings.words("Install", key)]
            if by:
                self._start(Pull("preset", name, self.tree.path(name)), by[0])
        self._drain()

    def _follow_bus(self) -> None:
        for name in self.tree.listing(_BUS_SERVICES):
            if not name.endswith(".service"):
                continue
            path = f"{_BUS_SERVICES}/{name}"
            content = self.tree.text(path) or ""
            found = re.search(r"^SystemdService\s*=\s*(\S{1,250})", content, re.MULTILINE)
            if found and is_unit(found[1]) and self.tree.path(found[1]):
                self._start(Pull("bus", found[1], path), name.removesuffix(".service"))
        self._drain()

    def _find_generators(self) -> dict[str, str]:
        """Paths by name; earlier directories win."""
        found: dict[str, str] = {}
        for directory in _GENERATORS:
            for name in self.tree.listing(directory):
                found.setdefault(name, f"{directory}/{name}")
        return found

    def _drain(self) -> None:
        for _ in range(MOST_STEPS):
            if not self._pending:
                return
            name = self._pending.popleft()
            if name in self._seen or self.tree.masked(name):
                continue
            self._seen.add(name)
            for pull in self._pulled(name):
                self._start(pull, name)
        self.tree.note_unread(f"more than {MOST_STEPS:,} dependencies: the list is incomplete")
        self._pending.clear()

    def _start(self, pull: Pull, by: str) -> None:
        name = self.tree.canonical(pull.unit)
        if self.tree.masked(name) or self.tree.masked(pull.unit):
            return
        if name.rpartition(".")[2] not in ("service", "timer", "socket", "path", "target"):
            return
        if not self.tree.path(name) and pull.kind != "sysv":
            return  # a dependency that is not installed
        if name != pull.unit:
            self._names[name].add(pull.unit)
        if not name.endswith(".target"):
            way = Enabling(pull.kind, by, pull.at)
            if way not in self._ways[name] and len(self._ways[name]) < _MOST_WAYS:
                self._ways[name].append(way)
        if name not in self._seen:
            self._pending.append(name)

    def _pulled(self, name: str) -> Iterable[Pull]:
        """Everything that `name` starts, now or later."""
        settings = self.tree.settings(self.tree.canonical(name))
        yield from self.tree.linked(name)
        canonical = self.tree.canonical(name)
        if canonical != name:
            yield from self.tree.linked(canonical)
        for key, kind in _LINES:
            for line in settings.lines("Unit", key):
                yield from (Pull(kind, unit, line.origin) for unit in _units(line.value))
        stem, _, suffix = canonical.rpartition(".")
        at = self.tree.path(canonical)
        if suffix == "timer":
            yield Pull("timer", settings.last("Timer", "Unit") or f"{stem}.service", at)
        elif suffix == "path":
            yield Pull("path", settings.last("Path", "Unit") or f"{stem}.service", at)
        elif suffix == "socket" and settings.last("Socket", "Accept") not in ("yes", "true", "1"):
            yield Pull("socket", settings.last("Socket", "Service") or f"{stem}.service", at)

    def _unit(self, name: str, stock: RestartPolicy) -> EnabledUnit:
        settings = self.tree.settings(name)
        fragment = self.tree.path(name) or self._sysv.get(name, "")
        found = _PROGRAM.match(settings.last("Service", "ExecStart") or "")
        program = found[1] if found else ""
        restart, period, faults = RestartPolicy(), None, []
        if name.endswith(".service") and "Service" in settings.sections:
            restart = policy_of(settings, stock)
            origin = settings.origin("Service", "Restart")
            fault = endless_restart(restart, origin, self._version)
            faults = [fault] if fault else []
        elif name.endswith(".timer"):
            period = timer_period(settings)
            fault = frequent_timer(period, fragment)
            faults = [fault] if fault else []
        there = self.tree.has(program) if program.startswith("/") else None
        return EnabledUnit(
            name=name,
            how=tuple(self._ways[name]),
            fragment=fragment,
            drop_ins=self.tree.drop_ins(name),
            description=settings.last("Unit", "Description") or "",
            program=program,
            program_missing=None if there is None else not there,
            restart=restart,
            conditions=tuple(settings.with_prefix("Unit", ("Condition", "Assert"))),
            timer_s=period,
            faults=tuple(faults),
            aliases=tuple(sorted(self._names[name])),
        )


def _units(value: str) -> list[str]:
    return [word for word in value.split()[:1000] if is_unit(word)]

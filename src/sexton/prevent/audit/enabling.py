"""Which units will be started, and by what: followed from the boot target through files and links.

As systemd would at boot, but on paper: from ``default.target`` through `Wants=`, `Requires=`,
`BindsTo=`, `Upholds=` and the links in ``.wants``, ``.requires``, ``.upholds`` directories, on to
what timers, sockets and paths start. Then what the first boot will enable by preset, what systemd's
generators make of init scripts, and what D-Bus starts on demand. Generators are programs, so they
are never run: those whose product is known are followed, the others are named as not seen.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable

from sexton.model.audit import EnabledUnit, Enabling, RestartPolicy
from sexton.prevent.audit import presets
from sexton.prevent.audit.lookup import Pull, UnitTree, is_unit
from sexton.prevent.audit.restart import defaults, endless, frequent, policy_of, timer_period

#: A unit that never ends would keep us as long: far more than any tree has.
MOST_STEPS = 50_000
_MOST_WAYS = 8
#: Targets every boot passes; a service has them as dependencies by default.
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
#: What an administrator enables for these does not run while the machine does.
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
#: Generators of systemd and its neighbours that make no service anybody would ask about.
_HARMLESS = re.compile(
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


class Enabled:
    """The answer, with what could not be seen."""

    def __init__(self, tree: UnitTree) -> None:
        self.tree = tree
        self.unseen: list[str] = []
        self._ways: dict[str, list[Enabling]] = defaultdict(list)
        self._names: dict[str, set[str]] = defaultdict(set)
        self._pending: deque[str] = deque()
        self._seen: set[str] = set()
        self._sysv: dict[str, str] = {}
        self._generators = self._find_generators()
        self._follow_boot()
        self._follow_links_of_administrators()
        self._follow_generators()
        self._follow_presets()
        self._follow_bus()
        stock = defaults(tree)
        self.units = [self._unit(name, stock) for name in sorted(self._ways)]

    def running(self, name: str) -> EnabledUnit:
        """A unit that runs though no file starts it: by hand, or by a program over D-Bus."""
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

    def _follow_links_of_administrators(self) -> None:
        """Links in /etc are somebody's will, whether or not this boot passes their target."""
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
        strange = [name for name in self._generators if not _HARMLESS.fullmatch(name)]
        if strange:
            shown = ", ".join(strange[:5]) + (" …" if len(strange) > 5 else "")
            self.unseen.append(f"what these generators would make at boot (not run): {shown}")

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
        if not presets.first_boot(self.tree):
            return
        rules = presets.rules_of(self.tree)
        self.tree.note(
            "no /etc/machine-id: the next boot is a first boot, which enables what presets allow"
        )
        for name in self.tree.names:
            if name in self._ways or self.tree.canonical(name) != name or name.endswith(".target"):
                continue
            if "@." in name or not presets.allows(rules, name) or self.tree.masked(name):
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
        """By name, those that are not masked."""
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
        self.tree.note("more units than we follow: the list is not whole")
        self._pending.clear()

    def _start(self, pull: Pull, by: str) -> None:
        name = self.tree.canonical(pull.unit)
        if self.tree.masked(name) or self.tree.masked(pull.unit):
            return
        if name.rpartition(".")[2] not in ("service", "timer", "socket", "path", "target"):
            return
        if not self.tree.path(name) and pull.kind != "sysv":
            return  # a dependency on what is not installed
        if name != pull.unit:
            self._names[name].add(pull.unit)
        if not name.endswith(".target"):
            way = Enabling(pull.kind, by, pull.at)
            if way not in self._ways[name] and len(self._ways[name]) < _MOST_WAYS:
                self._ways[name].append(way)
        if name not in self._seen:
            self._pending.append(name)

    def _pulled(self, name: str) -> Iterable[Pull]:
        """Everything that starting `name` starts, itself or later."""
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
            fault = endless(restart, settings.origin("Service", "Restart"))
            faults = [fault] if fault else []
        elif name.endswith(".timer"):
            period = timer_period(settings)
            fault = frequent(period, fragment)
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
            conditions=tuple(settings.starting("Unit", ("Condition", "Assert"))),
            timer_s=period,
            faults=tuple(faults),
            aliases=tuple(sorted(self._names[name])),
        )


def _units(value: str) -> list[str]:
    return [word for word in value.split()[:1000] if is_unit(word)]

"""Places made by hand, and images on disk, for a gate to judge."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sexton.host.host import Host, open_host
from sexton.model.audit import Audit, EnabledUnit, Enabling, Fault, Need, Reason, Subject
from sexton.model.row import Row, fields_of
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.node import Node
from sexton.model.rows.unit import ServiceManager, Unit
from sexton.model.window import Batch, SourceState, Window
from sexton.prevent.gate import Gate, Policy, Target, builtin, judge, parse

TODAY = datetime.date(2026, 11, 15)
#: The last day of a waiver that a real run, today, takes for a good one.
IN_TIME = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=200)
SYSTEMD = ServiceManager("systemd", "252", "D-Bus")


def census(total: int | None, live: int | None, scope: str = "node", reason: str = "") -> Row:
    dying = None if total is None or live is None else total - live
    return CgroupCensus(
        "v1", 1, "/sys/fs/cgroup/memory", scope, total, live, dying, "by hand", reason or None
    )


def unit(name: str, restarts: int, state: str = "active", sub: str = "running") -> Unit:
    values: dict[str, Any] = dict.fromkeys(fields_of(Unit))
    values |= {"name": name, "load_state": "loaded", "active_state": state, "sub_state": sub}
    values |= {"restarts": restarts, "restart_policy": "on-failure", "restart_delay_us": 10_000_000}
    values |= {"cgroup": f"/system.slice/{name}", "cgroup_origin": "systemd"}
    return Unit(**values)


def node(container: str | None = None) -> Node:
    values: dict[str, Any] = {**dict.fromkeys(fields_of(Node)), "hostname": "n1", "kernel": "5.4.0"}
    return Node(**{**values, "container": container})


def window(readings: Sequence[Sequence[Row]], states: Sequence[SourceState] = ()) -> Window:
    """Readings ten seconds apart."""
    batches: dict[type[Row], list[Batch[Any]]] = {}
    for number, rows in enumerate(readings):
        kinds: dict[type[Row], list[Row]] = {}
        for row in rows:
            kinds.setdefault(type(row), []).append(row)
        for kind, some in kinds.items():
            moment = 100.0 + 10 * number
            batches.setdefault(kind, []).append(Batch(moment, 1.7e9 + moment, tuple(some)))
    return Window(batches, states)


def subject(
    name: str, need: Need = Need.NEEDED, starts_a_day: float | None = None, detail: str = "loops"
) -> Subject:
    faults = (
        ()
        if starts_a_day is None
        else (Fault("endless-restart", detail, "[Unit]\nStartLimitBurst=6", "/u", starts_a_day),)
    )
    link = f"/etc/systemd/system/multi-user.target.wants/{name}"
    enabled = EnabledUnit(name, (Enabling("wants", "multi-user.target", link),), f"/lib/{name}")
    why = (Reason("no cluster is configured", "ECS_CLUSTER is not set", "/etc/ecs/ecs.config"),)
    return Subject(name, need, reasons=why, enabled=enabled, faults=faults)


def audit_of(*subjects: Subject, has_units: bool = True, unseen: tuple[str, ...] = ()) -> Audit:
    return Audit("/img", False, 0.0, subjects, has_units=has_units, unseen=unseen)


def place(
    root: Path | str = "/nonexistent",
    seen: Window | None = None,
    found: Audit | None = None,
    host: Host | None = None,
) -> Target:
    """Booted where a window is given."""
    the_host = host or (open_host(str(root)) if Path(root).is_dir() else None)
    assert the_host is not None
    answer = found or audit_of()
    return Target(
        the_host, str(root), "a directory", seen is not None, seen, lambda *_: answer, {"ID": "x"}
    )


def policy(text: str = "") -> Policy:
    return parse(text.encode(), "gate.toml") if text else builtin()


def gate_of(where: Target, text: str = "", today: datetime.date = TODAY) -> Gate:
    return judge(where, policy(text), today)


def image(root: Path, more: dict[str, str] | None = None, ecs: str = "") -> Path:
    """A small Ubuntu of a Kubernetes node; `ecs` is "deb" or "rpm" where it has such an agent."""
    files = {
        "/etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n',
        "/usr/lib/systemd/system/ssh.service": (
            "[Service]\nExecStart=/usr/sbin/sshd -D\nRestart=on-failure\n"
            "[Install]\nWantedBy=multi-user.target\n"
        ),
        "/usr/lib/systemd/system/kubelet.service": (
            "[Unit]\nStartLimitInterval=0\n[Service]\nExecStart=/usr/bin/kubelet"
            " --config=/var/lib/kubelet/config.yaml\nRestart=always\nRestartSec=10\n"
            "[Install]\nWantedBy=multi-user.target\n"
        ),
        "/usr/bin/kubelet": "",
        "/usr/sbin/sshd": "",
        "/var/lib/kubelet/config.yaml": (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
            "cgroupDriver: systemd\nkubeReserved:\n  cpu: 200m\n  memory: 500Mi\n"
        ),
        **(more or {}),
    }
    if ecs:
        stop = "RestartPreventExitStatus=5\n" if ecs == "rpm" else ""
        files["/usr/lib/systemd/system/ecs.service"] = (
            "[Unit]\nDescription=Amazon Elastic Container Service - container agent\n"
            "[Service]\nType=simple\nRestart=on-failure\nRestartSec=10s\n"
            f"{stop}ExecStart=/usr/libexec/amazon-ecs-init start\n"
            "[Install]\nWantedBy=multi-user.target\n"
        )
        files["/usr/libexec/amazon-ecs-init"] = ""
    for path, content in files.items():
        where = root / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(content)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    for name in ("ssh", "kubelet", *(["ecs"] if ecs else [])):
        (wants / f"{name}.service").symlink_to(f"/usr/lib/systemd/system/{name}.service")
    return root

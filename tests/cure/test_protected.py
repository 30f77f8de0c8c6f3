"""What is never touched, and what a configuration may add."""

from __future__ import annotations

import pytest

from sexton.cure.protected import Rule, rules_of, why_protected, why_protected_path, why_workload
from sexton.errors import CommandError


@pytest.mark.parametrize(
    "name",
    [
        "kubelet.service", "snap.kubelet.daemon.service", "k3s-agent.service", "kube-proxy.service",
        "containerd.service", "docker.service", "crio.service", "sshd.service", "ssh@x.service",
        "systemd-networkd.service", "NetworkManager.service", "iscsid.service", "lvm2-a.service",
        "prometheus-node-exporter.service", "dbus.service", "amazon-ssm-agent.service",
        "sexton-record.service", "sexton", "containerd-shim", "raylet", "conmon",
        "cri-docker.service", "cri-docker.socket", "snap.docker.dockerd.service", "wicked.service",
        "ovs-vswitchd.service", "openvswitch-switch.service", "ip6tables.service", "ufw.service",
        "wg-quick@wg0.service", "rpc-statd.service", "autofs.service",
        "amazon-efs-mount-watchdog.service", "dm-event.service",
    ],
)  # fmt: skip
def test_what_a_node_lives_by_is_protected_with_a_reason(name: str):
    assert why_protected(name)


@pytest.mark.parametrize(
    "name",
    [
        "ecs.service",
        "leak.service",
        "sexto.service",
        "my-app",
        "ecs",
        "amount.service",
        "ifs.service",
    ],
)
def test_what_nobody_lives_by_is_not(name: str):
    assert why_protected(name) is None


def test_a_configuration_adds_and_never_takes_away():
    rules = rules_of('[[protect]]\nname = "gpu-*.service"\nwhy = "bills"\n')
    assert why_protected("gpu-1.service", rules) == "bills (configured)"
    assert why_protected("kubelet.service", rules) == why_protected("kubelet.service")
    assert why_protected("gpu.service", rules) is None


def test_a_reason_from_a_configuration_cannot_disturb_a_terminal():
    assert "\x1b" not in (why_protected("a", (Rule("a", "\x1b[2J"),)) or "")


@pytest.mark.parametrize(
    "text",
    [
        "[[protect]]\nname = 1\nwhy = 'x'",
        "[[protect]]\nname = ''\nwhy = 'x'",
        "[[protect]]\nname = 'x'",
        "protect = 'x'",
        "[[allow]]\nname = 'kubelet.service'",
        "[[protect]",
        "a = " + "[" * 50_000,
        "a = " + "9" * 5_000,
    ],
)
def test_a_configuration_that_cannot_be_read_is_a_failure_and_never_an_empty_list(text: str):
    with pytest.raises(CommandError):
        rules_of(text)


@pytest.mark.parametrize(
    ("path", "whose"),
    [
        ("/kubepods.slice/kubepods-besteffort.slice/x", "kubepods.slice: pods"),
        ("/kubepods/burstable/pod1", "kubepods: pods"),
        ("/docker/0123", "docker: containers"),
        ("/system.slice/docker-0123.scope", "docker-0123.scope"),
        ("/system.slice/kubelet.service", "kubelet.service"),
        ("/user.slice/user-0.slice/session-1.scope", "user.slice"),
        ("/machine.slice/libpod-1.scope", "machine.slice"),
        ("/ecstasks/1", "ecstasks: ECS tasks"),
    ],
)
def test_a_cgroup_with_workloads_or_protected_units_is_named(path: str, whose: str):
    assert (why_protected_path(path) or "").startswith(whose)


def test_an_agents_own_cgroup_is_no_workload():
    assert why_protected_path("/system.slice/ecs.service") is None
    assert why_workload("ecs.service") is None

"""Units a node cannot run without: faults are reported, but stopping them is never advised."""

from __future__ import annotations

import re

#: Matched at the start of a unit's name, with the cost of stopping it.
_PROTECTED: tuple[tuple[str, str], ...] = (
    (r"(snap\.)?(kubelet|kube-proxy|k3s|k0s|rke2|microk8s)", "the node leaves its cluster"),
    (
        r"(snap\.)?(containerd|docker|crio|cri-o|podman|cri-docker|nerdctl|isulad)",
        "every container depends on it",
    ),
    (r"(ssh|sshd|dropbear)(@|\.|$)", "nobody could log in"),
    (
        r"(NetworkManager|networking|network|systemd-(networkd|resolved)|wpa_supplicant|dhcpcd"
        r"|dhclient|cilium|calico|flannel|aws-vpc|netplan|firewalld|nftables|ip6?tables|bird|frr"
        r"|wicked|connman|iwd\.|ifup|ufw|openvswitch|ovs-|ovsdb-|ovn-|antrea|weave|kube-router"
        r"|wg-quick@|openvpn|tailscaled|nm-cloud-setup|policy-routes@)",
        "the network would go down",
    ),
    (
        r"(iscsi|open-iscsi|multipath|lvm2|mdmonitor|mdadm|nfs|rpcbind|ceph|gluster|zfs|drbd|nvme"
        r"|blk-availability|lustre|csi-|rpc-|autofs|amazon-efs|beegfs|gpfs|dm-event|vdo)",
        "storage would go away",
    ),
    (r"(prometheus-)?node[-_]exporter", "monitoring would be lost"),
    (r"(systemd-|dbus|polkit|getty|serial-getty|user@|init\.)", "the system itself depends on it"),
    (r"(chrony|ntp|systemd-timesyncd)", "clocks would drift apart"),
    (
        r"(amazon-ssm-agent|google-guest-agent|walinuxagent|cloud-init)",
        "the cloud's management agent",
    ),
    (r"(nvidia-(persistenced|fabricmanager)|dcgm)", "jobs would lose their GPUs"),
)
_PATTERNS = tuple((re.compile(pattern), why) for pattern, why in _PROTECTED)


def protected(unit: str) -> str | None:
    """Why stopping this unit must not be advised; `None` if it may be.

    >>> protected("kubelet.service"), protected("ecs.service")
    ('the node leaves its cluster', None)
    """
    return next((why for pattern, why in _PATTERNS if pattern.match(unit)), None)

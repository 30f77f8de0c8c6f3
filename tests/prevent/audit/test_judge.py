"""Verdicts: what makes a unit needed, unneeded, protected or unknown."""

from __future__ import annotations

import pytest

from sexton.cure.protected import Rule, why_protected
from sexton.host.host import Host
from sexton.model.audit import Audit, Need, Subject, Workload
from sexton.prevent.audit import audit
from sexton.prevent.audit.catalogue import agents
from sexton.prevent.audit.enabled import Enabled
from sexton.prevent.audit.evidence import Connections, Evidence, connections_of
from sexton.prevent.audit.judge import Context, Judge
from sexton.prevent.audit.unit_files import UnitTree
from sexton.prevent.image import ImageDirectory
from sexton.sources.sock_diag import ESTABLISHED, LISTEN, InetSocket, Sockets
from tests.prevent.audit.trees import ECS_DEB, Tree

PODS = (Workload("kubernetes", 3, "/kubepods/pod1"),)


def of_image(tree: Tree, *rules: Rule) -> Audit:
    files = ImageDirectory(str(tree.root))
    return audit(Host(files, live=False, root=str(tree.root)), None, rules)


def verdict(tree: Tree, unit: str) -> Subject:
    return next(subject for subject in of_image(tree).subjects if subject.unit == unit)


def live(tree: Tree, unit: str, seen: Evidence, *running: str) -> Subject:
    files = ImageDirectory(str(tree.root))
    enabled = {enabled_unit.name: enabled_unit for enabled_unit in Enabled(UnitTree(files)).units}
    seen.live = True
    return Judge(Context(files, seen, {*enabled, *running})).subject(unit, enabled.get(unit))


def test_an_image_alone_does_not_make_an_agent_unneeded(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    found = verdict(tree, "ecs.service")
    assert found.verdict is Need.UNKNOWN
    assert found.harmful, "but its restart policy is a fault all the same"
    assert "RestartPreventExitStatus=5" in found.faults[0].detail


def test_a_rival_in_the_image_does_and_says_what_would_make_that_wrong(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    tree.unit("kubelet.service")
    found = verdict(tree, "ecs.service")
    assert found.verdict is Need.UNNEEDED
    assert "user data" in found.wrong_if
    assert any("an image does not show" in item for item in found.unseen)


def test_a_configured_agent_is_needed_rival_or_not(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    tree.unit("kubelet.service")
    tree.write("/etc/ecs/ecs.config", "# no\nECS_CLUSTER=prod\n")
    assert verdict(tree, "ecs.service").verdict is Need.NEEDED


@pytest.mark.parametrize("content", ["ECS_CLUSTER=\n", "#ECS_CLUSTER=prod\n", "ECS_CLUSTER= # x\n"])
def test_a_configuration_that_says_nothing_does_not_make_it_needed(tree: Tree, content: str):
    tree.unit("ecs.service", ECS_DEB)
    tree.unit("kubelet.service")
    tree.write("/etc/ecs/ecs.config", content)
    assert verdict(tree, "ecs.service").verdict is Need.UNNEEDED


def test_a_configuration_that_cannot_be_read_leaves_it_unknown(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    tree.unit("kubelet.service")
    (tree.root / "etc/ecs/ecs.config").mkdir(parents=True)
    found = verdict(tree, "ecs.service")
    assert found.verdict is Need.UNKNOWN
    assert any("an ECS cluster is configured" in item for item in found.unseen)


def test_live_it_is_unneeded_only_where_workloads_can_be_seen(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    assert live(tree, "ecs.service", Evidence(workloads=PODS)).verdict is Need.UNNEEDED
    assert live(tree, "ecs.service", Evidence(workloads=())).verdict is Need.UNKNOWN
    blind = live(tree, "ecs.service", Evidence(), "kubelet.service")
    assert blind.verdict is Need.UNKNOWN
    both = (*PODS, Workload("ecs", 1, "/ecs/x"))
    assert live(tree, "ecs.service", Evidence(workloads=both)).verdict is Need.NEEDED


def test_from_inside_a_container_what_is_not_there_may_be_outside(tree: Tree):
    tree.unit("qemu-guest-agent.service")
    tree.unit("google-osconfig-agent.service")
    seen = Evidence(connections={}, vendor="Amazon EC2")
    assert live(tree, "qemu-guest-agent.service", seen).verdict is Need.UNNEEDED
    inside = Evidence(connections={}, vendor="Amazon EC2", partial=True)
    found = live(tree, "qemu-guest-agent.service", inside)
    assert found.verdict is Need.UNKNOWN
    assert any("inside a container" in item for item in found.unseen)
    assert live(tree, "google-osconfig-agent.service", inside).verdict is Need.UNKNOWN
    tree.write("/dev/virtio-ports/org.qemu.guest_agent.0", "")
    assert live(tree, "qemu-guest-agent.service", inside).verdict is Need.NEEDED


def test_a_unit_no_catalogue_knows_is_unknown_unless_somebody_uses_it(tree: Tree):
    tree.unit("mine.service")
    seen = Evidence(connections={}, workloads=PODS, dependants={})
    assert live(tree, "mine.service", seen).verdict is Need.UNKNOWN
    seen = Evidence(connections={"mine.service": Connections(clients=("10.0.0.9",))})
    found = live(tree, "mine.service", seen)
    assert found.verdict is Need.NEEDED
    assert found.reasons[0].value == "10.0.0.9"


def test_being_connected_somewhere_is_no_proof_of_need_but_stands_against(tree: Tree):
    tree.unit("mine.service")
    seen = Evidence(connections={"mine.service": Connections(servers=("192.0.2.1",))})
    found = live(tree, "mine.service", seen)
    assert found.verdict is Need.UNKNOWN
    assert found.against[0].value == "192.0.2.1"


def test_a_udp_listener_may_have_senders_that_nobody_sees(tree: Tree):
    tree.unit("telegraf.service")
    seen = Evidence(connections={"telegraf.service": Connections(datagrams=("udp 8125",))})
    found = live(tree, "telegraf.service", seen)
    assert found.verdict is Need.UNKNOWN
    assert any("UDP senders are unknown" in item for item in found.unseen)


@pytest.mark.parametrize(
    "unit",
    ["kubelet.service", "kube-proxy.service", "node-exporter.service", "containerd.service",
     "ssh.service", "systemd-networkd.service", "multipathd.service", "docker.service",
     "prometheus-node-exporter.service", "iscsid.service", "amazon-ssm-agent.service"],
)  # fmt: skip
def test_what_a_node_lives_by_is_never_called_unneeded(tree: Tree, unit: str):
    tree.unit(unit)
    tree.unit("slurmd.service")
    assert verdict(tree, unit).verdict is Need.PROTECTED
    for workloads in (None, (), PODS):
        seen = Evidence(workloads=workloads, connections={}, vendor="Amazon EC2")
        assert live(tree, unit, seen).verdict is Need.PROTECTED


def test_the_owners_own_list_protects_too(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    tree.unit("kubelet.service")
    (found,) = (
        subject
        for subject in of_image(tree, Rule("ecs*", "ours")).subjects
        if subject.agent == "ecs"
    )
    assert found.verdict is Need.PROTECTED
    assert not found.harmful


def test_agents_of_another_cloud_are_unneeded_by_the_machines_maker(tree: Tree):
    tree.unit("google-osconfig-agent.service")
    known = live(
        tree, "google-osconfig-agent.service", Evidence(connections={}, vendor="Amazon EC2")
    )
    assert known.verdict is Need.UNNEEDED
    own = live(tree, "google-osconfig-agent.service", Evidence(connections={}, vendor="Google"))
    assert own.verdict is Need.NEEDED
    untold = live(tree, "google-osconfig-agent.service", Evidence(connections={}))
    assert untold.verdict is Need.UNKNOWN
    assert verdict(tree, "google-osconfig-agent.service").verdict is Need.UNKNOWN


def test_snapd_without_a_snap_is_unneeded_also_in_an_image(tree: Tree):
    tree.unit("snapd.service")
    assert verdict(tree, "snapd.service").verdict is Need.UNNEEDED
    tree.write("/var/lib/snapd/seed/snaps/core20_1.snap", b"")
    assert verdict(tree, "snapd.service").verdict is Need.NEEDED


def test_a_missing_configuration_says_nothing_of_an_image_that_boots_later(tree: Tree):
    tree.unit("datadog-agent.service")
    assert verdict(tree, "datadog-agent.service").verdict is Need.UNKNOWN
    found = live(tree, "datadog-agent.service", Evidence(connections={}))
    assert found.verdict is Need.UNNEEDED


@pytest.mark.parametrize("switch", ["0", "1"])
def test_updates_that_are_switched_off_make_their_timers_unneeded(tree: Tree, switch: str):
    tree.unit("apt-daily.timer", "[Timer]\nOnCalendar=daily\n", "timers.target")
    lines = [
        f'APT::Periodic::{key} "{switch}";'
        for key in ("Update-Package-Lists", "Unattended-Upgrade")
    ]
    tree.write("/etc/apt/apt.conf.d/20auto-upgrades", "\n".join(lines))
    wanted = Need.UNNEEDED if switch == "0" else Need.NEEDED
    assert verdict(tree, "apt-daily.timer").verdict is wanted


def test_a_service_that_only_its_timer_starts_is_judged_as_the_timer(tree: Tree):
    tree.unit("job.timer", "[Timer]\nOnCalendar=daily\n", "timers.target")
    tree.unit("job.service", by=None)
    assert [subject.unit for subject in of_image(tree).subjects] == ["job.timer"]


def test_a_tree_without_units_tells_nothing(tmp_path):
    (tmp_path / "etc").mkdir()
    files = ImageDirectory(str(tmp_path))
    assert not audit(Host(files, live=False, root="/x")).has_units


def test_every_entry_of_the_catalogue_is_whole():
    ids = [agent.id for agent in agents()]
    assert len(ids) == len(set(ids))
    for agent in agents():
        assert agent.title
        assert agent.purpose
        assert agent.units
        assert all(condition.why for condition in (*agent.needed, *agent.unneeded)), agent.id
        assert not (agent.unneeded and not (agent.needed or agent.id == "firmware")), agent.id
    for wanted in ("ecs", "ssm", "cloudwatch", "datadog", "fluent-bit", "fluentd", "node-exporter",
                   "docker", "snapd", "unattended-upgrades", "apt-timers", "multipath",
                   "modem-manager", "cloud-init", "google-osconfig", "waagent"):  # fmt: skip
        assert wanted in ids


def test_what_is_protected_has_the_word_of_the_protected_list():
    assert why_protected("kubelet.service")
    assert why_protected("ecs.service") is None


def tcp(state: int, ends: tuple[int, int], inode: int, remote: str = "127.0.0.1") -> InetSocket:
    return InetSocket("tcp", state, "127.0.0.1" if remote == "127.0.0.1" else "10.0.0.5",
                      ends[0], remote, ends[1], inode)  # fmt: skip


def test_who_is_client_and_who_is_server_goes_by_who_listens():
    sockets = Sockets(
        (
            tcp(LISTEN, (9100, 0), 1, "0.0.0.0"),
            tcp(ESTABLISHED, (9100, 40000), 2),
            tcp(ESTABLISHED, (40000, 9100), 3),
            tcp(ESTABLISHED, (9100, 50000), 4, "10.0.0.9"),
            tcp(ESTABLISHED, (41000, 443), 5, "192.0.2.7"),
            tcp(ESTABLISHED, (9100, 9), 0, "10.0.0.10"),  # nobody's yet
        ),
        (),
        {1: 100, 2: 100, 3: 200, 4: 100, 5: 100},
        True,
    )
    found = connections_of(
        sockets, {100: "/system.slice/exporter.service", 200: "/system.slice/scraper.service"}
    )
    assert found["exporter.service"].listens == ("tcp 9100",)
    assert found["exporter.service"].clients == ("scraper.service", "10.0.0.9")
    assert found["exporter.service"].servers == ("192.0.2.7",)
    assert found["scraper.service"].servers == ("exporter.service",)
    assert found["scraper.service"].clients == ()


def test_a_pods_process_is_told_as_a_workload():
    pod = (
        "/kubepods.slice/kubepods-pod" + "0a" * 16 + ".slice/cri-containerd-" + "1" * 64 + ".scope"
    )
    sockets = Sockets(
        (tcp(LISTEN, (80, 0), 1, "0.0.0.0"), tcp(ESTABLISHED, (80, 7), 2),
         tcp(ESTABLISHED, (7, 80), 3)),
        (), {1: 1, 2: 1, 3: 2}, True,
    )  # fmt: skip
    found = connections_of(sockets, {1: "/system.slice/a.service", 2: pod})
    assert found["a.service"].clients == ("a kubernetes workload",)

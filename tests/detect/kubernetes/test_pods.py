"""Kubelets' cgroup paths, with each driver and runtime, and the names of what is in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.kubernetes.pods import PodNames, PodPart, missing, pod_path, pods, with_pods
from sexton.detect.stems import container
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.rows.kubernetes import Container, Pod
from sexton.prevent.audit.evidence import workload_of
from tests.support.windows import make_window

UID = "0a1b2c3d-1111-2222-3333-444455556666"
FLAT = UID.replace("-", "_")
HASH = "0f3a77bc0e6d4b1e0f3a77bc0e6d4b1e"
ID, SANDBOX, OTHER = "0f" * 32, "1e" * 32, "2d" * 32
APP = PodPart("prod", "api-7c9", "app")
ROWS = [
    Pod(UID, "prod", "api-7c9"),
    Pod(HASH, "kube-system", "etcd-node1"),
    Container(ID, "prod", "api-7c9", "app", UID, 57),
    Container(SANDBOX, "prod", "api-7c9", None, UID, None),
]
KIND = f"/docker/{OTHER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice"
PATHS = {
    f"/kubepods/burstable/pod{UID}/{ID}": APP,
    f"/kubepods/pod{UID}/{ID}": APP,
    f"/kubepods/besteffort/pod{UID}/crio-{ID}": APP,
    f"{SLICE}/cri-containerd-{ID}.scope": APP,
    f"{SLICE}/crio-{ID}.scope": APP,
    f"{SLICE}/crio-conmon-{ID}.scope": APP,
    f"{SLICE}/docker-{ID}.scope": APP,
    f"{SLICE}/cri-containerd-{ID}.scope/init.scope/deep": APP,
    f"/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope": APP,
    f"{KIND}/kubelet-kubepods-besteffort-pod{FLAT}.slice/cri-containerd-{ID}.scope": APP,
    f"/sexton-test/kubepods/besteffort/pod{UID}/{ID}": APP,
    f"/system.slice/cri-containerd-{ID}.scope": APP,  # cgroupsPerQOS: false
    f"{SLICE}/cri-containerd-{SANDBOX}.scope": APP._replace(container=None, is_sandbox=True),
    f"{SLICE}/cri-containerd-{OTHER}.scope": APP._replace(container=None),
    SLICE: APP._replace(container=None),
    f"/kubepods/burstable/pod{HASH}/{OTHER}": PodPart("kube-system", "etcd-node1"),
    f"/docker/{OTHER}": None,
    "/kubepods/burstable": None,
    "/kubepods/burstable/pod*/*": None,
    "/system.slice/ssh.service": None,
}


@pytest.fixture
def names():
    found = PodNames()
    found.add(ROWS)
    return found


@pytest.mark.parametrize(("path", "part"), PATHS.items(), ids=range(len(PATHS)))
def test_whose_cgroup_it_is(names, path, part):
    assert names.of(path) == part


def test_a_cluster_in_a_container_of_a_pod(names):
    outer = f"/kubepods/pod{'9' * 32}/{OTHER}"
    assert names.of(f"{outer}/kubepods/burstable/pod{UID}/{ID}") == APP
    assert names.of(f"{SLICE}/cri-containerd-{ID}.scope/kubepods/pod{'9' * 32}/{OTHER}") == APP


def test_the_audit_and_the_kinds_of_containers_know_the_same_paths():
    for path in PATHS:
        known = pod_path(path)
        assert workload_of(path) == ("kubernetes", known) or known is None
        assert container(path) is not None or known is None
    assert pod_path(f"{SLICE}/cri-containerd-{ID}.scope") == SLICE


def test_what_several_have_in_common(names):
    app, other = f"{SLICE}/cri-containerd-{ID}.scope", f"{SLICE}/cri-containerd-{OTHER}.scope"
    assert names.common([app, app]) == APP
    assert names.common([app, other]) == APP._replace(container=None)
    assert names.common([app, "/x"]) is None
    jobs = [Pod(f"{at:032x}", "ops", f"report-2839{at:04}-x2k4z") for at in range(3)]
    names.add(jobs)
    found = names.common(f"/kubepods/besteffort/pod{job.uid}" for job in jobs)
    assert found == PodPart("ops", "report-*")
    assert found.words == "pods ops/report-*"


def test_a_window_names_what_was_gone_before_its_last_reading():
    window = make_window([(0.0, ROWS), (10.0, [])], empty=[Pod, Container])
    assert pods(window).of(f"{SLICE}/cri-containerd-{ID}.scope") == APP


def test_a_finding_about_a_cgroup_is_about_its_pod():
    window = make_window([(0.0, ROWS)])
    about = {"cgroup": (f"{SLICE}/x", "/a"), "pod": ("ops/job-*",)}
    text = f"{SLICE}/cri-containerd-{ID}.scope, and {SLICE}/x; java in docker-{ID}.scope (/a)"
    finding = Finding("x", Verdict.PRESENT, Severity.WARNING, text, about)
    made = with_pods(finding, window)
    assert made.entities["pod"] == ("ops/job-*", "prod/api-7c9")
    app = "container app of pod prod/api-7c9"
    assert made.summary == f"{app}, and pod prod/api-7c9; java in {app} (/a)"
    assert with_pods(finding, make_window([])) is finding


def test_what_would_name_a_pod():
    window = make_window([(0.0, ROWS)])
    assert missing(window, [SLICE, "/system.slice/a.service"]) == ()
    (gone,) = missing(window, ["/kubepods/pod" + "9" * 32 + "/x"])
    assert "sexton record" in gone.grant
    unread = missing(make_window([]), [SLICE])
    assert len(unread) == 2
    assert all(each.grant for each in unread)


@given(st.text(alphabet="/-_.podkube0123456789abcdef*", max_size=200))
def test_no_path_is_too_odd(path):
    found = PodNames()
    found.add(ROWS)
    found.of(path)
    known = pod_path(path)
    assert known is None or path.startswith(known)

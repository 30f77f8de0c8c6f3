"""Kubelet configurations, good and bad: which line, which field, which real one was meant."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.prevent.kubelet import KubeletFile, judge
from sexton.prevent.kubelet.config import MOST_PROBLEMS
from sexton.prevent.kubelet.fields import FIELDS, NOT_FIELDS
from tests.support.examples import examples

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
#: Enough that nothing is left to say.
KEPT = "kubeReserved:\n  cpu: 200m\n  memory: 500Mi\n"
#: As kubeadm 1.29 writes it, shortened by its comments.
KUBEADM = """apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""
#: As Amazon's EKS images have it.
EKS = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "address": "0.0.0.0",
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"cacheTTL": "2m0s", "enabled": True},
        "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
    },
    "authorization": {
        "mode": "Webhook",
        "webhook": {"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"},
    },
    "clusterDomain": "cluster.local",
    "hairpinMode": "hairpin-veth",
    "readOnlyPort": 0,
    "cgroupDriver": "systemd",
    "cgroupRoot": "/",
    "featureGates": {"RotateKubeletServerCertificate": True},
    "protectKernelDefaults": True,
    "serializeImagePulls": False,
    "serverTLSBootstrap": True,
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
    },
    "kubeReserved": {"cpu": "110m", "ephemeral-storage": "1Gi", "memory": "1465Mi"},
    "kubeReservedCgroup": "/runtime",
    "systemReservedCgroup": "/system",
    "maxPods": 110,
}


def problems(text: str, *levels: str) -> list[tuple[str, int]]:
    wanted = levels or ("error", "warning")
    return [(p.field, p.line) for p in judge(text, "/k").problems if p.level in wanted]


def said(file: KubeletFile, field: str) -> str:
    return next(p.message for p in file.problems if p.field == field)


def test_what_kubeadm_writes_has_no_error_and_reserves_nothing() -> None:
    assert problems(KUBEADM) == [("systemReserved", 0)]
    assert problems(KUBEADM, "note") == [("streamingConnectionIdleTimeout", 44)]


def test_what_eks_ships_has_no_fault_at_all() -> None:
    assert problems(json.dumps(EKS, indent=2), "error", "warning", "note") == []


def test_the_field_of_the_press_is_told_to_be_none() -> None:
    file = judge(HEAD + KEPT + "cgroupVersion: v2\n", "/k")
    assert [(p.level, p.field, p.line) for p in file.problems] == [("error", "cgroupVersion", 6)]
    assert "failCgroupV1" in file.problems[0].message
    assert "kubelet ignores it" in file.problems[0].message


def test_the_gate_of_the_press_keeps_kubelet_from_starting() -> None:
    file = judge(HEAD + KEPT + "featureGates:\n  CgroupV2: true\n  NodeSwap: true\n", "/k")
    assert [p.field for p in file.problems] == ["featureGates.CgroupV2"]
    assert "refuses to start" in file.problems[0].message


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("evictionhard", "evictionHard"),
        ("max-pods", "maxPods"),
        ("max_pods", "maxPods"),
        ("systemReserve", "systemReserved"),
        ("clusterDns", "clusterDNS"),
        ("resolverConfig", "resolvConf"),
    ],
)
def test_an_unknown_field_names_the_nearest_real_one(written: str, meant: str) -> None:
    file = judge(HEAD + KEPT + f"{written}: 1\n", "/k")
    assert meant in file.problems[0].message


def test_a_field_like_nothing_names_no_other() -> None:
    file = judge(HEAD + KEPT + "quux: 1\n", "/k")
    assert "; " not in file.problems[0].message


def test_nested_fields_are_known_as_well() -> None:
    text = HEAD + KEPT + "authentication:\n  anonymous:\n    enable: true\n  x509: {}\n"
    file = judge(text, "/k")
    assert [(p.field, p.line) for p in file.problems] == [("authentication.anonymous.enable", 8)]
    assert "did you mean enabled?" in file.problems[0].message


@pytest.mark.parametrize(
    ("line", "field", "told"),
    [
        ("maxPods: '110'", "maxPods", "not a whole number"),
        ("maxPods: 1.5", "maxPods", "not a whole number"),
        ("maxPods: true", "maxPods", "not a whole number"),
        ("maxPods: -1", "maxPods", "below 0"),
        ("healthzPort: 70000", "healthzPort", "above 65535"),
        ("failSwapOn: 'false'", "failSwapOn", "true or false"),
        ("syncFrequency: 10", "syncFrequency", 'duration such as "10s"'),
        ("syncFrequency: 10 s", "syncFrequency", "duration"),
        ("clusterDNS: 10.0.0.10", "clusterDNS", "list of strings"),
        ("clusterDNS: [1]", "clusterDNS[0]", "not a string"),
        ("evictionHard: 100Mi", "evictionHard", "map of strings"),
        ("systemReserved: {cpu: 1}", "systemReserved.cpu", "not a string"),
        ("cgroupDriver: systemD", "cgroupDriver", "one of cgroupfs, systemd"),
        ("enforceNodeAllocatable: [pod]", "enforceNodeAllocatable[0]", "must be one of"),
        ("registerWithTaints: [a]", "registerWithTaints[0]", "not a map"),
        ("featureGates: {A: yes please}", "featureGates.A", "true or false"),
        ("memoryThrottlingFactor: 2", "memoryThrottlingFactor", "above 1"),
        ("authentication: none", "authentication", "not a map"),
    ],
)
def test_a_value_of_the_wrong_kind_keeps_kubelet_from_starting(line, field, told) -> None:
    file = judge(HEAD + line + "\n", "/k")
    assert told in said(file, field)
    assert "refuses to start" in said(file, field)
    assert next(p for p in file.problems if p.field == field).level == "error"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("evictionHard: {memory.free: 100Mi}", "evictionHard.memory.free"),
        ("evictionHard: {memory.available: some}", "evictionHard.memory.available"),
        ("evictionSoft: {memory.available: 1Gi}", "evictionSoft.memory.available"),
        ("kubeReserved: {memory: lots}", "kubeReserved.memory"),
        ("kubeReserved: {memory: -1Gi}", "kubeReserved.memory"),
        ("cpuManagerPolicy: static", "cpuManagerPolicy"),
        ("memoryManagerPolicy: Static", "memoryManagerPolicy"),
        ("cgroupsPerQOS: false", "cgroupsPerQOS"),
        ("enforceNodeAllocatable: [pods, system-reserved]", "enforceNodeAllocatable"),
        ("systemCgroups: /system", "systemCgroups"),
        ("reservedSystemCPUs: 0-1\nkubeReservedCgroup: /kube", "kubeReservedCgroup"),
        ("shutdownGracePeriodCriticalPods: 10s", "shutdownGracePeriodCriticalPods"),
        ("imageGCHighThresholdPercent: 70", "imageGCHighThresholdPercent"),
        ("maxParallelImagePulls: 5", "maxParallelImagePulls"),
        (
            "crashLoopBackOff: {maxContainerRestartPeriod: 1h}",
            "crashLoopBackOff.maxContainerRestartPeriod",
        ),
    ],
)
def test_settings_that_kubelet_refuses_together_are_errors(text: str, field: str) -> None:
    assert field in [name for name, _ in problems(HEAD + text + "\n", "error")]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("evictionHard: {memory.available: 500Mi}", "evictionHard"),
        ("evictionHard: {memory.available: 0%, nodefs.available: 5%}", "evictionHard"),
        ("evictionHard: {memory.available: 10Mi}", "evictionHard.memory.available"),
        ("cgroupDriver: cgroupfs", "cgroupDriver"),
        ("volumeStatsAggPeriod: 1s", "volumeStatsAggPeriod"),
        ("readOnlyPort: 10255", "readOnlyPort"),
        ("authentication: {anonymous: {enabled: true}}", "authentication.anonymous.enabled"),
        (
            "crashLoopBackOff: {maxContainerRestartPeriod: 2s}",
            "crashLoopBackOff.maxContainerRestartPeriod",
        ),
        ("maxPods: 100", "systemReserved"),
    ],
)
def test_settings_that_work_and_hurt_are_warnings(text: str, field: str) -> None:
    assert field in [name for name, _ in problems(HEAD + text + "\n", "warning")]


@pytest.mark.parametrize(
    "text",
    [
        "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1",
        "cpuManagerPolicy: static\nsystemReserved: {cpu: 500m}",
        "cgroupsPerQOS: false\nenforceNodeAllocatable: []",
        "evictionHard: {memory.available: 5%}\nmergeDefaultEvictionSettings: true",
        "volumeStatsAggPeriod: 0s",
        "maxPods:",
        "memorySwap: {swapBehavior: ''}",
        "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}",
    ],
)
def test_their_twins_are_fine(text: str) -> None:
    assert problems(HEAD + KEPT + text + "\n") == []


@pytest.mark.parametrize("text", ["[]", "a", "1", "null"])
def test_what_is_no_map_is_one_error(text: str) -> None:
    file = judge(text, "/k")
    assert [p.level for p in file.problems] == ["error"]


def test_a_broken_file_is_one_error_with_its_line() -> None:
    file = judge(HEAD + "maxPods: [1\n", "/k")
    assert (file.tree, len(file.problems), file.unread) == (None, 1, "")
    assert file.problems[0].line > 0


def test_a_file_of_a_thousand_faults_tells_a_hundred() -> None:
    file = judge(HEAD + "".join(f"x{n}: 1\n" for n in range(1000)), "/k")
    assert len(file.problems) == MOST_PROBLEMS + 1
    assert "more than 100 problems" in file.problems[-1].message


def test_no_invented_name_is_a_field() -> None:
    assert not set(NOT_FIELDS) & set(FIELDS)
    assert len(FIELDS) > 120


def test_hostile_names_are_escaped() -> None:
    file = judge(json.dumps({"\x1b[2J\u202e": 1}), "/k")
    text = " ".join(p.field + p.message for p in file.problems)
    assert "\x1b" not in text
    assert "\u202e" not in text


@settings(max_examples=examples(60))
@given(
    st.dictionaries(
        st.sampled_from(sorted(FIELDS)) | st.text(min_size=1, max_size=6),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-5, 10**6)
            | st.floats(-1, 1)
            | st.sampled_from(["10s", "static", "1Gi", "-1", "none", "Static", "0%", ""]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["cpu", "memory", "memory.available", "enabled", "anonymous"]),
                    inner,
                    max_size=3,
                )
            ),
            max_leaves=5,
        ),
        max_size=6,
    )
)
def test_any_values_in_any_field_are_judged_without_a_fault_of_ours(values) -> None:
    file = judge(json.dumps(values), "/k")
    assert all(p.level in ("error", "warning", "note") for p in file.problems)

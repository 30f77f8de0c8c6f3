"""The fields of ``KubeletConfiguration`` in ``kubelet.config.k8s.io/v1beta1``, and their types.

From Kubernetes' published reference as of mid-2026 (k8s.io/kubelet, config/v1beta1), including
fields that only newer or only older releases have: v1beta1 has grown for years and dropped nothing
that was documented. A field added after that date would be reported as unknown, which is why every
such message names the date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
AS_OF = "mid-2026"

#: Types of values. "duration" is Go's ("1m30s"), "quantities" a map of strings to strings.
STRING, BOOL, INT, FLOAT, DURATION = "string", "bool", "int", "float", "duration"
STRINGS, INTS, QUANTITIES, GATES, LISTS = "strings", "ints", "quantities", "gates", "lists"
ANY = "any"


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` is one of the types above, "object" or "objects" (a list of them) with `fields`;
    `choices` are the allowed values; `least` and `most` bound a number; `no_effect` is set if
    kubelet does not use the field."""

    kind: str
    fields: dict[str, Field] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    no_effect: str = ""


def _many(kind: str, names: str) -> dict[str, Field]:
    return {name: Field(kind) for name in names.split()}


def _object(**fields: Field) -> Field:
    return Field("object", fields)


def _number(least: float, most: float | None = None) -> Field:
    return Field(INT, least=least, most=most)


_PORT = _number(0, 65535)
_PERCENT = _number(0, 100)
_NO_EFFECT = "has no effect in current kubelets"
_TAINT = _many(STRING, "key value effect timeAdded")
_STREAM = _object(splitStream=Field(BOOL), infoBufferSize=Field(ANY))

FIELDS: dict[str, Field] = {
    "apiVersion": Field(STRING),
    "kind": Field(STRING),
    **_many(
        STRING,
        "staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile tlsMinVersion"
        " healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot podCIDR"
        " resolvConf contentType containerLogMaxSize reservedSystemCPUs"
        " showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup volumePluginDir"
        " providerID containerRuntimeEndpoint imageServiceEndpoint",
    ),
    **_many(
        BOOL,
        "enableServer rotateCertificates serverTLSBootstrap enableDebuggingHandlers"
        " enableContentionProfiling cgroupsPerQOS singleProcessOOMKill cpuCFSQuota"
        " serializeImagePulls mergeDefaultEvictionSettings enableControllerAttachDetach"
        " protectKernelDefaults makeIPTablesUtilChains failSwapOn kernelMemcgNotification"
        " enableSystemLogHandler enableSystemLogQuery enableProfilingHandler"
        " enableDebugFlagsHandler seccompDefault registerNode localStorageCapacityIsolation"
        " failCgroupV1",
    ),
    **_many(
        DURATION,
        "syncFrequency fileCheckFrequency httpCheckFrequency nodeStatusUpdateFrequency"
        " nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod"
        " cpuManagerReconcilePeriod runtimeRequestTimeout cpuCFSQuotaPeriod"
        " evictionPressureTransitionPeriod containerLogMonitorInterval shutdownGracePeriod"
        " shutdownGracePeriodCriticalPods draManagerReconcilePeriod",
    ),
    **_many(
        STRINGS,
        "tlsCipherSuites preloadedImagesVerificationAllowlist clusterDNS allowedUnsafeSysctls",
    ),
    **_many(
        QUANTITIES,
        "cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard"
        " evictionSoft evictionSoftGracePeriod evictionMinimumReclaim systemReserved kubeReserved"
        " defaultPodSysctls",
    ),
    "port": _number(1, 65535),
    "readOnlyPort": _PORT,
    "healthzPort": _PORT,
    "registryPullQPS": _number(0),
    "registryBurst": _number(0),
    "eventRecordQPS": _number(0),
    "eventBurst": _number(0),
    "oomScoreAdj": _number(-1000, 1000),
    "nodeLeaseDurationSeconds": _number(1),
    "imageGCHighThresholdPercent": _PERCENT,
    "imageGCLowThresholdPercent": _PERCENT,
    "maxPods": _number(0),
    "podPidsLimit": Field(INT),
    "nodeStatusMaxImages": _number(-1),
    "maxOpenFiles": _number(0),
    "kubeAPIQPS": Field(INT),
    "kubeAPIBurst": _number(0),
    "maxParallelImagePulls": _number(1),
    "evictionMaxPodGracePeriod": Field(INT),
    "podsPerCore": _number(0),
    "containerLogMaxFiles": _number(2),
    "containerLogMaxWorkers": _number(1),
    "iptablesMasqueradeBit": Field(INT, no_effect=_NO_EFFECT),
    "iptablesDropBit": Field(INT, no_effect=_NO_EFFECT),
    "streamingConnectionIdleTimeout": Field(DURATION, no_effect=_NO_EFFECT),
    "runOnce": Field(BOOL, no_effect="is refused by current kubelets"),
    "memoryThrottlingFactor": Field(FLOAT, least=0, most=1),
    "tlsCurvePreferences": Field(INTS),
    "staticPodURLHeader": Field(LISTS),
    "featureGates": Field(GATES),
    "imagePullCredentialsVerificationPolicy": Field(
        STRING,
        choices=(
            "NeverVerify",
            "NeverVerifyPreloadedImages",
            "NeverVerifyAllowlistedImages",
            "AlwaysVerify",
        ),
    ),
    "cgroupDriver": Field(STRING, choices=("cgroupfs", "systemd")),
    "cpuManagerPolicy": Field(STRING, choices=("none", "static")),
    "memoryManagerPolicy": Field(STRING, choices=("None", "Static", "BestEffort")),
    "memoryReservationPolicy": Field(STRING, choices=("None", "TieredReservation")),
    "topologyManagerPolicy": Field(
        STRING, choices=("none", "best-effort", "restricted", "single-numa-node")
    ),
    "topologyManagerScope": Field(STRING, choices=("container", "pod")),
    "hairpinMode": Field(STRING, choices=("promiscuous-bridge", "hairpin-veth", "none")),
    "configMapAndSecretChangeDetectionStrategy": Field(STRING, choices=("Get", "Cache", "Watch")),
    "enforceNodeAllocatable": Field(
        STRINGS,
        choices=(
            "none",
            "pods",
            "system-reserved",
            "system-reserved-compressible",
            "kube-reserved",
            "kube-reserved-compressible",
        ),
    ),
    "authentication": _object(
        x509=_object(clientCAFile=Field(STRING)),
        webhook=_object(enabled=Field(BOOL), cacheTTL=Field(DURATION)),
        anonymous=_object(enabled=Field(BOOL)),
    ),
    "authorization": _object(
        mode=Field(STRING, choices=("AlwaysAllow", "Webhook")),
        webhook=_object(cacheAuthorizedTTL=Field(DURATION), cacheUnauthorizedTTL=Field(DURATION)),
    ),
    "memorySwap": _object(swapBehavior=Field(STRING, choices=("", "NoSwap", "LimitedSwap"))),
    "logging": _object(
        format=Field(STRING),
        flushFrequency=Field(ANY),
        verbosity=_number(0),
        vmodule=Field("objects", {"filePattern": Field(STRING), "verbosity": _number(0)}),
        options=_object(text=_STREAM, json=_STREAM),
    ),
    "shutdownGracePeriodByPodPriority": Field(
        "objects", {"priority": Field(INT), "shutdownGracePeriodSeconds": _number(0)}
    ),
    "crashLoopBackOff": _object(maxContainerRestartPeriod=Field(DURATION)),
    "reservedMemory": Field("objects", {"numaNode": _number(0), "limits": Field(ANY)}),
    "registerWithTaints": Field("objects", _TAINT),
    "tracing": _object(endpoint=Field(STRING), samplingRatePerMillion=_number(0, 1_000_000)),
    "userNamespaces": _object(idsPerPod=_number(65536)),
}

#: Names often taken for fields, and what to use instead.
NOT_FIELDS: dict[str, str] = {
    "cgroupVersion": "kubelet does not choose the cgroup version: the kernel command line and"
    " systemd do; failCgroupV1 decides whether kubelet starts on v1",
    "cgroupV2": "kubelet does not choose the cgroup version; failCgroupV1 decides whether kubelet"
    " starts on v1",
    "cgroupsV2": "kubelet does not choose the cgroup version; failCgroupV1 decides whether kubelet"
    " starts on v1",
    "housekeepingInterval": "use the flag --housekeeping-interval",
    "cgroupStatsPeriod": "use the flag --housekeeping-interval",
    "statsPeriod": "use the flag --housekeeping-interval",
    "reservedCPUs": "use reservedSystemCPUs",
    "resolverConfig": "use resolvConf",
    "hostnameOverride": "use the flag --hostname-override",
    "nodeIP": "use the flag --node-ip",
    "nodeLabels": "use the flag --node-labels",
    "containerRuntime": "removed in 1.24; use containerRuntimeEndpoint",
    "networkPlugin": "removed in 1.24; the container runtime loads CNI",
    "cniConfDir": "removed in 1.24; the container runtime loads CNI",
    "nodeAllocatable": "it is derived from systemReserved, kubeReserved and evictionHard",
    "evictionThresholds": "use evictionHard and evictionSoft",
    "memoryLimit": "kubelet cannot limit itself; use kubeReserved with kubeReservedCgroup",
}
#: Replacements that are safe to apply: there is exactly one candidate.
REPLACEMENTS = {"reservedCPUs": "reservedSystemCPUs", "resolverConfig": "resolvConf"}

#: Names often taken for feature gates: kubelet refuses to start with one.
NOT_GATES: dict[str, str] = dict.fromkeys(
    ("CgroupV2", "CgroupsV2", "CGroupV2", "CgroupsVersion2"),
    "never was a feature gate: cgroup v2 needs none",
)

#: Signals that eviction thresholds may name, and kubelet's defaults for the hard ones.
SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
)
DEFAULT_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
}

_DURATION = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)")
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_QUANTITY = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+))(m|u|n|[kMGTPE]i?|Ki|[eE][-+]?\d{1,3})?")
_FACTORS = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    **{unit: 1000.0**power for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}
#: No real duration or quantity is longer.
_LONGEST = 40


def duration(text: str) -> float | None:
    """A Go duration in seconds; `None` if it is not one.

    >>> duration("1m30s"), duration("10s"), duration("0"), duration("10"), duration("ten")
    (90.0, 10.0, 0.0, None, None)
    """
    if text in ("0", "+0", "-0"):
        return 0.0
    sign = -1.0 if text.startswith("-") else 1.0
    bare = text[1:] if text[:1] in ("-", "+") else text
    if len(bare) > _LONGEST or not _DURATION.match(text):
        return None
    parts = _PART.findall(bare)
    if "".join(number + unit for number, unit in parts) != bare:
        return None
    return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)


def quantity(text: str) -> float | None:
    """A Kubernetes quantity; `None` if it is not one.

    >>> quantity("100Mi"), quantity("500m"), quantity("2"), quantity("1e3"), quantity("10%")
    (104857600.0, 0.5, 2.0, 1000.0, None)
    """
    found = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    number, unit = float(found[1]), found[2] or ""
    if unit[:1] in ("e", "E") and unit != "E" and not unit.endswith("i"):
        return number * 10.0 ** int(unit[1:])
    factor = _FACTORS.get(unit)
    return None if factor is None else number * factor


def threshold(text: str) -> tuple[float, str] | None:
    """An eviction threshold: a percentage ("%") or a quantity (""); `None` if it is neither.

    >>> threshold("10%"), threshold("100Mi"), threshold("a lot")
    ((10.0, '%'), (104857600.0, ''), None)
    """
    if text.endswith("%"):
        try:
            value = float(text[:-1])
        except ValueError:
            return None
        return (value, "%") if 0 <= value <= 100 else None
    amount = quantity(text)
    return None if amount is None else (amount, "")

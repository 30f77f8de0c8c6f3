"""The fields of ``KubeletConfiguration`` in ``kubelet.config.k8s.io/v1beta1``, and their kinds.

Written down from Kubernetes' published reference as it stood in mid-2026 (k8s.io/kubelet,
config/v1beta1), with fields that only newer or only older releases have: v1beta1 has grown for
years and dropped nothing that was documented. What is not in here is no field of any release; one
that came later than this list would be told as unknown, which is why every such line names the
list's date.
"""

from __future__ import annotations

from dataclasses import dataclass, field

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
AS_OF = "mid-2026"

#: What a value is. "duration" is Go's ("1m30s"), "quantities" a map of text to text.
STRING, BOOL, INT, FLOAT, DURATION = "string", "bool", "int", "float", "duration"
STRINGS, INTS, QUANTITIES, GATES, LISTS = "strings", "ints", "quantities", "gates", "lists"
ANY = "any"


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` is one of the words above, "object" or "objects" (a list of them) with `fields`;
    `choices` are all that is allowed; `least` and `most` bound a number; `idle` says since when
    it does nothing."""

    kind: str
    fields: dict[str, Field] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    idle: str = ""


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
    "iptablesMasqueradeBit": Field(INT, idle=_NO_EFFECT),
    "iptablesDropBit": Field(INT, idle=_NO_EFFECT),
    "streamingConnectionIdleTimeout": Field(DURATION, idle=_NO_EFFECT),
    "runOnce": Field(BOOL, idle="is refused by current kubelets"),
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

#: Names that are written about and are no fields, with what is meant.
INVENTED: dict[str, str] = {
    "cgroupVersion": "no kubelet chooses the cgroup version: the kernel command line and systemd"
    " do; failCgroupV1 decides whether kubelet starts on v1",
    "cgroupV2": "no kubelet chooses the cgroup version; failCgroupV1 decides whether kubelet"
    " starts on v1",
    "cgroupsV2": "no kubelet chooses the cgroup version; failCgroupV1 decides whether kubelet"
    " starts on v1",
    "housekeepingInterval": "it is a flag: --housekeeping-interval",
    "cgroupStatsPeriod": "how often cgroups are read is a flag: --housekeeping-interval",
    "statsPeriod": "how often cgroups are read is a flag: --housekeeping-interval",
    "reservedCPUs": "the field is reservedSystemCPUs",
    "resolverConfig": "the field is resolvConf",
    "hostnameOverride": "it is a flag: --hostname-override",
    "nodeIP": "it is a flag: --node-ip",
    "nodeLabels": "it is a flag: --node-labels",
    "containerRuntime": "no kubelet since 1.24 knows it; the field is containerRuntimeEndpoint",
    "networkPlugin": "no kubelet since 1.24 knows it; the container runtime loads CNI",
    "cniConfDir": "no kubelet since 1.24 knows it; the container runtime loads CNI",
    "nodeAllocatable": "it is made of systemReserved, kubeReserved and evictionHard",
    "evictionThresholds": "the fields are evictionHard and evictionSoft",
    "memoryLimit": "no kubelet limits itself; kubeReserved with kubeReservedCgroup does",
}
#: What an invented name stands for, where one field and no other is meant.
MEANT = {"reservedCPUs": "reservedSystemCPUs", "resolverConfig": "resolvConf"}

#: Feature gates that are written about and never existed: kubelet refuses to start with one.
INVENTED_GATES: dict[str, str] = dict.fromkeys(
    ("CgroupV2", "CgroupsV2", "CGroupV2", "CgroupsVersion2"),
    "there has never been such a gate: cgroup v2 needs none",
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

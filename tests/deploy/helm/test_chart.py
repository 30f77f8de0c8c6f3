"""The chart, by the real helm: every value both ways, hostile ones, and what none may change."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.deploy.helm.conftest import CHART, KUBERNETES, ROOT, Helm, merged, nested
from tests.deploy.helm.test_values import VALUES, leaves

pytestmark = pytest.mark.whole

NAME = "sexton-node-agent"
BOOLEANS = sorted(path for path, value in leaves(VALUES) if isinstance(value, bool))
#: What else has to be set for it to be allowed, or to be seen.
WITH = {"podMonitor.enabled": {"metrics": {"enabled": True}}}
EVERYTHING: dict[str, Any] = {
    "image": {"digest": "sha256:" + "0f" * 32},
    "imagePullSecrets": [{"name": "registry"}],
    "sources": {"debugfs": True},
    "config": "[thresholds]\n",
    "extraArgs": ["--cpu", "3"],
    "extraEnv": [{"name": "A", "value": "b"}],
    "metrics": {"enabled": True, "port": 9700, "webConfigSecret": "web"},
    "podMonitor": {
        "enabled": True,
        "scheme": "https",
        "tlsConfig": {"insecureSkipVerify": True},
        "basicAuth": {"username": {"name": "s", "key": "u"}, "password": {"name": "s", "key": "p"}},
        "labels": {"release": "prometheus"},
    },
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"enabled": True, "from": [{"podSelector": {"matchLabels": {"a": "b"}}}]},
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "seLinuxOptions": {"type": "spc_t"},
    "extraCapabilities": ["SYS_ADMIN"],
    "podLabels": {"team": "nodes"},
    "podAnnotations": {"a/b": "c"},
}
HOSTILE = "a\"b'c: {{ .Values.image }}\n  privileged: true\n---\n# \u202e\t${X} $(Y) %s \\ "


def spec(made: dict[tuple[str, str], Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["DaemonSet", NAME]["spec"]["template"]["spec"]
    return found


def agent(made: dict[tuple[str, str], Any]) -> dict[str, Any]:
    (container,) = spec(made)["containers"]
    return dict(container)


def always(made: dict[tuple[str, str], Any]) -> None:
    """What no value may change."""
    pod, container = spec(made), agent(made)
    security = container["securityContext"]
    assert security["privileged"] is security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"]["drop"] == ["ALL"]
    assert "initContainers" not in pod
    names = [volume["name"] for volume in pod["volumes"]]
    assert names == [mount["name"] for mount in container["volumeMounts"]]
    written = {m["name"] for m in container["volumeMounts"] if not m.get("readOnly")}
    assert written <= {"recording", "tmp", "tracing"}
    selector = made["DaemonSet", NAME]["spec"]["selector"]["matchLabels"]
    labels = made["DaemonSet", NAME]["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    for (kind, name), one in made.items():
        assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "sexton", (kind, name)


def test_lint_finds_nothing(helm: Helm):
    for values in ({}, EVERYTHING):
        ended = helm.run("lint", "--strict", CHART, KUBERNETES, given=values)
        assert ended.returncode == 0, ended.stdout
        assert "[WARNING]" not in ended.stdout
        assert "[ERROR]" not in ended.stdout


def test_as_it_is(helm: Helm):
    made = helm.made()
    always(made)
    assert {kind for kind, _ in made} == {
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "PriorityClass",
        "DaemonSet",
    }  # fmt: skip
    container = agent(made)
    assert container["securityContext"]["capabilities"]["add"] == ["SYSLOG", "BPF", "PERFMON"]
    assert container["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["args"] == ["node-agent", "/var/lib/sexton", "--retain=12h", "--size=2G"]
    assert container["resources"] == VALUES["resources"]
    assert "ports" not in container


def test_everything_at_once(helm: Helm):
    made = helm.made(EVERYTHING)
    always(made)
    container = agent(made)
    assert container["image"].endswith("@sha256:" + "0f" * 32)
    assert container["args"][4:] == [
        "--listen=:9700", "--web.config.file=/etc/sexton-web/web.yml",
        "--config=/etc/sexton/config.toml", "--cpu", "3",
    ]  # fmt: skip
    assert container["resources"]["limits"]["memory"] == "800Mi"
    (endpoint,) = made["PodMonitor", NAME]["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == container["ports"][0]["name"]
    assert container["ports"][0]["hostPort"] == container["ports"][0]["containerPort"] == 9700
    (ingress,) = made["NetworkPolicy", NAME]["spec"]["ingress"]
    assert ingress["ports"] == [{"port": 9700, "protocol": "TCP"}]
    secret = next(v for v in spec(made)["volumes"] if v["name"] == "web-config")["secret"]
    assert secret == {"secretName": "web", "defaultMode": 0o400}


@pytest.mark.parametrize("path", BOOLEANS)
def test_each_switch_both_ways(helm: Helm, path: str):
    """Each changes something, and nothing that must stay."""
    rest = WITH.get(path, {})
    on, off = (helm.made(merged(rest, nested(path, value))) for value in (True, False))
    always(on)
    always(off)
    assert on != off


def test_all_sources_off_leaves_one_capability_and_no_writable_kernel_files(helm: Helm):
    off = {"probe": False, "tracing": False, "systemd": False, "podLogs": False}
    made = helm.made({"sources": {**off, "runtimeState": "", "debugfs": False}})
    container = agent(made)
    assert container["securityContext"]["capabilities"]["add"] == ["SYSLOG"]
    names = {mount["name"] for mount in container["volumeMounts"]}
    assert names == {"recording", "tmp", "cgroup", "os-release", "interrupts"}
    assert container["args"][4:] == ["--no-probe", "--no-trace", "--no-ring"]


@pytest.mark.parametrize("path", ["config", "podAnnotations.a/b", "extraArgs", "extraEnv"])
def test_a_hostile_string_stays_a_string(helm: Helm, path: str):
    value: object = HOSTILE
    if path == "extraArgs":
        value = [HOSTILE]
    if path == "extraEnv":
        value = [{"name": "A", "value": HOSTILE}]
    plain, made = helm.made(), helm.made(nested(path, value))
    always(made)
    assert set(made) - set(plain) <= {("ConfigMap", NAME)}
    where = {
        "config": lambda: made["ConfigMap", NAME]["data"]["config.toml"],
        "podAnnotations.a/b": lambda: made["DaemonSet", NAME]["spec"]["template"]["metadata"][
            "annotations"
        ]["a/b"],
        "extraArgs": lambda: agent(made)["args"][-1],
        "extraEnv": lambda: agent(made)["env"][-1]["value"],
    }
    assert where[path]() == HOSTILE


STRINGS = sorted(path for path, value in leaves(VALUES) if isinstance(value, str))


@pytest.mark.parametrize("path", [path for path in STRINGS if path != "config"])
def test_a_hostile_string_elsewhere_is_refused_or_stays_one(helm: Helm, path: str):
    """`prometheusRule.nodeUrl` may be any text of a URL; the others have a form."""
    if path == "prometheusRule.nodeUrl":
        value = "https://x/\"b'c: {{ .Values.image }} # ${X} \\ %s |"
        made = helm.made({"prometheusRule": {"enabled": True, "nodeUrl": value}})
        always(made)
        rules = made["PrometheusRule", NAME]["spec"]["groups"][0]["rules"]
        urls = {rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule}
        assert any(url.startswith(value) for url in urls)
        return
    assert "values don't meet the specifications of the schema" in helm.refused(
        nested(path, HOSTILE)
    )


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"podMonitor": {"enabled": True}}, "needs metrics.enabled"),
        ({"priorityClass": {"name": "mine"}}, "set priorityClass.create to false"),
        ({"metrics": {"port": "9643"}}, "schema"),
        ({"privileged": True}, "schema"),
        # Helm's toYaml would leave out, without a word, what has a control character in it.
        ({"extraArgs": ["--cpu=3", "\x7f"]}, "schema"),
        ({"extraEnv": [{"name": "A", "value": "\x7f"}]}, "schema"),
        ({"podAnnotations": {"a": "\x1b"}}, "schema"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(helm: Helm, values: dict, why: str):
    assert why in helm.refused(values)


def test_the_rules_are_those_of_deploy_prometheus(helm: Helm):
    made = helm.made({"prometheusRule": {"enabled": True}})
    files = (ROOT / f"deploy/prometheus/sexton-{name}.yml" for name in ("alerts", "rules"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    assert made["PrometheusRule", NAME]["spec"]["groups"] == groups
    url = "https://p/{{ $labels.node }}"
    made = helm.made({"prometheusRule": {"enabled": True, "nodeUrl": url}})
    text = json.dumps(made["PrometheusRule", NAME])
    assert "http://{{ $labels.instance }}" not in text
    assert f"{url}/runbooks/" in text


def test_rights_and_policies_are_those_of_deploy_kubernetes(helm: Helm):
    """But for the namespace: the account of another one would not be ours."""
    made = helm.made()
    seen = set()
    for name in ("rbac", "policy"):
        text = (ROOT / f"deploy/kubernetes/{name}.yaml").read_text()
        text = text.replace("namespace: sexton\n", "namespace: other\n")
        text = text.replace("serviceaccount:sexton:", "serviceaccount:other:")
        for one in yaml.safe_load_all(text):
            if one["kind"] != "Namespace":
                key = (one["kind"], one["metadata"]["name"])
                found = made[key]
                assert found["metadata"].pop("labels")
                assert found == one
                seen.add(key)
    ours = {("PriorityClass", NAME), ("DaemonSet", NAME)}
    assert set(made) == seen | ours


def test_a_packaged_chart_is_whole_without_the_clone(helm: Helm, tmp_path):
    ended = helm.run("package", CHART, "--destination", tmp_path)
    assert ended.returncode == 0, ended.stderr
    (packed,) = tmp_path.glob("*.tgz")
    assert helm.made(EVERYTHING, packed) == helm.made(EVERYTHING)

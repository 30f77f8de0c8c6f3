"""Fuzz target: names of pods and containers, of the kubelet's logs and of the runtimes' files."""

from __future__ import annotations

import json

from sexton.sources.kubernetes import container_logs, pod_logs, runtime_state

_ID = "0f" * 32


def one(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    found = runtime_state.parse(_ID, text)
    if found is not None:
        assert found.pod
        assert len(found.pod) <= 253
    container_logs.parse(text)
    container_logs.parse_target(text)
    pod_logs.parse(text)


def seeds() -> list[bytes]:
    """One of each runtime, and names of links and directories."""
    cri, label = "io.kubernetes.cri.", "io.kubernetes."
    uid = "0a1b2c3d-1111-2222-3333-444455556666"
    labels = {f"{label}pod.name": "a", f"{label}pod.namespace": "b", f"{label}pod.uid": uid}
    labels[f"{label}container.name"] = "POD"
    annotations = {f"{cri}sandbox-{key}": key for key in ("name", "namespace")}
    annotations[f"{cri}container-name"] = "app"
    return [
        json.dumps({"annotations": annotations | {f"{cri}sandbox-uid": uid}}).encode(),
        json.dumps({"annotations": labels | {f"{label}container.restartCount": "7"}}).encode(),
        json.dumps({"Config": {"Labels": labels}}).encode(),
        f"api_prod_app-{_ID}.log".encode(),
        f"/var/log/pods/prod_api_{uid}/app/57.log".encode(),
        f"prod_api_{uid}".encode(),
    ]

"""Fuzz target: kubelet configurations, YAML or JSON, judged and corrected."""

from __future__ import annotations

from sexton.prevent.kubelet import corrected, judge
from sexton.prevent.kubelet.config import parse_flags
from tests.prevent.kubelet.test_checks import EKS, KUBEADM
from tests.prevent.kubelet.test_correction import BAD


def one(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    parse_flags(text)
    file = judge(text, "/var/lib/kubelet/config.yaml")
    assert all("\n" not in problem.message for problem in file.problems)
    mended = corrected(file)
    if mended is not None:
        assert judge(mended, "/k").tree is not None, "corrected into something broken"


def seeds() -> list[bytes]:
    """What kubeadm and EKS write, and one with every kind of fault."""
    import json

    return [KUBEADM.encode(), json.dumps(EKS, indent=1).encode(), BAD.encode()]

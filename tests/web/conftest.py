"""Certificates that tests of this folder share."""

from __future__ import annotations

import pytest

from tests.web.certificates import Authority, Pki


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    ours = Authority(tmp_path_factory.mktemp("authority"), "ca")
    other = Authority(tmp_path_factory.mktemp("foreign"), "other-ca")
    names = "DNS:prometheus.example", "URI:spiffe://a/prometheus"
    return Pki(
        ours,
        other,
        ours.sign("node", "DNS:localhost", "IP:127.0.0.1"),
        ours.sign("prometheus", *names),
        other.sign("stranger", *names),
    )

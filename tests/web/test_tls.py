"""TLS with real clients: whose certificate is trusted, demanded, allowed; slow and broken ones."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from sexton.web.connections import MOST_OF_ONE
from tests.web.certificates import Authority, Pair, Pki
from tests.web.serving import METRICS, Server, server, trusting

#: What a client sees whose connection is closed in or after the handshake.
TURNED_AWAY = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)


def written(folder: Path, node: Pair, *more: str) -> Path:
    lines = ["tls_server_config:", f"  cert_file: {node.cert}", f"  key_file: {node.key}"]
    path = folder / "web.yml"
    path.write_text("\n".join([*lines, *(f"  {line}" for line in more)]) + "\n")
    return path


def mutual(folder: Path, node: Pair, authority: Authority, *more: str) -> Path:
    demanded = "client_auth_type: RequireAndVerifyClientCert"
    return written(folder, node, demanded, f"client_ca_file: {authority.pair.cert}", *more)


def is_turned_away(running: Server, tls: ssl.SSLContext) -> bool:
    try:
        running.ask(tls=tls)
    except TURNED_AWAY:
        return True
    return False


def test_it_speaks_tls_only_and_to_those_who_trust_its_ca(tmp_path: Path, pki: Pki) -> None:
    with server("--web", written(tmp_path, pki.node)) as running:
        assert running.running.line.startswith("https://127.0.0.1:")
        answer = running.ask(tls=trusting(pki.authority))
        assert (answer.status, answer.body) == (200, METRICS)
        with pytest.raises(ssl.SSLCertVerificationError):
            running.ask(tls=trusting(pki.foreign))
        with pytest.raises(TURNED_AWAY):
            running.ask()  # plain HTTP
        assert running.ask(tls=trusting(pki.authority), Host="any.name:1").status == 200
        assert running.said == []


def test_curl_agrees(tmp_path: Path, pki: Pki) -> None:
    with server("--web", mutual(tmp_path, pki.node, pki.authority)) as running:
        url = f"https://localhost:{running.port}/metrics"
        ours = [
            "--cacert",
            pki.authority.pair.cert,
            "--resolve",
            f"localhost:{running.port}:127.0.0.1",
        ]
        client = ["--cert", pki.prometheus.cert, "--key", pki.prometheus.key]
        curl = ["curl", "-sS", "-f", *ours, url]
        done = subprocess.run([*curl, *client], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, METRICS), done.stderr.decode()
        assert subprocess.run(curl, capture_output=True, check=False).returncode in (52, 56)
        old = subprocess.run(
            [*curl, *client, "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"],
            capture_output=True,
            check=False,
        )
        assert old.returncode == 35, "a failed handshake"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_demanded_certificate_must_be_there_and_of_this_ca(
    tmp_path: Path, pki: Pki, version: ssl.TLSVersion
) -> None:
    with server("--web", mutual(tmp_path, pki.node, pki.authority)) as running:
        for client, admitted in ((pki.prometheus, True), (None, False), (pki.stranger, False)):
            tls = trusting(pki.authority, client)
            tls.minimum_version = tls.maximum_version = version
            assert is_turned_away(running, tls) is not admitted
        assert running.said == []


@pytest.mark.parametrize(
    ("allowed", "admitted"),
    [
        ("prometheus.example", True),
        ("spiffe://a/prometheus", True),
        ("Prometheus.example", False),
        ("example", False),
        ("10.0.0.1", False),
    ],
)
def test_only_allowed_names_may_connect(
    tmp_path: Path, pki: Pki, allowed: str, admitted: bool
) -> None:
    path = mutual(
        tmp_path, pki.node, pki.authority, f"client_allowed_sans: [other.example, '{allowed}']"
    )
    with server("--web", path) as running:
        assert is_turned_away(running, trusting(pki.authority, pki.prometheus)) is not admitted


def test_an_ip_address_in_a_certificate_is_one_however_it_is_written(
    tmp_path: Path, pki: Pki
) -> None:
    client = pki.authority.sign("by-address", "IP:2001:db8::5")
    path = mutual(tmp_path, pki.node, pki.authority, "client_allowed_sans: ['2001:DB8:0::5']")
    with server("--web", path) as running:
        assert not is_turned_away(running, trusting(pki.authority, client))


def test_a_certificate_that_may_be_given_is_verified_if_it_is(tmp_path: Path, pki: Pki) -> None:
    optional = "client_auth_type: VerifyClientCertIfGiven"
    path = written(tmp_path, pki.node, optional, f"client_ca_file: {pki.authority.pair.cert}")
    with server("--web", path) as running:
        assert not is_turned_away(running, trusting(pki.authority))
        assert not is_turned_away(running, trusting(pki.authority, pki.prometheus))
        assert is_turned_away(running, trusting(pki.authority, pki.stranger))


def test_versions_ciphers_and_curves_are_the_configured_ones(tmp_path: Path, pki: Pki) -> None:
    path = written(
        tmp_path,
        pki.node,
        "max_version: TLS12",
        "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]",
        "curve_preferences: [CurveP384]",
    )
    with server("--web", path) as running:
        tls = trusting(pki.authority)
        with contextlib.closing(running.connection(tls)) as connection:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            assert connection.sock.version() == "TLSv1.2"
            assert connection.sock.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
        tls.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        assert is_turned_away(running, tls)
        other = trusting(pki.authority)
        other.set_ecdh_curve("X25519")
        assert is_turned_away(running, other)


def test_handshakes_that_do_not_end_lock_nobody_out(tmp_path: Path, pki: Pki) -> None:
    """Of one address, and of many: the oldest handshakes give way."""
    with (
        server("--web", written(tmp_path, pki.node), "--patience", "60") as running,
        contextlib.ExitStack() as held,
    ):
        silent = []
        for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            for _ in range(MOST_OF_ONE + 5):
                end = socket.create_connection(("127.0.0.1", running.port), 20, (address, 0))
                silent.append(held.enter_context(contextlib.closing(end)))
        for _ in range(3):
            assert running.ask(tls=trusting(pki.authority)).status == 200
        for end in silent[MOST_OF_ONE : MOST_OF_ONE + 5]:
            with contextlib.suppress(ConnectionError):
                assert end.recv(1) == b"", "more than one address may hold"


def test_a_handshake_that_takes_too_long_is_ended(tmp_path: Path, pki: Pki) -> None:
    with (
        server("--web", written(tmp_path, pki.node), "--patience", "0.3") as running,
        contextlib.closing(socket.create_connection(("127.0.0.1", running.port), 20)) as end,
    ):
        end.sendall(b"\x16\x03\x01\x02\x00\x01")  # the start of a hello
        with contextlib.suppress(ConnectionError):
            assert end.recv(1) == b""


def test_the_configured_headers_are_sent_and_the_policy_is_not_weakened(
    tmp_path: Path, pki: Pki
) -> None:
    path = written(tmp_path, pki.node)
    with path.open("a") as stream:
        stream.write(
            "http_server_config:\n  headers:\n    X-Frame-Options: deny\n"
            "    Strict-Transport-Security: max-age=60\n"
            "    Content-Security-Policy: default-src *\n"
        )
    with server("--web", path) as running:
        headers = running.ask("/", trusting(pki.authority)).headers
        assert headers["x-frame-options"] == "deny"
        assert headers["strict-transport-security"] == "max-age=60"
        policies = headers.get_all("content-security-policy")
        assert len(policies) == 2
        assert any("default-src 'none'" in policy for policy in policies)


def test_a_rate_limit_answers_429_beyond_its_burst(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text("rate_limit:\n  interval: 1h\n  burst: 3\n")
    with server("--web", path) as running:
        assert [running.ask().status for _ in range(5)] == [200, 200, 200, 429, 429]

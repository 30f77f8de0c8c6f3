"""The format of the web configuration, and what is said of one that cannot be used."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import bcrypt
import pytest

from sexton.errors import CommandError
from sexton.web.config import WebConfig
from sexton.web.settings import HEADERS, Rate, read_settings
from sexton.web.tls import CIPHERS, CIPHERS_13, CURVES
from tests.web.certificates import Pki

#: The same in every worker.
HASH = bcrypt.hashpw(b"secret", b"$2b$04$abcdefghijklmnopqrstuu").decode()
TLS = "tls_server_config: {{cert_file: {node.cert}, key_file: {node.key}, client_auth_type: {auth}"


def failed(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(CommandError) as raised:
        WebConfig(str(path))
    words = str(raised.value)
    assert raised.value.exit_code == 2
    assert "\n" not in words
    assert words.startswith(f"{path}: ")
    return words.removeprefix(f"{path}: ")


def test_every_key_of_the_toolkit_is_known(tmp_path: Path, pki: Pki) -> None:
    path = tmp_path / "web.yml"
    path.write_text(
        f"""\
tls_server_config:
  cert_file: {pki.node.cert}
  key_file: {os.path.relpath(pki.node.key, tmp_path)}
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: {pki.authority.pair.cert}
  client_allowed_sans: [prometheus.example, 10.0.0.1]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [{", ".join((*CIPHERS, *CIPHERS_13))}]
  prefer_server_cipher_suites: false
  curve_preferences: [X25519]
http_server_config:
  http2: true
  headers:
    Content-Security-Policy: default-src 'self'
    Strict-Transport-Security: max-age=60
    X-Content-Type-Options: nosniff
    X-Frame-Options: sameorigin
    X-XSS-Protection: ''
basic_auth_users:
  alice: {HASH}
  123: {HASH.replace("$2b$", "$2y$")}
rate_limit:
  interval: 1m30s
  burst: 20
"""
    )
    settings = read_settings(str(path))
    assert settings.tls is not None
    assert settings.tls.allowed_sans == ("prometheus.example", "10.0.0.1")
    assert set(settings.users) == {"alice", "123"}
    assert len(settings.headers) == len(HEADERS) - 1
    assert settings.rate == Rate(90.0, 20)
    (note,) = settings.notes
    assert "HTTP/2 is not supported" in note
    assert len(settings.files) == 4
    assert WebConfig(str(path)).authenticates


def test_inline_certificates_do_as_well(tmp_path: Path, pki: Pki) -> None:
    lines = ["tls_server_config:"]
    for key, path in (("cert", pki.node.cert), ("key", pki.node.key)):
        lines += [f"  {key}: |", *(f"    {line}" for line in path.read_text().splitlines())]
    (tmp_path / "web.yml").write_text("\n".join(lines) + "\n")
    assert WebConfig(str(tmp_path / "web.yml")).tls is not None


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}\n", "basic_auth_users:\n"])
def test_an_empty_file_sets_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "web.yml").write_text(text)
    config = WebConfig(str(tmp_path / "web.yml"))
    assert config.tls is None
    assert not config.authenticates


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tls_config: {}", "line 1: tls_config: no such key"),
        ("- a", "line 1: must be a mapping"),
        ("\n{", "line 2: "),
        ("a: b: c", "line 1: "),
        (b"\xff\xfe\xff", "not UTF-8"),
        ("a\0b", ""),
        ("x: &a [*a]", "no such key"),
        ("[" * 5000, ""),
        ("--- {}\n--- {}", "line 2: "),
        ("basic_auth_users: {a: 1, a: 2}", "basic_auth_users.a: is there twice"),
        ("basic_auth_users: [a]", "basic_auth_users: must be a mapping"),
        ("basic_auth_users: {a: secret}", "basic_auth_users.a: not a bcrypt hash"),
        ("basic_auth_users: {a: [x]}", "basic_auth_users.a: must be text"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "without a colon"),
        (f"basic_auth_users: {{a: {HASH[:-1]}}}", "not a bcrypt hash"),
        (f"basic_auth_users: {{a: {HASH.replace('$04$', '$31$')}}}", "cost is 31"),
        ("http_server_config: {http2: 1}", "http_server_config.http2: must be true or false"),
        ("http_server_config: {http3: true}", "http_server_config.http3: no such key"),
        ("http_server_config: {headers: {Server: x}}", "headers.Server: no such key"),
        ("http_server_config: {headers: {X-Frame-Options: allow}}", "must be deny or sameorigin"),
        ('http_server_config: {headers: {X-XSS-Protection: "a\\r\\nb"}}', "one line of ASCII"),
        ("rate_limit: {interval: 1s}", "rate_limit.burst: must be at least 1"),
        ("rate_limit: {interval: 5, burst: 1}", "with its unit"),
        ("rate_limit: {interval: -1s, burst: 1}", "with its unit"),
        ("rate_limit: {interval: 1s, burst: 1.5}", "must be a whole number"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_its_place(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    assert words in failed(tmp_path / "web.yml", text)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("client_auth_type: RequireAnyClientCert", "cannot be served: Python's ssl verifies"),
        ("client_auth_type: Always", "unknown: 'Always'; known: NoClientCert"),
        ("client_ca_file: @ca", "client_ca_file: needs client_auth_type"),
        ("client_allowed_sans: [a]", "client_allowed_sans: needs client_auth_type"),
        ("min_version: TLS11", "TLS11 is not supported"),
        ("min_version: TLS13, max_version: TLS12", "min_version: is above max_version"),
        ("cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]", "cipher_suites: unknown"),
        ("cipher_suites: TLS_AES_128_GCM_SHA256", "cipher_suites: must be a list"),
        ("cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12", "none of them"),
        ("curve_preferences: [secp112r1]", "curve_preferences: unknown"),
        ("prefer_server_cipher_suites: maybe", "must be true or false"),
        ("cert: x", "cert and cert_file exclude each other"),
    ],
)
def test_what_tls_cannot_do_is_said(tmp_path: Path, pki: Pki, more: str, words: str) -> None:
    more = more.replace("@ca", str(pki.authority.pair.cert))
    pair = f"cert_file: {pki.node.cert}, key_file: {pki.node.key}"
    line = failed(tmp_path / "web.yml", f"tls_server_config: {{{pair}, {more}}}\n")
    assert words in line
    assert "tls_server_config." in line


def test_several_curves_are_set_or_refused(tmp_path: Path, pki: Pki) -> None:
    import ssl

    pair = f"cert_file: {pki.node.cert}, key_file: {pki.node.key}"
    text = f"tls_server_config: {{{pair}, curve_preferences: [{', '.join(CURVES)}]}}\n"
    if hasattr(ssl.SSLContext, "set_groups"):
        (tmp_path / "web.yml").write_text(text)
        assert WebConfig(str(tmp_path / "web.yml")).tls is not None
    else:
        assert "one curve only" in failed(tmp_path / "web.yml", text)


@pytest.mark.parametrize(
    ("cert", "key", "words"),
    [
        (None, "@key", "cert_file is missing"),
        ("@cert", None, "key_file is missing"),
        ("none.crt", "@key", "tls_server_config.cert_file: none.crt: No such file"),
        (".", "@key", "not a regular file"),
        ("pipe", "@key", "not a regular file"),
        ("@key", "@key", "tls_server_config.cert_file: no certificate in it"),
        ("@cert", "@cert", "tls_server_config.key_file: no private key in it"),
        ("@cert", "@other", "key_file: the key does not belong to the certificate"),
        ("@cert", "@encrypted", "key_file: the key is encrypted"),
        ("junk", "@key", "cert_file: "),
        ("@cert", "large", "larger than 1 MiB"),
    ],
)
def test_a_pair_that_does_not_fit_is_one_line(
    tmp_path: Path, pki: Pki, cert: str | None, key: str | None, words: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "junk").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    encrypt = ["openssl", "ec", "-aes128", "-passout", "pass:x", "-out", tmp_path / "encrypted"]
    subprocess.run([*encrypt, "-in", pki.node.key], capture_output=True, check=True)
    known = {
        "@cert": pki.node.cert,
        "@key": pki.node.key,
        "@other": pki.prometheus.key,
        "@encrypted": tmp_path / "encrypted",
    }
    pairs = [("cert_file", cert), ("key_file", key)]
    parts = [f"{name}: {known.get(path, path)}" for name, path in pairs if path is not None]
    line = failed(tmp_path / "web.yml", f"tls_server_config: {{{', '.join(parts)}}}\n")
    assert words.replace("none.crt", str(tmp_path / "none.crt")) in line


def test_a_ca_without_certificates_is_refused(tmp_path: Path, pki: Pki) -> None:
    """The toolkit would admit nobody, and say nothing."""
    text = TLS.format(node=pki.node, auth="RequireAndVerifyClientCert")
    line = failed(tmp_path / "web.yml", f"{text}, client_ca_file: {pki.node.key}}}\n")
    assert "tls_server_config.client_ca_file: cannot be read" in line


def test_a_type_that_checks_nothing_is_a_note(
    tmp_path: Path, pki: Pki, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TLS.format(node=pki.node, auth="RequestClientCert")
    (tmp_path / "web.yml").write_text(f"{text}}}\n")
    assert not WebConfig(str(tmp_path / "web.yml")).authenticates
    assert "RequestClientCert checks nothing" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none\.yml: No such file"):
        WebConfig(str(tmp_path / "none.yml"))
    with pytest.raises(CommandError, match="NUL byte"):
        WebConfig("a\0b")

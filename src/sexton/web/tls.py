"""TLS as the web configuration describes it, by Python's ssl.

A certificate and its key are read first and given to OpenSSL from memory: it accepts paths only,
and would wait for a pipe, ask a terminal for a passphrase, or read two files that belong to
different moments.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: client_auth_type. Go's RequestClientCert asks for a certificate and ignores it; nothing is lost
#: if it is not asked for.
AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
#: Python's ssl verifies each certificate that it asks for.
UNVERIFIED = ("RequireAnyClientCert", "RequireClientCert")
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
OLD_VERSIONS = ("TLS10", "TLS11")
CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
#: Cipher suites of TLS 1.2 by their name in Go, which is IANA's, and in OpenSSL.
CIPHERS = {
    f"TLS_ECDHE_{key}_WITH_{name}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for name, openssl in (
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
#: Those of TLS 1.3 may be named and are always on, in Go as here.
CIPHERS_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_SAN_KINDS = ("DNS", "email", "URI")


class TlsProblem(Exception):
    """What does not work; `key` is the key of tls_server_config that is at fault."""

    def __init__(self, key: str, words: str) -> None:
        super().__init__(words)
        self.key = key


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """tls_server_config. `cert`, `key` and `client_ca` are PEM, whether inline or from a file, and
    `places` the keys they came from."""

    cert: bytes
    key: bytes
    client_ca: bytes | None = None
    auth: str = ""
    allowed_sans: tuple[str, ...] = ()
    versions: tuple[str, str] = ("TLS12", "TLS13")
    ciphers: tuple[str, ...] = ()
    prefers_own_ciphers: bool = True
    curves: tuple[str, ...] = ()
    places: tuple[str, str, str] = ("cert_file", "key_file", "client_ca_file")


class Tls:
    """A TLS context, and which clients it admits."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.context = _context(settings)

    @property
    def requires_certificate(self) -> bool:
        """Whether every client has a verified certificate."""
        return AUTH[self.settings.auth] is ssl.CERT_REQUIRED

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a client with this verified certificate, or none, may connect."""
        allowed = self.settings.allowed_sans
        return not allowed or not certificate or not sans_of(certificate).isdisjoint(allowed)


def sans_of(certificate: Mapping[str, Any]) -> set[str]:
    """The names of a certificate as client_allowed_sans has them.

    >>> names = ("DNS", "a.b"), ("IP Address", "2001:DB8:0:0:0:0:0:1")
    >>> sorted(sans_of({"subjectAltName": names}))
    ['2001:db8::1', 'a.b']
    """
    found = set()
    for kind, name in certificate.get("subjectAltName", ()):
        if kind in _SAN_KINDS:
            found.add(str(name))
        elif kind == "IP Address":
            found.add(canonical(str(name)))
    return found


def canonical(name: str) -> str:
    """An IP address as Go writes it; other names unchanged.

    >>> canonical("2001:DB8:0:0:0:0:0:1"), canonical("10.0.0.5"), canonical("Node-7")
    ('2001:db8::1', '10.0.0.5', 'Node-7')
    """
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    least, most = settings.versions
    context.minimum_version, context.maximum_version = VERSIONS[least], VERSIONS[most]
    context.set_alpn_protocols(["http/1.1"])
    if not settings.prefers_own_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_ciphers(context, settings)
    _set_curves(context, settings.curves)
    _load_pair(context, settings)
    _set_client_auth(context, settings)
    return context


def _set_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if not settings.ciphers:
        return
    wanted = [CIPHERS[name] for name in settings.ciphers if name in CIPHERS]
    if not wanted:  # only those of TLS 1.3
        if settings.versions[1] != "TLS13":
            raise TlsProblem("cipher_suites", "none of them is of TLS 1.2, which max_version sets")
        context.minimum_version = VERSIONS["TLS13"]
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError:
        raise TlsProblem("cipher_suites", "this OpenSSL has none of them") from None
    known = {cipher["name"] for cipher in context.get_ciphers()}
    for name in settings.ciphers:
        if name in CIPHERS and CIPHERS[name] not in known:
            raise TlsProblem("cipher_suites", f"this OpenSSL does not allow {name}")


def _set_curves(context: ssl.SSLContext, curves: tuple[str, ...]) -> None:
    names = [CURVES[curve] for curve in curves]
    if hasattr(context, "set_groups") and names:  # since Python 3.15
        context.set_groups(":".join(names))
    elif len(names) > 1:
        raise TlsProblem(
            "curve_preferences", "this Python can set one curve only; name one, or none"
        )
    elif names:
        context.set_ecdh_curve(names[0])


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    at_cert, at_key, _ = settings.places
    if b"-----BEGIN CERTIFICATE-----" not in settings.cert:
        raise TlsProblem(at_cert, "no certificate in it (PEM)")
    if b"PRIVATE KEY-----" not in settings.key:
        raise TlsProblem(at_key, "no private key in it (PEM)")

    def refuse() -> bytes:
        raise TlsProblem(at_key, "the key is encrypted; only keys without a passphrase can be read")

    with _in_memory(settings.cert) as cert, _in_memory(settings.key) as key:
        try:
            context.load_cert_chain(cert, key, password=refuse)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise TlsProblem(at_key, "the key does not belong to the certificate") from None
            raise TlsProblem(at_cert, f"cannot be used with its key: {_reason(error)}") from None
        except OSError as error:
            raise TlsProblem(at_cert, error.strerror or str(error)) from None


def _set_client_auth(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.verify_mode = AUTH[settings.auth]
    if context.verify_mode is ssl.CERT_NONE:
        return
    if settings.client_ca is None:  # as Go does
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    with _in_memory(settings.client_ca) as path:
        try:
            context.load_verify_locations(cafile=path)
        except ssl.SSLError as error:
            raise TlsProblem(settings.places[2], f"cannot be read: {_reason(error)}") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "not PEM").lower().replace("_", " ")


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """The path of a file with this content that exists in memory only."""
    handle = os.memfd_create("sexton-pem", os.MFD_CLOEXEC)
    try:
        with open(handle, "wb", closefd=False) as stream:
            stream.write(content)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)

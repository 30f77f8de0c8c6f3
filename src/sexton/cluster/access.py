"""How to reach the API server: from within a pod, or by a kubeconfig.

Tokens, certificates and keys are read again for each connection, since the kubelet replaces them
while we run. A kubeconfig that starts a program for its credentials is refused: the agent runs as
root, and starts nothing that a file names.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sexton.errors import CommandError, SourceAbsent, SourceDenied, SourceError, SourceMalformed

#: Where the kubelet puts a pod's token and the cluster's CA.
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_MOST_BYTES = 1 << 20
_HTTPS = 443


class Place(NamedTuple):
    """Where the server listens. `path` precedes those of the API (behind some proxies)."""

    host: str
    port: int
    path: str = ""


class Given(NamedTuple):
    """A file, or what would be in it."""

    path: str | None = None
    content: bytes | None = None

    def read(self) -> bytes | None:
        return self.content if self.path is None else _read(self.path)


NOTHING = Given()


class Access(NamedTuple):
    """The server, and what proves its identity and ours."""

    place: Place
    authority: Given
    token: Given = NOTHING
    certificate: Given = NOTHING
    key: Given = NOTHING
    server_name: str | None = None
    insecure: bool = False

    def bearer(self) -> str | None:
        """The token as it is now."""
        found = self.token.read()
        if found is None:
            return None
        text = found.decode("ascii", "replace").strip()
        if not text.isprintable() or not text.isascii():  # it becomes a line of the request
            raise SourceMalformed(str(self.token.path or "token"), 0, "not a token")
        return text

    def context(self) -> ssl.SSLContext:
        """Of a new connection, with the certificates as they are now."""
        authority = self.authority.read()
        try:
            made = ssl.create_default_context(
                cadata=None if authority is None else authority.decode("ascii", "replace")
            )
            made.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.insecure:
                made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
            certificate, key = self.certificate.read(), self.key.read()
            if certificate is not None:
                with _as_file(certificate + b"\n" + (key or b"")) as path:
                    made.load_cert_chain(path)
        except (ssl.SSLError, ValueError) as error:
            where = self.authority.path or self.certificate.path or "kubeconfig"
            raise SourceMalformed(where, 0, f"not a usable certificate: {error}") from None
        return made


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A file that exists in memory only: a key is not to be left on a disk."""
    handle = os.memfd_create("sexton-key", os.MFD_CLOEXEC)
    try:
        os.write(handle, content)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(_MOST_BYTES)
    except FileNotFoundError:
        raise SourceAbsent(path, "no such file") from None
    except PermissionError:
        raise SourceDenied(path, "permission denied") from None
    except OSError as error:
        raise SourceError(path, error.strerror or "cannot be read") from None


def in_cluster(variables: Mapping[str, str], directory: Path = IN_POD) -> Access | None:
    """As a pod reaches it; `None` outside of a cluster."""
    host, port = variables.get(HOST, ""), variables.get(PORT, str(_HTTPS))
    if not host:
        return None
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise CommandError(f"{PORT}: invalid port {port!r}")
    authority, token = (Given(str(directory / name)) for name in ("ca.crt", "token"))
    return Access(Place(host, int(port)), authority, token)


def from_kubeconfig(path: str) -> Access:
    """The current context of a kubeconfig, in YAML or JSON."""
    document = _parsed(_content(path), path)
    try:
        return _access(document, Path(path).parent)
    except (AttributeError, TypeError, KeyError, ValueError, binascii.Error) as error:
        raise CommandError(f"{path}: not a kubeconfig: {type(error).__name__}: {error}") from None
    except CommandError as error:
        raise CommandError(f"{path}: {error}") from None


def _content(path: str) -> bytes:
    try:
        return _read(path)
    except SourceError as error:
        raise CommandError(str(error)) from None


def _parsed(content: bytes, path: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass
    try:
        import yaml
    except ImportError:
        raise CommandError(f"{path}: YAML needs PyYAML: pip install 'sexton[node]'") from None
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not YAML: {str(error).splitlines()[0]}") from None


def _named(document: Any, kind: str, name: str) -> dict[str, Any]:
    for each in document.get(f"{kind}s") or ():
        if each["name"] == name:
            return dict(each[kind] or {})
    raise CommandError(f"no {kind} {name!r}")


def _access(document: Any, beside: Path) -> Access:
    chosen = _named(document, "context", str(document.get("current-context") or ""))
    cluster = _named(document, "cluster", str(chosen["cluster"]))
    user = _named(document, "user", str(chosen.get("user")))
    for program in ("exec", "auth-provider"):
        if program in user:
            raise CommandError(f"its user has {program!r}; use a token or a certificate")
    address = urlsplit(str(cluster["server"]))
    if address.scheme != "https" or not address.hostname:
        raise CommandError("the server must be an https:// URL")
    place = Place(address.hostname, address.port or _HTTPS, address.path.rstrip("/"))
    token = user.get("token")
    return Access(
        place,
        _given(cluster, "certificate-authority", beside),
        Given(content=str(token).encode()) if token else _file(user.get("tokenFile"), beside),
        _given(user, "client-certificate", beside),
        _given(user, "client-key", beside),
        cluster.get("tls-server-name"),
        cluster.get("insecure-skip-tls-verify") is True,
    )


def _given(found: Mapping[str, Any], name: str, beside: Path) -> Given:
    data = found.get(f"{name}-data")
    if data:
        return Given(content=base64.b64decode(str(data), validate=True))
    return _file(found.get(name), beside)


def _file(path: Any, beside: Path) -> Given:
    """Paths are relative to the kubeconfig, as for kubectl."""
    return NOTHING if not path else Given(str(beside / str(path)))

"""The format of ``--web.config.file``: that of Prometheus' exporter-toolkit.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md, as of July
2026. A key that is unknown, there twice, of the wrong type or cannot be served is an error that
names the line and the key: nothing is ignored. Python's ssl can neither demand a certificate
without verifying it (RequireAnyClientCert) nor set several curves, so those are refused, as is TLS
before 1.2. HTTP/2 is never spoken; ``http2: true`` is a note.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sexton.errors import CommandError
from sexton.web.tls import (
    AUTH,
    CIPHERS,
    CIPHERS_13,
    CURVES,
    OLD_VERSIONS,
    UNVERIFIED,
    VERSIONS,
    TlsSettings,
    canonical,
)

if TYPE_CHECKING:
    from yaml.nodes import Node

T = TypeVar("T")
_MOST_BYTES = 1 << 20
#: Headers that can be set, with the values they can have; `None`: any.
HEADERS: dict[str, tuple[str, ...] | None] = {
    "Content-Security-Policy": None,
    "Strict-Transport-Security": None,
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": None,
}
_HASH = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}", re.ASCII)
#: One check of cost 10 takes some 60 ms, one of 18 a quarter of a minute.
_LEAST_COST, MOST_COST = 4, 18
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Rate:
    """One request per interval, and up to `burst` at once."""

    interval_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class Settings:
    """A web configuration, with the content of the files it names. `files` are all that it depends
    on, `notes` what is accepted but has no effect here."""

    tls: TlsSettings | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    rate: Rate | None = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def authenticates(self) -> bool:
        """Whether every client has shown who it is: a password, or a verified certificate."""
        return bool(self.users) or (
            self.tls is not None and self.tls.auth == "RequireAndVerifyClientCert"
        )


class ConfigProblem(CommandError):
    """A web configuration that cannot be used; `files` are those that a repair may change."""

    def __init__(self, message: str, files: tuple[str, ...]) -> None:
        super().__init__(message)
        self.files = files


def read_settings(path: str) -> Settings:
    """The settings in a file; `ConfigProblem` in one line if it cannot be used."""
    reader = _Reader(path)
    try:
        content = read_file(path)
    except OSError as error:
        raise ConfigProblem(f"{path}: {error.strerror or error}", (path,)) from None
    return reader.settings(content)


def read_file(path: str) -> bytes:
    """A regular file of at most a megabyte; a pipe is not waited for."""
    if "\0" in path:
        raise OSError(None, "a path cannot contain a NUL byte")
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(None, "not a regular file")
        with open(handle, "rb", closefd=False) as stream:
            content = stream.read(_MOST_BYTES + 1)
    finally:
        os.close(handle)
    if len(content) > _MOST_BYTES:
        raise OSError(None, f"larger than {_MOST_BYTES >> 20} MiB")
    return content


class _Reader:
    """Reads one file; knows where in it a value stands."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files = [path]
        self.notes: list[str] = []

    def settings(self, content: bytes) -> Settings:
        import yaml  # slow, and most runs have no such file

        try:
            root = yaml.compose(content.decode("utf-8-sig"), Loader=yaml.SafeLoader)
        except UnicodeDecodeError as error:
            raise self._problem("", None, f"not UTF-8 at byte {error.start}") from None
        except yaml.MarkedYAMLError as error:
            line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
            raise self._problem("", None, f"{line}{error.problem or 'not YAML'}") from None
        except yaml.YAMLError as error:
            raise self._problem("", None, str(error).splitlines()[0]) from None
        except RecursionError:
            raise self._problem("", None, "nested too deeply") from None
        known = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
        parts = self._mapping(root, "", known)
        http = self._mapping(parts.get(known[1]), known[1], ("http2", "headers"))
        if self._bool(http.get("http2"), "http_server_config.http2", False):
            self.notes.append("http_server_config.http2: HTTP/2 is not supported; using HTTP/1.1")
        return Settings(
            self._tls(parts.get(known[0])),
            self._users(parts.get(known[2])),
            self._headers(http.get("headers")),
            self._rate(parts.get(known[3])),
            tuple(self.files),
            tuple(self.notes),
        )

    def _tls(self, node: Node | None) -> TlsSettings | None:
        at = "tls_server_config"
        pems = ("cert", "key", "client_ca")
        known = (
            *pems, *(f"{name}_file" for name in pems), "client_auth_type", "client_allowed_sans",
            "min_version", "max_version", "cipher_suites", "prefer_server_cipher_suites",
            "curve_preferences",
        )  # fmt: skip
        parts = self._mapping(node, at, known)
        if not parts:
            return None
        cert, key, client_ca = (self._pem(parts, name) for name in pems)
        for name, pem in (("cert", cert), ("key", key)):
            if pem is None:
                raise self._problem(at, node, f"{name}_file is missing")
        auth = self._choice(parts.get("client_auth_type"), f"{at}.client_auth_type", self._auth, "")
        sans = self._list(parts.get("client_allowed_sans"), f"{at}.client_allowed_sans", canonical)
        checked = auth in ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
        for name in ("client_ca", "client_ca_file", "client_allowed_sans"):
            if name in parts and not checked:
                words = "needs client_auth_type: RequireAndVerifyClientCert"
                raise self._problem(f"{at}.{name}", parts[name], words)
        if auth == "RequestClientCert":
            self.notes.append(
                f"{at}.client_auth_type: {auth} checks nothing; no certificate is requested"
            )
        least = self._choice(parts.get("min_version"), f"{at}.min_version", _version, "TLS12")
        most = self._choice(parts.get("max_version"), f"{at}.max_version", _version, "TLS13")
        if least > most:
            raise self._problem(f"{at}.min_version", parts["min_version"], "is above max_version")
        return TlsSettings(
            cert or b"",
            key or b"",
            client_ca,
            auth,
            sans,
            (least, most),
            self._list(parts.get("cipher_suites"), f"{at}.cipher_suites", _cipher),
            self._bool(
                parts.get("prefer_server_cipher_suites"), f"{at}.prefer_server_cipher_suites", True
            ),
            self._list(parts.get("curve_preferences"), f"{at}.curve_preferences", _curve),
            tuple(name if name in parts else f"{name}_file" for name in pems),  # type: ignore[arg-type]
        )

    @staticmethod
    def _auth(text: str) -> str:
        if text in UNVERIFIED:
            raise ValueError(
                f"{text} cannot be served: Python's ssl verifies every certificate;"
                " use RequireAndVerifyClientCert"
            )
        return _one_of(AUTH)(text)

    def _pem(self, parts: Mapping[str, Node], name: str) -> bytes | None:
        """A certificate or key, inline or from its file; `None` if neither is given."""
        at = f"tls_server_config.{name}"
        inline, file = (
            self._text(parts.get(key), f"{at}{end}")
            for key, end in ((name, ""), (f"{name}_file", "_file"))
        )
        if inline and file:
            raise self._problem(at, parts[name], f"{name} and {name}_file exclude each other")
        if inline:
            return inline.encode()
        if not file:
            return None
        place = str(Path(self.path).parent / file)
        self.files.append(place)
        try:
            return read_file(place)
        except OSError as error:
            words = f"{place}: {error.strerror or error}"
            raise self._problem(f"{at}_file", parts[f"{name}_file"], words) from None

    def _users(self, node: Node | None) -> dict[str, str]:
        at = "basic_auth_users"
        users = {}
        for name, value in self._mapping(node, at).items():
            shown = f"{at}.{name}"
            if not name or ":" in name or not name.isprintable():
                raise self._problem(shown, value, "a user name is printable text without a colon")
            hashed = self._text(value, shown)
            found = _HASH.fullmatch(hashed)
            if found is None:
                words = "not a bcrypt hash; make one with: htpasswd -nBC 10 USER"
                raise self._problem(shown, value, words)
            if not _LEAST_COST <= int(found[1]) <= MOST_COST:
                words = f"the bcrypt cost is {int(found[1])}; must be {_LEAST_COST} to {MOST_COST}"
                raise self._problem(shown, value, words)
            users[name] = hashed
        return users

    def _headers(self, node: Node | None) -> tuple[tuple[str, str], ...]:
        at = "http_server_config.headers"
        headers = []
        for name, value in self._mapping(node, at, HEADERS).items():
            text = self._text(value, f"{at}.{name}")
            allowed = HEADERS[name]
            if text and allowed is not None and text not in allowed:
                words = f"must be {' or '.join(allowed)}"
                raise self._problem(f"{at}.{name}", value, words)
            if not (text.isascii() and (text.isprintable())):
                raise self._problem(f"{at}.{name}", value, "must be one line of ASCII")
            if text.strip():
                headers.append((name, text.strip()))
        return tuple(headers)

    def _rate(self, node: Node | None) -> Rate | None:
        at = "rate_limit"
        parts = self._mapping(node, at, ("interval", "burst"))
        interval_s = self._choice(parts.get("interval"), f"{at}.interval", _seconds, 0.0)
        burst = self._choice(parts.get("burst"), f"{at}.burst", _whole, 0)
        if not interval_s:
            return None
        if burst < 1:
            raise self._problem(f"{at}.burst", parts.get("burst", node), "must be at least 1")
        return Rate(interval_s, burst)

    def _mapping(self, node: Node | None, at: str, known: Any = None) -> dict[str, Node]:
        """The values of a mapping by key, without those that are empty (null)."""
        from yaml.nodes import MappingNode, ScalarNode

        if node is None or _is_null(node):
            return {}
        if not isinstance(node, MappingNode):
            raise self._problem(at, node, "must be a mapping")
        found: dict[str, Node] = {}
        seen = set()
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise self._problem(at, key, "a key must be text")
            name = key.value
            shown = f"{at}.{name}" if at else name
            if known is not None and name not in known:
                raise self._problem(shown, key, "no such key")
            if name in seen:
                raise self._problem(shown, key, "is there twice")
            seen.add(name)
            if not _is_null(value):
                found[name] = value
        return found

    def _text(self, node: Node | None, at: str) -> str:
        """Text; numbers and the like are text as they are written, as in the toolkit."""
        from yaml.nodes import ScalarNode

        if node is None:
            return ""
        if not isinstance(node, ScalarNode):
            raise self._problem(at, node, "must be text")
        return str(node.value)

    def _choice(self, node: Node | None, at: str, read: Callable[[str], T], default: T) -> T:
        if node is None:
            return default
        try:
            return read(self._text(node, at))
        except ValueError as error:
            raise self._problem(at, node, str(error)) from None

    def _bool(self, node: Node | None, at: str, default: bool) -> bool:
        if node is None:
            return default
        if node.tag != "tag:yaml.org,2002:bool":
            raise self._problem(at, node, "must be true or false")
        return self._text(node, at).lower() in ("true", "yes", "on")

    def _list(self, node: Node | None, at: str, read: Callable[[str], str]) -> tuple[str, ...]:
        from yaml.nodes import SequenceNode

        if node is None:
            return ()
        if not isinstance(node, SequenceNode):
            raise self._problem(at, node, "must be a list")
        return tuple(self._choice(item, at, read, "") for item in node.value)

    def _problem(self, at: str, node: Node | None, words: str) -> ConfigProblem:
        line = "" if node is None else f"line {node.start_mark.line + 1}: "
        place = f"{at}: " if at else ""
        message = " ".join(f"{self.path}: {line}{place}{words}".split())
        return ConfigProblem(message, tuple(self.files))


def _is_null(node: Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _one_of(known: Any) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"unknown: {text[:80]!r}; known: {', '.join(filter(None, known))}")
        return text

    return read


def _version(text: str) -> str:
    if text in OLD_VERSIONS:
        raise ValueError(f"{text} is not supported: it is broken (RFC 8996); TLS12 or TLS13")
    return _one_of(VERSIONS)(text)


def _cipher(text: str) -> str:
    return _one_of((*CIPHERS_13, *CIPHERS))(text)


def _curve(text: str) -> str:
    return _one_of(CURVES)(text)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError("must be a whole number")
    return int(text)


def _seconds(text: str) -> float:
    """
    >>> _seconds("1s"), _seconds("1m30s"), _seconds("0"), _seconds("250ms")
    (1.0, 90.0, 0.0, 0.25)
    """
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration with its unit, as in 1s or 250ms")
    return float(sum(float(number) * _UNITS_S[unit] for number, unit in parts))

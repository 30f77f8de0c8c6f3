"""Prometheus' HTTP API v1: label sets of series, and samples as they were scraped.

A range selector at one instant returns raw samples with the times of their scrapes::

    GET /api/v1/query?query=node_boot_time_seconds{instance="n1:9100"}[600000ms]&time=1794737700
    {"status":"success","data":{"resultType":"matrix","result":[
      {"metric":{"__name__":"node_boot_time_seconds","instance":"n1:9100"},
       "values":[[1794737115.2,"1794700000"],[1794737130.2,"1794700000"]]}]}}

`query_range` is not used: it repeats and drops samples to fit its own step. Prometheus leaves stale
markers out of raw samples. Mimir, Thanos and VictoriaMetrics answer the same requests.

Everything in an answer is untrusted. Its size, its number of series and samples and the time it
takes are bounded; values that are not finite numbers are left out. A redirect is not followed: it
is mostly a login page, and would get our credentials.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from sexton.errors import SourceDenied, SourceError, SourceMalformed, SourceTimeout
from sexton.model.text import shorten
from sexton.model.toml import parse_toml

MOST_BYTES = 64 << 20
MOST_SERIES, MOST_SAMPLES = 50_000, 3_000_000
#: Longer label values are left out with their series: no name of a node's thing is so long.
MOST_LABEL = 1024
#: For one answer, from connecting to its last byte.
ANSWER_S = 60.0
#: For all answers together.
ALL_S = 180.0
_CONNECT_S = 10.0
_CHUNK = 1 << 18
_MOST_FILE = 64 << 10
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: What servers in Go, Prometheus among them, say on their TLS port.
_WANTS_TLS = b"Client sent an HTTP request to an HTTPS server"
_KEYS = frozenset({"username", "password_file", "bearer_token_file", "headers"}) | {
    "ca_file",
    "cert_file",
    "key_file",
}

Labels = Mapping[str, str]


class Samples(NamedTuple):
    """One series: its labels, and (UNIX seconds, value) of every scrape, oldest first."""

    labels: Labels
    values: list[tuple[float, float]]


@dataclass(frozen=True)
class Access:
    """How to be let in: headers to send, and TLS settings. The file of ``--prometheus-config``::

    username = "sexton"
    password_file = "/etc/sexton/prometheus.password"
    # or: bearer_token_file = "/var/run/secrets/token"
    ca_file = "/etc/ssl/internal-ca.pem"
    # with client certificates: cert_file = "…", key_file = "…"
    [headers]
    X-Scope-OrgID = "tenant-1"

    Its paths are relative to the file, as in Prometheus' own configuration.
    """

    headers: Mapping[str, str]
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @classmethod
    def read(cls, path: str) -> Access:
        """From a file; `SourceError` says what is wrong with it."""
        try:
            document = parse_toml(_small_file(path))
        except (ValueError, RecursionError) as error:
            raise SourceMalformed(path, 0, str(error)) from None
        unknown = sorted(document.keys() - _KEYS)
        if unknown:
            raise SourceMalformed(path, 0, f"unknown key {unknown[0]!r}; known: {sorted(_KEYS)}")
        headers = document.pop("headers", {})
        texts = [*document.values(), *(headers.values() if isinstance(headers, dict) else [None])]
        if not all(isinstance(text, str) for text in texts):
            raise SourceMalformed(path, 0, "every value must be a text")
        folder = Path(path).parent
        document = {
            key: str(folder / text) if key.endswith("_file") else text
            for key, text in document.items()
        }
        if ("username" in document) != ("password_file" in document):
            raise SourceMalformed(path, 0, "username and password_file need each other")
        if "username" in document:
            password = _small_file(document["password_file"]).strip()
            pair = f"{document['username']}:{password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        if "bearer_token_file" in document:
            token = _small_file(document["bearer_token_file"]).strip()
            headers["Authorization"] = f"Bearer {token}"
        if not all(_HEADER.fullmatch(name) for name in headers):
            raise SourceMalformed(path, 0, "a header's name is not one word of ASCII")
        if not all(text.isprintable() for text in headers.values()):
            raise SourceMalformed(path, 0, "a header contains a control character")
        return cls(headers, *(document.get(name) for name in ("ca_file", "cert_file", "key_file")))


def _small_file(path: str) -> str:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(_MOST_FILE).decode()
    except OSError as error:
        raise SourceError(path, error.strerror or "cannot be read") from None
    except ValueError:
        raise SourceError(path, "is not a text file, or its name is invalid") from None


class Client:
    """One Prometheus. Use as a context manager."""

    def __init__(self, url: str, access: Access | None = None) -> None:
        self.url = url.rstrip("/")
        self._end_s = time.monotonic() + ALL_S
        self._access = access or Access({})
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:
            raise SourceError(url, "is not a URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SourceError(url, "must begin with http:// or https:// and a host")
        if parts.username is not None or parts.query or parts.fragment:
            # A password on the command line is seen by every user of the machine.
            raise SourceError(
                f"{parts.scheme}://{parts.hostname}",
                "credentials and queries do not belong into the URL: use --prometheus-config",
            )
        self._path = parts.path
        if parts.scheme == "http":
            self._connection = http.client.HTTPConnection(parts.hostname, port, _CONNECT_S)
        else:
            self._connection = http.client.HTTPSConnection(
                parts.hostname, port, timeout=_CONNECT_S, context=self._tls()
            )

    def _tls(self) -> ssl.SSLContext:
        access = self._access
        try:
            context = ssl.create_default_context(cafile=access.ca_file)
            if access.cert_file is not None:
                context.load_cert_chain(access.cert_file, access.key_file)
        except (OSError, ValueError) as error:
            # The error names no file.
            files = filter(None, (access.ca_file, access.cert_file, access.key_file))
            reason = getattr(error, "reason", None) or _words(error)
            raise SourceError(", ".join(files), f"certificates: {reason}") from None
        return context

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def series(self, selector: str, start: float, end: float) -> list[Labels]:
        """The label sets that match a selector and had a sample in this time."""
        asked = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
        data = self._ask("series", asked)
        if not isinstance(data, list) or len(data) > MOST_SERIES:
            raise self._wrong(f"an answer with a list of at most {MOST_SERIES:,} series")
        return [labels for one in data if (labels := _labels(one)) is not None]

    def samples(self, selector: str, start: float, end: float) -> list[Samples]:
        """Every sample of the series that match, after `start` and up to `end`."""
        length = max(round(1000 * (end - start)), 1)
        asked = {"query": f"{selector}[{length}ms]", "time": f"{end:.3f}"}
        data = self._ask("query", asked)
        result = data.get("result") if isinstance(data, dict) else None
        if not isinstance(result, list) or data.get("resultType") != "matrix":
            raise self._wrong("a matrix of samples")
        if len(result) > MOST_SERIES:
            raise self._wrong(f"at most {MOST_SERIES:,} series of one node")
        left, found = MOST_SAMPLES, []
        for one in result:
            values = one.get("values") if isinstance(one, dict) else None
            labels = _labels(one.get("metric")) if isinstance(one, dict) else None
            if not isinstance(values, list) or labels is None:
                continue
            left -= len(values)
            if left < 0:
                raise self._wrong(f"at most {MOST_SAMPLES:,} samples: choose a shorter window")
            known = sorted(pair for pair in map(_pair, values) if pair is not None)
            found.append(Samples(labels, [pair for pair in known if start <= pair[0] <= end]))
        return found

    def _ask(self, what: str, asked: Mapping[str, str]) -> Any:
        """The `data` of an answer."""
        path = f"{quote(self._path)}/api/v1/{what}?{urlencode(asked)}"
        status, kind, body = self._get(path)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if status in (401, 403):
            given = any(name.lower() == "authorization" for name in self._access.headers)
            grant = f"{'other' if given else 'its'} credentials in --prometheus-config FILE"
            raise SourceDenied(self.url, f"refused with HTTP {status}", grant)
        if status == 400 and _WANTS_TLS in body:
            raise SourceError(self.url, "it speaks TLS: begin the URL with https://")
        if status in range(300, 400):
            raise SourceError(self.url, f"redirects (HTTP {status}): give the URL it leads to")
        if not isinstance(answer, dict):
            shown = f"HTTP {status}, {shorten(kind, 40) or 'no type'}"
            raise SourceMalformed(self.url, 0, f"no answer of Prometheus' API ({shown})")
        if status != 200 or answer.get("status") != "success":
            reason = answer.get("error")
            words = shorten(reason, 120) if isinstance(reason, str) else "no reason given"
            raise SourceError(self.url, f"HTTP {status}: {words}")
        return answer.get("data")

    def _get(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body, in bounded time and size."""
        began = time.monotonic()
        end_s = min(began + ANSWER_S, self._end_s)
        allowed = max(end_s - began, 0.0)
        headers = {"Accept": "application/json", "User-Agent": "sexton", **self._access.headers}
        late = threading.Timer(allowed, self._hang_up)
        late.daemon = True
        late.start()
        try:
            if self._connection.sock is None:
                self._connection.connect()
            if self._connection.sock is not None:
                # A long window takes Prometheus longer than it took to connect.
                self._connection.sock.settimeout(ANSWER_S)
            self._connection.request("GET", path, headers=headers)
            answer = self._connection.getresponse()
            kind = answer.headers.get("Content-Type", "")
            body = b"".join(self._chunks(answer))
        except ssl.SSLError as error:
            raise SourceError(self.url, f"TLS: {_tls_words(error)}", _tls_grant(error)) from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self._connection.close()
            if time.monotonic() >= end_s:
                raise self._late(end_s) from None
            if isinstance(error, TimeoutError):
                raise SourceTimeout(self.url, "did not answer in time") from None
            raise SourceError(self.url, _words(error)) from None
        finally:
            late.cancel()
        if time.monotonic() >= end_s:
            self._connection.close()
            raise self._late(end_s)
        return answer.status, kind, body

    def _chunks(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        left = MOST_BYTES
        while chunk := answer.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                self._connection.close()
                words = f"sent more than {MOST_BYTES >> 20} MB: choose a shorter window"
                raise SourceMalformed(self.url, 0, words)
            yield chunk
        if answer.length:  # `read` of a number of bytes does not tell
            raise http.client.IncompleteRead(b"", answer.length)

    def _late(self, end_s: float) -> SourceTimeout:
        if end_s == self._end_s:
            what = f"took more than {ALL_S:.0f} s for all answers: choose a shorter window"
        else:
            what = f"took more than {ANSWER_S:.0f} s"
        return SourceTimeout(self.url, what)

    def _hang_up(self) -> None:
        """End an answer that comes byte by byte, which no time-out of a single read ends."""
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _wrong(self, wanted: str) -> SourceMalformed:
        return SourceMalformed(self.url, 0, f"expected {wanted}")


def _words(error: BaseException) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "ended its answer too early"
    return getattr(error, "strerror", None) or shorten(str(error), 80) or type(error).__name__


def _tls_words(error: ssl.SSLError) -> str:
    if error.reason == "WRONG_VERSION_NUMBER":
        return "the answer was none of TLS: http:// instead of https://?"
    return getattr(error, "verify_message", "") or error.reason or "failed"


def _tls_grant(error: ssl.SSLError) -> str | None:
    """20 to 22: no authority is known that issued the certificate."""
    mine = getattr(error, "verify_code", 0) in (18, 19, 20, 21, 22)
    return "ca_file in --prometheus-config FILE with the CA that issued it" if mine else None


def _labels(found: Any) -> Labels | None:
    """`None` unless all have valid names and are texts of a sane length."""
    if not isinstance(found, dict):
        return None
    for name, text in found.items():
        if not isinstance(text, str) or len(text) > MOST_LABEL or not _NAME.fullmatch(name):
            return None
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            return None  # half a character
    return found


def _pair(found: Any) -> tuple[float, float] | None:
    """A sample's time and value; `None` if either is not a finite number."""
    if not isinstance(found, list) or len(found) != 2 or isinstance(found[0], bool):
        return None
    moment, value = found
    if not isinstance(moment, int | float) or not isinstance(value, str) or len(value) > 64:
        return None
    try:
        pair = float(moment), float(value)
    except (ValueError, OverflowError):
        return None
    return pair if all(map(math.isfinite, pair)) else None


def matching(labels: Labels, metric: str, **more: str) -> str:
    """A selector: these labels exactly, a regular expression for the name, and `more` matchers.

    >>> matching({"job": 'a"b'}, "node_(x|y)", cpu='=~"total|"')
    '{__name__=~"node_(x|y)",job="a\\\\"b",cpu=~"total|"}'
    """
    made = [f'__name__=~"{_escaped(metric)}"']
    made += [f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())]
    made += [f"{name}{matcher}" for name, matcher in more.items()]
    return "{" + ",".join(made) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

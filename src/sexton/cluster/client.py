"""A connection to the API server, in the few verbs that are needed. Every call ends in time."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from sexton import __version__
from sexton.cluster.access import Access
from sexton.errors import SextonError, SourceError

#: For each read and write, and for a whole call: a server may send a byte now and then.
_SILENT_S, _CALL_S = 10.0, 30.0
#: A Node with many images takes 100 kB.
_MOST_BYTES = 4 << 20
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
_JSON = "application/json"


class Unreachable(SextonError):
    """No answer: not there, too slow, or not to be trusted."""


class Answer(NamedTuple):
    """What the server said; `asked_s` is its Retry-After, `unix` its clock, in whole seconds."""

    status: int
    body: Mapping[str, Any]
    asked_s: float | None = None
    unix: float | None = None

    @property
    def message(self) -> str:
        """Why not, in the server's words."""
        found = self.body.get("message")
        return found if isinstance(found, str) else http.client.responses.get(self.status, "")


def node_path(name: str, part: str = "") -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}{part}"


class ApiServer:
    """One connection, which is opened by the first call: use as a context manager."""

    def __init__(self, access: Access, silent_s: float = _SILENT_S, call_s: float = _CALL_S):
        self._access = access
        self._silent_s, self._call_s = silent_s, call_s
        self._connection: _Connection | None = None
        self._token: str | None = None

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str) -> Answer:
        return self._call("GET", path, None, _JSON)

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        return self._call("POST", path, body, _JSON)

    def put(self, path: str, body: Mapping[str, Any]) -> Answer:
        return self._call("PUT", path, body, _JSON)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = STRATEGIC) -> Answer:
        return self._call("PATCH", path, body, kind)

    def _call(self, verb: str, path: str, body: Mapping[str, Any] | None, kind: str) -> Answer:
        place = self._access.place
        try:
            if self._connection is None:
                self._token = self._access.bearer()
                self._connection = _Connection(self._access, self._silent_s)
            with _ends_in(self._call_s, self._connection):
                return self._exchange(verb, place.path + path, body, kind)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self.__exit__()
            words = str(error) or type(error).__name__
            raise Unreachable(f"{place.host}:{place.port}: {words}") from None
        except SourceError as error:
            raise Unreachable(str(error)) from None

    def _exchange(self, verb: str, path: str, body: Mapping[str, Any] | None, kind: str) -> Answer:
        assert self._connection is not None
        headers = {"Accept": _JSON, "User-Agent": f"sexton/{__version__}"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        content = None
        if body is not None:
            headers["Content-Type"] = kind
            content = json.dumps(body).encode()
        self._connection.request(verb, path, content, headers)
        response = self._connection.getresponse()
        found = response.read(_MOST_BYTES + 1)
        if len(found) > _MOST_BYTES:
            raise http.client.HTTPException("its answer is too long")
        if response.length:
            raise http.client.HTTPException("its answer is cut off")
        if response.will_close:
            self.__exit__()
        asked_s = _seconds(response.getheader("Retry-After"))
        return Answer(
            response.status, _mapping(found), asked_s, _moment(response.getheader("Date"))
        )


def _mapping(content: bytes) -> Mapping[str, Any]:
    """A JSON object; a proxy before the server may answer with a page."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(after: str | None) -> float | None:
    """A Retry-After: seconds, or a date.

    >>> _seconds("12"), _seconds("soon"), _seconds(None), _seconds("Thu, 01 Jan 1970 00:00:00 GMT")
    (12.0, None, None, 0.0)
    """
    if after is None:
        return None
    if after.isascii() and after.isdecimal():
        return float(after[:9])
    moment = _moment(after)
    return None if moment is None else max(0.0, moment - time.time())


def _moment(date: str | None) -> float | None:
    """The time (UNIX) that a header gives.

    >>> _moment("Thu, 01 Jan 1970 00:01:00 GMT"), _moment("soon"), _moment(None)
    (60.0, None, None)
    """
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


class _Connection(http.client.HTTPSConnection):
    """Checks the certificate for another name than the address, if the kubeconfig has one."""

    def __init__(self, access: Access, silent_s: float) -> None:
        context = access.context()
        super().__init__(access.place.host, access.place.port, timeout=silent_s, context=context)
        self._tls, self._name = context, access.server_name or access.place.host

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self.timeout)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self._name)
        except BaseException:
            plain.close()
            raise


@contextlib.contextmanager
def _ends_in(seconds: float, connection: _Connection) -> Iterator[None]:
    """Break the connection off after this long: time-outs of a socket begin anew at each byte."""

    def end() -> None:
        sock = connection.sock
        with contextlib.suppress(OSError):
            if sock is not None:  # of the TCP connection: TLS belongs to the thread that reads
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

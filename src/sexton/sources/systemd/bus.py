"""A small D-Bus client: many calls in flight, one deadline for all replies.

There are two sockets. ``/run/dbus/system_bus_socket`` is the system bus, where every user may read
properties. ``/run/systemd/private`` is systemd's own socket, for root only: the same messages
without a bus in between (no ``Hello``, no destination), which still works when dbus-daemon is
crash-looping. The protocol is the D-Bus specification's; jeepney encodes it, and is imported only
when a connection is opened.

A socket under ``--root`` is used too, if the tree has one: that is how a container with the host's
``/run`` mounted talks to the host's systemd. It must not be a link, which could lead out of the
tree to this machine's own bus.

>>> get("/unit/x", "org.freedesktop.systemd1.Service", "NRestarts").member
'Get'
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed, SourceTimeout
from sexton.host.host import Host

if TYPE_CHECKING:
    from jeepney import Message

BUS = "/run/dbus/system_bus_socket"
PRIVATE = "/run/systemd/private"
SYSTEMD = "org.freedesktop.systemd1"

#: Calls in flight: far below dbus-daemon's limits, and few enough that neither side's socket
#: buffer fills while the other still writes.
IN_FLIGHT = 128
_RECEIVE_BYTES = 1 << 16
_LONGEST_LINE = 4096
#: A D-Bus message may have 128 MiB; none of ours comes near this.
_MOST_BYTES = 32 << 20


class Call(NamedTuple):
    """One method call on systemd."""

    path: str
    interface: str
    member: str
    signature: str = ""
    body: tuple[Any, ...] = ()


class Refusal(NamedTuple):
    """An error reply: the unit is gone, or this systemd does not have the property."""

    name: str
    text: str


def get(path: str, interface: str, name: str) -> Call:
    """A named property: never ``GetAll``, which costs twenty times as much."""
    return Call(path, "org.freedesktop.DBus.Properties", "Get", "ss", (interface, name))


class Bus:
    """An authenticated connection; `via` is the socket's path."""

    def __init__(self, connected: socket.socket, via: str, addressed: bool) -> None:
        from jeepney import Parser

        self.via = via
        self._socket = connected
        self._parser = Parser()
        self._serial = 0
        self._written: dict[Call, bytes] = {}
        self._addressed = addressed

    def hello(self, deadline: float) -> None:
        """The bus requires this call first."""
        peer = "org.freedesktop.DBus"
        (answer,) = self._exchange([Call("/org/freedesktop/DBus", peer, "Hello")], deadline, peer)
        if isinstance(answer, Refusal):
            raise SourceDenied(self.via, f"{answer.name}: {answer.text}")

    def call(self, call: Call, deadline: float) -> tuple[Any, ...]:
        """One call that must succeed; `deadline` is in `time.monotonic` seconds."""
        (answer,) = self._exchange([call], deadline, SYSTEMD)
        if isinstance(answer, Refusal):
            raise _refused(self.via, call, answer)
        return answer

    def calls(self, calls: Sequence[Call], deadline: float) -> list[tuple[Any, ...] | Refusal]:
        """Many calls, sent `IN_FLIGHT` at a time; replies in the order of the calls."""
        answers: list[tuple[Any, ...] | Refusal] = []
        for start in range(0, len(calls), IN_FLIGHT):
            answers += self._exchange(calls[start : start + IN_FLIGHT], deadline, SYSTEMD)
        return answers

    def properties(self, wanted: Sequence[Call], deadline: float) -> list[Any]:
        """Values of `get` calls; `None` for a property that this systemd or unit does not have."""
        return [
            None if isinstance(answer, Refusal) else _value(self.via, answer)
            for answer in self.calls(wanted, deadline)
        ]

    def close(self) -> None:
        self._socket.close()

    def _exchange(
        self, calls: Sequence[Call], deadline: float, destination: str
    ) -> list[tuple[Any, ...] | Refusal]:
        first = self._serial + 1
        data = bytearray()
        for call in calls:
            self._serial += 1
            data += self._bytes(call, destination)
        answers: list[tuple[Any, ...] | Refusal | None] = [None] * len(calls)
        missing = len(calls)
        try:
            self._wait(deadline)
            self._socket.sendall(data)
            while missing:
                message = self._next(deadline)
                index, answer = _reply(message, first)
                if index is None or not 0 <= index < len(calls) or answers[index] is not None:
                    continue  # a signal (NameAcquired), or a late reply
                answers[index] = answer
                missing -= 1
        except TimeoutError:
            raise SourceTimeout(self.via, f"no reply to {missing} of {len(calls)} calls") from None
        except OSError as error:
            raise SourceMalformed(self.via, 0, f"connection lost: {error.strerror}") from None
        return [answer for answer in answers if answer is not None]

    def _bytes(self, call: Call, destination: str) -> bytes:
        """The encoded call with the next serial; cached: encoding is half of a call's cost."""
        if call.member != "Get":
            return bytes(self._message(call, destination).serialise(serial=self._serial))
        written = self._written.get(call)
        if written is None:
            written = self._message(call, destination).serialise(serial=self._serial)
            self._written[call] = written
        return written[:8] + struct.pack("<I", self._serial) + written[12:]

    def _message(self, call: Call, destination: str) -> Message:
        from jeepney import DBusAddress, HeaderFields, new_method_call

        address = DBusAddress(call.path, bus_name=destination, interface=call.interface)
        message = new_method_call(address, call.member, call.signature or None, call.body)
        if not self._addressed:
            del message.header.fields[HeaderFields.destination]
        return message

    def _next(self, deadline: float) -> Message:
        received = 0
        while True:
            try:
                message = self._parser.get_next_message()
            except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
                raise SourceMalformed(self.via, 0, f"not a D-Bus message: {error}") from None
            if message is not None:
                return message
            self._wait(deadline)
            piece = self._socket.recv(_RECEIVE_BYTES)
            received += len(piece)
            if not piece:
                raise SourceMalformed(self.via, 0, "connection closed before the reply")
            if received > _MOST_BYTES:
                raise SourceMalformed(self.via, 0, f"a reply of over {_MOST_BYTES:,} bytes")
            self._parser.add_data(piece)

    def _wait(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


def open_bus(host: Host, deadline: float) -> Bus:
    """Connect to the system bus, else (as root) to systemd's private socket."""
    failures: list[SourceError] = []
    for path, addressed in ((BUS, True), (PRIVATE, False)):
        try:
            if not addressed and os.geteuid() != 0:
                host.files.status(path)
                raise SourceDenied(path, "only for root")
            return _open(host, path, addressed, deadline)
        except SourceError as error:
            failures.append(error)
    reasons = "; ".join(str(failure) for failure in failures)
    if all(isinstance(failure, SourceAbsent) for failure in failures):
        raise SourceAbsent(BUS, reasons)
    if isinstance(failures[0], SourceTimeout):
        raise SourceTimeout(BUS, reasons)
    raise SourceDenied(BUS, reasons)


def _open(host: Host, path: str, addressed: bool, deadline: float) -> Bus:
    where = path if host.live else _beneath(host, path)
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(max(0.001, deadline - time.monotonic()))
        connected.connect(where)
        _authenticate(connected, path)
        bus = Bus(connected, path, addressed)
        if addressed:
            bus.hello(deadline)
    except (OSError, SourceError) as error:
        connected.close()
        if isinstance(error, FileNotFoundError):
            raise SourceAbsent(path, "no such socket") from None
        if isinstance(error, TimeoutError):
            raise SourceTimeout(path, "no reply before the deadline") from None
        if isinstance(error, OSError):
            raise SourceDenied(path, error.strerror or str(error)) from None
        raise
    return bus


def _authenticate(connected: socket.socket, path: str) -> None:
    """EXTERNAL: the kernel passes our user id to the other side.

    BEGIN is sent with AUTH, as systemctl does, and not after the OK: systemd ignores a message that
    arrives together with BEGIN, and never replies to it.
    """
    user = str(os.geteuid()).encode("ascii").hex().encode("ascii")
    connected.sendall(b"\0AUTH EXTERNAL " + user + b"\r\nBEGIN\r\n")
    line = b""
    while not line.endswith(b"\n"):
        piece = connected.recv(1)  # not further: what follows is the first message
        if not piece:
            raise SourceDenied(path, "rejected our user id")
        line += piece
        if len(line) > _LONGEST_LINE:
            raise SourceMalformed(path, 0, "not a D-Bus server")
    if not line.startswith(b"OK "):
        raise SourceDenied(path, "rejected our user id")


def _beneath(host: Host, path: str) -> str:
    """The socket's path below `--root`, without links on the way."""
    if host.root == "/" or host.moment is not None:
        raise SourceAbsent(path, "not available in a snapshot")
    host.files.status(path)
    parts = path.split("/")
    for depth in range(2, len(parts) + 1):
        place = "/".join(parts[:depth])
        try:
            host.files.link(place)
        except SourceMalformed:
            continue  # exists, and is not a link
        raise SourceDenied(path, f"{place} is a link, which could lead out of {host.root}")
    return host.root.rstrip("/") + path


def _reply(message: Message, first: int) -> tuple[int | None, tuple[Any, ...] | Refusal]:
    from jeepney import HeaderFields, MessageType

    fields = message.header.fields
    serial = fields.get(HeaderFields.reply_serial)
    body = tuple(message.body) if isinstance(message.body, (tuple, list)) else ()
    index = None if serial is None else int(serial) - first
    if message.header.message_type is MessageType.error:
        name = str(fields.get(HeaderFields.error_name, "an error"))
        return index, Refusal(name, str(body[0]) if body else "")
    return index, body


def _refused(via: str, call: Call, refusal: Refusal) -> SourceError:
    detail = f"{call.member}: {refusal.name}: {refusal.text}"
    if refusal.name.endswith(".AccessDenied"):
        return SourceDenied(via, detail)
    if refusal.name.endswith((".ServiceUnknown", ".NameHasNoOwner", ".UnknownMethod")):
        return SourceAbsent(via, detail)
    return SourceMalformed(via, 0, detail)


def _value(via: str, body: tuple[Any, ...]) -> Any:
    match body:
        case ((str(), value),):
            return value
    raise SourceMalformed(via, 0, "a property that is not a variant")

"""A D-Bus server in a thread, with as much of systemd as a test plants in it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jeepney import HeaderFields, Message, Parser, new_error, new_method_return

_PREFIX = "/org/freedesktop/systemd1/unit/"


class FakeBus:
    """Answers `ListUnitsByPatterns` and `Get`; `called` lists every method that was called.

    `units` maps a unit's name to its state and properties:
    ``{"a.service": {"state": "active", "NRestarts": ("u", 3)}}``. A member or property in `silent`
    is never answered, a member in `refused` gets that error.
    """

    def __init__(self, place: Path, units: Mapping[str, Mapping[str, Any]]) -> None:
        self.units = {name: dict(properties) for name, properties in units.items()}
        self.silent: set[str] = set()
        self.refused: dict[str, str] = {}
        self.greeting = b"OK 0123\r\n"
        self.junk = b""
        self.called: list[str] = []
        self.got: list[tuple[str, str]] = []
        place.parent.mkdir(parents=True, exist_ok=True)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(place))
        self._listening.listen(8)
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # else the thread in accept keeps it alive
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            received = b""
            while b"BEGIN\r\n" not in received:
                received += connection.recv(4096)
            connection.sendall(self.greeting + self.junk)
            parser = Parser()
            parser.add_data(received.partition(b"BEGIN\r\n")[2])
            serial = 0
            while True:
                while (message := parser.get_next_message()) is not None:
                    serial += 1
                    reply = self._answer(message)
                    if reply is not None:
                        connection.sendall(reply.serialise(serial=serial))
                piece = connection.recv(1 << 16)
                if not piece:
                    return
                parser.add_data(piece)
        except OSError:
            return

    def _answer(self, message: Message) -> Message | None:
        member = message.header.fields[HeaderFields.member]
        self.called.append(member)
        if member in self.silent or (member == "Get" and message.body[1] in self.silent):
            return None
        if member in self.refused:
            return new_error(message, self.refused[member], "s", ("no",))
        if member == "Hello":
            return new_method_return(message, "s", (":1.1",))
        if member in ("ListUnitsByPatterns", "ListUnits"):
            return new_method_return(message, "a(ssssssouso)", (self._list(),))
        if member == "Get":
            return self._get(message)
        return new_error(message, "org.freedesktop.DBus.Error.UnknownMethod", "s", (member,))

    def _list(self) -> list[tuple[Any, ...]]:
        return [
            (name, "", unit.get("load", "loaded"), unit.get("state", "active"),
             unit.get("sub", "running"), "", _PREFIX + _escape(name), 0, "", "/")
            for name, unit in self.units.items()
        ]  # fmt: skip

    def _get(self, message: Message) -> Message:
        path = message.header.fields[HeaderFields.path]
        _, name = message.body
        if name == "Version":
            return new_method_return(message, "v", (("s", "252"),))
        self.got.append((path.removeprefix(_PREFIX), name))
        for unit, properties in self.units.items():
            if path == _PREFIX + _escape(unit) and name in properties:
                return new_method_return(message, "v", (properties[name],))
        return new_error(message, "org.freedesktop.DBus.Error.UnknownProperty", "s", (name,))


def _escape(name: str) -> str:
    return "".join(c if c.isalnum() else f"_{ord(c):02x}" for c in name)

"""The peer of the guest's second NIC: it can stop reading, or read slowly.

QEMU sends the NIC's frames over a UNIX socket. When the peer stops reading, the socket fills, QEMU
takes no more frames, the transmit ring fills, and the guest's driver and the kernel's transmit
watchdog see a stuck NIC: nothing is injected. When it reads slowly, like a slow link, the ring is
sometimes full, and the queue stops and starts. The guest requests either with an order frame.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path
from types import TracebackType

#: An EtherType for experiments (IEEE 802), and the orders in its frames: for how many seconds to
#: stop, or how many frames per second to read from now on.
ETHERTYPE = 0x88B5
STOP, PACE = b"sexton-lab stop ", b"sexton-lab pace "
_MOST_FRAME = 1 << 17


def options(place: Path) -> tuple[str, ...]:
    """QEMU options for the second NIC."""
    path = str(place).replace(",", ",,")
    wire = f"stream,id=wire,server=off,addr.type=unix,addr.path={path}"
    return ("-netdev", wire, "-device", "virtio-net-pci,netdev=wire,romfile=,mq=off")


def order_frame(order: bytes, number: int) -> bytes:
    """An Ethernet frame with an order for the peer."""
    header = b"\xff" * 6 + b"\x02sexto" + struct.pack("!H", ETHERTYPE)
    return (header + order + str(number).encode()).ljust(64, b" ")


class Cable:
    """The peer, in a thread; it reads frames and drops them."""

    def __init__(self, place: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(place))
        self._listening.listen(1)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="cable", daemon=True)

    def __enter__(self) -> Cable:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._listening.close()
        self._thread.join(5)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # socket closed: the machine is off
            self._listening.settimeout(600)
            connected, _ = self._listening.accept()
            with connected:
                connected.settimeout(1.0)
                pause_s = 0.0
                while not self._ended.is_set():
                    frame = self._read_frame(connected)
                    if frame is None:
                        return
                    if frame[12:14] == struct.pack("!H", ETHERTYPE):
                        for order in (STOP, PACE):
                            if order in frame:
                                number = float(frame.partition(order)[2].split()[0])
                                pause_s = 1 / number if order is PACE else pause_s
                                self._ended.wait(number if order is STOP else 0)
                    if pause_s:
                        self._ended.wait(pause_s)

    def _read_frame(self, connected: socket.socket) -> bytes | None:
        """The next length-prefixed frame; `None` at the end."""
        head = self._receive(connected, 4)
        if head is None:
            return None
        (length,) = struct.unpack("!I", head)
        return None if length > _MOST_FRAME else self._receive(connected, length)

    def _receive(self, connected: socket.socket, length: int) -> bytes | None:
        got = b""
        while len(got) < length and not self._ended.is_set():
            try:
                piece = connected.recv(length - len(got))
            except TimeoutError:
                continue
            if not piece:
                return None
            got += piece
        return got if len(got) == length else None

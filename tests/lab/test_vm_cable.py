"""The other end of a machine's second card: it reads, stops when it is asked to, and goes on."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

from lab.vm.cable import STOP, Cable, options, order_frame


def sent(wire: socket.socket, frame: bytes) -> int:
    """How many frames fit before there is no room."""
    packet = struct.pack("!I", len(frame)) + frame
    for number in range(20_000):
        try:
            wire.send(packet)
        except BlockingIOError:
            return number
    return 20_000


def test_it_reads_until_it_is_asked_to_stop_and_then_goes_on(tmp_path: Path):
    place = tmp_path / "cable"
    with Cable(place), socket.socket(socket.AF_UNIX) as wire:
        wire.connect(str(place))
        frame = order_frame(STOP, 1)
        wire.sendall(struct.pack("!I", len(frame)) + frame)
        wire.setblocking(False)
        assert sent(wire, b"y" * 1200) < 20_000, "nobody reads"
        deadline = time.monotonic() + 60
        while not sent(wire, b"z"):
            assert time.monotonic() < deadline, "it does not go on"
            time.sleep(0.05)


def test_a_comma_in_the_path_does_not_end_qemus_option(tmp_path: Path):
    assert f"addr.path={tmp_path}/a,,b" in options(tmp_path / "a,b")[1]

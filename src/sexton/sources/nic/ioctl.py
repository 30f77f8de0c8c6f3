r"""SIOCETHTOOL: what `ethtool -i` and `ethtool -S` query, without running a program.

The structures are those of the kernel's include/uapi/linux/ethtool.h, in the machine's own byte
order: a `struct ifreq` (name, pointer) points to a command whose first word is its number. Building
and parsing them is pure; one class calls the kernel.

The kernel copies back as many counters *as it has*, whatever size the caller gives, and that number
may grow between two calls (`ethtool -L`). So the number is read right before, and the buffer has a
wide margin.

>>> drvinfo(struct.pack("=I32s32s32s32s32s12s5I", 3, b"ena", b"2.11.0g", b"", b"0000:20:03.0",
...                     b"", b"", 0, 0, 0, 0, 0))
DriverInfo(driver='ena', version='2.11.0g', bus='0000:20:03.0')
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from typing import NamedTuple

from sexton.errors import SourceMalformed
from sexton.host.reader import failure

PATH = "SIOCETHTOOL"
_SIOCETHTOOL = 0x8946
_GDRVINFO, _GSTRINGS, _GSTATS, _GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
_STATS_SET = 1  # ETH_SS_STATS
_NAME_BYTES, _STRING_BYTES = 16, 32
_DRVINFO = "I32s32s32s32s32s12s5I"
#: Counters that a driver may add between the two calls.
_MARGIN = 8192
#: More than any driver has; a larger number is junk.
_MOST_COUNTERS = 1 << 17


class DriverInfo(NamedTuple):
    """What `ethtool -i` shows; a driver may leave fields empty."""

    driver: str
    version: str
    bus: str


def request(name: str, address: int) -> bytes:
    """A `struct ifreq` for an interface, pointing at a command."""
    raw = name.encode("utf-8", "surrogateescape")
    if not 0 < len(raw) < _NAME_BYTES or b"\0" in raw:
        raise SourceMalformed(PATH, 0, "not an interface name")
    return struct.pack(f"{_NAME_BYTES}sP16x", raw, address)


def drvinfo(answer: bytes, order: str = "=") -> DriverInfo:
    """ETHTOOL_GDRVINFO's answer."""
    try:
        _, driver, version, _, bus, *_ = struct.unpack_from(order + _DRVINFO, answer)
    except struct.error:
        raise SourceMalformed(PATH, 0, f"{len(answer)} bytes of driver information") from None
    return DriverInfo(_text(driver), _text(version), _text(bus))


def set_size(answer: bytes, order: str = "=") -> int:
    """ETHTOOL_GSSET_INFO's answer: how many counters; 0 where the driver has none."""
    try:
        _, _, mask, size = struct.unpack_from(order + "IIQI", answer)
    except struct.error:
        raise SourceMalformed(PATH, 0, f"{len(answer)} bytes of set information") from None
    if not mask:
        return 0
    if size > _MOST_COUNTERS:
        raise SourceMalformed(PATH, 0, f"{size:,} counters")
    return int(size)


def strings(answer: bytes, order: str = "=") -> list[str]:
    """ETHTOOL_GSTRINGS' answer: the counters' names."""
    count = _count(answer, 8, 12, order)
    raw = answer[12 : 12 + count * _STRING_BYTES]
    if len(raw) < count * _STRING_BYTES:
        raise SourceMalformed(PATH, 0, f"{count} names in {len(answer)} bytes")
    return [_text(raw[at : at + _STRING_BYTES]) for at in range(0, len(raw), _STRING_BYTES)]


def values(answer: bytes, order: str = "=") -> tuple[int, ...]:
    """ETHTOOL_GSTATS' answer: the counters."""
    count = _count(answer, 4, 8, order)
    try:
        return struct.unpack_from(f"{order}{count}Q", answer, 8)
    except struct.error:
        raise SourceMalformed(PATH, 0, f"{count} counters in {len(answer)} bytes") from None


class Ethtool:
    """A socket for the ioctls. Errors are `SourceError`s: an interface that is gone or a driver
    without counters is `SourceAbsent`."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError as error:
            raise failure(PATH, error) from None

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def info(self, name: str) -> DriverInfo:
        """The interface's driver."""
        command = struct.pack("=I", _GDRVINFO)
        return drvinfo(self._query(name, command, struct.calcsize("=" + _DRVINFO)))

    def size(self, name: str) -> int:
        """How many counters it has now."""
        command = struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATS_SET, 0)
        return set_size(self._query(name, command, len(command)))

    def names(self, name: str, size: int) -> list[str]:
        """The counters' names."""
        command = struct.pack("=III", _GSTRINGS, _STATS_SET, size)
        return strings(self._query(name, command, 12 + (size + _MARGIN) * _STRING_BYTES))

    def counters(self, name: str, size: int) -> tuple[int, ...]:
        """The counters, in the names' order."""
        command = struct.pack("=II", _GSTATS, size)
        return values(self._query(name, command, 8 + (size + _MARGIN) * 8))

    def _query(self, name: str, command: bytes, room: int) -> bytes:
        buffer = ctypes.create_string_buffer(command, room)
        argument = bytearray(request(name, ctypes.addressof(buffer)))
        try:
            fcntl.ioctl(self._socket, _SIOCETHTOOL, argument)
        except OSError as error:
            raise failure(f"{PATH} {name}", error) from None
        return buffer.raw


def _count(answer: bytes, at: int, header: int, order: str) -> int:
    if len(answer) < header:
        raise SourceMalformed(PATH, 0, f"{len(answer)} bytes, at least {header} expected")
    (count,) = struct.unpack_from(order + "I", answer, at)
    return int(count)


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")

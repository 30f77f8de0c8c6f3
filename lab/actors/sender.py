"""Sends UDP packets at a steady rate: ``sender.py ADDRESS PORT PACKETS_PER_SECOND``."""

import contextlib
import itertools
import socket
import sys
import time

SO_SNDBUFFORCE = 32


def main(address, port, pace):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-sender")
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(False)
    # Otherwise the socket's limit is reached before the NIC's ring is full.
    sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)
    began = time.monotonic()
    for number in itertools.count():
        with contextlib.suppress(OSError):  # no buffer space: the NIC takes nothing
            sender.sendto(b"x" * 1200, (address, int(port)))
        early = began + number / float(pace) - time.monotonic()
        if early > 0:
            time.sleep(early)


if __name__ == "__main__":
    main(*sys.argv[1:])

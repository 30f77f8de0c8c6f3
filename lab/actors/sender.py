"""Sends UDP packets at a steady pace: ``sender.py ADDRESS PORT PACKETS_A_SECOND``."""

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
    # Else the socket's own limit is reached before the card's ring is full.
    sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 32 << 20)
    began = time.monotonic()
    for number in itertools.count():
        with contextlib.suppress(OSError):  # no room: the card takes nothing
            sender.sendto(b"x" * 1200, (address, int(port)))
        early = began + number / float(pace) - time.monotonic()
        if early > 0:
            time.sleep(early)


if __name__ == "__main__":
    main(*sys.argv[1:])

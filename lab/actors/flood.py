"""Sends small UDP packets far faster than they can be taken in: ``flood.py ADDRESS PORT SECONDS``.

Four segments go down in one call (UDP_SEGMENT, 4.18) and are taken apart where they are received:
to a broadcast address for each socket that listens. So the receiving core has far more to do than
the sending one.
"""

import itertools
import socket
import sys
import time

UDP_SEGMENT = 103
SO_SNDBUFFORCE = 32
#: Else the sender would wait for the receiver, and nothing would ever overflow.
ROOM = 32 << 20
SEGMENTS, BYTES = 4, 22
#: More would hold the sender's own core, too.
BURST, MOST_A_SECOND = 100, 120_000


def main(address, port, seconds):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-flood")
    many = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    many.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    many.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, ROOM)
    many.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, BYTES)
    where = address, int(port)
    packets = b"x" * (SEGMENTS * BYTES)
    began = time.monotonic()
    for burst in itertools.count():
        try:
            for _ in range(BURST):
                many.sendto(packets, where)
        except OSError:
            pass  # nobody listens, no room, or the wire is cut: go on
        early = began + burst * BURST / MOST_A_SECOND - time.monotonic()
        if early > 0:
            time.sleep(early)
        if time.monotonic() - began >= float(seconds):
            return


if __name__ == "__main__":
    main(*sys.argv[1:])

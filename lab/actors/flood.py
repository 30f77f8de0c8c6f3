"""Sends small UDP packets much faster than they can be received.

``flood.py ADDRESS PORT SECONDS [SHARE]``; with SHARE, for that part of every second only.
One call sends four segments (UDP_SEGMENT, 4.18), which the receiver splits; a broadcast is copied
to each listening socket. So the receiving core has much more work than the sending one.
"""

import itertools
import socket
import sys
import time

UDP_SEGMENT = 103
SO_SNDBUFFORCE = 32
#: Otherwise the sender would wait for the receiver, and nothing would overflow.
ROOM = 32 << 20
SEGMENTS, BYTES = 4, 22
#: More would saturate the sender's core too.
BURST, MOST_A_SECOND = 100, 120_000


def main(address, port, seconds, share=1):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-flood")
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, ROOM)
    sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, BYTES)
    where = address, int(port)
    packets = b"x" * (SEGMENTS * BYTES)
    until = time.monotonic() + float(seconds)
    while (began := time.monotonic()) < until:
        rest = began + min(1.0, until - began)
        flood(sender, packets, where, began + (rest - began) * float(share))
        if float(share) < 1:
            time.sleep(max(0.0, rest - time.monotonic()))


def flood(sender, packets, where, until):
    began = time.monotonic()
    for burst in itertools.count():
        try:
            for _ in range(BURST):
                sender.sendto(packets, where)
        except OSError:
            pass  # no listener, no buffer space, or the link is down
        early = began + burst * BURST / MOST_A_SECOND - time.monotonic()
        if early > 0:
            time.sleep(early)
        if time.monotonic() >= until:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])

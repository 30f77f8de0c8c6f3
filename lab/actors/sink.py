"""Listens on UDP and never reads: ``sink.py PORT SOCKETS``. The kernel does all the work."""

import signal
import socket
import sys


def main(port, sockets):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-sink")
    doors = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(sockets))]
    for door in doors:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("", int(port)))
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])

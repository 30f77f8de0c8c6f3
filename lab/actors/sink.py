"""Listens on UDP and never reads, so that only the kernel works: ``sink.py PORT SOCKETS``."""

import signal
import socket
import sys


def main(port, sockets):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-sink")
    listeners = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(sockets))]
    for listener in listeners:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", int(port)))
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])

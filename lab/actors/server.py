"""Answers every message on TCP with the same message: ``server.py ADDRESS PORT``."""

import selectors
import socket
import sys


def main(address, port):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-server")
    known = selectors.DefaultSelector()
    door = socket.create_server((address, int(port)), backlog=256)
    known.register(door, selectors.EVENT_READ)
    while True:
        for key, _ in known.select():
            if key.fileobj is door:
                known.register(door.accept()[0], selectors.EVENT_READ)
                continue
            try:
                said = key.fileobj.recv(65536)
                if said:
                    key.fileobj.send(said)
            except OSError:
                said = b""
            if not said:
                known.unregister(key.fileobj)
                key.fileobj.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

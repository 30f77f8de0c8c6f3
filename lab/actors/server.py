"""TCP echo server: ``server.py ADDRESS PORT``."""

import selectors
import socket
import sys


def main(address, port):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-server")
    selector = selectors.DefaultSelector()
    listener = socket.create_server((address, int(port)), backlog=256)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            try:
                data = key.fileobj.recv(65536)
                if data:
                    key.fileobj.send(data)
            except OSError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

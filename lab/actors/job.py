"""A job that talks with its server over some connections, and dies with them.

``job.py ADDRESS PORT CONNECTIONS PATIENCE_S``: each says something ten times a second; one that got
no acknowledgement for so long is dead (``TCP_USER_TIMEOUT``), as in any client with a short
time-out. When all are dead the job prints why and ends with status 1.
"""

import os
import socket
import sys
import time


def main(address, port, connections, patience_s):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-job")
    alive = [dial(address, int(port), float(patience_s)) for _ in range(int(connections))]
    why = ""
    while alive:
        for child in list(alive):
            try:
                child.send(b"x" * 200)
                while child.recv(65536):
                    pass
                raise OSError(0, "closed by the server")
            except BlockingIOError:
                continue
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error)
                alive.remove(child)
                child.close()
        time.sleep(0.1)
    print(f"ObjectFetchTimedOutError: {why}", flush=True)
    return 1


def dial(address, port, patience_s):
    made = socket.create_connection((address, port), timeout=10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience_s * 1000))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""A job that depends on TCP connections to its server.

``job.py ADDRESS PORT CONNECTIONS TIMEOUT_S``: each connection sends ten times a second; one without
an acknowledgement for TIMEOUT_S fails (``TCP_USER_TIMEOUT``), as in any client with a short
timeout. When all have failed, the job prints why and exits with status 1.
"""

import os
import socket
import sys
import time


def main(address, port, connections, timeout_s):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-job")
    alive = [connect(address, int(port), float(timeout_s)) for _ in range(int(connections))]
    why = ""
    while alive:
        for connection in list(alive):
            try:
                connection.send(b"x" * 200)
                while connection.recv(65536):
                    pass
                raise OSError(0, "closed by the server")
            except BlockingIOError:
                continue
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error)
                alive.remove(connection)
                connection.close()
        time.sleep(0.1)
    print(f"ObjectFetchTimedOutError: {why}", flush=True)
    return 1


def connect(address, port, timeout_s):
    connection = socket.create_connection((address, port), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout_s * 1000))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

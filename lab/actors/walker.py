"""Makes the kernel walk every memory cgroup below a directory, again and again.

``walker.py DIRECTORY SECONDS [fifo [THREADS]]``; with `fifo` it runs at real-time priority. The
walk is reclaim that can free nothing: on v1 a ``memory.limit_in_bytes`` below the usage, refused
after the walk (not ``memory.force_empty``: 5.10 sleeps between its walks, so it does not hold a
core); on v2 ``memory.reclaim``, or before 5.19 a ``memory.high`` of 0, reset at the end. It
replaces the walk of the incident (``memory.numa_stat``, fixed in 5.8): the substitute walker.
"""

import errno
import os
import sys
import threading
import time

EXPECTED = (errno.EAGAIN, errno.EINTR, errno.EBUSY)


def main(directory, seconds, policy="", threads=1):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-walker")
    ready = threading.Barrier(int(threads))
    walkers = [
        threading.Thread(target=walk, args=(directory, float(seconds), policy, ready))
        for _ in range(int(threads) - 1)
    ]
    for walker in walkers:
        walker.start()
    walk(directory, float(seconds), policy, ready)
    for walker in walkers:
        walker.join()


def walk(directory, seconds, policy, ready):
    ready.wait()  # a thread at real-time priority would keep the next one from starting
    if policy == "fifo":
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    until = time.monotonic() + seconds
    for name, order in (("memory.limit_in_bytes", b"4096"), ("memory.reclaim", b"1G")):
        if os.path.exists(f"{directory}/{name}"):
            repeat(f"{directory}/{name}", order, until)
            return
    try:
        repeat(f"{directory}/memory.high", b"0", until)
    finally:
        repeat(f"{directory}/memory.high", b"max", 0)


def repeat(path, order, until):
    file = os.open(path, os.O_WRONLY)
    while True:
        try:
            os.pwrite(file, order, 0)
        except OSError as error:
            if error.errno not in EXPECTED:  # nothing to free is what we want
                raise
        if time.monotonic() >= until:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])

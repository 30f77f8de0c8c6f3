"""Allocates and touches memory, then sleeps: ``eater.py MEGABYTES [NAME [PINS]]``.

PINS is a directory on tmpfs: one page of a new file there stays charged to this process's cgroup
after its death.
"""

import os
import sys
import time


def main(megabytes, name="lab-eater", pins=""):
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)
    if pins:
        with open(f"{pins}/{os.getpid()}", "wb") as pin:
            pin.write(b"x" * os.sysconf("SC_PAGE_SIZE"))
    held = []
    for _ in range(int(megabytes)):
        held.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.01)
    while held:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])

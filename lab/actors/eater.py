"""Allocates and touches memory, then sleeps: ``eater.py MEGABYTES [NAME]``."""

import sys
import time


def main(megabytes, name="lab-eater"):
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)
    held = []
    for _ in range(int(megabytes)):
        held.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.01)
    while held:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Reads a file round and round, for some seconds: ``reader.py FILE SECONDS``.

Of a sparse file, so that no disk is waited for: each page is filled with zeros and kept in the page
cache, and where that is limited another has to be reclaimed for it first.
"""

import sys
import time


def main(path, seconds):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-reader")
    until = time.monotonic() + float(seconds)
    block = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while time.monotonic() < until:
            if not file.readinto(block):
                file.seek(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

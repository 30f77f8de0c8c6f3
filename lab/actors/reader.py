"""Reads a file again and again: ``reader.py FILE SECONDS``.

The file is sparse, so no disk is involved: each page is filled with zeros and kept in the page
cache; if the cache is limited, another page must be reclaimed first.
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

"""Touches new pages as fast as the kernel provides them: ``faulter.py SECONDS``.

The kernel copies zeros into a mapping that is released each round, so nearly all the time is spent
in page faults, one per 4 KiB (huge pages are disabled).
"""

import mmap
import sys
import time

BYTES = 64 << 20


def main(seconds):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-faulter")
    pages = mmap.mmap(-1, BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    until = time.monotonic() + float(seconds)
    with open("/dev/zero", "rb", buffering=0) as zeros:
        while time.monotonic() < until:
            zeros.readinto(pages)
            pages.madvise(mmap.MADV_DONTNEED)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Computes in user mode: ``hog.py SHARE``, in per cent of its core; 100 never sleeps."""

import sys
import time


def main(share):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-hog")
    share = float(share) / 100
    while True:
        until = time.monotonic() + 0.1 * share
        while time.monotonic() < until:
            sum(range(10_000))
        if share < 1:
            time.sleep(0.1 * (1 - share))


if __name__ == "__main__":
    main(*sys.argv[1:])

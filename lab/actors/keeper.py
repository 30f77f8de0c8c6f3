"""Takes memory and keeps it: ``keeper.py BYTES``. The first to go where the node runs out."""

import mmap
import signal
import sys


def main(size):
    with open("/proc/self/comm", "w") as comm:
        comm.write("lab-keeper")
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    pages = mmap.mmap(-1, int(size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, int(size), 4096):
        pages[at] = 1
    print("kept", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])

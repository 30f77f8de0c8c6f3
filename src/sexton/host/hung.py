"""Reading from a mount that may be hung: a network file system without its server, a stopped FUSE.

A call on it waits in the kernel, perhaps forever, and nothing in the process can end it. So the
work runs in a separate thread, and the command gives up when that thread has not used any CPU time
for a while: then a single call hangs, however long the whole work may take. The parent of the
command (`sexton.cli.parent`) does not wait for the thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sexton.errors import StoreError
from sexton.model.text import printable, seconds

#: A disk under load answers within seconds, an NFS server that restarts within a minute.
SILENT_S = 60.0
_LOOK_S = 0.25

_T = TypeVar("_T")


def unless_hung(work: Callable[[], _T], path: str) -> _T:
    """The result of `work`, which reads below `path`; `StoreError` if one read hangs."""
    results: list[_T] = []
    errors: list[BaseException] = []
    clocks: list[int] = []

    def run() -> None:
        # Here and not in the caller: the clock of an ended thread must not be looked up.
        clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    spent_s, since_s = -1.0, time.monotonic()
    while True:
        thread.join(min(_LOOK_S, SILENT_S))
        if not thread.is_alive():
            break
        now_s = time.monotonic()
        before_s, spent_s = spent_s, _cpu_s(clocks)
        if spent_s != before_s:
            since_s = now_s
        elif now_s - since_s > SILENT_S:
            silent = seconds(SILENT_S)
            raise StoreError(
                f"{printable(path)}: no answer to a read for {silent}: is its mount hung?"
            )
    if errors:
        raise errors[0]
    return results[0]


def _cpu_s(clocks: list[int]) -> float:
    try:
        return time.clock_gettime(clocks[0]) if clocks else 0.0
    except OSError:  # the thread ended just now
        return 0.0

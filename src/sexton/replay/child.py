"""A computation in a child process, beside what this process goes on to do.

Python computes on one core. A child that is forked after the recording was opened computes on
another, with what was read so far shared. It inherits the sandbox and ends with its parent.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from sexton.sandbox import end_with

T = TypeVar("T")

#: A child that has not answered for so long is stuck: its parent computes the result itself.
_MOST_S = 60.0
#: A killed process ends within milliseconds, unless it waits in the kernel: it is left behind then.
_ENDS_S = 0.5
_PART = 1 << 20


class Child(Generic[T]):
    """Runs `work` in a child until the end of the `with` block.

    >>> with Child(lambda: sum(range(5))) as child:
    ...     child.result()
    10
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._from, to = os.pipe()
        parent = os.getpid()
        try:
            self._pid = os.fork()
        except OSError:  # no process available
            self._pid = -1
        if not self._pid:
            try:
                end_with(parent)
                os.close(self._from)
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)  # end without a message
                left = memoryview(pickle.dumps(work(), protocol=5))
                while left:
                    left = left[os.write(to, left) :]
            finally:
                os._exit(0)  # an exception too: without a result, the parent meets it itself
        os.close(to)

    def __enter__(self) -> Child[T]:
        return self

    def result(self, most_s: float = _MOST_S) -> T | None:
        """What it computed; `None` if it failed, was killed, or is stuck for `most_s` seconds."""
        arrived = select.poll()
        arrived.register(self._from, select.POLLIN)
        parts: list[bytes] = []
        while arrived.poll(most_s * 1000):
            part = os.read(self._from, _PART)
            if not part:
                break
            parts.append(part)
        try:
            return cast("T", pickle.loads(b"".join(parts)))
        except (EOFError, pickle.UnpicklingError):
            return None

    def __exit__(self, *_: object) -> None:
        os.close(self._from)
        if self._pid <= 0:
            return
        os.kill(self._pid, signal.SIGKILL)
        until = time.monotonic() + _ENDS_S
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.001)

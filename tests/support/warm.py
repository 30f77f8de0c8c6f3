"""A process with every library loaded, from which tests fork commands.

To start Python and import numpy, Arrow and every detector takes half a second of CPU, most of what
a command costs in a test. A forked command has its own process, streams, environment and exit
status like any other; only the imports have happened before.
"""

from __future__ import annotations

import array
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

_MOST_BYTES = 1 << 17


class Warm:
    """The client's side; the process starts with the first command and ends with this one."""

    def __init__(self) -> None:
        self._requests: socket.socket | None = None

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        streams: Sequence[IO[bytes]],
        timeout: float,
    ) -> int:
        """Run `sexton` with these arguments and these three streams; its exit status."""
        if self._requests is None:
            self._requests = _start()
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with mine:
            request = json.dumps({"argv": argv, "env": dict(env), "cwd": cwd}).encode()
            descriptors = [*(stream.fileno() for stream in streams), theirs.fileno()]
            socket.send_fds(self._requests, [request], descriptors)
            theirs.close()
            pid = int(mine.recv(64))
            mine.settimeout(timeout)
            try:
                return int(mine.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(argv), timeout) from None


def _start() -> socket.socket:
    from tests.support.cli import ENVIRONMENT

    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return mine


def _serve(requests: socket.socket) -> None:
    """Fork a command for each request until the tests have ended."""
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the supervisors
    room = socket.CMSG_SPACE(4 * array.array("i").itemsize)
    while True:
        request, ancillary, _, _ = requests.recvmsg(_MOST_BYTES, room)
        if not request:
            return
        descriptors = array.array("i")
        for _, _, content in ancillary:
            descriptors.frombytes(content)
        if os.fork() == 0:
            requests.close()
            _supervise(json.loads(request), list(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)


def _load() -> None:
    """Import every module of Sexton, with the settings that it makes before numpy and Arrow."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    import sexton

    for module in pkgutil.walk_packages(sexton.__path__, "sexton."):
        if not module.name.rpartition(".")[2].startswith("_"):  # the program, and compiled C
            importlib.import_module(module.name)


def _supervise(request: dict[str, object], descriptors: list[int]) -> None:
    """Start the command, then send its process id and, when it has ended, its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, answer = descriptors
    child = os.fork()
    if child == 0:
        os.close(answer)
        _become(request, streams)
    for stream in streams:
        os.close(stream)
    os.write(answer, str(child).encode())
    _, status = os.waitpid(child, 0)
    os.write(answer, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: dict[str, object], streams: Sequence[int]) -> None:
    from sexton.cli.main import command

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[arg-type]
    sys.argv = ["sexton", *request["argv"]]  # type: ignore[misc]
    command()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))

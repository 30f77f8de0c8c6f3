"""The real command line, as a person or a script would start it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.support.warm import Warm

SEXTON = (sys.executable, "-m", "sexton")
#: What a shell that knows nothing of tests would have.
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "LC_ALL": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}


#: Arguments of `sexton` with which a command can be forked from a warm process.
_WARM_OPTIONS = frozenset({"cwd", "text", "timeout"})
_WARM = Warm()
_STARTED: set[str] = set()


def sexton(
    *arguments: str | Path | bytes, env: Mapping[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end; `env` is added to a plain environment.

    Each command is a new process of Python's once in each test process, then forked from a warm
    one.
    """
    if _WARM_OPTIONS.issuperset(more) and not _of_python(env or {}) and _was_started(arguments):
        return _run_warm(arguments, env or {}, **more)
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "timeout": 180, **more}
    if "stdout" not in options:
        options["stdout"] = subprocess.PIPE
    if "stderr" not in options:
        options["stderr"] = subprocess.PIPE
    if "input" in options:
        del options["stdin"]
    return subprocess.run(
        [*SEXTON, *arguments], env={**ENVIRONMENT, **(env or {})}, check=False, **options
    )


def _was_started(arguments: Sequence[str | Path | bytes]) -> bool:
    verb = next((str(word) for word in arguments if str(word)[:1] != "-"), "")
    started = verb in _STARTED
    _STARTED.add(verb)
    return started


def _of_python(env: Mapping[str, str]) -> bool:
    """Whether a variable is read when Python starts."""
    return any(name.startswith(("PYTHON", "LC_", "LANG")) for name in env)


def _run_warm(
    arguments: Sequence[str | Path | bytes],
    env: Mapping[str, str],
    *,
    cwd: str | Path = ".",
    text: bool = False,
    timeout: float = 180,
) -> subprocess.CompletedProcess[Any]:
    argv = [os.fsdecode(word) for word in arguments]
    with open(os.devnull, "rb") as none, TemporaryFile() as out, TemporaryFile() as errors:
        place = os.path.abspath(cwd)
        streams = (none, out, errors)
        status = _WARM.run(argv, {**ENVIRONMENT, **env}, place, streams, timeout)
        said = []
        for stream in (out, errors):
            stream.seek(0)
            content = stream.read()
            said.append(content.decode() if text else content)
    return subprocess.CompletedProcess([*SEXTON, *argv], status, *said)


#: By the process that was started, the child of it that reads the node.
_READERS: dict[int, int] = {}


def reader_of(process: subprocess.Popen[Any]) -> int:
    """The child that reads the node (`sexton.cli.parent`); 0 before it is there. Remembered, since
    it may outlive the process that was started."""
    with suppress(FileNotFoundError, ProcessLookupError):
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if found:
            _READERS[process.pid] = int(found[0])
    return _READERS.get(process.pid, 0)


def shell(line: str, *, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """A line of bash in which ``$SEXTON`` is the command, for redirections."""
    return subprocess.run(
        ["bash", "-c", line.replace("$SEXTON", shlex.join(SEXTON))],
        env={**ENVIRONMENT, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=180,
        check=False,
    )


def one_line(stream: bytes) -> str:
    """The only line of a stream, which is no traceback."""
    lines = stream.decode().splitlines()
    assert len(lines) == 1, stream.decode()
    assert "Traceback" not in lines[0]
    return lines[0]


def quiet(ended: subprocess.CompletedProcess[bytes], allowed: Sequence[int] = (0, 1, 3)) -> None:
    """It answered, said nothing on standard error and sent nothing raw to whoever reads it."""
    assert ended.returncode in allowed, ended.stderr.decode()
    assert ended.stderr == b""
    raw = [byte for byte in ended.stdout if (byte < 32 and byte != 10) or byte == 127]
    assert raw == []
    ended.stdout.decode()

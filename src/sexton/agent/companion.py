"""The recorder's companion that reports the verdict: a process of its own.

It can hang with the network, and it holds a token: neither belongs into the recorder.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.host.runner import module_command
from sexton.record.companions import Place
from sexton.record.restarted import RestartedProcess

#: Of the hidden option ``--agent-part`` of ``sexton node-agent``.
REPORT, JUDGE = "report", "judge"
NAME = "reporter"


def part_command(directory: str, part: str, arguments: Sequence[str]) -> list[str]:
    """The command of one of the agent's processes."""
    return module_command("sexton", "node-agent", directory, "--agent-part", part, *arguments)


def reporter(place: Place, arguments: Sequence[str]) -> RestartedProcess:
    """The process that reports, with the options of its command."""
    return RestartedProcess(NAME, part_command(str(place.directory), REPORT, arguments))

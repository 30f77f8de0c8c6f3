"""State of one `lab.cure` run: the node, the claims, and the output of every command."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lab.claims import Claims
from lab.play import ROOT, environment
from lab.sick_node import ECS, SickNode
from lab.stage import SceneFailed, Stage

#: Sampling time of a plan and a diagnosis: removed cgroups count as zombies after some seconds.
WATCH_S = 10
#: Sampling time of an audit and a gate.
LOOK_S = 5
COMMAND_S = 150.0
#: So many of the zombies made may remain, because the node's own come and go meanwhile.
LEFT, LEFT_SHARE = 30, 0.05


class CommandResult(NamedTuple):
    """Exit status, output and duration of a command."""

    status: int
    text: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """Its JSON output; empty if it printed none."""
        try:
            document = json.loads(self.text)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


@dataclass
class CureRun:
    """See the module."""

    stage: Stage
    node: SickNode
    claims: Claims
    out: Path
    began_s: float = field(default_factory=time.monotonic)
    commands: int = 0
    baseline: int = 0
    made: int = 0
    swap: str = ""
    #: Hash of the unit directories before the first plan was applied.
    tree: str = ""

    @property
    def state(self) -> Path:
        return self.stage.folder / "state"

    @property
    def plan(self) -> Path:
        return self.stage.folder / "plan.json"

    @property
    def allowed(self) -> int:
        """Most zombies allowed after the fix."""
        return self.baseline + round(max(LEFT, LEFT_SHARE * self.made))

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.began_s

    def sexton(self, *arguments: str) -> CommandResult:
        """Run ``sexton`` as a person would, with the longer deadlines of an emulated machine."""
        began = time.monotonic()
        try:
            ended = subprocess.run(
                command(*arguments), capture_output=True, text=True, timeout=COMMAND_S,
                check=False, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SceneFailed(
                f"{' '.join(arguments)}: did not end within {COMMAND_S:g} s"
            ) from None
        result = CommandResult(ended.returncode, ended.stdout, round(time.monotonic() - began, 1))
        self.keep(arguments, result, ended.stderr)
        return result

    def keep(self, arguments: tuple[str, ...], result: CommandResult, errors: str) -> None:
        """Save a command's output, to find out why a claim failed."""
        self.commands += 1
        verb = "-".join(word for word in arguments[:2] if word.isalpha())
        head = f"$ sexton {' '.join(arguments)}\nexit {result.status} after {result.seconds} s\n"
        path = self.out / f"{self.commands:02}-{verb}.txt"
        path.write_text(f"{head}{errors}\n{result.text}", errors="replace")

    def gate(self) -> CommandResult:
        """Gate the running node."""
        return self.sexton("gate", "--format", "json", "--seconds", str(LOOK_S))

    def fix(self, *arguments: str) -> CommandResult:
        return self.sexton("fix", *arguments, "--json", "--state", str(self.state))

    def make_plan(self, *more: str) -> dict[str, Any]:
        """Run `fix plan` into the file `plan`; returns its JSON."""
        words = ("--json", "--out", str(self.plan), "--seconds", str(WATCH_S), *more)
        return self.sexton("fix", "plan", *words).document

    def plan_crash_loop(self, *more: str) -> dict[str, Any]:
        """Plan while the restart counter is low: it is a precondition of the plan, so every apply
        after a rollback must wait for as many restarts."""
        self.stage.run("systemctl", "reset-failed", ECS)
        self.stage.until("3 restarts", lambda: self.node.restarts() >= 3, within_s=60)
        return self.make_plan(*more)

    def wait_for_restarts(self, plan: dict[str, Any]) -> None:
        """Wait for the restart count that the plan requires, without making zombies."""
        wanted = [
            int(precondition["expected"])
            for step in plan["steps"]
            for precondition in step["preconditions"]
            if precondition["probe"] == f"unit.restarts {ECS}"
        ]
        self.node.agent.set_tasks(0)
        self.stage.until(
            "the restart count that the plan requires",
            lambda: self.node.restarts() >= max(wanted, default=0),
            within_s=120,
        )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lab.deadlines", *arguments]

"""One run of an experiment that types commands: what it has at hand, and what they said."""

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
from lab.sick import ECS, Sick
from lab.stage import SceneFailed, Stage

#: How long a plan and a diagnosis watch: deaths count as zombies after some seconds.
WATCH_S = 10
#: How long an audit and a gate watch.
LOOK_S = 5
COMMAND_S = 150.0
#: Of those that were made, so many may stay; the node's own come and go meanwhile.
LEFT, LEFT_SHARE = 30, 0.05


class Said(NamedTuple):
    """What came of a command."""

    status: int
    text: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """Its JSON; empty where it printed none."""
        try:
            document = json.loads(self.text)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


@dataclass
class Case:
    """All that one run has at hand."""

    stage: Stage
    sick: Sick
    claims: Claims
    out: Path
    began_s: float = field(default_factory=time.monotonic)
    commands: int = 0
    baseline: int = 0
    made: int = 0
    swap: str = ""
    #: Of the units' directories before the first plan was applied.
    tree: str = ""

    @property
    def state(self) -> Path:
        return self.stage.folder / "state"

    @property
    def plan(self) -> Path:
        return self.stage.folder / "plan.json"

    @property
    def allowed(self) -> int:
        """Zombies after a cure."""
        return self.baseline + round(max(LEFT, LEFT_SHARE * self.made))

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.began_s

    def sexton(self, *arguments: str) -> Said:
        """The command as a person would type it, with an emulated machine's patience."""
        began = time.monotonic()
        try:
            ended = subprocess.run(
                command(*arguments), capture_output=True, text=True, timeout=COMMAND_S,
                check=False, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SceneFailed(f"{' '.join(arguments)}: no end within {COMMAND_S:g} s") from None
        said = Said(ended.returncode, ended.stdout, round(time.monotonic() - began, 1))
        self.keep(arguments, said, ended.stderr)
        return said

    def keep(self, arguments: tuple[str, ...], said: Said, errors: str) -> None:
        """What it said, to find out why a claim does not hold."""
        self.commands += 1
        verb = "-".join(word for word in arguments[:2] if word.isalpha())
        head = f"$ sexton {' '.join(arguments)}\nexit {said.status} after {said.seconds} s\n"
        path = self.out / f"{self.commands:02}-{verb}.txt"
        path.write_text(f"{head}{errors}\n{said.text}", errors="replace")

    def gate(self) -> Said:
        """Of the node as it runs."""
        return self.sexton("gate", "--format", "json", "--seconds", str(LOOK_S))

    def fix(self, *arguments: str) -> Said:
        return self.sexton("fix", *arguments, "--json", "--state", str(self.state))

    def make_plan(self, *more: str) -> dict[str, Any]:
        """`fix plan`, kept in `plan`; its JSON."""
        words = ("--json", "--out", str(self.plan), "--seconds", str(WATCH_S), *more)
        return self.sexton("fix", "plan", *words).document

    def plan_for_loop(self, *more: str) -> dict[str, Any]:
        """The same, with a restart counter that is low: a plan rests on it, and every apply after a
        rollback has to wait for as many."""
        self.stage.run("systemctl", "reset-failed", ECS)
        self.stage.until("restarts", lambda: self.sick.restarts() >= 3, within_s=60)
        return self.make_plan(*more)

    def let_loop(self, plan: dict[str, Any]) -> None:
        """Until as many restarts are counted as the plan rests on, without zombies meanwhile."""
        wanted = [
            int(precondition["expected"])
            for step in plan["steps"]
            for precondition in step["preconditions"]
            if precondition["probe"] == f"unit.restarts {ECS}"
        ]
        self.sick.agent.work(0)
        self.stage.until(
            "as many restarts as the plan rests on",
            lambda: self.sick.restarts() >= max(wanted, default=0),
            within_s=120,
        )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lab.patience", *arguments]

"""A yard with a unit in a crash loop that nobody needs, and `sexton fix` run inside it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.yard.yard import Yard, why_not

ETC, VENDOR = "/etc/systemd/system", "/usr/lib/systemd/system"
UNIT = "leak.service"
STATE = "/var/lib/sexton-fix"
_UNIT = "[Unit]\\nDefaultDependencies=no\\nStartLimitIntervalSec=0\\n"
CRASH = (
    f"{_UNIT}[Service]\\nExecStart=/bin/false\\nRestart=always\\nRestartSec=100ms\\n"
    "[Install]\\nWantedBy=multi-user.target\\n"
)
SLEEP = f"{_UNIT}[Service]\\nExecStart=/bin/sleep 1000\\n"

#: Whatever a unit's directories hold; of directories no times, which systemd itself goes by.
_SNAPSHOT = r"""
for top in /etc/systemd /run/systemd/system; do
    find "$top" ! -type d -printf '%p|%y|%l|%m|%U|%G|%T@|%s\n'
    find "$top" -type d -printf '%p|%y|%m|%U|%G\n'
    find "$top" -type f -exec sha256sum {} +
done | sort
"""

#: A plan made on the spot, without ten seconds of watching first.
PLAN = """
import json, sys, time
from sexton.cure.plan import PlanContext, PlanOptions, make_plan
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.plan import as_json
from sexton.model.window import Window
from sexton.host.host import open_host
from sexton.sources.procfs.node import Identity
host = open_host()
(node,) = Identity(host).collect()
loop = Finding("crash_looping_unit", Verdict.PRESENT, Severity.CRITICAL, "it loops",
               entities={"unit": tuple(sys.argv[2].split())})
now = time.time()
found = Diagnosis(node, now - 10, now, (loop,), (), (), (), (), ())
options = PlanOptions(**json.loads(sys.argv[3]))
deadline = time.monotonic() + 150
while True:
    plan = make_plan(found, Window({}), PlanContext(host, (), options))
    # The service manager may be too busy to answer in time: that is said, and no plan to test.
    busy = any(
        refusal.target == "leak.service" and "could not be read" in refusal.reason
        for refusal in plan.refusals
    )
    if not busy or time.monotonic() > deadline:
        break
open(sys.argv[1], "w").write(json.dumps(as_json(plan)))
print(plan.hash)
"""

#: `sexton fix apply` with a watchdog that never barks: other tests load this machine as they like.
APPLY = """
import sys
from sexton.cure import watchdog
class Calm(watchdog.Watchdog):
    def _worse(self, now):
        return ""
watchdog.Watchdog = Calm
from sexton.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def script(yard: Yard, *lines: str) -> None:
    """Lines of shell, and systemd told of what they did."""
    yard.run("sh", "-ec", "\n".join((*lines, "systemctl daemon-reload")))


def write(path: str, text: str) -> str:
    """The line that writes a file; `text` as `printf` reads it."""
    return f"mkdir -p {path.rpartition('/')[0]}; printf '{text}' >{path}"


def link(path: str, target: str) -> str:
    return f"mkdir -p {path.rpartition('/')[0]}; ln -s {target} {path}"


@contextmanager
def fixable() -> Iterator[Yard]:
    """A yard whose /etc/systemd, vendor directory and /var/lib are its own."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Yard() as up:
        for directory in ("/etc/systemd", VENDOR, "/var/lib"):
            up.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", directory)
        up.run("mkdir", ETC)
        script(up)
        yield up


def plant_loop(yard: Yard, name: str = UNIT, text: str = CRASH) -> None:
    """The unit, enabled and looping, with times and owners that nobody would give it by chance."""
    wants = f"{ETC}/multi-user.target.wants/{name}"
    script(
        yard,
        write(f"{VENDOR}/{name}", text),
        link(wants, f"{VENDOR}/{name}"),
        f"touch -h -d '2001-02-03 04:05:06.789' {wants}",
    )
    yard.run("systemctl", "start", "--no-block", name)
    yard.wait("it loops", lambda: int(yard.show(name, "NRestarts")["NRestarts"] or 0) >= 2)


def uproot(yard: Yard, *names: str) -> None:
    """Whatever is left of them."""
    for name in names:
        yard.run("systemctl", "stop", name, check=False)
    script(yard, f"rm -rf {ETC}/* {STATE}", *(f"rm -f {VENDOR}/{name}" for name in names))


def running(yard: Yard, name: str = UNIT) -> bool:
    return yard.show(name, "ActiveState")["ActiveState"] not in ("inactive", "failed")


def picture(yard: Yard, name: str = UNIT) -> tuple[list[str], str, bool]:
    """All that a rollback has to bring back."""
    files = yard.run("sh", "-c", _SNAPSHOT).splitlines()
    return files, yard.show(name, "UnitFileState")["UnitFileState"], running(yard, name)


def plan_for(yard: Yard, *units: str, **options: bool) -> str:
    """A plan in /run/plan.json; its hash."""
    names = " ".join(units or (UNIT,))
    argv = (sys.executable, "-B", "-c", PLAN, "/run/plan.json", names, json.dumps(options))
    made = yard.run(*argv, deadline_s=240).strip()
    plan = plan_in(yard)
    print(plan["refusals"], plan["notes"], sep="\n")  # pytest shows it where a test fails
    return made


def plan_in(yard: Yard) -> dict[str, Any]:
    return json.loads(yard.run("cat", "/run/plan.json"))


def fix(yard: Yard, *arguments: str, code: str = APPLY) -> subprocess.CompletedProcess[str]:
    """`sexton fix …` inside; its exit status and both streams."""
    line = shlex.join([sys.executable, "-B", "-c", code, "fix", *arguments])
    result = yard.run("sh", "-c", f"{line} >/run/out 2>/run/err; echo $?", deadline_s=240)
    status = int(result.strip())
    out, err = yard.run("cat", "/run/out"), yard.run("cat", "/run/err")
    print(shlex.join(arguments), status, out, err, sep="\n")  # pytest shows it where a test fails
    return subprocess.CompletedProcess(
        arguments, status - 256 if status > 128 + 64 else status, out, err
    )


def apply(yard: Yard, confirm: str, *more: str, code: str = APPLY):
    return fix(yard, "apply", "/run/plan.json", "--confirm", confirm, *more, code=code)

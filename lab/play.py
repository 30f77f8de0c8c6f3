"""Play a scene on this machine and record it: ``python -m lab.play SCENE --out DIR``.

::

    python -m lab.play --list                       all scenes, and which can be played here
    python -m lab.play zombies_only --out /tmp/z    about a minute and a half; needs root
    sexton diagnose --from /tmp/z

It starts ``sexton record DIR --stacks`` (through `lab.recorder`, which also accepts kernel log
lines injected by a scene), plays the scene, then stops the recorder as Ctrl-C would.
``DIR/scene.json`` lists what was done: injected lines, substitutes, when each event happened, and
the expected diagnosis.

With ``--live`` a scene that is still active at its end is also diagnosed live, after the recorder
has stopped: ``DIR/live.json`` is the output of ``sexton diagnose --json``.

The recorder runs without a CPU budget (``--cpu 100``), because under software emulation it would
pause the very sources that the scene needs. Everything is cleaned up, also on Ctrl-C and failure.

Exit status: 0 played, 2 failed, 3 cannot be played here (prints why), 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from lab.deadlines import in_lab_vm
from lab.scenes import NAMES, all_scenes, load
from lab.stage import CannotPlay, SceneFailed, Stage
from lab.zombie_maker import CannotMakeZombies
from sexton import __version__

ROOT = Path(__file__).parents[1]
SIZE = "128M"
#: Under software emulation Python takes seconds to start and decoding stacks takes a minute. STOP_S
#: exceeds the decoder's own limit (`lab.deadlines.CLOSE_S`).
START_S, STOP_S, LIVE_S = 180.0, 600.0, 300.0
#: Duration of a live diagnosis: the default of ``sexton diagnose``.
WATCH_S = 10
FORMAT = "sexton.scene/1"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.play",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scene", nargs="?", choices=NAMES, metavar="SCENE")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the recording goes")
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="shorten the waits to about N seconds in all"
    )
    parser.add_argument(
        "--live", action="store_true", help="also diagnose live, if still active at the end"
    )
    parser.add_argument("--list", action="store_true", help="list scenes and why some cannot play")
    args = parser.parse_args(argv)
    if args.list:
        return _list()
    if args.scene is None or args.out is None:
        parser.error("SCENE and --out DIR are required, unless --list is given")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return play(load(args.scene), args.out, args.seconds, args.live)
    except (CannotPlay, CannotMakeZombies) as reason:
        print(f"lab: {args.scene} cannot be played here: {reason}", file=sys.stderr)
        return 3
    except SceneFailed as error:
        print(f"lab: {args.scene} failed: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lab: interrupted; everything was cleaned up", file=sys.stderr)
        return 130


def cable() -> str | None:
    """The NIC whose peer can stop reading (`lab.vm.cable`)."""
    return "eth1" if in_lab_vm() and Path("/sys/class/net/eth1").exists() else None


def why_not(scene: ModuleType) -> str | None:
    """Why the scene cannot be played here; `None` if nothing known in advance prevents it."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [tool for tool in ("setpriv", "taskset", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"no {', '.join(missing)} here: apt-get install util-linux"
    needs = scene.NEEDS
    if "systemd" in needs and not Path("/run/systemd/system").is_dir():
        return "it needs systemd as PID 1"
    if "cable" in needs and cable() is None:
        return "it needs the second NIC of the lab's virtual machine"
    if "runc" in needs and shutil.which("runc") is None:
        return "no runc here: apt-get install runc"
    with Stage(Path("/nonexistent"), {}) as stage:
        version = stage.layout.version
        if stage.layout.mount_point is None:
            return stage.layout.reason or "no memory hierarchy is mounted"
    for wanted in (1, 2):
        if f"v{wanted}" in needs and version != wanted:
            return f"memory is not on cgroup v{wanted} here"
    return None


def play(scene: ModuleType, out: Path, seconds: float | None = None, live: bool = False) -> int:
    """Record `scene` into `out`; `seconds` shortens its waits, `live` adds a live diagnosis."""
    reason = why_not(scene)
    if reason is not None:
        raise CannotPlay(reason)
    if out.exists() and any(out.iterdir()):
        raise CannotPlay(f"{out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    pace = 1.0 if seconds is None else min(1.0, seconds / scene.SECONDS)
    with Stage(out, scene.EXPECTED, pace) as stage:
        stage.live_root = getattr(scene, "LIVE", None)
        if hasattr(scene, "prepare"):
            scene.prepare(stage)
        began = time.time()
        with _recorder(scene, stage):
            began = time.time()
            scene.play(stage)
            ended = time.time()
        live = live and hasattr(scene, "LIVE")
        more = {"live": {"root": stage.live_root}} if live else {}
        _note_scene(scene, stage, (began, ended), more)
        if live:
            _diagnose(stage, getattr(scene, "WATCH_S", WATCH_S))
    print(f"lab: {scene.ID} is in {out}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _recorder(scene: ModuleType, stage: Stage) -> Iterator[None]:
    """Record until the block ends; the recording is sealed even after a failure."""
    flags = ["--stacks"] if getattr(scene, "STACKS", True) else []
    flags += ["--size", SIZE, "--cpu", "100", *getattr(scene, "RECORDER", ())]
    container_view = scene.container_view(stage) if hasattr(scene, "container_view") else []
    command = [*container_view, sys.executable, "-m", "lab.recorder", str(stage.out), *flags]
    log = stage.out / "recorder.log"
    with log.open("wb") as output:
        recorder = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment(),
            start_new_session=True,  # Ctrl-C must not reach the recorder: we stop it
        )
    try:
        stage.until("the recorder runs", lambda: _is_recording(recorder, stage.out), START_S)
        yield
    finally:
        _stop(recorder)
    if recorder.returncode:
        raise SceneFailed(f"recorder: {log.read_text(errors='replace').strip()[-400:]}")


def _is_recording(recorder: subprocess.Popen[bytes], out: Path) -> bool:
    if recorder.poll() is not None:
        words = (out / "recorder.log").read_text(errors="replace").strip()
        raise SceneFailed(f"recorder exited with status {recorder.returncode}: {words[-400:]}")
    return (out / "status.json").exists()


def _stop(recorder: subprocess.Popen[bytes]) -> None:
    if recorder.poll() is None:
        recorder.send_signal(signal.SIGTERM)
    try:
        recorder.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        recorder.kill()
        recorder.wait()


def _diagnose(stage: Stage, watch_s: int) -> None:
    """Diagnose this machine live into ``live.json``."""
    command = [sys.executable, "-m", "lab.deadlines", "diagnose", "--json"]
    command += ["--seconds", str(watch_s)]
    with (stage.out / "live.json").open("wb") as output, (stage.out / "live.log").open("wb") as log:
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=ROOT,
                env=environment(), timeout=LIVE_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SceneFailed(f"the live diagnosis did not end within {LIVE_S:g} s") from None
    if ended.returncode not in (0, 1, 3):
        words = (stage.out / "live.log").read_text(errors="replace").strip()
        raise SceneFailed(f"live diagnosis exited with {ended.returncode}: {words[-400:]}")
    stage.note("diagnosed live")


def environment() -> dict[str, str]:
    """Environment in which ``import lab`` works from any directory."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _note_scene(
    scene: ModuleType, stage: Stage, span: tuple[float, float], more: dict[str, Any]
) -> None:
    """Write scene.json beside the recording."""
    began, ended = span
    document: dict[str, Any] = {
        "schema": FORMAT,
        "id": scene.ID,
        "title": scene.TITLE,
        "kernel": os.uname().release,
        "hierarchy": stage.hierarchy,
        "systemd": stage.systemd,
        "sexton": __version__,
        "began": round(began, 3),
        "seconds": round(ended - began, 1),
        "expected": stage.expected,
        "adapted": stage.adapted,
        "injected": stage.injected,
        "substitutes": stage.substitutes,
        "moments": [{"at": round(at, 3), "what": what} for at, what in stage.moments],
        **more,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (stage.out / "scene.json").write_text(text + "\n")


def _list() -> int:
    for name, scene in all_scenes().items():
        reason = why_not(scene)
        print(f"{name:<16} {scene.SECONDS:>4} s  {scene.TITLE}")
        if reason is not None:
            print(f"{'':<24}not here: {reason}")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())

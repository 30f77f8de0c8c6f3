"""kubelet's configuration has only valid fields and values.

Checks every file that ``--config`` or ``--config-dir`` names (in kubelet's unit, drop-ins,
environment files or the running process), else the usual paths. kubelet ignores a field it does not
know, with one line in its log, and refuses to start on a value of the wrong type: both fail, with
the closest valid field. Settings that are valid but harmful (no memory reserved, eviction signals
switched off by a partial map, a stats period of a second) are warnings; ``strict = true`` makes
them fail. `--kubelet-out` writes the corrected file. Not applicable without a kubelet, unless
``required = true``; unknown where a kubelet runs and its file cannot be found or read.
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.model.finding import Missing
from sexton.model.text import count
from sexton.prevent.gate.model import Checked, Settings, Violation
from sexton.prevent.gate.target import Target
from sexton.prevent.kubelet import (
    ERROR,
    NOTE,
    Flag,
    KubeletFile,
    check_flags,
    flags_of,
    inspect,
    is_installed,
    running,
)


def check(target: Target, settings: Settings) -> Checked:
    flags = flags_of(target.host)
    files = inspect(target.host, flags)
    violations = [violation for file in files for violation in _of_file(file, settings["strict"])]
    for flag, problem in check_flags(flags):
        level = "error" if problem.level == ERROR or settings["strict"] else "warning"
        message = f"{problem.field}={flag.value}: {problem.message}"
        violations.append(Violation(problem.field, message, flag.read_from, 0, (), "", level))
    if not files and not violations:
        return _no_config(target, flags, settings)
    unread = [file for file in files if file.unread]
    read = [file.path for file in files if not file.unread]
    summary = f"{count(len(read), 'file')} checked: {', '.join(read)}" if read else ""
    notes = _notes(files)
    if unread and not any(violation.level == "error" for violation in violations):
        missing = tuple(Missing(f"{file.path}: {file.unread}", _grant(file)) for file in unread)
        made_at_boot = not target.booted and all(file.absent for file in unread)
        if made_at_boot and read:
            notes = (*notes, *(need.what for need in missing))
            return Checked(summary, tuple(violations), notes=notes)
        if made_at_boot:
            why = f"{unread[0].path} ({unread[0].named_by}) is not in the image"
            return Checked(not_applicable=f"{why}; gate a booted instance of it as well")
        return Checked(summary, tuple(violations), missing, notes=notes)
    return Checked(summary, tuple(violations), notes=notes)


def _no_config(target: Target, flags: list[Flag], settings: Settings) -> Checked:
    why = "no kubelet here"
    if pids := running(target.host):
        why = f"kubelet[{pids[0]}] runs without a configuration file"
        if not flags:  # a kubelet without any flag joins no cluster: its command line is hidden
            lack = Missing(f"the command line of kubelet[{pids[0]}]", "sudo sexton gate")
            return Checked(missing=(lack,))
    elif is_installed(target.host):
        why = "kubelet is installed but has no configuration file"
    if settings["required"]:
        message = f"{why}, and the policy requires a configuration"
        return Checked(why, (Violation("kubelet", message, "/var/lib/kubelet"),))
    return Checked(not_applicable=why)


def _of_file(file: KubeletFile, strict: bool) -> Iterator[Violation]:
    for problem in file.problems:
        if problem.level == NOTE:
            continue
        level = "error" if problem.level == ERROR or strict else "warning"
        remedy = ""
        if problem.fix is not None:
            remedy = "sexton gate --kubelet-out FILE  # writes the corrected file"
        subject = problem.field or file.path
        message = f"{problem.field}: {problem.message}" if problem.field else problem.message
        yield Violation(subject, message, file.path, problem.line, (), remedy, level)


def _notes(files: tuple[KubeletFile, ...]) -> tuple[str, ...]:
    return tuple(
        f"{file.path}: {problem.field} {problem.message}"
        for file in files
        for problem in file.problems
        if problem.level == NOTE
    )


def _grant(file: KubeletFile) -> str:
    if file.absent:
        return ""
    return "pip install 'sexton[gate]'" if "PyYAML" in file.unread else "sudo sexton gate"

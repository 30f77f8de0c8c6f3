"""Kubelet's configuration says only what kubelet understands, and nothing that hurts.

Every file that ``--config`` or ``--config-dir`` names (in kubelet's unit, its drop-ins, environment
files or the running process), else the usual places. A field kubelet does not know is ignored by it
with one line in its log, and a value of the wrong kind keeps it from starting: both fail, with the
nearest real field. Settings that work and hurt (no memory reserved, eviction switched off by half a
map, a stats period of a second) are warnings; ``strict = true`` makes them fail. `--kubelet-out`
writes the corrected file. Not applicable where there is no kubelet, unless ``required = true``.
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.model.finding import Missing
from sexton.model.text import count
from sexton.prevent.gate.model import Checked, Place, Settings, Violation
from sexton.prevent.kubelet import (
    ERROR,
    NOTE,
    KubeletFile,
    flags_of,
    harmful_flags,
    inspect,
    present,
)


def check(place: Place, settings: Settings) -> Checked:
    flags = flags_of(place.host)
    files = inspect(place.host, flags)
    broken = [each for file in files for each in _of_file(file, settings["strict"])]
    for flag, problem in harmful_flags(flags):
        level = "error" if problem.level == ERROR or settings["strict"] else "warning"
        message = f"{problem.field}={flag.value}: {problem.message}"
        broken.append(Violation(problem.field, message, flag.read_from, 0, (), "", level))
    if not files and not broken:
        return _none(place, settings)
    unread = [file for file in files if file.unread]
    read = [file.path for file in files if not file.unread]
    said = f"{count(len(read), 'file')} checked: {', '.join(read)}" if read else ""
    notes = _notes(files)
    if unread and not any(each.level == "error" for each in broken):
        lacking = tuple(Missing(f"{file.path}: {file.unread}", _grant(file)) for file in unread)
        if not place.booted and all("first boot" in file.unread for file in unread) and read:
            return Checked(said, tuple(broken), notes=(*notes, *(each.what for each in lacking)))
        if not place.booted and all("first boot" in file.unread for file in unread):
            why = f"{unread[0].path} ({unread[0].named_by}) is not in the image"
            return Checked(not_applicable=f"{why}; gate a booted instance of it as well")
        return Checked(said, tuple(broken), lacking, notes=notes)
    return Checked(said, tuple(broken), notes=notes)


def _none(place: Place, settings: Settings) -> Checked:
    here = present(place.host)
    why = "a kubelet, but no configuration file of it" if here else "no kubelet here"
    if settings["required"]:
        broken = Violation("kubelet", f"{why}, and the policy requires one", "/var/lib/kubelet")
        return Checked(why, (broken,))
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
    return "pip install 'sexton[gate]'" if "PyYAML" in file.unread else "sudo sexton gate"

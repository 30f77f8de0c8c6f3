"""Whether a cure held: the criteria as a table, and what was freed and what was not."""

from __future__ import annotations

from sexton.cure.verify import Met, Verified, heading
from sexton.model.text import seconds as duration
from sexton.reports.text.blocks import block, labelled, typed
from sexton.reports.text.plan import clamp, headline

_WORDS = {0: ("IT HOLDS", "32"), 1: ("IT DOES NOT HOLD", "31"), 3: ("CANNOT TELL", "33")}
_MARKS = {Met.YES: "met", Met.NO: "NOT MET", Met.UNKNOWN: "unknown"}


def verify_text(found: Verified, width: int, colour: bool = False) -> str:
    width = clamp(width)
    word, shade = _WORDS[found.exit]
    told = f"apply {found.run}, watched for {duration(found.seconds)}"
    lines = [*headline(word, told, width, shade if colour else ""), ""]
    text = heading(found)
    lines += [*block(text[:1].upper() + text[1:] + ".", width, " "), ""]
    rows = [("CRITERION", "BEFORE", "NOW", "", "READ FROM")]
    rows += [(j.what, j.before, j.now, _MARKS[j.met], j.read_from) for j in found.judged]
    widths = [
        min(max(len(row[at]) for row in rows), most) for at, most in enumerate((34, 16, 16, 8))
    ]
    for number, row in enumerate(rows):
        cells = f" {_cut(row[0], widths[0]):<{widths[0]}}  {row[1]:>{widths[1]}}"
        cells += f"  {row[2]:>{widths[2]}}  {row[3]:<{widths[3]}}  "
        lines.append((cells + _cut(row[4], max(width - len(cells), 0))).rstrip())
        note = found.judged[number - 1].note if number else ""
        if note:
            lines += block(note, width, "     ", first="   └ ")
    lines.append("")
    lines += labelled("ZOMBIES", [_zombies(found)], width)
    lines += labelled("FREED", found.freed or ["nothing was freed by this apply"], width)
    if found.exit == 1:
        lines += labelled("NEXT", ["look again; or put everything back"], width)
        lines += [typed("sudo sexton diagnose"), typed(f"sudo sexton fix rollback {found.run}")]
    lines += ["", f" exit {found.exit}: {text}"]
    return "\n".join(lines) + "\n"


def _zombies(found: Verified) -> str:
    before, now = found.dead_before, found.dead_now
    if now is None:
        return "how many dead memory cgroups there are cannot be counted from here"
    if before is None:
        return f"{now:,} dead memory cgroups now; how many there were before is not known"
    if now <= before:
        return f"{before:,} before the apply, {now:,} now: {before - now:,} gone, {now:,} not"
    return f"{before:,} before the apply, {now:,} now: {now - before:,} more"


def _cut(text: str, width: int) -> str:
    if width <= 0:
        return ""
    return text if len(text) <= width else text[: width - 1] + "…"

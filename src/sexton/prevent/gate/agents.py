"""The policy file of `sexton audit` as the gate sees it: units that are meant to be here."""

from __future__ import annotations

from sexton.errors import CommandError
from sexton.model.text import printable
from sexton.prevent.audit.policy import parse
from sexton.prevent.gate.model import Waiver

_RULE = "unneeded_units"


def agents_of(content: bytes, path: str) -> tuple[Waiver, ...]:
    """Each entry with an owner and an expiry excuses its unit; one without either excuses nothing.

    Entries that match nothing are not told: the file speaks of a whole fleet, not of one image.
    """
    try:
        entries = parse(content.decode("utf-8"), printable(path))
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: no UTF-8 text (byte {error.start})") from None
    except (RecursionError, ValueError) as error:
        raise CommandError(f"{path}: no TOML: {error}") from None
    return tuple(
        Waiver(_RULE, each.unit, each.owner, each.expires, each.why or "meant to be here", path)
        for each in entries
        if each.owner and each.expires is not None
    )

"""Every exception Sexton raises on purpose.

::

    SextonError
    ├── SourceError(path)       something on the host could not be read
    │   ├── SourceAbsent        it does not exist here: expected, never an alarm
    │   ├── SourceDenied        it exists, but not for us
    │   ├── SourceMalformed     it was read and made no sense (path, line)
    │   ├── SourceTimeout       it did not answer before its deadline
    │   └── SourceSkipped       reading it would have cost the node too much
    ├── StoreError              a recording cannot be read or written
    └── CommandError(exit_code) what the person asked for cannot be done

A `SourceError` is caught by the sampler's guard, one source at a time, and becomes a
`SourceState`; a `CommandError` is printed by ``main`` as one line. Anything else is a bug.
"""

from __future__ import annotations


class SextonError(Exception):
    """The root of the tree."""


class SourceError(SextonError):
    """A source could not give rows; `path` says which file or interface, `detail` why.

    `grant` is what would help against this very failure; `None`: what its source says helps.
    """

    def __init__(self, path: str, detail: str = "", grant: str | None = None) -> None:
        super().__init__(f"{path}: {detail}" if detail else path)
        self.path = path
        self.detail = detail
        self.grant = grant


class SourceAbsent(SourceError):
    """The file or interface does not exist on this host."""


class SourceDenied(SourceError):
    """It exists and this user may not read it."""


class SourceMalformed(SourceError):
    """It was read, and line `line` (from 1; 0 when the whole file is meant) made no sense."""

    def __init__(self, path: str, line: int, detail: str) -> None:
        super().__init__(path, f"line {line}: {detail}" if line else detail)
        self.line = line


class SourceTimeout(SourceError):
    """It did not answer before its deadline."""


class SourceSkipped(SourceError):
    """Reading it was estimated to cost the node more than we allow ourselves."""


class StoreError(SextonError):
    """A recording or an archive cannot be read or written."""


class CommandError(SextonError):
    """What was asked for cannot be done; printed as one line with `exit_code`."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code

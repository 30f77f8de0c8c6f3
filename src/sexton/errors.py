"""Every exception Sexton raises on purpose.

::

    SextonError
    ├── SourceError(path)       something on the host could not be read
    │   ├── SourceAbsent        it does not exist here: expected, never an alarm
    │   ├── SourceDenied        it exists, but we may not read it
    │   ├── SourceMalformed     its content could not be parsed (path, line)
    │   ├── SourceTimeout       it did not answer before its deadline
    │   └── SourceSkipped       reading it would cost the node too much
    ├── StoreError              a recording cannot be read or written
    ├── NotRead                 a table that this reader left out of an open segment
    └── CommandError(exit_code) the command cannot be carried out

A `SourceError` is caught by the sampler's guard, one source at a time, and becomes a
`SourceState`; a `CommandError` is printed by ``main`` as one line. Anything else is a bug.
"""

from __future__ import annotations


class SextonError(Exception):
    """The root of the tree."""


class SourceError(SextonError):
    """A source could not give rows; `path` is the file or interface, `detail` the reason.

    `grant` is what would help against this failure; `None`: use the source's own.
    """

    def __init__(self, path: str, detail: str = "", grant: str | None = None) -> None:
        super().__init__(f"{path}: {detail}" if detail else path)
        self.path = path
        self.detail = detail
        self.grant = grant


class SourceAbsent(SourceError):
    """The file or interface does not exist on this host."""


class SourceDenied(SourceError):
    """It exists, but this user may not read it."""


class SourceMalformed(SourceError):
    """Line `line` (from 1; 0 for the whole file) could not be parsed."""

    def __init__(self, path: str, line: int, detail: str) -> None:
        super().__init__(path, f"line {line}: {detail}" if line else detail)
        self.line = line


class SourceTimeout(SourceError):
    """It did not answer before its deadline."""


class SourceSkipped(SourceError):
    """Reading it was estimated to cost the node too much."""


class StoreError(SextonError):
    """A recording or an archive cannot be read or written."""


class NotRead(SextonError):
    """A table of an open segment that this reader left out; see `Segment.only`."""


class CommandError(SextonError):
    """The command cannot be carried out; printed as one line, exits with `exit_code`."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def first_line(error: BaseException) -> str:
    """An error in one line: Arrow's messages have several."""
    if isinstance(error, MemoryError):
        return "out of memory"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).split("\n")[0]

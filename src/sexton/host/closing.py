"""What is open and must be closed again."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self


class Closing:
    """Use as a context manager: `_held` is closed when it is left."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()

"""What lives beside the sampling loop, as the recorder knows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sexton.host.host import Host
from sexton.model.row import Row
from sexton.store.pins import Pin


class Place(NamedTuple):
    """What a companion needs to know of the recorder it is made for."""

    host: Host
    directory: Path
    node: str
    boot_id: str
    most_bytes: int


class Companion(Protocol):
    """Something that lives beside the loop. None of its methods may block or raise.

    One that `outlasts` the recording is closed after the last segment was sealed.
    """

    name: str
    outlasts: bool

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        """Once a second; what it has to tell. `alarm` where one is on."""

    def alarmed(self, pin: Pin) -> None:
        """An alarm was raised or goes on."""

    def cost(self) -> tuple[float, int]:
        """CPU seconds of its children so far, and their resident bytes."""

    def rest(self) -> None:
        """It costs too much: stop until further notice."""

    def wake(self) -> None:
        """Go on."""

    def close(self) -> None:
        """Give back everything."""

    def status(self) -> dict[str, Any]:
        """For status.json."""

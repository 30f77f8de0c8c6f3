"""What takes a while to answer about a recording: flame graphs, and what was wrong.

Answers are kept. Where a server asks `fork`, each is worked on by a process of its own.
"""

from __future__ import annotations

import threading
from typing import Any, cast

from sexton.explorer.tiles.answered import Answered
from sexton.explorer.tiles.answers import AROUND_S, diagnosis_of, finding_marks, why_of, why_then
from sexton.explorer.tiles.follow import Followed
from sexton.explorer.tiles.processes import Elsewhere, Gone, Stop
from sexton.explorer.tiles.stacks_view import LATE_S, Samples, Seen, Who
from sexton.model.diagnosis import Diagnosis
from sexton.model.lane import Marked
from sexton.model.profile import Flame, FlameDifference
from sexton.model.why import Why
from sexton.store.recording import Recording

Window = tuple[float, float]
EVERYONE = Who()
#: Answers that are kept; a flame graph of a large node is some megabytes.
_STORIES, _FLAMES = 8, 4


class Questions:
    """May be asked by any number of threads. `stop` tells that nobody waits any more."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._samples = Samples()
        working = threading.Lock()
        self._stories = Answered(_STORIES, working)
        self._flames = Answered(_FLAMES, working, LATE_S)
        self._elsewhere: Elsewhere | None = None

    @property
    def recording(self) -> Recording:
        """As it was when last looked at."""
        return self._followed.recording

    @property
    def live(self) -> bool:
        """Was somebody recording when it was last looked at?"""
        return self._followed.live

    def flame(self, start: float, end: float, who: Who = EVERYONE) -> Flame:
        """What ran from `start` to before `end`; `StoreError` where no stacks were recorded."""
        return self.seen(start, end, who).flame

    def seen(self, start: float, end: float, who: Who = EVERYONE, stop: Stop | None = None) -> Seen:
        """The same, with what there is to know of it."""
        key, span = ("flame", who, start, end), (start, end)
        found: Seen = self._flames.answer(
            self.recording, key, lambda: self._asked("flame", (span, who), stop), stop
        )
        return found

    def glimpse(self, start: float, end: float, who: Who = EVERYONE) -> Seen:
        """The same in a blink: of less, unless all of it is known."""
        known = self._flames.known(self.recording, ("flame", who, start, end))
        if known is not None:
            return cast("Seen", known)
        return self._samples.flame(self.recording, (start, end), who, quick=True)

    def difference(
        self, span: Window, baseline: Window, who: Who = EVERYONE, stop: Stop | None = None
    ) -> FlameDifference:
        """What ran in a span against a baseline, with which changes are more than chance."""
        key = ("difference", who, *span, *baseline, max(span[1], baseline[1]))
        found: FlameDifference = self._flames.answer(
            self.recording,
            key,
            lambda: self._asked("difference", (span, baseline, who), stop),
            stop,
        )
        return found

    def diagnosis(self, start: float, end: float, stop: Stop | None = None) -> Diagnosis:
        """As `sexton diagnose --from` judges that span; `StoreError` where nothing is there."""
        key = ("diagnosis", start, end)
        found: Diagnosis = self._stories.answer(
            self.recording, key, lambda: self._asked("diagnosis", (start, end), stop), stop
        )
        return found

    def why(self, what: str | float, span: Window | None = None, stop: Stop | None = None) -> Why:
        """As `sexton why` answers: of a name, in a span or in all of it; or of a moment."""
        end = span[1] if span else what + AROUND_S if isinstance(what, float) else None
        found: Why = self._stories.answer(
            self.recording,
            ("why", what, span, end),
            lambda: self._asked("why", (what, span), stop),
            stop,
        )
        return found

    def finding_marks(self, diagnosis: Diagnosis) -> list[Marked]:
        """Present findings that have a moment, as marks."""
        return finding_marks(diagnosis)

    def fork(self) -> None:
        """Have long questions answered by processes of their own; before there are threads."""
        self._elsewhere = Elsewhere(self)

    def close(self) -> None:
        """Let those processes go."""
        if self._elsewhere is not None:
            self._elsewhere.close()

    @property
    def problems_so_far(self) -> list[str]:
        """Of the recording, to which more may be added."""
        return self.recording.problems

    def prepare(self) -> None:
        """Know what was recorded meanwhile."""
        self._followed.refresh()
        self._samples.follow(self.recording)

    def _asked(self, name: str, arguments: tuple[Any, ...], stop: Stop | None) -> Any:
        elsewhere = self._elsewhere
        if elsewhere is not None:
            try:
                return elsewhere.ask(name, arguments, stop)
            except Gone:  # somebody has ended it: then it is up to us
                self._elsewhere = None
                elsewhere.close()
        return self.answer(name, arguments)

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Work on it here."""
        if name == "flame":
            return self._samples.flame(self.recording, *arguments)
        if name == "difference":
            return self._samples.difference(self.recording, *arguments)
        if name == "diagnosis":
            return diagnosis_of(self.recording, *arguments)
        what, span = arguments
        if isinstance(what, str):
            return why_of(self.recording, what, span)
        return why_then(self.recording, what)

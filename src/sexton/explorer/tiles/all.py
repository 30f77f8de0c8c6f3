"""All lanes at once, by as many processes as there are cores for.

Each is built in a process of its own and comes back as a whole, which is small beside what was read
for it. So whoever serves them goes on answering, and has the memory of no more than the lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sexton.explorer.tiles.built import Built, Grown
from sexton.explorer.tiles.registry import Declared, all_lanes
from sexton.replay.reader_pool import Crew
from sexton.store.recording import Recording

#: To open a file takes as long as to read so many rows of it.
_FILE_ROWS = 4000
#: An annex of stacks is some files.
_ANNEX_FILES = 8


def build_all(crew: Crew, wanted: Sequence[Declared], built: Mapping[str, Built]) -> Iterator[str]:
    """The ids of lanes as they are there; until then whoever asks for one waits."""
    locked = {each.id: built[each.id] for each in wanted}
    for each in locked.values():
        each.lock.acquire()
    try:
        todo = [lane for lane, each in locked.items() if not each.begun]
        weights = [_weight(crew.recording, each) for each in wanted if each.id in todo]
        for place, grown in crew.as_done(
            partial(_grown, crew.recording, crew.hire()), todo, weights
        ):
            lane = todo[place]
            locked[lane].take(crew.recording, grown)
            locked.pop(lane).lock.release()
            yield lane
    finally:
        for each in locked.values():
            each.lock.release()


def _grown(recording: Recording, alone: bool, lane: str) -> Grown:
    build = next(each.build for each in all_lanes() if each.id == lane)
    assert build is not None
    built = Built(build, alone)
    built.follow(recording)
    return built.grown


def _weight(recording: Recording, lane: Declared) -> int:
    if lane.kind == "stacks":
        return len(recording.segments) * _ANNEX_FILES * _FILE_ROWS
    rows = [segment.rows(kind) for segment in recording.segments for kind in lane.needs]
    return sum(each + _FILE_ROWS for each in rows if each)

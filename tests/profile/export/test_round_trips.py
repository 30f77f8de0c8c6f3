"""A profile that is exported and read again is unchanged."""

from __future__ import annotations

from collections import Counter
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given

from sexton.model.profile import Kind, Profile
from sexton.model.text import printable
from sexton.profile.export import About, folded, pprof, script
from sexton.profile.export.script import safe_comm
from sexton.profile.files import READERS, sniff
from sexton.profile.perf.named_samples import profile_of as named_profile
from tests.profile.export.made import counted, lists, plain, whole
from tests.support.profiles import profile_of


def again(data: bytes, expected: str) -> Profile:
    assert sniff(data) == expected
    return named_profile(READERS[expected](BytesIO(data), "again"))


def name(text: str) -> str:
    return printable(text) or "[unknown]"


def folded_counts(profile: Profile) -> Counter[tuple[str, ...]]:
    """Names as folded stacks have them: ";" parts frames, and a first "#" makes a comment."""
    found: Counter[tuple[str, ...]] = Counter()
    for (task, *rest), count in counted(profile, escape=name).items():
        frames = [item.replace(";", ":") for item in (task, *rest)]
        frames[0] = f"_{frames[0][1:]}" if task.startswith("#") else frames[0]
        found[tuple(frames)] += count
    return found


@given(lists)
def test_folded(samples):
    profile = profile_of(samples, weighted=True)
    data = b"".join(folded.from_flame(whole(profile)))
    read = READERS["folded"](BytesIO(data), "again")
    assert counted(named_profile(read)) == folded_counts(profile)
    assert not read.facts.problems


@given(lists)
def test_pprof_of_a_flame_graph(samples):
    profile = profile_of(samples, weighted=True)
    found = again(pprof.from_flame(whole(profile), About(hertz=97)), "pprof")
    assert counted(found) == counted(profile, escape=name)
    assert found.events[0].hertz == 97


@given(lists)
def test_pprof_of_samples_keeps_cores(samples):
    profile = profile_of(samples, weighted=True)
    found = again(pprof.from_profiles([(profile, None)], About()), "pprof")
    assert counted(found) == counted(profile, escape=name)
    cores: Counter[int] = Counter()
    for sample in samples:
        cores[sample.cpu] += sample.weight
    theirs: Counter[int] = Counter()
    for cpu, weight in zip(found.cpu.tolist(), found.weight.tolist(), strict=True):
        theirs[cpu] += weight
    assert theirs == cores


@given(lists)
def test_perf_script_text(samples):
    profile = profile_of(samples)
    data = b"".join(script.from_profiles([(profile, None)]))
    found = named_profile(READERS["script"](BytesIO(data), "again"))
    assert found.time_ns.tolist() == profile.time_ns.tolist()
    assert found.cpu.tolist() == profile.cpu.tolist()
    ours = [profile.threads[thread] for thread in profile.thread.tolist()]
    theirs = [found.threads[thread] for thread in found.thread.tolist()]
    assert [thread._replace(comm=safe_comm(thread.comm)) for thread in ours] == theirs
    assert [len(found.tree.path(node)) for node in found.node.tolist()] == [
        len(profile.tree.path(node)) for node in profile.node.tolist()
    ]
    assert not found.facts.problems


def test_plain_names_come_back_as_they_were_in_every_format():
    profile = plain()
    text = b"".join(script.from_profiles([(profile, None)]))
    for data, kind in (
        (b"".join(folded.from_flame(whole(profile))), "folded"),
        (pprof.from_flame(whole(profile), About()), "pprof"),
        (text, "script"),
    ):
        assert counted(again(data, kind)) == counted(profile)


def test_modules_and_kinds_survive_where_the_format_has_them():
    profile = plain()
    for data in (
        pprof.from_flame(whole(profile), About()),
        b"".join(script.from_profiles([(profile, None)])),
    ):
        kind = sniff(data)
        frames = again(data, kind).tree.frames
        told = dict(
            zip(frames.names, zip(frames.modules, frames.kinds.tolist(), strict=True), strict=True)
        )
        assert told["vfs_read"] == ("[kernel.kallsyms]", Kind.KERNEL)
        assert told["main"] == ("/bin/app", Kind.USER)
    annotated = b"".join(folded.from_flame(whole(profile), annotate=True))
    frames = again(annotated, "folded").tree.frames
    assert dict(zip(frames.names, frames.kinds.tolist(), strict=True))["vfs_read"] == Kind.KERNEL


def test_only_the_chosen_rows_are_given():
    profile = plain()
    rows = np.array([True, False, False, True, False])
    expected = Counter({("app", "main", "vfs_read"): 1, ("Web Content", "main"): 1})
    text = b"".join(script.from_profiles([(profile, rows)]))
    assert counted(again(text, "script")) == expected
    assert counted(again(pprof.from_profiles([(profile, rows)], About()), "pprof")) == expected


def test_several_parts_are_one_export():
    twice = [(plain(), None), (profile_of([*map_later(10)]), None)]
    text = b"".join(script.from_profiles(twice))
    expected = counted(plain()) + counted(plain())
    assert counted(again(text, "script")) == expected
    found = again(pprof.from_profiles(twice, About()), "pprof")
    assert counted(found) == expected
    assert len(found) == len(plain())  # equal stacks on equal cores were added up


def map_later(seconds):
    from tests.profile.export.made import PLAIN

    return (sample._replace(time_ns=sample.time_ns + seconds * 10**9) for sample in PLAIN)


def test_what_has_no_times_cannot_be_perf_script_text():
    from sexton.errors import CommandError

    with pytest.raises(CommandError, match="made: no timestamps; perf script text needs them"):
        list(script.from_profiles([(profile_of([], timed=False), None)]))

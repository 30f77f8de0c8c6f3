"""Every export of a profile, thrown away: whatever was read must be fit to be given on."""

from __future__ import annotations

from sexton.profile.export import About, flame_json, folded, pprof, script, speedscope
from sexton.profile.flame import flame_of
from sexton.profile.perf.named_samples import NamedSamples, profile_of
from sexton.profile.select import Selection


def export_all(named: NamedSamples) -> None:
    profile = profile_of(named)
    flame = flame_of(profile, Selection(idle=True))
    about = About(hertz=97)
    for pieces in (
        folded.from_flame(flame),
        flame_json.from_flame(flame),
        speedscope.from_flame(flame, about),
        speedscope.from_profiles([(profile, None)], about, by="task"),
    ):
        assert all(isinstance(piece, bytes) for piece in pieces)
    pprof.from_flame(flame, about)
    pprof.from_profiles([(profile, None)], about)
    if profile.timed:
        assert b"".join(script.from_profiles([(profile, None)])).count(b"\n\n") == len(profile)

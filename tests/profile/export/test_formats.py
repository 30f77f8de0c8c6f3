"""The bytes of each export, compared with the documentation of its format."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given

from sexton.model.profile import Flame, Frames, Kind, Tree
from sexton.model.text import printable
from sexton.profile.export import About, flame_json, folded, pprof, script, speedscope
from sexton.profile.perf.protobuf import fields
from tests.profile.export.made import HOSTILE, counted, lists, plain, whole
from tests.support.profiles import Sample, profile_of


def joined(pieces):
    return b"".join(pieces)


def test_folded_lines_are_sorted_and_have_the_task_first():
    assert joined(folded.from_flame(whole(plain()))).decode().splitlines() == [
        "Web Content;main 1",
        "app;main;vfs_read 2",
        "ksoftirqd/12 1",
        "swapper;do_idle 1",
    ]


def test_folded_can_mark_kernel_frames():
    lines = joined(folded.from_flame(whole(plain()), annotate=True)).decode().splitlines()
    assert "app;main;vfs_read_[k] 2" in lines


def test_a_hostile_name_makes_neither_a_line_nor_a_frame():
    for hostile in HOSTILE:
        flame = whole(profile_of([Sample(1, 0, (hostile, "main"), hostile)]))
        (line,) = joined(folded.from_flame(flame)).decode().split("\n")[:-1]
        stack, count = line.rsplit(" ", 1)
        assert count == "1"
        assert len(stack.split(";")) == 3
        assert line == printable(line)


def test_the_same_name_in_two_modules_is_one_line():
    flame = whole(profile_of([Sample(1, 0, ("k:read",)), Sample(2, 0, ("read",))]))
    assert joined(folded.from_flame(flame)) == b"app;read 2\n"


def test_what_has_no_name_is_called_by_its_module_in_folded_stacks():
    profile = profile_of([Sample(1, 0, ("?:[unknown]", "[unknown]", "k:[unknown]"))])
    assert joined(folded.from_flame(whole(profile))) == b"app;[unknown];[app];[kernel.kallsyms] 1\n"


def test_pprof_counts_samples_first_and_then_time():
    data = gzip.decompress(pprof.from_flame(whole(plain()), About(hertz=97, wall_ns=5)))
    told = list(fields(data, ""))
    strings = [value.decode() for field, value in told if field == 6]
    types = [dict(fields(value, "")) for field, value in told if field == 1]
    assert [(strings[t[1]], strings[t[2]]) for t in types] == [
        ("samples", "count"),
        ("cpu", "nanoseconds"),
    ]
    assert strings[0] == ""
    assert dict(told)[12] == round(1e9 / 97)
    assert dict(told)[9] == 5
    for table in (3, 4, 5):
        ids = [dict(fields(value, ""))[1] for field, value in told if field == table]
        assert ids == list(range(1, len(ids) + 1))


def test_pprof_without_a_rate_makes_no_time_up():
    data = gzip.decompress(pprof.from_flame(whole(plain()), About()))
    told = list(fields(data, ""))
    assert [field for field, _ in told].count(1) == 1
    assert not {9, 10, 11, 12} & {field for field, _ in told}


def test_pprof_has_a_mapping_per_module_with_its_build_id():
    about = About(build_ids={"/bin/app": "deadbeef"})
    told = list(fields(gzip.decompress(pprof.from_flame(whole(plain()), about)), ""))
    strings = [value.decode() for field, value in told if field == 6]
    mappings = [dict(fields(value, "")) for field, value in told if field == 3]
    assert {strings[m[5]]: strings[m.get(6, 0)] for m in mappings} == {
        "/bin/app": "deadbeef",
        "[kernel.kallsyms]": "",
    }


@given(lists)
def test_equal_samples_give_equal_pprof_bytes(samples):
    first, second = (pprof.from_profiles([(profile_of(samples), None)], About()) for _ in "ab")
    assert first == second
    assert first[4:8] == b"\x00" * 4  # gzip's own time


def stacks(document, profile):
    """Seconds (or samples) per stack of one speedscope profile."""
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    found: Counter[tuple[str, ...]] = Counter()
    for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
        found[tuple(frames[frame] for frame in sample)] += weight
    return found


def test_speedscope_of_a_flame_graph_is_one_profile():
    document = json.loads(joined(speedscope.from_flame(whole(plain()), About(name="it"))))
    (profile,) = document["profiles"]
    assert (profile["type"], profile["name"], profile["unit"]) == ("sampled", "it", "none")
    assert profile["endValue"] == 5
    assert stacks(document, profile) == counted(plain())


def test_speedscope_by_core_has_one_time_axis_with_its_gaps():
    pieces = speedscope.from_profiles([(plain(), None)], About(hertz=100))
    document = json.loads(joined(pieces))
    by_name = {profile["name"]: profile for profile in document["profiles"]}
    assert list(by_name) == ["core 0", "core 1", "core 3"]
    assert all(profile["unit"] == "seconds" for profile in document["profiles"])
    core = by_name["core 0"]
    assert core["weights"] == pytest.approx([0.01, 0.01, 0.01, 0.97, 0.01])
    assert [not sample for sample in core["samples"]] == [False, True, False, True, False]
    assert core["endValue"] == pytest.approx(1.01)
    assert by_name["core 3"]["weights"] == pytest.approx([1.000000123, 0.01])


def test_speedscope_by_task_adds_up():
    pieces = speedscope.from_profiles([(plain(), None)], About(), by="task")
    document = json.loads(joined(pieces))
    names = [profile["name"] for profile in document["profiles"]]
    assert sorted(names) == ["Web Content", "app", "ksoftirqd/12", "swapper"]
    total = sum((stacks(document, profile) for profile in document["profiles"]), Counter())
    assert total == counted(plain())


@given(lists)
def test_speedscope_is_json_whatever_the_names(samples):
    profile = profile_of(samples, weighted=True)
    document = json.loads(joined(speedscope.from_flame(whole(profile), About())))
    expected = counted(profile, escape=lambda text: printable(text) or "[unknown]")
    assert sum((stacks(document, item) for item in document["profiles"]), Counter()) == expected
    for by in ("core", "task"):
        parts = [(profile_of(samples), np.ones(len(samples), bool))]
        document = json.loads(joined(speedscope.from_profiles(parts, About(hertz=97), by=by)))
        busy = sum(bool(s) for item in document["profiles"] for s in item["samples"])
        assert busy >= len({sample.stack for sample in samples})


def test_perf_script_text_is_as_perf_prints_it():
    text = joined(script.from_profiles([(plain(), None)])).decode()
    assert text.startswith(
        "app     7/7     [000]     1.000000000: cpu-clock: \n"
        "\t               0 vfs_read ([kernel.kallsyms])\n"
        "\t               0 main (/bin/app)\n"
        "\n"
        "app     7/7     [001]     1.010000000: cpu-clock: \n"
    )
    assert text.endswith("ksoftirqd/12    81/81    [003]     2.000000123: cpu-clock: \n\n")


def test_no_name_makes_a_line_of_perf_script_text():
    samples = [Sample(at + 1, 0, (name,), name) for at, name in enumerate(HOSTILE)]
    text = joined(script.from_profiles([(profile_of(samples), None)])).decode()
    assert len(text.split("\n")) == 3 * len(HOSTILE) + 1
    assert text.replace("\n", "").replace("\t", "") == printable(
        text.replace("\n", "").replace("\t", "")
    )
    assert not any(line.startswith("#") for line in text.split("\n"))


def nested(node, path=()):
    path = (*path, node["name"])
    below = node.get("children", [])
    assert node["value"] == node.get("own", 0) + sum(child["value"] for child in below)
    if "own" in node:
        yield path[1:], node["own"]
    for child in below:
        yield from nested(child, path)


@given(lists)
def test_flame_json_is_the_tree(samples):
    profile = profile_of(samples, weighted=True)
    document = json.loads(joined(flame_json.from_flame(whole(profile))))
    assert document["schema"] == "sexton.flame/1"
    assert document["root"]["name"] == "all"
    found: Counter[tuple[str, ...]] = Counter()
    for path, own in nested(document["root"]):
        found[path] += own
    assert found == counted(profile, escape=lambda text: printable(text) or "[unknown]")


def test_flame_json_has_modules_and_kinds_and_omits_nodes_without_samples():
    profile = plain()
    flame = whole(profile)
    own = flame.own.copy()
    own[profile.node[2]] = 0  # swapper
    document = json.loads(joined(flame_json.from_flame(Flame(flame.tree, own, "cpu-clock", 2.5))))
    assert document["core_seconds"] == 2.5
    assert [child["name"] for child in document["root"]["children"]] == [
        "Web Content",
        "app",
        "ksoftirqd/12",
    ]
    app = document["root"]["children"][1]
    assert app["kind"] == "task"
    (main,) = app["children"]
    assert main == {
        "name": "main",
        "module": "/bin/app",
        "kind": "user",
        "value": 2,
        "children": [
            {
                "name": "vfs_read",
                "module": "[kernel.kallsyms]",
                "kind": "kernel",
                "value": 2,
                "own": 2,
            }
        ],
    }


def test_a_stack_of_any_depth_is_written():
    deep = 50_000
    frames = Frames(("all", "f"), ("", ""), np.array([Kind.ROOT, Kind.UNTOLD], np.uint8))
    tree = Tree(
        np.array([0] + [1] * deep, np.int32),
        np.arange(deep + 1, dtype=np.int32),
        np.full(deep + 1, deep + 1, np.int32),
        frames,
    )
    own = np.zeros(deep + 1, np.int64)
    own[-1] = 3
    flame = Flame(tree, own, "cpu-clock")
    data = joined(flame_json.from_flame(flame))
    assert data.count(b'"children": [') == deep
    assert data.count(b"}") == data.count(b"{") == deep + 2
    assert joined(folded.from_flame(flame)).count(b";f") == deep - 1
    assert len(gzip.decompress(pprof.from_flame(flame, About()))) > deep


def test_an_empty_flame_graph_is_still_a_document():
    nothing = whole(profile_of([]))
    assert json.loads(joined(flame_json.from_flame(nothing)))["root"] == {"name": "all", "value": 0}
    assert joined(folded.from_flame(nothing)) == b""
    assert json.loads(joined(speedscope.from_flame(nothing, About())))["profiles"] == []
    assert joined(script.from_profiles([(profile_of([]), None)])) == b""
    gzip.decompress(pprof.from_profiles([(profile_of([]), None)], About()))

"""perf script's text: real text of one capture in the variants people have, and junk.

The capture (kernel 6.18, perf 6.1) is of threads that chose their names to be misread: with spaces,
numbers, brackets, tabs, newlines, bytes that are no text, and none at all.
"""

from __future__ import annotations

import gzip
from collections import Counter
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SextonError, SourceMalformed
from sexton.model.profile import Clock, Event, Kind, Thread
from sexton.profile.perf import script_text
from sexton.profile.perf.named_samples import MOST_FRAMES
from tests.fuzz.script_text_target import one
from tests.support.fixtures import FIXTURES

FOLDER = FIXTURES / "perf" / "script"
VARIANTS = ("default", "header", "ns", "fields", "nocpu", "oneline", "srcline", "records")
WITH_CHAINS = tuple(variant for variant in VARIANTS if variant != "oneline")
NAMES = Counter(
    {
        "#hash": 7,
        "x 1 [0] 2.5: a": 7,
        "\ttab": 5,
        "": 5,
        "\udcff\udcfe": 2,
        "a\nb 7": 2,
        "p\n\nq": 2,
        "Web Content": 1,
        "worker/12": 1,
    }
)


def text(variant):
    return (FOLDER / f"6.18-{variant}.txt").read_bytes()


def read(data):
    return script_text.read(BytesIO(data), "capture.txt")


def comms(named):
    return Counter(named.threads[thread].comm for thread in named.thread.tolist())


def stacks(named):
    """How often each stack was seen: the task, then names from the innermost."""
    found = Counter()
    for stack in named.stack.tolist():
        frames = named.stacks.frame[named.stacks.start[stack] : named.stacks.start[stack + 1]]
        names = tuple(named.frames.names[frame] for frame in frames.tolist())
        found[(named.tasks[named.stacks.task[stack]], *names)] += 1
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_are_found_whatever_they_are_called(variant):
    named = read(text(variant))
    assert comms(named) == NAMES
    assert {thread.tid for thread in named.threads} == set(range(16890, 16899))


@pytest.mark.parametrize("variant", WITH_CHAINS)
def test_every_variant_has_the_same_stacks(variant):
    assert stacks(read(text(variant))) == stacks(read(text("default")))


def test_without_call_chains_a_stack_is_its_innermost_function():
    whole = Counter()
    for stack, count in stacks(read(text("default"))).items():
        whole[stack[:2]] += count
    assert stacks(read(text("oneline"))) == whole


@pytest.mark.parametrize("variant", VARIANTS)
def test_times_and_cores_are_as_the_text_has_them(variant):
    named = read(text(variant))
    first = 24104023580790 if variant == "ns" else 24104023580000
    assert named.time_ns[0] == first
    assert len(named) == 32
    assert named.weight is None
    assert named.timed
    assert set(named.cpu.tolist()) == ({-1} if variant == "nocpu" else {0, 1})
    assert set(named.cgroup.tolist()) == {-1}


def test_the_process_is_known_only_if_there_are_two_numbers():
    assert Thread(16890, 16890, "Web Content") in read(text("fields")).threads
    assert Thread(-1, 16890, "Web Content") in read(text("default")).threads
    assert read(b"swapper     0 [000] 1.000000: c: \n").threads == (Thread(0, 0, "swapper"),)


def test_host_rate_and_clock_are_read_from_the_comments():
    named = read(text("header"))
    facts = named.facts
    assert (facts.host, facts.release, facts.cores) == ("vm", "6.18.44-fc-v445", 2)
    assert facts.command.startswith("/usr/bin/perf record -q -F 99")
    assert named.events == (Event("cpu-clock", hertz=99),)
    assert facts.clock.kind == "monotonic"
    assert abs(facts.clock.wall_s(int(named.time_ns[0])) - 1794750452.0) < 1
    assert facts.problems == []


def test_without_comments_nothing_is_made_up():
    facts = read(text("default")).facts
    assert (facts.host, facts.release, facts.cores, facts.lost) == (None, None, None, None)
    assert facts.clock == Clock("none", None)


def test_the_rate_is_taken_from_the_period_of_a_clock_and_of_nothing_else():
    assert read(text("default")).events == (Event("cpu-clock", hertz=99),)
    assert read(b"a 1 [000] 1.000000: 5000 cycles:u: \n").events == (
        Event("cycles:u", period=5000),
    )
    varied = b"a 1 [000] 1.000000: 5000 cycles: \n\na 1 [000] 2.000000: 6000 cycles: \n\n"
    assert read(varied).events == (Event("cycles"),)


def test_frames_have_their_module_and_kind():
    named = read(text("default"))
    told = dict(
        zip(
            named.frames.names,
            zip(named.frames.modules, named.frames.kinds.tolist(), strict=True),
            strict=True,
        )
    )
    assert told["do_syscall_64"] == ("[kernel.kallsyms]", Kind.KERNEL)
    assert told["spin"] == ("/tmp/spin", Kind.USER)


def test_without_modules_the_address_gives_the_kind():
    named = read(text("fields"))
    told = dict(
        zip(
            named.frames.names,
            zip(named.frames.modules, named.frames.kinds.tolist(), strict=True),
            strict=True,
        )
    )
    assert told["do_syscall_64"] == ("", Kind.KERNEL)
    assert told["spin"] == ("", Kind.USER)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("step", [1, 7, 64, 4096])
def test_it_does_not_matter_where_the_pieces_end(variant, step):
    data = text(variant)
    reader = script_text._Reader("capture.txt")
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
    named = reader.finish()
    assert stacks(named) == stacks(read(data))
    assert named.time_ns.tolist() == read(data).time_ns.tolist()


def test_gzipped_text_is_the_same():
    assert stacks(read(gzip.compress(text("default")))) == stacks(read(text("default")))


@pytest.mark.parametrize(
    ("line", "name", "module"),
    [
        (b"\tffff std::f(int, char (*)(int))", "std::f(int, char (*)(int))", ""),
        (b"\tffff std::f(int) const+0x1c (/a b/c.so)", "std::f(int) const", "/a b/c.so"),
        (b"\tffff f+0x1 (/tmp/x (deleted))", "f", "/tmp/x (deleted)"),
        (b"\tffff [unknown] ([unknown])", "[unknown]", "[unknown]"),
        (b"\tffff operator+ (/x)", "operator+", "/x"),
        (b"\tffff Lorg/a;::b(I)V (/tmp/perf-7.map)", "Lorg/a;::b(I)V", "/tmp/perf-7.map"),
        (b"\tffff g (inlined)", "g", "inlined"),
        (b"      2013aa xen_op+0xfe20000a (/lib/build/vmlinux)", "xen_op", "/lib/build/vmlinux"),
        (b"\tffff  (/x)", "[unknown]", "/x"),
    ],
)
def test_a_frame_is_read_as_perf_means_it(line, name, module):
    named = read(b"a 1 [000] 1.000000: c: \n" + line + b"\n\n")
    assert (named.frames.names, named.frames.modules) == ((name,), (module,))


@pytest.mark.parametrize(
    ("header", "thread", "cpu", "event"),
    [
        (b"java 14375 [022] 28648.467079: cpu-clock:", Thread(-1, 14375, "java"), 22, "cpu-clock"),
        (b"bash 25370/25371 6035935.188539: cpu-clock:", Thread(25370, 25371, "bash"), -1, ""),
        (
            b":4711  4711 [001] 5.123456789: cycles:pppH:",
            Thread(-1, 4711, ":4711"),
            1,
            "cycles:pppH",
        ),
        (b"a 1 [000] 1.000000: sched:sched_switch: prev_comm=a ==> next_comm=b: 2", None, 0, ""),
        (
            b"kworker/1:0H-kblockd 9 [001] 1.000000: c:",
            Thread(-1, 9, "kworker/1:0H-kblockd"),
            1,
            "",
        ),
        (b"GC Thread#0 9 [001] 1.000000: cpu/event=0x3c/u:", None, 1, "cpu/event=0x3c/u"),
    ],
)
def test_a_first_line_is_read_as_perf_means_it(header, thread, cpu, event):
    named = read(header + b"\n\tffffffff81000130 f ([kernel.kallsyms])\n\n")
    assert thread is None or named.threads == (thread,)
    assert named.cpu.tolist() == [cpu]
    assert not event or named.events[0].name == event
    assert named.frames.names == ("f",)


def test_a_cgroup_behind_the_event_is_the_samples():
    named = read(b"a 1 [000] 1.000000: c:  /system.slice/a.service \n\tffff f (/x)\n\n")
    assert named.cgroups == ("/system.slice/a.service",)
    assert named.cgroup.tolist() == [0]
    assert named.frames.names == ("f",)


def test_lost_records_are_counted_and_are_no_samples():
    named = read(
        b"a 1 [000] 1.000000: PERF_RECORD_LOST lost 43\n"
        b"a 1 [000] 1.500000: c: \n\tffff f (/x)\n\n"
        b"a 1 [000] 2.000000: PERF_RECORD_LOST_SAMPLES 7\n"
    )
    assert named.facts.lost == 50
    assert len(named) == 1


def test_samples_in_any_order_and_with_lines_in_between_are_all_counted():
    one_line = b"   b  2 [001] 3.000000: c:  ffffffff81000130 g+0x1 ([kernel.kallsyms])\n"
    data = (
        b"a 1 [000] 5.000000: c: \n\tffff f (/x)\n\n" + one_line * 3 + b"what is this line then\n"
    )
    named = read(data + b"a 1 [000] 4.000000: c: \n\tffff f (/x)\n\n")
    assert stacks(named) == Counter({("b", "g"): 3, ("a", "f"): 2})
    assert named.facts.problems == ["1 line outside any sample: skipped"]


def test_a_sample_without_any_function_is_still_one():
    named = read(b"a 1 [000] 1.000000: c: \n\nb 2 [000] 2.000000: c: \n\n")
    assert stacks(named) == Counter({("a",): 1, ("b",): 1})


def test_text_without_samples_is_refused_in_one_line():
    for data in (b"", b"\n\n\n", b"# hostname : x\n", b"hello\nworld\n", b"\x00" * 100):
        with pytest.raises(SourceMalformed, match=r"^capture.txt: no perf script samples found$"):
            read(data)


def test_a_line_without_end_is_refused_and_not_kept():
    with pytest.raises(SourceMalformed, match=r"line longer than 1\.0 MiB"):
        read(b"a 1 [000] 1.000000: c: \n\tffff f" + b"x" * (6 << 20))


@pytest.mark.parametrize("line", [b" " * (1 << 19), b"1 " * (1 << 18), b"\t" * (1 << 19)])
def test_no_line_takes_longer_than_its_length(line):
    """It would be hours with a pattern that tries every way to part a million spaces."""
    first = b"a 1 [000] 1.000000: c: \n"
    data = first + b"\tffff f (/x)\n" + line + b"\n\n" + first + b"\n" + line + b" 1 1.000000\n"
    named = read(data)
    assert len(named) == 2
    assert named.tasks == ("a",)


def test_a_gzip_bomb_is_refused():
    from sexton.profile.perf.stream import Bounds

    packed = gzip.compress(b"a 1 [000] 1.000000: c: \n\n" * 400_000)
    with pytest.raises(SourceMalformed, match="unpacks to more than 20 times its size: refused"):
        script_text.read(BytesIO(packed), "bomb.gz", Bounds(ratio=20, judged_from=1 << 20))
    with pytest.raises(SourceMalformed, match=r"unpacks to more than 1\.0 MiB: refused"):
        script_text.read(BytesIO(packed), "bomb.gz", Bounds(unpacked=1 << 20))


def test_a_stack_too_deep_loses_its_outermost_frames_and_is_reported():
    chain = b"".join(b"\tffff f%d (/x)\n" % at for at in range(MOST_FRAMES + 5))
    named = read(b"a 1 [000] 1.000000: c: \n" + chain + b"\n")
    assert len(named.stacks.frame) == MOST_FRAMES
    assert named.frames.names[named.stacks.frame[0]] == "f0"
    assert "1 stack deeper than 2,048 frames" in named.facts.problems[0]


def test_a_time_beyond_all_clocks_is_refused():
    with pytest.raises(SourceMalformed, match="sample timestamp out of range"):
        read(b"a 1 [000] 9999999999.000000: c: \n\n")


def test_what_is_remembered_is_bounded_and_forgetting_changes_nothing(monkeypatch):
    monkeypatch.setattr(script_text, "_MOST_CACHED", 3000)
    monkeypatch.setattr(script_text, "_MOST_LINES", 5)
    assert stacks(read(text("default"))) == stacks(read(text("header")))
    assert comms(read(text("oneline"))) == NAMES


@given(st.binary(max_size=400))
def test_junk_is_refused_or_read_never_more(data):
    one(data)


@given(st.data())
def test_junk_made_of_real_text_is_refused_or_read_never_more(data):
    whole = text(data.draw(st.sampled_from(VARIANTS)))
    start = data.draw(st.integers(0, len(whole) - 1))
    piece = bytearray(whole[start : start + 2000])
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.integers(0, max(len(piece) - 1, 0)))
        piece[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    one(bytes(piece))


def test_the_fuzz_target_lets_only_our_own_errors_pass():
    one(text("default"))
    with pytest.raises(SextonError):
        read(b"nothing")

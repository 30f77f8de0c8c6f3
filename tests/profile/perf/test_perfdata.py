"""Reading perf.data, record by record. tests/oracle compares with perf itself."""

from __future__ import annotations

import struct

import pytest

from sexton.model.profile import Clock, Event
from sexton.profile.perf.perfdata import read_raw
from tests.profile.perf.perfdata_cases import build_id, comms, frames, placed, row_of, user
from tests.support.perf_bytes import (
    EXEC,
    FLAGS,
    IDENTIFIER,
    KERNEL,
    KERNEL_MARK,
    SAMPLE_TYPE,
    attr,
    comm,
    exited,
    fork,
    mmap,
    mmap2,
    perf_data,
    raw_record,
    record,
    sample,
    string,
)


@pytest.fixture
def read(tmp_path):
    def reading(content: bytes | list[bytes], **more):
        path = tmp_path / "perf.data"
        path.write_bytes(content if isinstance(content, bytes) else perf_data(content, **more))
        return read_raw(path)

    return reading


def test_samples_come_in_the_order_of_time_whatever_the_cores_wrote_first(read):
    raw = read(
        [sample(30, 5, user(1), cpu=0), sample(10, 5, user(2), cpu=1), sample(20, 5, user(3))]
    )
    assert raw.columns.time_ns.tolist() == [10, 20, 30]
    assert raw.columns.cpu.tolist() == [1, 0, 0]
    assert [frames(raw, n)[0][1] for n in range(3)] == [2, 3, 1]


def test_a_thread_is_called_what_it_was_called_then(read):
    raw = read(
        [
            *(sample(time, 5, user(1), tid=6) for time in (5, 15, 25)),
            comm(5, 6, b"first", time=10),
            comm(5, 6, b"second", time=20),
        ]
    )
    assert comms(raw) == [":6", "first", "second"]


def test_what_perf_found_when_it_began_holds_from_the_beginning(read):
    raw = read([comm(5, 5, b"old"), comm(5, 5, b"older", time=0), sample(1, 5, user(1))])
    assert comms(raw) == ["older"]


def test_a_child_has_its_parents_name_until_it_execs(read):
    raw = read(
        [
            comm(5, 5, b"sh"),
            fork((9, 9), (5, 5), time=10),
            comm(9, 9, b"ls", time=20, by_exec=True),
            exited(9, 9, time=30),
            *(sample(time, 9, user(1)) for time in (9, 10, 20, 31)),
        ]
    )
    # Behind its EXIT a task is still on its way out.
    assert comms(raw) == [":9", "sh", "ls", "ls"]


def test_a_thread_has_its_makers_name(read):
    raw = read([comm(5, 7, b"worker"), fork((5, 8), (5, 7), time=2), sample(3, 5, user(1), tid=8)])
    assert comms(raw) == ["worker"]


def test_a_reused_number_is_another_task(read):
    raw = read(
        [
            comm(9, 9, b"first"),
            exited(9, 9, time=10),
            fork((9, 9), (4, 4), time=20),
            sample(5, 9, user(1)),
            sample(25, 9, user(1)),
        ]
    )
    assert comms(raw) == ["first", ":9"]


def test_a_parent_whose_own_fork_was_lost_gives_no_name(read):
    raw = read([comm(5, 7, b"stale"), fork((8, 8), (7, 7), time=10), sample(11, 8, user(1))])
    assert comms(raw) == [":8"]


def test_core_zeros_idle_task_is_swapper(read):
    raw = read([sample(1, 0, [KERNEL_MARK, 0xFFFFFFFF81000010], misc=KERNEL)])
    assert comms(raw) == ["swapper"]
    assert frames(raw, 0) == [(0, 0xFFFFFFFF81000010)]


def test_names_keep_whatever_bytes_they_hold(read):
    raw = read([comm(5, 5, b"\xff\x1b[2J\n x"), sample(1, 5, user(1))])
    assert raw.comms[raw.columns.comm[0]].encode("utf-8", "surrogateescape") == b"\xff\x1b[2J\n x"


def test_an_exec_begins_a_new_space_and_later_maps_win(read):
    raw = read(
        [
            mmap2(5, 0x1000, 0x3000, b"/bin/sh", build_id=b"\x01" * 20),
            comm(5, 5, b"ls", time=50, by_exec=True),
            mmap2(5, 0x2000, 0x1000, b"/bin/ls", time=51, pgoff=0x500),
            *(sample(time, 5, user(0x2004, 0x1004, 0x9999)) for time in (10, 60)),
        ]
    )
    assert placed(raw, 0) == ["/bin/sh", "/bin/sh", ""]
    # Of the old program stays what the new one left: a task inside of execve is there.
    assert placed(raw, 1) == ["/bin/ls", "/bin/sh", ""]
    assert raw.columns.stack[0] != raw.columns.stack[1]
    assert [space.pid for space in raw.spaces] == [-1, 5, 5]
    ls = next(file for file in raw.files if file.path == "/bin/ls")
    assert (ls.build_id, ls.major, ls.minor, ls.inode) == (None, 8, 1, 77)
    sh = next(file for file in raw.files if file.path == "/bin/sh")
    assert sh.build_id == "01" * 20
    row = row_of(raw.spaces[2].maps, 0x2004)
    assert raw.spaces[2].maps.pgoff[row] == 0x500


def test_a_child_inherits_what_was_mapped_when_it_was_forked(read):
    raw = read(
        [
            mmap2(5, 0x1000, 0x1000, b"/lib/early"),
            fork((9, 9), (5, 5), time=10),
            mmap2(5, 0x5000, 0x1000, b"/lib/late", time=20),
            mmap2(9, 0x7000, 0x1000, b"/lib/own", time=30),
            sample(40, 9, user(0x1004, 0x5004, 0x7004)),
        ]
    )
    assert placed(raw, 0) == ["/lib/early", "", "/lib/own"]


def test_forks_that_perf_wrote_itself_inherit_nothing(read):
    raw = read(
        [
            mmap2(5, 0x1000, 0x1000, b"/lib/parent"),
            fork((9, 9), (5, 5), time=0, misc=EXEC),
            mmap2(9, 0x7000, 0x1000, b"/lib/own"),
            sample(40, 9, user(0x1004, 0x7004)),
        ]
    )
    assert placed(raw, 0) == ["", "/lib/own"]


def test_an_unknown_process_has_no_space(read):
    raw = read([sample(1, 5, user(0x1004))])
    assert frames(raw, 0) == [(-1, 0x1004)]


def test_the_bit_that_another_perfs_build_ids_left_behind_is_not_believed(read):
    content = [mmap2(5, 0x1000, 0x1000, b"/bin/sh", misc=2 | 1 << 14), sample(1, 5, user(0x1004))]
    raw = read(content, attrs=[(attr(flags=FLAGS & ~(1 << 34)), ())])
    assert raw.files[0] == ("/bin/sh", None, 8, 1, 77)


def test_the_kernels_text_and_symbols_loaded_during_the_capture(read):
    ksymbol = struct.pack("<QIHH", 0xFFFFFFFFC0001000, 64, 1, 0) + b"bpf_prog_1_tick\0"
    raw = read(
        [
            mmap(-1, 0xFFFFFFFF81000000, 0x2000, b"[kernel.kallsyms]_text", pgoff=7, misc=KERNEL),
            mmap2(-1, 0xFFFFFFFFC0000000, 0x100, b"/lib/x.ko", build_id=b"\x02" * 20, misc=KERNEL),
            record(17, ksymbol),
            sample(1, 5, [KERNEL_MARK, 0xFFFFFFFF81000010]),
        ],
        features={2: build_id(b"[kernel.kallsyms]", b"\x03" * 20, KERNEL)},
    )
    kernel = raw.kernel
    assert (kernel.text_symbol, kernel.text_address) == ("_text", 7)
    assert kernel.end == 0xFFFFFFFF81002000
    assert kernel.build_id == "03" * 20
    assert kernel.ksymbols == [(0xFFFFFFFFC0001000, 0xFFFFFFFFC0001040, "bpf_prog_1_tick")]


def test_build_ids_that_perf_looked_for_at_the_end(read):
    raw = read(
        [mmap2(5, 0x1000, 0x1000, b"/bin/sh"), sample(1, 5, user(0x1004))],
        features={2: build_id(b"/bin/sh", b"\x04" * 16, 2) + build_id(b"/x", b"\x05" * 20, 2)},
    )
    assert raw.files[0].build_id == "04" * 16


def test_a_samples_cgroup_has_its_path_and_one_nobody_named_its_number(read):
    raw = read(
        [
            record(19, struct.pack("<Q", 41) + b"/kubepods/pod1\0\0"),
            sample(1, 5, user(1), cgroup=41),
            sample(2, 5, user(1), cgroup=(1 << 64) - 2),
        ]
    )
    paths = [raw.cgroups[number] for number in raw.columns.cgroup.tolist()]
    assert paths == ["/kubepods/pod1", "cgroup:18446744073709551614"]


def test_what_was_lost_and_throttled_is_counted(read):
    raw = read(
        [
            record(2, struct.pack("<QQ", 1, 70), time=1),
            record(13, struct.pack("<Q", 5), time=1),
            record(13, struct.pack("<Q", 1000), misc=1 << 15),  # dropped by a filter, as asked
            record(5, struct.pack("<QQQ", 1, 1, 1)),
            record(6, struct.pack("<QQQ", 1, 1, 1)),
            sample(1, 5, user(1)),
        ]
    )
    assert (raw.facts.lost, raw.facts.throttled) == (75, 1)


@pytest.mark.parametrize(("flag", "lost"), [(b"-a", 75), (b"--switch-output=2m", 70)])
def test_what_perf_sums_up_at_its_end_is_not_counted_twice(read, flag, lost):
    raw = read(
        [
            record(2, struct.pack("<QQ", 1, 70), time=1),
            sample(1, 5, user(1)),
            record(13, struct.pack("<Q", 75)),
        ],
        features={11: struct.pack("<I", 1) + string(flag)},
    )
    assert raw.facts.lost == lost


def test_samples_without_times_stay_in_the_order_of_the_file(read):
    kind = SAMPLE_TYPE & ~(1 << 2)
    body = struct.pack("<QiiQiIQQQQ", 1, 5, 5, 0, 0, 0, 1, 1, 0xABC, 1)
    raw = read([raw_record(9, body, 2)] * 2, attrs=[(attr(sample_type=kind), ())])
    assert raw.columns.time_ns.tolist() == [0, 0]
    assert not raw.timed
    assert raw.facts.problems == ["samples have no timestamps (recorded with --no-timestamp?)"]


def test_metadata_of_a_capture(read):
    arguments = [b"perf", b"record", b"-a"]
    raw = read(
        [sample(1, 5, user(1))],
        features={
            3: string(b"node-7"),
            4: string(b"6.18.0"),
            7: struct.pack("<II", 128, 96),
            11: struct.pack("<I", 3) + b"".join(map(string, arguments)),
            29: struct.pack("<IIQQ", 1, 1, 2_000_000_000, 500),
        },
    )
    facts = raw.facts
    assert (facts.host, facts.release, facts.cores) == ("node-7", "6.18.0", 96)
    assert facts.command == "perf record -a"
    assert facts.clock == Clock("monotonic", 1_999_999_500)
    assert facts.format == "perf.data"
    assert facts.problems == []


@pytest.mark.parametrize(
    ("flags", "clockid", "clock"),
    [
        (FLAGS, 1, Clock("monotonic", None)),
        (FLAGS, 0, Clock("realtime", 0)),
        (FLAGS & ~(1 << 25), 0, Clock("perf", None)),
    ],
)
def test_without_clock_data_the_clock_is_that_of_the_events(read, flags, clockid, clock):
    told = attr(flags=flags, clockid=clockid)
    assert read([sample(1, 5, user(1))], attrs=[(told, ())]).facts.clock == clock


def test_several_events_are_distinguished_by_their_ids_and_the_dummy_is_left_out(read):
    kind = SAMPLE_TYPE | IDENTIFIER
    raw = read(
        [
            sample(1, 5, user(1), id=21, identified=True),
            sample(2, 5, user(1), id=12, identified=True),
            sample(3, 5, user(1), id=99, identified=True),
        ],
        attrs=[
            (attr(sample_type=kind, config=9), (31,)),
            (attr(sample_type=kind), (11, 12)),
            (attr(sample_type=kind, kind=4, config=0x1C2, flags=1 << 18), (21,)),
        ],
        features={12: struct.pack("<II", 1, 128) + event_desc(attr(), b"mine:u", (11, 12))},
    )
    assert raw.events == (Event("mine:u", hertz=97), Event("raw 0x1c2", period=97))
    assert raw.columns.event.tolist() == [1, 0]
    assert raw.facts.problems == ["1 malformed sample skipped"]


def event_desc(told: bytes, name: bytes, ids: tuple[int, ...]) -> bytes:
    return told + struct.pack("<I", len(ids)) + string(name) + struct.pack(f"<{len(ids)}Q", *ids)

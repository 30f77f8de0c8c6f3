"""Log patterns of the node's owner: what is taken, what is refused, and that none can take long."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.cli import configuration
from sexton.detect import settings
from sexton.detect.custom_patterns import flagged
from sexton.detect.rows_read import Witness
from sexton.errors import CommandError
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.event import FLAGGED, KernelEvent, KernelLog
from sexton.model.window import Batch, Window
from sexton.sources.kmsg.catalogue import MOST_OWN, added, recognise
from sexton.sources.kmsg.own import check_all, parse, problem_of

PATH = "/etc/sexton/patterns.d/site.toml"
LINE = (
    "ipmi_si IPI0001:00: IPMI message handler: BMC returned incorrect response, expected netfn 7"
    " cmd 35, got netfn 7 cmd 1"
)
#: drivers/char/ipmi/ipmi_msghandler.c
ENTRY = {
    "name": "bmc-confused",
    "regex": r"ipmi_si (?P<device>[\w:]{1,40}): IPMI message handler: BMC returned incorrect",
    "severity": "warning",
    "meaning": "the BMC is confused",
    "example": LINE,
}


def text(**changed: str | None) -> str:
    entry = {**ENTRY, **changed}
    return "[[pattern]]\n" + "".join(
        f"{key} = '''{value}'''\n" for key, value in entry.items() if value is not None
    )


def refused(content: str) -> str:
    with pytest.raises(CommandError) as raised:
        parse(content, PATH)
    message = str(raised.value)
    assert message.isprintable()
    return message.removeprefix(f"{PATH}: ")


def test_a_line_is_recognised_while_the_pattern_is_in_force() -> None:
    own = parse(text(), PATH)
    assert own[0].hint == ": IPMI message handler: BMC returned incorrect"
    line = LINE
    assert recognise(line) is None
    with added(own):
        known = recognise(line)
        assert known is not None
        assert (known.pattern.id, known.pattern.family) == ("bmc-confused", FLAGGED)
        assert known.fields == {
            "severity": "warning",
            "meaning": "the BMC is confused",
            "device": "IPI0001:00",
        }
        assert recognise("x " + line) is None  # from the first character on
        assert recognise(line, origin="journal") is None
    assert recognise(line) is None


def test_a_shipped_pattern_comes_first() -> None:
    line = "nf_conntrack: nf_conntrack: table full, dropping packet"
    own = parse(text(regex="nf_conntrack: .{1,200}", example=line), PATH)
    with added(own):
        known = recognise(line)
    assert known is not None
    assert known.pattern.id == "conntrack-full"


def test_numbers_are_numbers_and_what_is_none_stays_text() -> None:
    own = parse(text(regex=r"card (?P<queue>\S{1,400}) failed", example="card 7 failed"), PATH)
    for value, read in (("7", 7), ("x", "x"), ("9" * 300, "9" * 300), ("-1", -1)):
        assert own[0].read(f"card {value} failed")["queue"] == read  # type: ignore[index]


def test_lines_can_count_as_those_of_a_family_if_they_name_what_it_names() -> None:
    wanted = refused(text(family="soft_lockup"))
    assert wanted.startswith("pattern 1: family: the regex needs the named groups ")
    groups = wanted.rpartition("groups ")[2].split(", ")
    regex = "vendor lockup" + "".join(rf" (?P<{group}>\w{{1,16}})" for group in groups)
    example = "vendor lockup" + " 5" * len(groups)
    (own,) = parse(text(family="soft_lockup", regex=regex, example=example), PATH)
    assert own.family == "soft_lockup"
    assert "no family 'soft_lock'; there are " in refused(text(family="soft_lock"))


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"name": "A b"}, "pattern 1: name: use lowercase letters"),
        ({"name": None}, "pattern 1: name: is required"),
        ({"meaning": " "}, "pattern 1: meaning: must be a string"),
        ({"severity": "bad"}, "pattern 1: severity: must be one of info, warning, critical"),
        ({"example": "another line"}, "pattern 1: example: the regex does not match it"),
        ({"regex": "a" * 501}, "pattern 1: regex: must be a string of 1 to 500 characters"),
        ({"regex": "("}, "pattern 1: regex: not a regular expression"),
        ({"level": "x"}, "pattern 1: level: no such key"),
        ({"\x1b": "x"}, ""),
        ({"regex": "(?P<severity>ipmi_si)"}, "pattern 1: regex: a group cannot be called severity"),
    ],
)
def test_a_mistake_is_one_line_with_the_entry_and_the_key(
    changed: dict[str, str | None], line: str
) -> None:
    assert refused(text(**changed)).startswith(line)


def test_a_file_holds_patterns_and_nothing_else() -> None:
    assert refused("x = 1").startswith("write [[pattern]]")
    assert refused("pattern = 3").startswith("write [[pattern]]")
    assert refused("pattern = [3]").startswith("pattern 1: pattern: write [[pattern]]")
    assert refused("[[pattern]").startswith("not TOML")
    assert refused("a = " + "9" * 5000).startswith("not TOML")


def test_no_name_is_taken_twice_and_there_are_not_too_many() -> None:
    own = parse(text(), PATH)
    with pytest.raises(CommandError, match="name: 'bmc-confused' is the name of /etc"):
        check_all((*own, *own))
    with pytest.raises(CommandError, match="name: 'bmc_confused' is the name of"):
        check_all((*own, *parse(text(name="bmc_confused"), PATH)))
    with pytest.raises(CommandError, match="name: 'ext4-mounted' is the name of a shipped pattern"):
        check_all(parse(text(name="ext4-mounted"), PATH))
    many = [own[0]._replace(id=f"p{number}") for number in range(201)]
    with pytest.raises(CommandError, match="201 log patterns; at most 200"):
        check_all(many)


@pytest.mark.parametrize(
    ("regex", "problem"),
    [
        (r"(a+)+b fixed", "a repetition within a repetition"),
        (r"(?:a|aa)*b fixed", "alternatives within a repetition"),
        (r"fixed (a*?)*?$", "a repetition within a repetition"),
        (r"fixed .*: .*x", "too many ways to match"),
        (r"fixed a*a*a*a*a*x", "too many ways to match"),
        (r"fixed" + r"a{0,9}" * 9, "too many ways to match"),
        (r"fixeda*(?:aa){1,30}a?\w+ ", "too many ways to match"),
        (r"fixed (?=a)", "look-arounds are not supported"),
        (r"fixed (?<!a)", "look-arounds are not supported"),
        (r"fixed (a)\1", "back references are not supported"),
        (r"fixed (a)?(?(1)b|c)", "conditions are not supported"),
        (r"fixed (?>ab)", "atomic groups are not supported"),
        (r"(?i)fixed", "flags are not supported"),
        (r"fixed (?i:x)", "flags are not supported"),
        (r".*", "needs 3 fixed characters"),
        (r"(?:fixed|other)", "needs 3 fixed characters"),
        (r"[", "not a regular expression"),
        (r"(" * 400, "not a regular expression"),
    ],
)
def test_a_regex_that_could_take_long_is_refused(regex: str, problem: str) -> None:
    assert problem_of(regex).startswith(problem)


@pytest.mark.parametrize(
    "regex",
    [
        r"fixed .*: \w{1,40}x",
        r"fixed \S+ [^:]+: \d+,\d+ \w+ end",
        r"(?:ab){1,9}fixed\w+",
        r"fixed (?:a|b|c) \d{1,9}",
        r"^fixed(x+)?$",
    ],
)
def test_a_regex_that_cannot_is_taken(regex: str) -> None:
    assert problem_of(regex) == ""


def window(*events: KernelEvent) -> Witness:
    log = Batch(100.0, 1100.0, (KernelLog(9, 0, 0, "/dev/kmsg"),))
    return Witness(Window({KernelEvent: [Batch(100.0, 1100.0, events)], KernelLog: [log]}))


def event(wall_s: float | None, **fields: int | str) -> KernelEvent:
    given = {"severity": "critical", "meaning": "the \x1b[2J BMC is confused", **fields}
    return KernelEvent("bmc-confused", FLAGGED, LINE, None, wall_s, given)


def test_a_finding_says_what_it_means_how_often_and_what_it_is_about() -> None:
    (found,) = flagged(window(event(1000.0, nic="eth0"), event(1090.0, nic="eth1", cpu=5)))
    assert found.id == "pattern_bmc_confused"
    assert (found.verdict, found.severity) == (Verdict.PRESENT, Severity.CRITICAL)
    assert found.summary == "the \\x1b[2J BMC is confused: 2 log lines, the last 10.0 s ago"
    assert found.entities == {"core": ("5",), "nic": ("eth0", "eth1")}
    assert (found.start, found.end) == (1000.0, 1090.0)
    assert found.evidence[0].number == 2
    assert found.rows


def test_what_is_old_undated_or_of_a_severity_unheard_of_is_only_noted() -> None:
    for one in (event(1100.0 - 90_000), event(None), event(1090.0, severity="awful")):
        (found,) = flagged(window(one))
        assert found.severity is Severity.INFO
    assert list(flagged(window())) == []


def test_files_are_read_in_order_and_only_if_they_may_be_trusted(tmp_path: Path) -> None:
    assert configuration.read_patterns(str(tmp_path / "none")) == ()
    (tmp_path / "b.toml").write_text(text(name="second"))
    (tmp_path / "a.toml").write_text(text(name="first"))
    (tmp_path / "notes.txt").write_text("not a pattern")
    found = configuration.read_patterns(str(tmp_path))
    assert [pattern.id for pattern in found] == ["first", "second"]
    (tmp_path / "a.toml").chmod(0o666)
    with pytest.raises(CommandError, match="writable by everyone"):
        configuration.read_patterns(str(tmp_path))


def test_the_same_default_directory_and_line_length_everywhere() -> None:
    assert configuration.PATTERNS == settings.PATTERNS
    assert MOST_OWN == 512

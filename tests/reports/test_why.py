"""The answer to "why?" on a page: what is said, what is not, and that it fits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sexton.explain.diagnosis import diagnose
from sexton.explain.why import answer
from sexton.model.aligned import Aligned, Ranked
from sexton.model.chain import Coincidence, Contest, Rival, Strength
from sexton.model.finding import Missing
from sexton.model.rows.recorder import Mark
from sexton.model.why import Moment, Occasions, Subject, Why
from sexton.model.window import Batch, Window
from sexton.reports.text.why import why_json, why_text
from tests.support.incident import UPTIME_S, WALL_S, incident

CORE = Ranked("core", "core 5", "system time", "% of a core", 99.0, 2.5, 48.2, 0.001, 0.004, 6.6, 6)
TASK = Ranked(
    "task", "kubelet[2113]", "CPU time", "% of a core", 97.0, 1.0, 30.0, 0.1, 0.2, None, 4
)


def why(kind: str = "core", name: str = "5", **more: object) -> Why:
    window = incident()
    found = answer(Subject(kind, name), diagnose(window), window)
    return replace(found, **more)


def aligned(events: int, significant: int, *ranked: Ranked) -> Aligned:
    smallest = 2 / 25**events
    return Aligned(
        tuple(range(events)), 24 * events, 30.0, 4812, 0.01, smallest, significant, ranked
    )


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_first_lines_answer_the_question():
    text = flat(why_text(why()))
    assert text.startswith("SICK core 5 on ip-10-3-7-21")
    assert "Core 5 was held in the kernel for 6.0 s by kubelet[2113/2140]." in text
    assert re.search("Root cause \\((likely|possible)\\): ecs.service restarts every 10.2 s", text)
    assert "It led to (proven): eth0 was reset" in text
    assert "1 stall of core 5: 21:20:08 UTC" in text
    assert text.endswith("exit 1: problem found on core 5")


def of_a_job(**sick: bool) -> Why:
    """A job that somebody marked, with or without what is wrong with the node."""
    causes = dict.fromkeys(("zombies", "burning", "resets", "looping"), False) | sick
    made = incident(**causes)
    mark = Batch(UPTIME_S + 9.5, WALL_S + 9.5, (Mark("job 17 died"),))
    window = Window({**made._batches, Mark: [mark]})
    return answer(Subject("job", "job 17 died"), diagnose(window), window)


def test_of_a_job_s_death_that_nothing_explains_that_is_said_and_the_node_is_not_to_blame():
    found = of_a_job()
    text = flat(why_text(found))
    assert int(found.exit) == 0
    assert "Nothing recorded on this node explains it." in text
    assert text.endswith("exit 0: none of the findings is a problem on this node")


def test_a_job_s_death_that_a_reset_may_explain_is_a_problem_that_concerns_it():
    found = of_a_job(resets=True)
    assert int(found.exit) == 1
    assert "explains it" not in why_text(found)
    assert "nic_resets" in found.chains[0].findings


def test_in_the_chain_it_is_marked_where_it_is():
    lines = why_text(why("nic", "eth0"), 110).splitlines()
    marked = [line[3] for line in lines if line.startswith(" ► ")]
    assert marked == ["5", "6"]
    assert sum(line.lstrip().startswith("└") for line in lines) == 5


def test_what_did_nothing_is_said_to_have_done_nothing_and_what_was_looked_at():
    text = flat(why_text(why(name="7")))
    assert "Nothing unusual was found about core 7 in 10.0 s." in text
    assert "saturated core: present, but not about this: core 5 was held" in text
    assert "CAUSE CHAIN" not in text
    assert "DO NOW" not in text
    assert text.endswith("exit 0: nothing is wrong with core 7")


def test_of_a_moment_in_which_nothing_happened_only_the_lasting_is_reported():
    window = incident(burning=False, resets=False)
    diagnosis = diagnose(window)
    calm = answer(Subject("moment", "21:20:05", window.start + 5), diagnosis, window)
    assert "Nothing began or ended near 21:20:05; this was the case throughout." in flat(
        why_text(calm)
    )
    long = replace(diagnosis, start=window.start - 9e3, end=window.end + 9e3)
    struck = replace(calm, diagnosis=long)
    assert "Nothing began" not in flat(why_text(struck))


def test_few_events_are_never_called_significant_and_the_smallest_p_is_given():
    text = flat(why_text(why(aligned=aligned(1, 0, CORE))))
    assert "the 30 s before 1 stall of core 5, against 24 quiet windows" in text
    assert "no p below 0.08 is possible" in text
    assert "significant" not in text
    assert "core 5: system time" in text


def test_many_events_are_significant_where_they_are():
    text = flat(why_text(why(aligned=aligned(6, 1, CORE, TASK))))
    assert "significant, with at most 1 % false discoveries" in text
    assert "kubelet[2113]: CPU time" not in text  # what is not significant is not shown beside it
    assert "+48 6/6 7 s 0.004" in text


def test_where_nothing_passes_it_says_so_of_what_it_shows():
    text = flat(why_text(why(aligned=aligned(6, 0, TASK))))
    assert "nothing is significant" in text
    assert "kubelet[2113]: CPU time" in text


def test_what_was_not_compared_says_why_and_what_would_allow_it():
    text = why_text(why(not_aligned="too short", remedy="sexton record DIR"))
    assert "not compared: too short" in text
    assert "\n              sexton record DIR\n" in text


def test_rivals_stand_side_by_side_with_what_speaks_against_them():
    rivals = (
        Rival("zombie_memcgs", Strength.PROVEN, True, "walks the dead"),
        Rival("direct_reclaim", Strength.POSSIBLE, False, "reclaims", ("nothing was scanned",)),
    )
    contests = (Contest("saturated_core", rivals),)
    together = (Coincidence(("a", "b"), "both rose", "stacks"),)
    text = flat(why_text(why(contests=contests, coincidences=together)))
    assert "CAUSES of saturated core (● is in the chain) ● zombie memcgs, proven: walks" in text
    assert "○ direct reclaim, possible: reclaims against it: nothing was scanned" in text
    assert "both rose stronger evidence: stacks" in text


def test_of_many_moments_the_first_and_the_last_are_shown():
    moments = tuple(Moment(float(n), 1_740_000_000.0 + n) for n in range(4000))
    occasions = Occasions("exit of a.service", "exits of a.service", moments)
    text = flat(why_text(why(occasions=occasions), 110))
    assert "4,000 exits of a.service: 21:20:00, 21:20:01, …, 22:26:38, 22:26:39 UTC" in text


@pytest.mark.parametrize("width", [20, 60, 80, 88, 120, 400])
def test_no_line_but_a_command_is_wider_than_requested(width: int):
    lacking = (Missing("a thing " * 30, "sudo " + "x" * 200),)
    full = why(aligned=aligned(6, 1, CORE, TASK), missing=lacking, story=("At 02:14 " * 20,))
    for line in why_text(full, width).splitlines():
        typed = line.startswith(" " * 14) and not line[14:15].isspace()
        assert len(line) <= min(max(width, 60), 110) or typed, line


def test_the_only_colour_is_on_the_verdict():
    plain, coloured = why_text(why()), why_text(why(), colour=True)
    assert coloured.startswith("\x1b[1;31mSICK\x1b[0m  core 5")
    assert coloured.removeprefix("\x1b[1;31mSICK\x1b[0m") == plain.removeprefix("SICK")


def hostile() -> Why:
    raw = "\x1b[2J\u202e\n"
    ranked = Ranked("task", raw, raw, raw, 1.0, float("inf"), float("nan"), 0.5, 0.5, None)
    return why(
        name=raw,
        aligned=replace(aligned(1, 0, ranked), notes=(raw,)),
        contests=(Contest("x", (Rival("y", Strength.LIKELY, False, raw, (raw,)),)),),
        coincidences=(Coincidence(("a",), raw, raw),),
        story=(raw,),
        missing=(Missing(raw, raw),),
    )


def test_nothing_raw_reaches_a_terminal():
    for line in why_text(hostile()).splitlines():
        assert line.isprintable()


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else ():
        yield from strings(item)
    for item in value if isinstance(value, list) else ():
        yield from strings(item)


def test_json_is_plain_and_whole():
    document = json.loads(
        json.dumps(why_json(replace(hostile(), contests=(), coincidences=())), allow_nan=False)
    )
    texts = list(strings(document))
    assert all(text.isprintable() for text in texts)
    assert sum("\\u202e" in text for text in texts) > 6
    assert document["aligned"]["ranked"][0]["control"] is None


def test_json_has_what_the_page_has():
    document = why_json(why(aligned=aligned(1, 0, CORE)))
    assert list(document)[:3] == ["schema", "exit", "about"]
    assert document["schema"] == "sexton.why/1"
    assert document["about"]["kind"] == "core"
    assert document["about"]["name"] == "5"
    assert document["chain"] == document["chains"][0]
    assert document["chain"]["root"] == "crash_looping_unit"
    assert document["concerned"] == ["saturated_core", "starved_napi", "nic_resets"]
    assert {finding["id"] for finding in document["findings"]} >= {"zombie_memcgs", "nic_resets"}
    assert document["occasions"]["times"] == [1_740_000_008.0]
    assert document["aligned"]["significant"] == 0
    assert document["aligned"]["ranked"][0]["lead_s"] == 6.6
    assert why_json(why(name="7"))["chain"] is None

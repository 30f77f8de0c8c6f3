"""The page while things change: a recorder goes on, ends and begins again, a server has trouble."""

from __future__ import annotations

import queue
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.explorer.server.browser.looking import address, drawn, settled, view_of
from tests.explorer.server.browser.synthetic import START, Machine, Play, served

pytestmark = pytest.mark.browser
ORDER = "[...document.querySelectorAll('.lane')].map((lane) => lane.dataset.lane)"


def growing(seconds: float, **how: Any) -> Machine:
    """Beside a recorder that says what the test has it say."""
    return Machine(seconds=seconds, play=Play(events=queue.Queue(), is_live=True), **how)


def is_followed(page: Page, followed: bool) -> None:
    expect(page.locator("#follow")).to_have_attribute("aria-pressed", str(followed).lower())


def looked_at_again(page: Page) -> None:
    """As when somebody comes back to its tab; else it asks every ten seconds."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


@pytest.mark.parametrize(
    "key",
    [
        "ArrowLeft",
        *(pytest.param(key, marks=pytest.mark.whole) for key in ("+", "Shift+ArrowLeft", "Home")),
        "n",
    ],
)
def test_moving_the_view_stops_following_and_l_follows_again(key, opened):
    machine = growing(300, stalls=((1, 100, 110),))
    with served(machine) as at:
        page = drawn(opened(at))
        is_followed(page, True)
        page.keyboard.press(key)
        is_followed(page, False)
        before = view_of(page)
        machine.play.tell(340)
        expect(page.locator("#overviewLabel")).to_have_text("total: 5 min 40 s")
        assert view_of(page) == before
        page.keyboard.press("l")
        is_followed(page, True)
        assert view_of(page)[1] >= START + 340


def test_end_follows_where_it_is_the_end_already(opened):
    machine = growing(300)
    with served(machine) as at:
        page = drawn(opened(at))
        for key in ("+", "Home", "End"):
            page.keyboard.press(key)
            is_followed(page, False)
        settled(page)
        page.keyboard.press("End")
        is_followed(page, True)
        start, end = view_of(page)
        machine.play.tell(320)
        expect(page.locator("#overviewLabel")).to_have_text("total: 5 min 20 s")
        later = view_of(page)
        assert later[1] - later[0] == pytest.approx(end - start, abs=0.01)
        assert later[1] >= START + 320


def test_keys_that_come_before_a_frame_is_drawn_add_up(opened):
    with served(Machine(seconds=300)) as at:
        page = drawn(opened(at))
        page.evaluate("""for (const key of ["+", "Home"])
            window.dispatchEvent(new KeyboardEvent("keydown", { key }))""")
        settled(page)
        assert view_of(page) == pytest.approx((START, START + 180), abs=0.01)


def test_seconds_grow_into_the_last_ten_minutes(opened):
    machine = growing(5)
    with served(machine) as at:
        page = drawn(opened(at))
        for seconds, words, length in ((200, "3 min 20 s", 200), (900, "15 min 0 s", 600)):
            machine.play.tell(seconds)
            expect(page.locator("#overviewLabel")).to_have_text(f"total: {words}")
            start, end = view_of(page)
            assert end - start == pytest.approx(length, abs=1)


def test_an_address_says_whether_it_follows(opened):
    machine = growing(300)
    with served(machine) as at:
        page = drawn(opened(at))
        assert "follow=last" in address(page)
        still = drawn(opened(f"{at}#v={START + 250},{START + 300}"))
        is_followed(still, False)
        slides = drawn(opened(f"{at}#v={START + 10},{START + 20}&follow=40.000"))
        is_followed(slides, True)
        assert view_of(slides) == (START + 260, START + 300)


def test_the_end_of_a_recorder_is_shown_without_another_request(opened):
    machine = growing(300)
    with served(machine) as at:
        page = drawn(opened(at))
        machine.play.is_live = False
        machine.play.tell(310, live=False)
        expect(page.locator("#tip")).to_contain_text("the recorder has stopped")
        expect(page.locator("#follow")).to_be_hidden()
        machine.play.events.put(None)
        page.wait_for_timeout(300)
        assert machine.play.asked.count("/api/live") == 1


def test_a_recorder_that_begins_later_is_noticed(opened):
    machine = growing(300)
    machine.play.is_live = False
    with served(machine) as at:
        page = drawn(opened(at))
        expect(page.locator("#follow")).to_be_hidden()
        machine.play.is_live, machine.play.seconds = True, 360
        looked_at_again(page)
        expect(page.locator("#follow")).to_be_visible()
        is_followed(page, True)
        expect(page.locator("#overviewLabel")).to_have_text("total: 6 min 0 s")
        machine.play.tell(370)
        expect(page.locator("#overviewLabel")).to_have_text("total: 6 min 10 s")


def test_a_lane_that_is_new_appears_in_its_place_while_one_works(opened):
    machine = growing(300)
    machine.play.absent.update({"memcgs", "cores"})
    with served(machine) as at:
        page = drawn(opened(at))
        assert page.evaluate(ORDER) == ["events", "average", "stacks"]
        page.evaluate("window.stayed = true")
        machine.play.absent.clear()
        machine.play.tell(305, lanes=5)
        expect(page.locator("[data-lane=memcgs]")).to_be_visible()
        assert page.evaluate(ORDER) == ["events", "average", "cores", "memcgs", "stacks"]
        assert page.evaluate("window.stayed")
        page.keyboard.press("c")
        expect(page.locator("#canvas-cores")).to_be_visible()
        page.locator("[data-lane=memcgs] .fold").click()
        expect(page.locator("#canvas-memcgs")).to_be_hidden()
        settled(page)


def test_a_lane_that_an_address_does_not_name_stands_where_it_belongs(opened):
    with served(Machine()) as at:
        page = drawn(opened(f"{at}#lanes=memcgs.events.cores"))
        assert page.evaluate(ORDER) == ["memcgs", "stacks", "events", "average", "cores"]


def test_a_verdict_has_its_time_and_is_renewed_after_new_events(opened):
    machine = growing(320)  # the reset at 308 s is seen at once: a newer one renews the verdict
    with served(machine) as at:
        page = drawn(opened(at))
        verdict = page.locator("#chainBody .verdict")
        expect(verdict).to_contain_text("HEALTHY")
        expect(verdict).not_to_contain_text("as of")
        machine.play.tell(400)
        expect(verdict).to_contain_text("as of 08:05:20")
        mark = {"end": None, "kind": "soft_lockup", "severity": "critical", "text": "stuck"}
        machine.play.marks.append({**mark, "time": START + 405, "entity": "", "lane": "events"})
        machine.play.tell(410)
        expect(verdict).to_contain_text("08:06:50")
        expect(verdict).not_to_contain_text("as of")


def test_a_server_error_is_not_shown_as_no_resets(opened):
    machine = Machine(seconds=4000)
    machine.play.faults["next"] = 500
    with served(machine) as at:
        page = drawn(opened(at, faulty=True))
        expect(page.locator("#chainBody")).to_contain_text("resets and spikes: it is broken")
        page.keyboard.press("r")
        expect(page.locator("#tip")).to_have_text("could not search for a reset: it is broken")
        expect(page.locator("#said")).to_have_text("could not search for a reset: it is broken")


def test_a_failed_explanation_is_requested_again(opened):
    machine = Machine()
    machine.play.faults["explain"] = 500
    with served(machine) as at:
        page = drawn(opened(at, faulty=True))
        expect(page.locator("#chainBody")).to_contain_text("it is broken")
        del machine.play.faults["explain"]
        page.keyboard.press("e")
        expect(page.locator("#chainBody .verdict")).to_contain_text("HEALTHY")


def test_events_that_cannot_be_read_say_so(opened):
    machine = Machine()
    machine.play.faults["marks"] = 500
    with served(machine) as at:
        page = drawn(opened(at, faulty=True))
        expect(page.locator("[data-lane=events] .coming")).to_have_text(
            "could not be read: it is broken"
        )


def test_a_server_that_is_gone_is_reported(opened):
    with served(Machine()) as at:
        page = drawn(opened(at, faulty=True))
        expect(page.locator("#chainBody .verdict")).to_be_visible()
    page.keyboard.press("r")
    expect(page.locator("#tip")).to_have_text(
        "could not search for a reset: the server is not responding"
    )


def test_the_overview_has_the_marks_outside_of_a_pasted_view(opened):
    with served(Machine(stalls=())) as at:
        page = drawn(opened(f"{at}#v={START + 10},{START + 40}"))
        red = """() => { const canvas = document.getElementById("overviewCanvas");
          const x = Math.round(308 / 600 * canvas.width), pen = canvas.getContext("2d");
          const [red, green] = pen.getImageData(x, 8, 1, 1).data;
          return red - green > 80; }"""
        page.wait_for_function(red)


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 part could not be read"), (3, "3 parts could not be read")]
)
def test_what_could_not_be_read_is_seen_and_listed(count, words, opened):
    problems = tuple(f"<b>segment {index}</b>: cut short" for index in range(count))
    with served(Machine(problems=problems)) as at:
        page = drawn(opened(at))
        button = page.get_by_role("button", name=words)
        expect(button).to_be_visible()
        button.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Unreadable parts")
        expect(dialog).to_be_visible()
        expect(dialog.locator("li")).to_have_text(list(problems))
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()


def test_an_unreadable_recording_is_not_shown_as_an_empty_one(opened):
    with served(Machine(is_empty=True, problems=("hour 12: no such file",))) as at:
        page = opened(at)
        expect(page.locator("#empty")).to_contain_text("1 part could not be read")
        expect(page.locator("#empty li")).to_have_text("hour 12: no such file")
        expect(page.locator("#empty")).not_to_contain_text("Nothing recorded yet")


def test_a_sound_recording_has_no_notice(opened):
    with served(Machine()) as at:
        expect(drawn(opened(at)).locator("#problems")).to_be_hidden()

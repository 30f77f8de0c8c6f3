"""Plan, apply, verify and roll back under a real systemd."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.cure.fixing import (
    ETC,
    SLEEP,
    STATE,
    UNIT,
    VENDOR,
    apply,
    fix,
    fixable,
    link,
    picture,
    plan_for,
    plan_in,
    plant_loop,
    running,
    script,
    uproot,
    write,
)
from tests.yard.yard import PYTHON, Yard

pytestmark = [pytest.mark.root, pytest.mark.systemd]


@pytest.fixture(scope="module")
def ground() -> Iterator[Yard]:
    with fixable() as up:
        yield up


@pytest.fixture
def place(ground: Yard) -> Iterator[Yard]:
    plant_loop(ground)
    yield ground
    uproot(ground, UNIT, "other.service", "kubelet.service", "front.service")


def test_a_loop_is_found_planned_applied_verified_and_rolled_back(place: Yard):
    before = picture(place)
    seen = place.run(
        "sh", "-c",
        f"{PYTHON} -B -m sexton fix plan --seconds 3 --out /run/plan.json; echo exit $?",
        deadline_s=240,
    )  # fmt: skip
    text, _, status = seen.rpartition("exit ")
    assert int(status) == 1
    assert text.startswith("PLAN")
    plan = plan_in(place)
    assert [step["remedy"] for step in plan["steps"]] == ["stop_unit", "disable_unit", "mask_unit"]
    assert f"--confirm {plan['hash'][:16]}" in text
    assert picture(place) == before, "planning changes nothing"
    assert not place.run("ls", "/var/lib").split(), "and leaves nothing behind"
    done = apply(place, plan["hash"][:16])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("DONE")
    assert not running(place)
    assert place.show(UNIT, "LoadState", "UnitFileState") == {
        "LoadState": "masked",
        "UnitFileState": "masked",
    }
    verified = fix(place, "verify", "--seconds", "6", "--json")
    document = json.loads(verified.stdout)
    met = {item["what"]: item["met"] for item in document["criteria"]}
    assert met[f"restarts of {UNIT}"] == "met"
    assert met["zombies per minute"] == "unknown", "a cgroup namespace cannot count the node's"
    assert "run with the host's cgroup namespace" in document["criteria"][0]["note"]
    # Reclaim and resets are the whole machine's, on which other tests run: 1 is theirs.
    assert verified.returncode == document["exit"] in (1, 3)
    back = fix(place, "rollback")
    assert back.returncode == 0, back.stdout + back.stderr
    assert picture(place) == before
    assert "its restart counter" in back.stdout
    again = fix(place, "rollback", document["run"])
    assert again.returncode == 0
    assert "already rolled back" in again.stdout
    assert fix(place, "rollback").returncode == 1


def test_a_dry_run_checks_everything_changes_nothing_and_is_logged(place: Yard):
    before = picture(place)
    confirm = plan_for(place)
    done = apply(place, confirm, "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("DRY RUN")
    assert picture(place) == before
    assert "dry_run_begin" in fix(place, "log").stdout
    assert "nothing has been applied" in fix(place, "status").stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("systemctl", "mask", "--runtime", "--now", UNIT), "leak.service: now masked"),
        (("sh", "-c", f"systemctl stop {UNIT}; systemctl reset-failed {UNIT}"), "restarts of"),
        pytest.param(
            ("sh", "-c", f"cp {VENDOR}/{UNIT} {ETC}/{UNIT}; systemctl daemon-reload"),
            "unit file of", marks=pytest.mark.whole,
        ),
        pytest.param(
            ("systemctl", "disable", UNIT), "UnitFileState of leak.service: now disabled",
            marks=pytest.mark.whole,
        ),
    ],
    ids=["masked meanwhile", "counter cleared", "another file", "disabled meanwhile"],
)  # fmt: skip
def test_stale_evidence_is_refused_by_name_and_nothing_is_touched(place: Yard, change, said: str):
    confirm = plan_for(place)
    place.run(*change, check=False)
    before = picture(place)
    done = apply(place, confirm)
    assert done.returncode == 1
    assert done.stdout.startswith("REFUSED")
    assert said in " ".join(done.stdout.split())
    assert "make a new plan" in " ".join(done.stdout.split())
    assert picture(place) == before
    assert "apply_refused" in fix(place, "log").stdout
    place.run("systemctl", "unmask", "--runtime", UNIT, check=False)


@pytest.mark.whole
def test_old_evidence_another_boot_and_a_changed_plan_are_refused(place: Yard):
    plan_for(place)
    code = (
        "import json,sys; from dataclasses import replace\n"
        "from sexton.model.plan import as_json, from_json\n"
        "plan = from_json(json.load(open('/run/plan.json')))\n"
        "plan = replace(plan, **json.loads(sys.argv[1]))\n"
        "open('/run/plan.json', 'w').write(json.dumps(as_json(plan))); print(plan.hash)"
    )

    def changed(**fields: object) -> str:
        return place.run(sys.executable, "-B", "-c", code, json.dumps(fields)).strip()

    for fields, said in (
        ({"evidence_until_unix": 1.0}, "limit 1 h"),
        ({"evidence_until_unix": 9e9}, "in the future"),
        ({"boot_id": "0" * 36}, "rebooted since"),
    ):
        plan_for(place)
        done = apply(place, changed(**fields))
        assert done.returncode == 1
        assert said in " ".join(done.stdout.split())
    plan_for(place)
    place.run("sed", "-i", "s/leak.service/dbus.service/", "/run/plan.json")
    assert "was changed after it was made" in apply(place, "0" * 64).stderr
    assert running(place, "dbus.service")
    assert running(place)


def test_a_wrong_hash_is_no_consent(place: Yard):
    confirm = plan_for(place)
    for given in ("00000000", confirm[:7], ""):
        done = apply(place, given)
        assert done.returncode == 2
        assert "does not match this plan" in done.stderr
    assert running(place)


def test_a_protected_unit_is_refused_with_the_reason(place: Yard):
    plant_loop(place, "kubelet.service")
    plan_for(place, "kubelet.service", UNIT)
    plan = plan_in(place)
    (refusal,) = plan["refusals"]
    assert refusal["target"] == "kubelet.service"
    assert "the node leaves its cluster" in refusal["reason"]
    assert refusal["override"] == ""
    assert all(step["target"] != "kubelet.service" for step in plan["steps"])


def test_a_unit_that_carries_a_protected_one_is_refused(place: Yard):
    script(
        place,
        write(f"{VENDOR}/kubelet.service", SLEEP.replace("[Unit]", f"[Unit]\\nBindsTo={UNIT}")),
    )
    text = SLEEP.replace("DefaultDependencies=no", "DefaultDependencies=no")
    script(place, write(f"{VENDOR}/{UNIT}", text))
    place.run("systemctl", "restart", UNIT)
    place.run("systemctl", "start", "kubelet.service")
    plan_for(place, accept_collateral=True)
    plan = plan_in(place)
    assert plan["steps"] == []
    assert "kubelet.service would stop with it" in plan["refusals"][0]["reason"]


def test_a_unit_in_which_a_protected_process_runs_is_refused(place: Yard):
    run = "cp /bin/sleep /run/dockerd; exec /run/dockerd 1000"
    script(
        place, write(f"{VENDOR}/{UNIT}", SLEEP.replace("/bin/sleep 1000", f'/bin/sh -c "{run}"'))
    )
    place.run("systemctl", "restart", UNIT)
    place.wait("it runs", lambda: "dockerd" in place.programs())
    plan_for(place, accept_collateral=True)
    plan = plan_in(place)
    assert plan["steps"] == []
    assert "dockerd[" in plan["refusals"][0]["reason"]
    assert "runs in it and is protected" in plan["refusals"][0]["reason"]


def test_what_stops_with_it_needs_consent_and_is_started_again(place: Yard):
    script(
        place,
        write(f"{VENDOR}/{UNIT}", SLEEP),
        write(f"{VENDOR}/front.service", SLEEP.replace("[Unit]", f"[Unit]\\nRequires={UNIT}")),
    )
    place.run("systemctl", "restart", UNIT)
    place.run("systemctl", "start", "front.service")
    plan_for(place)
    assert plan_in(place)["refusals"][0]["override"] == "--accept-collateral"
    confirm = plan_for(place, accept_collateral=True)
    assert apply(place, confirm).returncode == 0
    assert not running(place, "front.service")
    assert fix(place, "rollback").returncode == 0
    assert running(place, "front.service")
    assert running(place)


def test_a_plan_of_somebody_elses_making_does_not_get_past_the_protection(place: Yard):
    """Its hash is right and it has no preconditions: the remedy itself refuses."""
    plant_loop(place, "kubelet.service")
    plan_for(place)
    code = (
        "import json; from dataclasses import replace\n"
        "from sexton.model.plan import as_json, from_json\n"
        "plan = from_json(json.load(open('/run/plan.json')))\n"
        "steps = tuple(replace(each, parameters={'unit': 'kubelet.service'}, preconditions=())\n"
        "              for each in plan.steps)\n"
        "plan = replace(plan, steps=steps)\n"
        "open('/run/plan.json', 'w').write(json.dumps(as_json(plan))); print(plan.hash)"
    )
    done = apply(place, place.run(sys.executable, "-B", "-c", code).strip())
    assert done.returncode == 1
    assert "no plan may change it" in " ".join(done.stdout.split())
    assert running(place, "kubelet.service")


def test_a_configured_name_is_protected_too(place: Yard):
    rules = '[[protect]]\nname = "leak*"\nwhy = "ours"\n'
    place.run("sh", "-c", f"cat >/run/protected.toml <<'X'\n{rules}X")
    seen = place.run(
        "sh", "-c",
        f"{PYTHON} -B -m sexton fix plan --seconds 2 --protected /run/protected.toml"
        " --json; true", deadline_s=240,
    )  # fmt: skip
    plan = json.loads(seen)
    assert plan["steps"] == []
    assert "ours (configured)" in plan["refusals"][0]["reason"]


def test_the_override_leaves_the_unit_startable_and_goes_away_again(place: Yard):
    before = picture(place)
    confirm = plan_for(place, override=True)
    assert [step["remedy"] for step in plan_in(place)["steps"]] == ["stop_unit", "override_unit"]
    assert apply(place, confirm).returncode == 0
    assert place.show(UNIT, "Restart") == {"Restart": "no"}
    place.run("systemctl", "start", UNIT, check=False)
    place.wait("it fails once", lambda: not running(place))
    assert fix(place, "rollback").returncode == 0
    assert picture(place) == before


def test_a_second_fixer_is_told_who_is_at_it(place: Yard):
    confirm = plan_for(place)
    code = (
        "import time; from sexton.cure.lock import hold_lock\n"
        "from sexton.cure.journal import State\n"
        f"with hold_lock(State('{STATE}'), 'a test', 60):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    place.run("sh", "-c", f'{PYTHON} -B -c "{code}" >/run/held 2>&1 & sleep 0.1')
    place.wait("the lock", lambda: place.run("cat", "/run/held", check=False) == "held\n")
    done = apply(place, confirm)
    assert done.returncode == 2
    assert "only one fix may run at a time" in done.stderr
    assert "a test" in done.stderr
    assert running(place)
    place.run("sh", "-c", "kill -9 $(grep -o '\"pid\": [0-9]*' /var/lib/sexton-fix/lock"
              " | grep -o '[0-9]*')")  # fmt: skip
    place.wait("its end", lambda: apply(place, confirm).returncode == 0)


@pytest.mark.whole
def test_the_shell_commands_do_the_same_as_apply(place: Yard):
    text = place.run(
        "sh", "-c",
        f"{PYTHON} -B -m sexton fix plan --seconds 2 --shell >/run/fix.sh;"
        " cat /run/fix.sh", deadline_s=240,
    )  # fmt: skip
    assert "systemctl mask leak.service" in text
    place.run("sh", "/run/fix.sh")
    by_hand = picture(place)
    place.run("sh", "-c", f"rm {ETC}/{UNIT}")
    script(place, link(f"{ETC}/multi-user.target.wants/{UNIT}", f"{VENDOR}/{UNIT}"))
    place.run("systemctl", "start", "--no-block", UNIT)
    place.wait("it loops", lambda: running(place))
    assert apply(place, plan_for(place)).returncode == 0
    assert [line for line in picture(place)[0] if UNIT in line and "|l|" in line] != []
    assert picture(place)[1:] == by_hand[1:] == ("masked", False)


def test_what_a_crash_looping_unit_is_called_cannot_reach_the_shell(place: Yard):
    name = "a$(touch${IFS}pwned)@x.service"
    plan_for(place, name)
    (refusal,) = plan_in(place)["refusals"]
    assert "could not be read" in refusal["reason"]
    assert plan_in(place)["steps"] == []

"""`--thorough` says what it costs, and is what the freeing gets; and where the dead are freed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sexton.cure import plan as planning
from sexton.cure.plan import PlanContext, PlanOptions, make_plan
from sexton.cure.reclaim.collateral import Collateral, read_collateral
from sexton.cure.reclaim.cost import cost_of
from sexton.cure.reclaim.free import Limits
from sexton.cure.remedies import reclaim_zombies
from sexton.cure.remedies.reclaim_zombies import Reason
from sexton.host.host import open_host
from sexton.model.plan import Step
from tests.cure.reclaim.made import FakeKernel
from tests.cure.test_plan import Units, chained, window


@pytest.fixture
def found(tmp_path: Path) -> Collateral:
    kernel = FakeKernel(root=tmp_path, parent="/lab.slice", dying=700).build()
    return read_collateral(kernel.host, "/lab.slice")


def proposed(found: Collateral, thorough: bool) -> Step:
    reason = Reason(False, thorough=thorough)
    return reclaim_zombies.propose("1-free", found, cost_of(700), reason)


def test_a_thorough_step_says_what_the_living_pay(found: Collateral):
    plain, thorough = proposed(found, False), proposed(found, True)
    assert (plain.risk, thorough.risk) == ("medium", "high")
    assert "--thorough: all of that cache may be evicted" in thorough.risk_why
    assert "swapped out" in thorough.risk_why, "there is swap"
    assert "thorough" not in plain.risk_why
    assert plain.parameters["thorough"] is False
    assert thorough.parameters["thorough"] is True
    assert plain.commands != thorough.commands
    assert plain.effect != thorough.effect


@pytest.mark.parametrize(("told", "expected"), [(True, True), (False, False), ("yes", False)])
def test_only_a_step_that_says_so_is_thorough(found: Collateral, monkeypatch, told, expected: bool):
    seen: list[Limits] = []

    def free(_host, _path, limits, *_):
        seen.append(limits)
        return SimpleNamespace(as_json=dict, sentence="freed", details=())

    monkeypatch.setattr(reclaim_zombies, "free", free)
    step = proposed(found, True)
    forged = SimpleNamespace(**{
        "parameters": {**step.parameters, "thorough": told}, "id": step.id,
    })  # fmt: skip
    context = SimpleNamespace(
        dry=False, deadline_s=lambda most: most, probes=SimpleNamespace(rules=()), stop=lambda: "",
        host=None, writer=None, progress=print,
    )  # fmt: skip
    reclaim_zombies.carry_out(forged, context)
    assert [limits.thorough for limits in seen] == [expected]


@pytest.mark.parametrize("thorough", [False, True])
def test_a_plan_frees_above_the_unit_that_it_stops(monkeypatch, tmp_path: Path, thorough: bool):
    """Traced while the unit ran, they seem to have died in its own cgroup, which goes with it."""
    Units(monkeypatch)
    kernel = FakeKernel(root=tmp_path, parent="/lab.slice", dying=700).build()
    real, asked = planning.read_collateral, []

    def weighed(_host, path: str, rules):
        asked.append(path)
        return real(kernel.host, path, rules)

    monkeypatch.setattr(planning, "read_collateral", weighed)
    monkeypatch.setattr(planning, "reclaim_file", lambda *_: "memory.reclaim")
    dead = [f"/lab.slice/leak.service/task{number}" for number in range(50)]
    seen = window(dead, ["/lab.slice", "/lab.slice/leak.service"])
    plan = make_plan(chained(), seen, PlanContext(open_host(), (), PlanOptions(thorough=thorough)))
    assert asked == ["/lab.slice"]
    (step,) = [item for item in plan.steps if item.remedy == "reclaim_zombies"]
    assert step.target == "/lab.slice"
    assert step.parameters["thorough"] is thorough

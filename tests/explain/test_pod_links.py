"""The chain of a pod whose container crashes and leaves zombies, in names."""

from __future__ import annotations

from sexton.explain.diagnosis import diagnose
from sexton.export.judged import culprit
from sexton.model.chain import Strength
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir, CgroupEvent
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.rows.unit import ServiceManager, Unit
from tests.support.windows import EPOCH, make_window

UID = "0a1b2c3d-1111-2222-3333-444455556666"
POD = f"/kubepods/burstable/pod{UID}"
APP = "container app of pod prod/api-7c9"


def test_a_crash_looping_container_leaves_zombies():
    starts = range(0, 600, 10)
    rows = [
        Container(f"{at:064x}", "prod", "api-7c9", "app", UID, at // 10, EPOCH + at)
        for at in starts
    ]
    gone = [
        CgroupEvent("rmdir", 100 + at, f"{POD}/{at:064x}", (at + 5) * 10**9) for at in starts[:-1]
    ]
    born = [CgroupEvent("mkdir", 100 + at, f"{POD}/{at:064x}", at * 10**9) for at in starts]
    live = [CgroupDir(path, at, 0) for at, path in enumerate(("/", POD))]
    window = make_window(
        [
            (0.0, [CgroupCensus("v1", 1, "/m", "node", 1009, 9, 1000, "m", None)]),
            (0.0, [ServiceManager("systemd", "252", "d"), Pod(UID, "prod", "api-7c9"), rows[0]]),
            (1.0, rows[1:2]),
            (600.0, [*rows[2:], *born, *gone, *live]),
            (600.0, [CgroupCensus("v1", 1, "/m", "node", 1068, 9, 1059, "m", None)]),
            (601.0, [ServiceManager("systemd", "252", "d")]),
        ],
        empty=[Unit, CgroupEvent],
    )
    diagnosis = diagnose(window)
    found = diagnosis.by_id
    assert found["crash_looping_unit"].summary.startswith(f"{APP} restarts every 10.0 s, 59 times")
    assert APP in found["zombie_memcgs"].summary
    assert POD not in found["zombie_memcgs"].summary
    assert any(POD in line.what for line in found["zombie_memcgs"].evidence)
    chain = next(chain for chain in diagnosis.chains if chain.root == "crash_looping_unit")
    (link,) = chain.links
    assert (link.id, link.strength) == ("crash_loop_leaves_zombies", Strength.PROVEN)
    assert link.shared == (APP,)
    assert APP in link.sentence
    assert culprit(found[chain.root]) == APP

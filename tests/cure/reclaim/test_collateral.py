"""What zombies hold is read wherever one read of their parent stalls nothing."""

from __future__ import annotations

import pytest

from lab.zombie_maker import CannotMakeZombies, scratch_cgroup
from sexton.cure.reclaim import collateral
from sexton.host.host import open_host
from sexton.sources.cgroupfs.estimate import Estimate
from sexton.sources.cgroupfs.layout import read_layout

pytestmark = pytest.mark.root


@pytest.mark.parametrize(("bound_s", "is_read"), [(0.025, True), (0.3, False)])
def test_a_pile_of_thousands_on_a_flat_node_is_still_read(
    monkeypatch: pytest.MonkeyPatch, bound_s: float, is_read: bool
):
    """3,138 dying beside nine live: only single cgroups can be timed, which bounds it at 25 ms."""
    if read_layout(open_host()).version != 1:
        pytest.skip("cgroup v2 counts what a read visits")
    only = Estimate("memory.stat", "/default", 1, 8e-6, bound_s, bound_s)
    monkeypatch.setattr(collateral, "estimates", lambda *_: (only,))
    try:
        with scratch_cgroup("test-sexton") as (_, made):
            found = collateral.read_collateral(open_host(), f"/{made.name}", ())
    except CannotMakeZombies as reason:
        pytest.skip(str(reason))
    assert found.split is is_read
    assert (found.held is not None) is is_read

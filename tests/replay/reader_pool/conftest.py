"""What several processes are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.incident import INCIDENTS
from lab.synthetic import write
from sexton.replay import reader_pool as crews
from sexton.store.recording import Recording
from tests.support.synthetic import small


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to do, and whatever threads another test has left."""
    monkeypatch.setattr(crews, "_LEAST_ROWS", 0)
    monkeypatch.setattr(crews, "_threads", lambda: False)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty segments in which five walks starve the network, with stacks."""
    plan = small(
        "crash_loop", "zombie_walk", "nic_reset",
        hours=0.65, walks=5, stack_hertz=19, stack_nodes=500, seed=5,
    )  # fmt: skip
    return write(tmp_path_factory.mktemp("crew") / "node", plan).directory


@pytest.fixture
def recording() -> Recording:
    """Where it is all the same what was recorded."""
    return Recording(INCIDENTS / "idle-6.1-v2" / "recording")

"""One holder at a time; a dead one loses it by our clock, not by its own."""

from __future__ import annotations

import threading

import pytest

from sexton.cluster.client import Answer
from sexton.cure.auto.lease import Lease, holder_name
from sexton.cure.auto.policy import Named
from sexton.errors import SourceError
from tests.deploy.peers import until
from tests.support.fake_kubernetes import AWAY, FakeKubernetes

PATH = "/apis/coordination.k8s.io/v1/namespaces/sexton/leases/sexton-fix"
NAMED = Named("sexton", "sexton-fix")


def lease(fake: FakeKubernetes, holder: str = "a", seconds: int = 1) -> Lease:
    return Lease(fake.cluster(), NAMED, holder, seconds)


def spec(fake: FakeKubernetes) -> dict:
    return fake.things[PATH]["spec"]


def held(fake: FakeKubernetes, by: str, seconds: int = 1, renewed: str = "2001-01-01T00:00:00Z"):
    granted = {"holderIdentity": by, "leaseDurationSeconds": seconds, "renewTime": renewed}
    fake.put_thing(PATH, {"metadata": {"name": "sexton-fix"}, "spec": granted})


def test_it_is_made_renewed_and_given_back():
    fake = FakeKubernetes()
    ours = lease(fake)
    assert ours.acquire() == ""
    version = fake.things[PATH]["metadata"]["resourceVersion"]
    with ours:
        assert spec(fake)["holderIdentity"] == "a"
        until(lambda: fake.things[PATH]["metadata"]["resourceVersion"] != version, "a renewal")
        assert ours.why_not_ours() == ""
    assert spec(fake)["holderIdentity"] == ""
    assert lease(fake, "b").acquire() == ""
    assert spec(fake)["leaseTransitions"] == 1


@pytest.mark.parametrize("renewed", ["2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "soon", ""])
def test_a_dead_holder_loses_it_after_its_duration_whatever_its_clock_said(renewed: str):
    fake = FakeKubernetes()
    held(fake, "dead", renewed=renewed)
    reads = []
    fake.on = lambda verb, path: reads.append(verb)
    assert lease(fake).acquire() == ""
    assert reads.count("GET") > 3, "it was watched"
    assert spec(fake)["holderIdentity"] == "a"


def test_a_holder_that_renews_keeps_it_however_old_its_times_are():
    fake = FakeKubernetes()
    held(fake, "alive")

    def on(verb: str, path: str) -> None:
        if verb == "GET":
            held(fake, "alive")  # the same times, but written again

    fake.on = on
    assert "alive is at work" in lease(fake).acquire()
    assert spec(fake)["holderIdentity"] == "alive"


def test_a_dead_holder_with_an_endless_lease_is_named_and_not_waited_for():
    fake = FakeKubernetes()
    held(fake, "dead\x1b", seconds=10**9)
    why = lease(fake).acquire()
    assert "holds the Lease for 1,000,000,000 s" in why
    assert why.isprintable()


@pytest.mark.parametrize("exists", [True, False])
def test_of_two_that_race_one_has_it(exists: bool):
    fake = FakeKubernetes()
    if exists:
        held(fake, "")
    lock, got = threading.Lock(), []
    both = threading.Barrier(2)
    seen = threading.local()

    def on(verb: str, path: str) -> None:
        if verb in ("PUT", "POST") and not getattr(seen, "waited", False):
            seen.waited = True
            both.wait(10)

    fake.on = on

    def run(holder: str) -> None:
        why = lease(fake, holder).acquire()
        with lock:
            got.append((holder, why))

    threads = [threading.Thread(target=run, args=(holder,)) for holder in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    winners = [holder for holder, why in got if not why]
    assert winners == [spec(fake)["holderIdentity"]]
    assert [why for _, why in got if why] == ["another node took the Lease at the same moment"]


def test_one_that_cannot_be_renewed_is_lost_before_it_expires():
    fake = FakeKubernetes()
    ours = lease(fake)
    ours.acquire()

    def away(verb: str, path: str) -> None:
        raise AWAY

    with ours:
        fake.on = away
        until(lambda: ours.lost, "it to be lost")
        assert "could not be renewed" in ours.lost
    fake.on = lambda verb, path: None
    assert spec(fake)["holderIdentity"] == "a", "not given back: it is not ours to give"


def test_one_that_others_took_is_lost_and_theirs_stays():
    fake = FakeKubernetes()
    ours = lease(fake)
    ours.acquire()
    with ours:
        held(fake, "b")
        until(lambda: ours.lost, "it to be lost")
        assert ours.why_not_ours() == "somebody else has the Lease"
    assert spec(fake)["holderIdentity"] == "b"


def test_a_change_by_others_that_leaves_it_ours_is_no_loss():
    fake = FakeKubernetes()
    ours = lease(fake)
    ours.acquire()
    with ours:
        thing = fake.things[PATH]
        thing["metadata"]["labels"] = {"x": "y"}
        version = fake.put_thing(PATH, thing)["metadata"]["resourceVersion"]
        until(lambda: fake.things[PATH]["metadata"]["resourceVersion"] != version, "a renewal")
        assert ours.lost == ""


def test_a_holder_whose_thread_did_not_run_has_lost_it():
    fake = FakeKubernetes()
    ours = lease(fake, seconds=60)
    ours.acquire()
    assert ours.why_lost() == ""
    ours._renewed_s -= 61
    assert ours.why_lost() == "the Lease has expired"


def test_without_the_right_the_error_says_what_grants_it():
    fake = FakeKubernetes()
    fake.on = lambda verb, path: Answer(403, {"message": "leases is forbidden"})
    with pytest.raises(SourceError, match=r"fix-rbac\.yaml grants"):
        lease(fake).acquire()


def test_two_processes_of_one_node_are_two_holders():
    assert holder_name("n") != holder_name("n")

"""A network of our own loses packets, for real, and its TCP says so; without a loss it does not."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.support.netns import Place, two_places

pytestmark = pytest.mark.root
LISTEN = """
import socket, threading
door = socket.create_server(("0.0.0.0", 7777))
print("open", flush=True)

def swallow(one):
    while one.recv(1 << 16):
        pass

while True:
    threading.Thread(target=swallow, args=(door.accept()[0],), daemon=True).start()
"""
TALK = """
import socket, sys, threading, time

def talk():
    while True:
        try:
            with socket.create_connection((sys.argv[1], 7777)) as one:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(sys.argv[2]))
                while True:
                    one.sendall(b"x" * 200)
                    time.sleep(0.002)
        except OSError:
            time.sleep(0.1)

for _ in range(8):
    threading.Thread(target=talk, daemon=True).start()
time.sleep(3600)
"""


def loss(place: Place, seconds: int) -> dict[str, Any]:
    """`tcp_loss` by a whole diagnosis inside the namespace."""
    ended = place.diagnosed(seconds)
    assert ended.returncode in (0, 1, 3), ended.stderr
    found = {finding["id"]: finding for finding in json.loads(ended.stdout)["findings"]}["tcp_loss"]
    print(found["verdict"], found["severity"], found["summary"])
    for item in found["evidence"]:
        print(f"  {item['what']}: {item['value']}")
    return found


def test_a_cable_that_loses_a_tenth_is_lossy_and_a_sound_one_is_not():
    with two_places() as (left, right), right.doing(LISTEN) as door:
        assert door.stdout is not None
        assert door.stdout.readline() == b"open\n"
        with left.doing(TALK, right.address, "4000"):
            sound = loss(left, 6)
            right.netfilter("lose", "10")
            lossy = loss(left, 8)
    assert sound["verdict"] == "absent", sound["summary"]
    assert (lossy["verdict"], lossy["severity"]) == ("present", "warning"), lossy["summary"]
    share = next(item["value"] for item in lossy["evidence"] if "worst stretch" in item["what"])
    assert 3 < share < 40


def test_a_cable_that_is_pulled_cuts_connections_off():
    with two_places() as (left, right), right.doing(LISTEN) as door:
        assert door.stdout is not None
        assert door.stdout.readline() == b"open\n"
        with left.doing(TALK, right.address, "2000"):
            # All that comes in is lost from then on: the peers are there and do not answer.
            pulled = threading.Timer(4.0, right.netfilter, ("lose", "1"))
            pulled.start()
            cut = loss(left, 11)
            pulled.join()
    assert (cut["verdict"], cut["severity"]) == ("present", "warning"), cut["summary"]
    given_up = [item["value"] for item in cut["evidence"] if "aborted" in item["what"]]
    assert given_up
    assert given_up[0] >= 5

"""The table of connections of a namespace of our own is filled to the brim, for real.

The limit is one for all namespaces and only the first may set it, so it is not lowered, which would
be felt by everybody: the table is filled with as many entries as it takes.
"""

from __future__ import annotations

import json

import pytest

from tests.support.netfilter import MAXIMUM
from tests.support.netns import two_places

#: Entries of 320 bytes that a test may make.
MOST = 600_000
KNOCK = """
import socket, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
refused = 0
while True:
    for port in range(1000, 1100):
        try:
            out.sendto(b"hello", ("127.0.0.1", port))
        except PermissionError:
            refused += 1
    time.sleep(0.5)
"""


@pytest.mark.root
def test_a_full_table_is_found_by_its_fill_its_drops_and_the_kernel_log():
    if not MAXIMUM.exists():
        pytest.skip("connections are not tracked here")
    maximum = int(MAXIMUM.read_text())
    if not 0 < maximum <= MOST:
        pytest.skip(f"a table of {maximum:,} entries is too large to fill")
    with two_places() as (left, right):
        left.netfilter("track")
        held = int(left.netfilter("fill", "0"))
        with left.doing(KNOCK):
            ended = left.diagnosed(seconds=6)
        empty = right.diagnosed(seconds=3)
    assert held == maximum
    (full,) = [
        finding
        for finding in json.loads(ended.stdout)["findings"]
        if finding["id"] == "conntrack_full"
    ]
    print(full["summary"])
    for item in full["evidence"]:
        print(f"  {item['what']}: {item['value']}")
    assert (full["verdict"], full["severity"]) == ("present", "critical")
    assert "the conntrack table is full and dropped" in full["summary"]
    assert ended.returncode == 1
    text = " ".join(str(item["value"]) for item in full["evidence"])
    assert "table full in netns" in text or "table full, dropping" in text
    # The other table is empty, and the log is about both: it must not be reported as full.
    (other,) = [
        finding
        for finding in json.loads(empty.stdout)["findings"]
        if finding["id"] == "conntrack_full"
    ]
    assert "the conntrack table is full" not in other["summary"]

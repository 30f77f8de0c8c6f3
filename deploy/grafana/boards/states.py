"""Values that stand for states: their words and colours, the same on every board."""

from __future__ import annotations

from deploy.grafana.boards.parts import State

VERDICT = (
    State(0, "healthy", "green"),
    State(1, "problem", "red"),
    State(3, "cannot tell", "purple"),
)
SEVERITY = (
    State(0, "absent", "green"),
    State(1, "info", "blue"),
    State(2, "warning", "orange"),
    State(3, "critical", "red"),
)
STRENGTH = (
    State(0, "no chain", "purple"),
    State(1, "possible", "blue"),
    State(2, "likely", "orange"),
    State(3, "proven", "red"),
)
SCRAPE = (State(0, "fails", "red"), State(1, "works", "green"))
RECORDER = (State(0, "not recording", "red"), State(1, "recording", "green"))
WRITING = (State(0, "works", "green"), State(1, "fails", "red"))
#: Sorted by how much is missing.
SOURCE = (
    State(0, "broken, denied or late", "red"),
    State(1, "paused", "orange"),
    State(2, "read less often", "yellow"),
    State(3, "read", "green"),
)
#: Instead of the age of the last reading.
NO_READING = (State(-1, "none in this time", "purple"),)

#: A chain's strength as a number; of several chains with one root and symptom, the strongest.
CHAIN_STRENGTH = (
    "max by (job, instance, root, symptom) ("
    '3 * sexton_chain{$of, strength="proven"}'
    ' or 2 * sexton_chain{$of, strength="likely"}'
    ' or sexton_chain{$of, strength="possible"})'
)
#: Chains in words, with that number.
CHAINS = (
    f"sexton_chain_info{{$of}} * on (job, instance, root, symptom) group_left () {CHAIN_STRENGTH}"
)

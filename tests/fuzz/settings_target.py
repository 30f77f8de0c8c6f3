"""Fuzz target: configurations and lists that another host may have written: TOML, YAML and JSON."""

from __future__ import annotations

import tempfile
from contextlib import suppress

from sexton.detect import settings
from sexton.errors import SextonError
from sexton.prevent.audit import changes, policy
from sexton.replay.prometheus.client import Access
from sexton.web.settings import read_settings


def one(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse in (changes.parse, policy.parse):
        with suppress(SextonError):
            parse(text, "given")
    with suppress(SextonError):
        settings.parse(text, "given", 1_790_000_000.0)
    with tempfile.NamedTemporaryFile(prefix="sexton-fuzz-", dir="/dev/shm") as held:
        held.write(data)
        held.flush()
        with suppress(SextonError):
            Access.read(held.name)
        read_settings(held.name)


def seeds() -> list[bytes]:
    """One of each kind."""
    return [
        b'[thresholds.zombie_memcgs]\ndying = 5\n[[silence]]\ndetector = "nic_resets"\n',
        b'username = "a"\nbearer_token_file = "t"\nca_file = "c"\n[headers]\nX-A = "1"\n',
        b'[[exempt]]\nname = "a.service"\nreason = "r"\nuntil = 2027-01-01\n',
        b"tls_server_config:\n  cert_file: a\n  min_version: TLS12\n"
        b"basic_auth_users:\n  a: $2b$10$x\nhttp_server_config:\n  http2: false\n",
        b'{"schema": "sexton.audit/1", "subjects": [{"name": "a.service", "facts": {"a": 1}}]}',
    ]

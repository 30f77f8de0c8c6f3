"""The configuration that a kubelet runs with, from its ``/configz``, beside its files.

The kubelet serves it to accounts that may ``get nodes/proxy``, on its own port and through the API
server::

    kubectl get --raw /api/v1/nodes/NODE/proxy/configz
    {"kubeletconfig": {"enableServer": true, "syncFrequency": "1m0s", …

It is complete: defaults, drop-ins and flags are in it. Quirks: it may lack ``apiVersion`` and
``kind``; start flags that have no field (``--housekeeping-interval``) are not in it; a value of
nothing in a file ("", 0, "0s") may mean the default there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sexton.errors import CommandError
from sexton.model.text import printable, shorten
from sexton.prevent.kubelet.checks import WARNING, Problem, check_settings
from sexton.prevent.kubelet.config import MOST_BYTES, MOST_PROBLEMS, KubeletFile
from sexton.prevent.kubelet.fields import API_VERSION, KIND, duration, quantity
from sexton.prevent.kubelet.tree import TreeError, read_tree

NAME = "/configz"
_KEY = "kubeletconfig"
_NOTHING: tuple[object, ...] = (None, "", 0, 0.0, [], {}, "0s")


def running_config(text: str) -> KubeletFile:
    """What was served, checked. Its fields are the kubelet's own, so only its values can be wrong.

    >>> text = '{"kubeletconfig": {"readOnlyPort": 10255, "kubeReserved": {"memory": "1Gi"}}}'
    >>> [problem.field for problem in running_config(text).problems]
    ['readOnlyPort']
    """
    if len(text) > MOST_BYTES:
        raise CommandError(f"{NAME}: over {MOST_BYTES:,} bytes")
    try:
        found = read_tree(text)[0].plain
    except TreeError as error:
        raise CommandError(f"{NAME}: {error}") from None
    config = found.get(_KEY) if isinstance(found, dict) else None
    if not isinstance(config, dict):
        raise CommandError(f"{NAME}: no map {_KEY!r}; kubectl get --raw …/proxy/configz prints one")
    whole = {**config, "apiVersion": API_VERSION, "kind": KIND}
    plain = json.dumps(whole)
    tree = read_tree(plain)[0]
    problems = tuple(
        Problem(each.level, each.field, each.message, 0, each.fix)
        for each in list(check_settings(tree))[:MOST_PROBLEMS]
    )
    return KubeletFile(NAME, "the running kubelet", "json", plain, tree, problems)


def differences(running: KubeletFile, files: Sequence[KubeletFile]) -> Iterator[Problem]:
    """What the files set and the kubelet does not run with; of several files the last counts."""
    assert running.tree is not None
    wanted: dict[str, Any] = {}
    for file in files:
        if file.tree is not None and isinstance(file.tree.plain, dict):
            wanted |= file.tree.plain
    actual = running.tree.plain
    for name, value in sorted(wanted.items()):
        if name in ("apiVersion", "kind") or name not in actual:  # the check of fields reports it
            continue
        yield from _different(name, value, actual[name])


def _different(name: str, wanted: Any, actual: Any) -> Iterator[Problem]:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for key, value in wanted.items():
            yield from _different(f"{name}.{key}", value, actual.get(key))
    elif wanted not in _NOTHING and not _same(wanted, actual):
        message = (
            f"the file says {_shown(wanted)}, the kubelet runs with {_shown(actual)}: a start flag"
            " overrides it, or it was not restarted since"
        )
        yield Problem(WARNING, name, message)


def _same(wanted: Any, actual: Any) -> bool:
    """Equal, or the same amount in other words.

    >>> _same("60s", "1m0s"), _same("1Gi", "1024Mi"), _same(110, 110), _same("10%", "5%")
    (True, True, True, False)
    """
    if wanted == actual:
        return True
    if not (isinstance(wanted, str) and isinstance(actual, str)):
        return False
    for measure in (duration, quantity):
        first = measure(wanted)
        if first is not None and first == measure(actual):
            return True
    return False


def _shown(value: Any) -> str:
    return "nothing" if value is None else shorten(printable(json.dumps(value)), 60)

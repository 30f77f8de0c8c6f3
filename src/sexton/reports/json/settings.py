"""The configuration for machines, `sexton.config/1`. What a verdict has of it is
`Settings.document`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sexton.detect.registry import all_detectors, key_of
from sexton.model.settings import Settings, Silence
from sexton.model.text import printable

SCHEMA = "sexton.config/1"


def config_json(settings: Settings) -> dict[str, Any]:
    """Everything in force; must be called while `settings` are applied."""
    changed = {(name, one.name) for one in settings.thresholds for name in one.detectors}
    return {
        "schema": SCHEMA,
        "path": printable(settings.path) or None,
        "detectors": [
            {
                "id": check.id,
                "off": check.id in settings.off,
                "thresholds": [
                    {
                        "name": key_of(limit),
                        "value": limit.value,
                        "default": limit.default,
                        "unit": limit.unit,
                        "from": printable(settings.path)
                        if (check.id, key_of(limit)) in changed
                        else "default",
                    }
                    for limit in check.thresholds
                ],
            }
            for check in all_detectors()
        ],
        "silences": _silences(settings.silences),
        "expired": _silences(settings.expired),
        "patterns": list(settings.patterns),
        "patterns_from": printable(settings.patterns_from) or None,
    }


def _silences(silences: Iterable[Silence]) -> list[dict[str, Any]]:
    return [silence._asdict() for silence in silences]

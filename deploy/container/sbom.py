"""What is in the image, as CycloneDX 1.5: ``python -m deploy.container.sbom ROOT``.

Read from what is installed below ROOT: Debian's packages from ``/var/lib/dpkg/status.d``, Python's
from their metadata. It has no time in it, so that the same root file system gives the same text.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

PACKAGES = "usr/lib/python3/dist-packages"
_SELF = "sexton"
_STATUS = "var/lib/dpkg/status.d"
_NAMESPACE = uuid.UUID("6f0e2c3e-5c0e-5d0b-9d5f-0b8f3d1f7a11")

Component = dict[str, Any]


def debian(root: Path) -> Iterator[Component]:
    """A component per package of Debian."""
    for status in sorted((root / _STATUS).iterdir()):
        found = HeaderParser().parsestr(status.read_text("utf-8"))
        name, version = found["Package"], found["Version"]
        where = f"?arch={found['Architecture']}&distro=debian-12"
        yield {
            "type": "library",
            "name": name,
            "version": version,
            "description": found["Description"].split("\n")[0],
            "purl": f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}{where}",
        }


def python(root: Path) -> Iterator[Component]:
    """A component per distribution of Python, with the hash of its list of files."""
    found = {each.name: each for each in distributions(path=[str(root / PACKAGES)])}
    for name, each in sorted(found.items(), key=lambda item: item[0].lower()):
        folder = name.lower().replace("_", "-")
        component: Component = {
            "type": "application" if name == _SELF else "library",
            "name": name,
            "version": each.version,
            "purl": f"pkg:pypi/{quote(folder)}@{quote(each.version, safe='')}",
        }
        if (record := each.read_text("RECORD")) is not None:
            digest = hashlib.sha256(record.encode()).hexdigest()
            component["properties"] = [{"name": "sexton:RECORD:sha256", "value": digest}]
        if words := _license(each):
            component["licenses"] = [{"license": {"name": words}}]
        yield component


def _license(each: Distribution) -> str:
    """As the package says it, in one line."""
    said = each.metadata.get("License-Expression") or each.metadata.get("License") or ""
    classified = [
        line.rpartition(" :: ")[2]
        for line in each.metadata.get_all("Classifier") or ()
        if line.startswith("License :: ")
    ]
    return said if said and "\n" not in said else ", ".join(classified)


def document(root: Path) -> dict[str, Any]:
    """The whole bill of materials. Its subject is Sexton itself."""
    components = [*debian(root), *python(root)]
    for component in components:
        component["bom-ref"] = component["purl"]
    (subject,) = (each for each in components if each["name"] == _SELF)
    others = [each for each in components if each is not subject]
    serial = uuid.uuid5(_NAMESPACE, json.dumps(components, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": subject},
        "components": others,
        "dependencies": [
            {"ref": subject["bom-ref"], "dependsOn": [each["bom-ref"] for each in others]}
        ],
    }


if __name__ == "__main__":
    (where,) = sys.argv[1:]
    print(json.dumps(document(Path(where)), indent=2, ensure_ascii=False))

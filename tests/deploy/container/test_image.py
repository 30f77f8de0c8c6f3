"""What is in the image: that nothing is missing or superfluous, and the list of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from importlib.metadata import distributions
from pathlib import Path

import pytest

import sexton
from deploy.container import sbom
from tests.deploy.container.conftest import FOLDER, ROOT

#: Of the layer as a registry keeps and a node pulls it.
MOST_BYTES = 120_000_000
#: What commands of a node import, wherever they do.
MODULES = (
    "pyarrow.parquet pyarrow.compute pyarrow.csv pyarrow.fs numpy.linalg rich.live rich.table"
    " jeepney uvicorn starlette.applications yaml bcrypt prometheus_client ssl"
)


def inside(image: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """In the image, with the kernel's file systems, and nothing else of this machine."""
    script = 'for d in dev proc sys; do mount --rbind /$d "$1/$d"; done; exec chroot "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", image, *argv],
        env={"PATH": "/usr/bin:/usr/sbin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_containerfile_runs_the_script_and_takes_all_it_needs():
    text = (FOLDER / "Containerfile").read_text()
    assert "RUN deploy/container/root.sh /image" in text
    assert re.search(r"^FROM scratch\nCOPY --from=build /image /$", text, re.MULTILINE)
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    assert json.loads(entry) == ["/usr/bin/sexton"]
    copied = set(re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE))
    names = {name for line in copied for name in line.split()}
    # What `pip install .` reads, and what the script reads.
    wanted = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "constraints.txt"}
    assert names == wanted | {"man", "src", "deploy/container"}
    assert all((ROOT / name).exists() for name in names)


@pytest.mark.whole
@pytest.mark.root
def test_commands_of_a_node_find_everything(image: Path):
    said = inside(image, "/usr/bin/sexton", "--version")
    assert said.stdout.strip().endswith(sexton.__version__), said.stderr
    script = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = inside(image, "/usr/bin/python3", "-c", script, *MODULES.split())
    assert done.returncode == 0, done.stderr
    for words in (
        ["zombies", "--seconds", "0.2"], ["top", "--frames", "1"], ["sources"],
        ["record", "/var/lib/sexton", "--preflight"], ["npd", "/none"], ["diagnose", "--help"],
    ):  # fmt: skip
        done = inside(image, "/usr/bin/sexton", *words)
        assert done.returncode in (0, 1, 2, 3), done.stderr
        assert "Traceback" not in done.stderr
        assert "Error" not in done.stderr, done.stderr


@pytest.mark.whole
@pytest.mark.root
def test_it_is_small_and_is_never_compiled_again(image: Path, tmp_path: Path):
    layer = tmp_path / "layer.tar.gz"
    with tarfile.open(layer, "w:gz", compresslevel=6) as packed:
        packed.add(image, arcname=".")
    assert layer.stat().st_size < MOST_BYTES
    code = image / "usr/lib/python3/dist-packages/sexton"
    compiled = {path.name.partition(".")[0] for path in code.rglob("__pycache__/*.pyc")}
    assert {path.stem for path in code.rglob("*.py")} <= compiled
    for folder in ("tests", "include", "__pycache__/../pip"):
        assert not list((image / "usr/lib/python3/dist-packages").glob(f"*/{folder}"))


@pytest.mark.whole
@pytest.mark.root
def test_its_bill_of_materials_is_what_is_installed(image: Path):
    found = json.loads((image / "usr/share/sexton/sbom.cdx.json").read_text())
    assert found == sbom.document(image)
    purls = [each["purl"] for each in found["components"]]
    assert len(set(purls)) == len(purls)
    places = [str(image / sbom.PACKAGES)]
    installed = {each.name: each.version for each in distributions(path=places)}
    listed = {c["name"]: c["version"] for c in found["components"] if "pkg:pypi" in c["purl"]}
    assert {**listed, "sexton": sexton.__version__} == installed
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    assert listed.items() <= pins.items(), "a version that is not pinned"
    debian = {c["name"] for c in found["components"] if "pkg:deb" in c["purl"]}
    assert {"libc6", "libssl3", "python3.11-minimal"} <= debian
    assert "libc6" not in listed


def test_a_bill_of_this_environment_has_the_fields_of_cyclonedx(tmp_path: Path):
    """Of a root that only has Python's packages, from this environment's metadata."""
    packages = tmp_path / sbom.PACKAGES
    packages.parent.mkdir(parents=True)
    packages.symlink_to(next(path for path in sys.path if path.endswith("site-packages")))
    status = tmp_path / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    (status / "libc6").write_text(
        "Package: libc6\nVersion: 2.36-9+deb12u7\nArchitecture: amd64\nDescription: GNU C\n more\n"
    )
    made = sbom.document(tmp_path)
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", made["serialNumber"])
    subject = made["metadata"]["component"]
    assert (subject["name"], subject["type"]) == ("sexton", "application")
    libc = next(each for each in made["components"] if each["name"] == "libc6")
    assert libc["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u7?arch=amd64&distro=debian-12"
    assert libc["description"] == "GNU C"
    references = [each["bom-ref"] for each in made["components"]]
    assert len(set(references)) == len(references)
    assert made["dependencies"] == [{"ref": subject["bom-ref"], "dependsOn": references}]
    licensed = {each["name"] for each in made["components"] if "licenses" in each}
    assert {"numpy", "pyarrow", "starlette"} <= licensed
    assert made == sbom.document(tmp_path)

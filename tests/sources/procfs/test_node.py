"""Which node this is.

The three `instance-data` fixtures are made by hand after the shape that cloud-init documents
(its "Instance metadata" page and the data sources' code); no machine of those clouds was read.
"""

import os
import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import open_host
from sexton.sources.procfs.node import Cloud, Identity, parse_cloud, parse_os_release
from tests.support.fixtures import FIXTURES, kernel_text
from tests.support.trees import plant

BARE = {"/proc/sys/kernel/hostname": "node-a\n", "/proc/sys/kernel/osrelease": "5.4.0-1103-aws\n"}
FIRST = {"ipc": 4026531839, "uts": 4026531838, "pid": 4026531836, "cgroup": 4026531835}


def instance_data(cloud):
    return (FIXTURES / "procfs/node" / f"{cloud}.json").read_text()


def namespaces(tmp_path, **other):
    """Init's namespaces: the kernel's first ones, but for those named."""
    (tmp_path / "proc/1/ns").mkdir(parents=True)
    for name, inode in (FIRST | other).items():
        (tmp_path / "proc/1/ns" / name).symlink_to(f"{name}:[{inode}]")


def node(tmp_path, files):
    (row,) = Identity(plant(tmp_path, BARE | files)).collect()
    return row


def test_a_bare_tree_has_its_name_and_nothing_else(tmp_path):
    row = node(tmp_path, {})
    assert (row.hostname, row.kernel) == ("node-a", "5.4.0-1103-aws")
    values = {name: getattr(row, name) for name in row.__dataclass_fields__}
    assert {name for name, value in values.items() if value is not None} == {"hostname", "kernel"}


def test_a_tree_without_a_kernel_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        list(Identity(open_host(str(tmp_path))).collect())


def test_values_of_the_kernel(tmp_path):
    row = node(
        tmp_path,
        {
            "/proc/sys/kernel/random/boot_id": "dc379add-c755-4548-83b0-63d1768a5280\n",
            "/proc/uptime": "75.81 120.40\n",
            "/proc/stat": kernel_text("procfs.stat", "6.1"),
            "/sys/class/dmi/id/sys_vendor": "QEMU\n",
            "/sys/class/dmi/id/product_name": "Standard PC (i440FX + PIIX, 1996)\n",
        },
    )
    assert row.boot_id == "dc379add-c755-4548-83b0-63d1768a5280"
    assert (row.uptime_s, row.cores) == (75.81, 2)
    assert (row.vendor, row.machine) == ("QEMU", "Standard PC (i440FX + PIIX, 1996)")
    assert row.instance_type is None


def test_an_uptime_that_is_no_number_is_malformed(tmp_path):
    with pytest.raises(SourceMalformed, match="/proc/uptime"):
        node(tmp_path, {"/proc/uptime": "soon\n"})


def test_the_distribution_is_read_through_its_link(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").symlink_to("/usr/lib/os-release")
    row = node(tmp_path, {"/usr/lib/os-release": 'NAME=x\nPRETTY_NAME="Ubuntu 20.04.6 LTS"\n'})
    assert row.os == "Ubuntu 20.04.6 LTS"


@pytest.mark.parametrize(
    ("text", "os_name"),
    [
        ("PRETTY_NAME='Amazon Linux 2'\n", "Amazon Linux 2"),
        ("PRETTY_NAME=Alpine\n", "Alpine"),
        ('PRETTY_NAME="never closed\n', None),
        ("NAME=x\n", None),
    ],
)
def test_os_release_is_quoted_as_a_shell_would(text, os_name):
    assert parse_os_release(text) == os_name


@pytest.mark.parametrize(
    ("cloud", "expected"),
    [
        ("aws", Cloud("us-east-1b", "us-east-1", "p4d.24xlarge", "ami-0a1b2c3d4e5f60718")),
        ("gcp", Cloud("us-central1-a", "us-central1", None, None)),
        (
            "azure",
            Cloud(
                "eastus-2",
                "eastus",
                "Standard_ND96asr_v4",
                "microsoft-dsvm:ubuntu-hpc:2004:20.04.2023031501",
            ),
        ),
    ],
)
def test_a_clouds_data_by_its_documented_shape(tmp_path, cloud, expected):
    row = node(tmp_path, {"/run/cloud-init/instance-data.json": instance_data(cloud)})
    assert Cloud(row.zone, row.region, row.instance_type, row.image) == expected


def test_older_releases_write_the_keys_with_hyphens():
    old = '{"ds": {"meta-data": {"instance-type": "m5.large", "ami-id": "ami-1"}}}'
    assert parse_cloud(old) == Cloud(None, None, "m5.large", "ami-1")


def test_on_azure_a_fault_domain_is_never_taken_for_a_zone():
    data = '{"ds": {"meta_data": {"imds": {"compute": {"zone": ""}}}}, "v1": {"region": "eastus",'
    assert parse_cloud(data + '"availability_zone": "0"}}').zone is None


def test_redacted_values_are_unknown():
    data = '{"ds": {"meta_data": "redacted for non-root user"}, "v1": {"region": "redacted for x"}}'
    assert parse_cloud(data) == Cloud()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"v1": 3, "ds": []}', '{"v1": {"region": 7}}', "[" * 99999]
)
def test_broken_instance_data_is_ignored(tmp_path, text):
    row = node(tmp_path, {"/run/cloud-init/instance-data.json": text})
    assert (row.hostname, row.zone, row.region) == ("node-a", None, None)


@given(st.text(max_size=60))
def test_junk_never_fails(text):
    assert isinstance(parse_cloud(text), Cloud)
    assert isinstance(parse_os_release(text), str | None)


def test_on_ec2_hardware_the_model_is_the_instance_type(tmp_path):
    row = node(
        tmp_path,
        {
            "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
            "/sys/class/dmi/id/product_name": "p4d.24xlarge\n",
        },
    )
    assert row.instance_type == "p4d.24xlarge"


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/.dockerenv": ""}, "docker"),
        ({"/run/.containerenv": 'engine="podman-4.3.1"\n'}, "podman"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
        ({"/proc/1/environ": "PATH=/bin\0container=lxc\0"}, "lxc"),
        ({"/run/secrets/kubernetes.io/serviceaccount/namespace": "x"}, "kubernetes"),
        ({}, None),
    ],
)
def test_a_container_is_known_by_its_marks(tmp_path, files, kind):
    namespaces(tmp_path, pid=4026532201)
    assert node(tmp_path, files | {"/proc/1/comm": "systemd\n"}).container == kind


@pytest.mark.parametrize("shown", ["ipc", ""])
def test_where_namespaces_cannot_be_seen_a_mark_is_not_believed(tmp_path, shown):
    if shown:  # some, but not all of them
        namespaces(tmp_path, **{shown: 4026532200})
        (tmp_path / "proc/1/ns/ipc").unlink()
    assert node(tmp_path, {"/.dockerenv": ""}).container is None
    (tmp_path / "run/systemd").mkdir(parents=True)
    assert node(tmp_path, {"/run/systemd/container": "podman\n"}).container == "podman"


@pytest.mark.parametrize(("pid_namespace", "kind"), [(4026531836, None), (4026532201, "docker")])
def test_a_mark_left_in_the_image_of_a_machine_is_not_believed(tmp_path, pid_namespace, kind):
    namespaces(tmp_path, pid=pid_namespace)
    assert node(tmp_path, {"/.dockerenv": ""}).container == kind


def test_this_machine_knows_itself():
    (row,) = Identity(open_host()).collect()
    assert row.kernel == platform.release()
    assert row.hostname == os.uname().nodename
    assert row.cores == os.sysconf("SC_NPROCESSORS_ONLN")
    assert row.uptime_s is not None
    with open("/proc/sys/kernel/random/boot_id") as file:
        assert row.boot_id == file.read().strip()


@pytest.mark.parametrize("uptime", ["nan", "inf", "1e400", "-1", "9" * 400])
def test_an_impossible_uptime_is_malformed(tmp_path, uptime):
    with pytest.raises(SourceMalformed, match="uptime"):
        node(tmp_path, {"/proc/uptime": f"{uptime} 1.0\n"})


@pytest.mark.parametrize(
    ("pid_namespace", "first", "kind"),
    [
        (4026531836, "init", None),
        (4026532201, "systemd", None),
        (4026532201, "python3", "its own PID namespace"),
    ],
)
def test_a_container_without_marks_is_known_by_its_namespace(tmp_path, pid_namespace, first, kind):
    namespaces(tmp_path, pid=pid_namespace)
    assert node(tmp_path, {"/proc/1/comm": f"{first}\n"}).container == kind

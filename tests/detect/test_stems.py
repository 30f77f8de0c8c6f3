"""Names that belong together, and names of containers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.stems import container, join, path_stem, pattern, split, stem, unit_of

ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (ID, "*"),
        (f"docker-{ID}.scope", "docker-*.scope"),
        (f"cri-containerd-{ID}.scope", "cri-containerd-*.scope"),
        ("run-u12.service", "run-u*.service"),
        ("run-p77-i78.scope", "run-p*-i*.scope"),
        ("pod0a1b2c3d-1111-2222-3333-444455556666", "pod*"),
        ("pod" + "0f" * 16, "pod*"),
        ("ecs.service", "ecs.service"),
        ("app-gnome\\x2dterminal-1234.scope", "app-gnome\\x2dterminal-*.scope"),
        ("foo@3.service", "foo@*.service"),
        ("facade", "facade"),
    ],
)
def test_what_is_unique_about_a_name_is_left_out(name: str, expected: str):
    assert stem(name) == expected


def test_names_of_one_stem_are_shown_as_the_name_if_it_is_only_one():
    assert pattern(["a/ecs2.service"]) == "a/ecs2.service"
    assert pattern(["run-1/x", "run-2/x"]) == "run-*/x"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"/docker/{ID}", "docker container"),
        (f"/ecs/task-1/{ID}", "ECS container"),
        (
            f"/kubepods/burstable/pod0a1b2c3d-1111-2222-3333-444455556666/{ID}",
            "Kubernetes container",
        ),
        ("/kubepods/pod0a1b2c3d-1111-2222-3333-444455556666", "Kubernetes pod"),
        (f"/system.slice/docker-{ID}.scope", "docker container"),
        (f"/machine.slice/libpod-{ID}.scope/container", "podman container"),
        (f"/kubepods.slice/crio-{ID}.scope", "CRI-O container"),
        ("/lxc.payload.web1", "LXC container"),
        ("/process_api/128a5aa1480fc6368f295e6a93c306e9", None),
        ("/docker", None),
        ("/system.slice/docker.service", None),
    ],
)
def test_containers_are_known_by_their_names(path: str, kind: str | None):
    assert container(path) == kind


def test_the_unit_is_the_deepest_part_named_like_one():
    assert unit_of("/user.slice/user-0.slice/user@0.service/app.slice/x.service/y") == "x.service"
    assert unit_of("/system.slice") is None
    assert unit_of("/system.slice/foo@*.service") is None


@given(st.text(max_size=60).filter(lambda text: "/" not in text))
def test_any_name_has_a_stem_that_is_stable(name: str):
    assert stem(stem(name)) == stem(name)


@given(st.lists(st.text(min_size=1, max_size=8).filter(lambda t: "/" not in t), min_size=1))
def test_a_path_is_put_together_as_it_was_taken_apart(parts: list[str]):
    path = "/" + "/".join(parts)
    assert join(*split(path)) == path
    assert path_stem(path).count("/") == path.count("/")

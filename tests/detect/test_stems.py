"""Names that belong together, and names of containers."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.detect.stems import (
    RANDOM,
    container,
    join,
    kinds,
    path_stem,
    pattern,
    split,
    stem,
    unit_of,
)
from sexton.model.rows.cgroup import CgroupDir
from tests.support.windows import make_window

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


_CHANCE = random.Random(5)


def word(length: int, letters: str = string.ascii_lowercase) -> str:
    return "".join(_CHANCE.choices(letters, k=length))


def stems(*paths: str) -> set[str]:
    of = kinds(make_window([]), paths)
    return {of(path).stem for path in paths}


def test_names_of_one_kind_differ_by_a_number():
    assert stems("/a/run-1", "/a/run-2") == {"run-*"}


def test_random_names_share_what_stands_before_their_last_word():
    temporary = [f"/a/tmp.{word(10, string.ascii_letters + string.digits)}" for _ in range(20)]
    jobs = [f"/a/job-{word(5)}" for _ in range(20)]
    assert stems(*temporary, *jobs) == {"tmp.*", "job-*"}
    assert stems(*(f"/a/run-{word(6)}.scope" for _ in range(20))) == {"run-*"}
    assert stems(*(f"/a/{word(8)}" for _ in range(20))) == {"*"}


def test_a_handful_of_names_are_daemons():
    assert len(stems(*(f"/a/{word(8)}" for _ in range(int(RANDOM.value) - 1)))) == RANDOM.value - 1


def test_a_name_that_is_used_again_is_not_random():
    paths = [f"/a/{word(8)}" for _ in range(20)]
    assert len(stems(*paths, *paths)) == 20


def test_units_have_names_of_their_own():
    assert len(stems(*(f"/system.slice/{word(8)}.service" for _ in range(20)))) == 20


def test_names_in_different_directories_are_not_counted_together():
    below = [f"/{place}/{word(8)}" for place in ("a", "b", "c") for _ in range(5)]
    assert len(stems(*below)) == 15


def test_one_that_two_methods_know_was_still_used_once():
    paths = [f"/a/{word(8)}" for _ in range(20)]
    of = kinds(make_window([]), paths, paths)
    assert {of(path).stem for path in paths} == {"*"}


def test_the_kind_is_below_the_deepest_directory_that_lives():
    live = make_window([(0.0, [CgroupDir(path, n, 0) for n, path in enumerate(("/", "/a"))])])
    paths = [f"/a/{word(8)}/main" for _ in range(20)]
    of = kinds(live, paths)
    assert {of(path)[::2] for path in paths} == {("/a", "*")}
    assert of("/b/other") == ("/", "b/other", "b/other")

"""`aenv image`: the images of this machine, and what `aenv get` says of roots."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.command_line import aenv, environ
from tests.gateways import make_project, running_gateway
from tests.saved_images import docker_archive, file, layer

pytestmark = pytest.mark.slow


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environ(AENV_HOME=str(tmp_path / "home"))


def test_an_image_is_loaded_listed_and_removed(tmp_path: Path, env: dict[str, str]) -> None:
    saved = docker_archive(tmp_path / "x.tar", layer(file("a")), names=["docker.io/library/box:1"])
    assert aenv("image", "load", saved, env=env).stdout == "box:1\n"
    named = aenv("image", "load", saved, "--name", "registry.test/other:2", env=env)
    assert named.stdout == "box:1, registry.test/other:2\n"
    listed = json.loads(aenv("image", "list", "--json", env=env).stdout)
    assert [each["name"] for each in listed] == ["box:1", "registry.test/other:2"]
    assert listed[0]["digest"] == listed[1]["digest"] and listed[0]["digest"].startswith("sha256:")
    assert "box:1" in aenv("image", "list", env=env).stdout
    assert aenv("image", "remove", "box:1", env=env).returncode == 0
    gone = aenv("image", "remove", "box:1", env=env)
    assert (gone.returncode, gone.stderr) == (1, "aenv: no image 'box:1'; there are registry.test/other:2\n")


def test_what_is_no_image_is_refused_in_a_line(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "x.tar").write_text("no tar")
    done = aenv("image", "load", tmp_path / "x.tar", env=env)
    assert done.returncode == 1 and done.stderr.startswith("aenv: cannot unpack ") and done.stderr.count("\n") == 1


def test_an_image_without_a_name_is_told_to_need_one(tmp_path: Path, env: dict[str, str]) -> None:
    done = aenv("image", "load", docker_archive(tmp_path / "x.tar", layer(file("a")), names=[]), env=env)
    assert done.stdout.startswith("sha256:") and "--name" in done.stderr


def test_without_a_program_that_fetches_the_way_out_is_told(env: dict[str, str]) -> None:
    done = aenv("image", "pull", "box:1", env={**env, "PATH": ""})
    assert done.returncode == 1
    assert (
        "neither skopeo nor podman is installed" in done.stderr
        and "aenv image load FILE --name box:1" in done.stderr
    )
    done = aenv("image", "pull", "box:1", "--with", "podman", env={**env, "PATH": ""})
    assert "podman is not installed" in done.stderr


def test_an_image_is_fetched_with_the_program_that_is_installed(tmp_path: Path, env: dict[str, str]) -> None:
    saved = docker_archive(tmp_path / "x.tar", layer(file("a")), names=["whatever:1"])
    program = tmp_path / "bin/podman"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = pull ] && echo fetching || cp {saved} "$5"\n')
    program.chmod(0o755)
    done = aenv("image", "pull", "box:1", env={**env, "PATH": f"{program.parent}:/usr/bin:/bin"})
    assert done.stdout.startswith("sha256:") and "fetching" in done.stderr, done.stderr
    assert "box:1" in aenv("image", "list", env=env).stdout


async def test_get_says_which_root_instances_get(tmp_path: Path, env: dict[str, str]) -> None:
    project = make_project(tmp_path)
    config = json.loads((project / "config.json").read_text())
    home = Path(env["AENV_HOME"])
    async with running_gateway(home, project, engine="native") as gateway:
        told = {**env, "AENV_SYSTEM_URL": gateway.address.url}

        async def root() -> str:
            done = await asyncio.to_thread(aenv, "get", config["name"], "--json", env=told)
            assert done.returncode == 0, done.stderr
            return str(json.loads(done.stdout)["root"])

        assert (await root()).startswith("the host's own system, ")
        (project / "Dockerfile").write_text("FROM scratch")
        assert await root() == "what its Dockerfile says"
        shown = await asyncio.to_thread(aenv, "get", config["name"], env=told)
        assert "what its Dockerfile says" in shown.stdout
    async with running_gateway(home, project) as gateway:
        done = await asyncio.to_thread(
            aenv, "get", config["name"], "--json", env={**env, "AENV_SYSTEM_URL": gateway.address.url}
        )
        assert json.loads(done.stdout)["root"] == "the host's own, all of it"


async def test_a_gateway_that_may_fetch_images_says_so(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    config = json.loads((project / "config.json").read_text())
    config["artifacts"] = [{"type": "image", "content": "registry.test/env:1"}]
    (project / "config.json").write_text(json.dumps(config))
    for pull, words in (("", "is not here; bring it with: aenv image load"), ("podman", "fetched with podman")):
        async with running_gateway(tmp_path / "home", project, engine="native", pull=pull) as gateway:
            _, reply = await gateway.ask("GET", "/env/echo/1.0.0/root")
            assert words in reply["data"]["root"]

"""The docker engine on a real dockerd: the suites for all engines, and what only containers can do wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.config import Network
from aenv.base.errors import InvalidRequest, NetworkError, NotFound, StartFailed, Unavailable
from aenv.base.http1 import Pool
from aenv.engines.base import ResourceLimits
from aenv.engines.docker.docker_engine import DockerEngine
from conformance.capabilities import CapabilityConformance
from conformance.engine import ENVIRONMENT, EngineConformance, Leftovers, MakeEngine, Projects, call
from tests import docker

FETCHES = """
import socket, urllib.error, urllib.request
from aenv import register_tool

@register_tool
def fetch(url: str) -> list[str]:
    "What comes from there, or why not."
    try:
        return [urllib.request.urlopen(url).read().decode()]
    except OSError as error:
        return [str(error)]

@register_tool
def dial(host: str) -> list[str]:
    "Connect past the proxy."
    try:
        socket.create_connection((host, 80), 5).close()
        return ["connected"]
    except OSError as error:
        return [str(error)]
"""
HAS_SIDECAR = """
import socket, threading
from aenv import Sidecar, register_tool

@register_tool
async def inside(command: str, sidecar: Sidecar) -> list[str]:
    "What a command prints in the sidecar."
    return (await sidecar.exec(command)).stdout.splitlines()

@register_tool
async def sees_main_server(sidecar: Sidecar) -> list[str]:
    "Ask a server of the main part from the sidecar."
    server = socket.create_server(("127.0.0.1", 0))
    def answer():
        client, _ = server.accept()
        client.sendall(b"reached")
        client.close()
    threading.Thread(target=answer, daemon=True).start()
    command = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}; cat <&3"
    return [(await sidecar.exec(["/usr/bin/bash", "-c", command])).stdout]

@register_tool
def own(path: str) -> list[str]:
    "Lines of a file."
    return open(path).read().splitlines()
"""
READS = """
import os
from aenv import register_tool

@register_tool
def look(variable: str) -> list[str]:
    "What the folder holds, and what happens to who writes there."
    folder = os.environ[variable]
    text = open(f"{folder}/it").read()
    try:
        open(f"{folder}/new", "w")
    except OSError as error:
        return [text, error.strerror]
"""

REPLACES = """
import http.server, os, threading
from aenv import register_tool

@register_tool
def serve(port: int) -> list[int]:
    "Start a server that has no files."
    server = http.server.HTTPServer(("127.0.0.1", port), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return [port]

@register_tool
def replace(name: str, target: str) -> list[str]:
    "Put a link in the place of a socket that the gateway connects to."
    path = f"/run/aenv/{name}"
    os.unlink(path)
    os.symlink(target, path)
    return [os.readlink(path)]
"""

AWAY = "no Docker engine answers at .*; start it|the Docker engine at .* broke off"

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]  # each makes containers


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with docker.engine_with_base_image() as host:
        yield host


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def make_engine(home: Path, host: str) -> AsyncIterator[MakeEngine]:
    made: list[DockerEngine] = []

    def make() -> DockerEngine:
        made.append(DockerEngine(home, host, base_image=docker.BASE_IMAGE))
        return made[-1]

    yield make
    for engine in made:
        await engine.close()


@pytest.fixture
def leftovers(home: Path, host: str) -> Leftovers:
    """Containers in any state, volumes, and folders of instances."""

    def find() -> list[str]:
        return docker.leftovers(host) + [str(path) for path in (home / "run" / "instances").glob("*")]

    return find


def inspected(host: str, container: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(docker.ask(host, "inspect", container))
    return found[0]


class TestDockerEngine(EngineConformance, CapabilityConformance):
    @pytest.fixture
    def make_engine(self, make_engine: MakeEngine) -> MakeEngine:
        return make_engine

    @pytest.fixture
    def leftovers(self, leftovers: Leftovers) -> Leftovers:
        return leftovers

    async def test_a_container_has_limits_labels_and_no_rights(
        self, engine: DockerEngine, projects: Projects, host: str
    ) -> None:
        limits = ResourceLimits(cpus=0.5, memory_bytes=256 << 20, pids=64, open_files=512)
        spec = projects.spec(limits=limits, labels={"experiment": "a/b"}, ttl=60.0)
        await engine.create(spec)
        made = inspected(host, f"aenv-{spec.id}")
        config, allowed = made["Config"], made["HostConfig"]
        assert (config["User"], config["Labels"]["aenv.label/experiment"]) == ("10001:10001", "a/b")
        assert config["Labels"]["business/aenv-ttl"] == "60s"
        assert (allowed["NanoCpus"], allowed["Memory"], allowed["PidsLimit"]) == (5 * 10**8, 256 << 20, 64)
        assert allowed["Ulimits"] == [{"Name": "nofile", "Soft": 512, "Hard": 512}]
        assert (allowed["CapDrop"], allowed["CapAdd"], allowed["Privileged"]) == (["ALL"], None, False)
        assert (allowed["SecurityOpt"], allowed["ReadonlyRootfs"]) == (["no-new-privileges"], True)
        assert (allowed["NetworkMode"], allowed["Binds"]) == ("none", None)
        assert not [mount for mount in allowed["Mounts"] if mount["Source"].endswith(".sock")]

    async def test_an_instance_that_uses_more_memory_than_its_limit_ends_with_that_reason(
        self, engine: DockerEngine, projects: Projects, pool: Pool
    ) -> None:
        greedy = ENVIRONMENT + "\n@register_tool\ndef eat() -> int:\n    return len(b'x' * (1 << 30))\n"
        spec = projects.spec(greedy, limits=ResourceLimits(memory_bytes=128 << 20))
        address = await engine.create(spec)
        with pytest.raises(NetworkError):
            await call(pool, address, "eat")
        assert await engine.ended(spec.id) == "it used more memory than its limit"

    async def test_a_frozen_instance_uses_no_cpu_and_goes_on_when_it_is_thawed(
        self, engine: DockerEngine, make_engine: MakeEngine, projects: Projects, pool: Pool, host: str
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        await engine.freeze(spec.id)
        await engine.freeze(spec.id)
        assert inspected(host, f"aenv-{spec.id}")["State"]["Paused"]
        other = make_engine()
        assert list(await other.running()) == [spec.id]
        await other.thaw(spec.id)
        await other.thaw(spec.id)
        assert await call(pool, address, "note", name="awake") == ["awake"]
        used = (await other.used([spec.id, "unknown"]))[spec.id]
        assert used.cpu_seconds > 0 and used.memory_bytes > 1 << 20 and used.processes >= 1
        await engine.freeze(spec.id)  # and is destroyed so

    async def test_a_policy_of_hosts_lets_the_instance_reach_them_and_no_other(
        self, engine: DockerEngine, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        spec = projects.spec(FETCHES, network=Network("egress", ("allowed.example",)))
        address = await engine.create(spec)
        (refused,) = await call(pool, address, "fetch", url="http://other.example/")
        (asked_for,) = await call(pool, address, "fetch", url="http://allowed.example/")
        (dialled,) = await call(pool, address, "dial", host="203.0.113.1")
        assert ("403" in refused, "502" in asked_for, "unreachable" in dialled) == (True, True, True)
        await engine.close()  # as a gateway that ends
        again = make_engine()
        await again.running()
        (refused,) = await call(pool, address, "fetch", url="http://other.example/")
        assert "403" in refused

    async def test_data_and_folders_can_be_read_and_not_written(
        self, engine: DockerEngine, projects: Projects, pool: Pool, tmp_path: Path
    ) -> None:
        for name in ("data", "more"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "it").write_text(name)
        spec = projects.spec(
            READS, data=tmp_path / "data", data_variable="DATA_DIR", folders={"MORE_DIR": tmp_path / "more"}
        )
        address = await engine.create(spec)
        assert await call(pool, address, "look", variable="DATA_DIR") == ["data", "Read-only file system"]
        assert await call(pool, address, "look", variable="MORE_DIR") == ["more", "Read-only file system"]

    async def test_a_socket_that_the_instance_replaces_by_a_link_leads_to_no_server_of_the_host(
        self, engine: DockerEngine, projects: Projects, pool: Pool, host: str
    ) -> None:
        spec = projects.spec(REPLACES)
        address = await engine.create(spec)
        await call(pool, address, "serve", port=8000)
        origin = await engine.port(spec.id, 8000)
        target = host.removeprefix("unix://")  # who reaches this one is root on the host
        for name in ("socket", "port-8000"):
            assert await call(pool, address, "replace", name=name, target=target) == [target]
        async with Pool() as fresh:
            for reached in (address.origin, origin):
                response = await fresh.request(reached, "GET", "/version")
                assert b"ApiVersion" not in await response.read()

    async def test_an_image_that_does_not_exist_is_one_clear_line_and_leaves_nothing(
        self, engine: DockerEngine, projects: Projects, leftovers: Leftovers
    ) -> None:
        with pytest.raises(NotFound, match=r"the image '127.0.0.1:9/no/such:1' was not found, neither here nor"):
            await engine.create(projects.spec(image="127.0.0.1:9/no/such:1"))
        assert leftovers() == []

    async def test_a_base_image_that_is_missing_is_named_with_the_way_to_make_it(
        self, home: Path, host: str, projects: Projects, leftovers: Leftovers
    ) -> None:
        async with DockerEngine(home, host, base_image="no-such-base:py{python}") as engine:
            with pytest.raises(NotFound, match=r"base image 'no-such-base:py3.*make it with 'deploy/base-image'"):
                await engine.create(projects.spec())
        assert leftovers() == []

    async def test_a_gpu_that_the_host_does_not_have_fails_the_start(
        self, engine: DockerEngine, projects: Projects, leftovers: Leftovers
    ) -> None:
        with pytest.raises(StartFailed, match=r"cannot be started: .*gpu"):
            await engine.create(projects.spec(limits=ResourceLimits(gpus=1)))
        assert leftovers() == []

    async def test_a_sidecar_runs_commands_in_an_image_without_python_and_shares_a_folder_and_the_network(
        self, engine: DockerEngine, make_engine: MakeEngine, projects: Projects, pool: Pool, host: str
    ) -> None:
        other = f"FROM {docker.BASE_IMAGE}\nRUN rm -r /usr/local && echo marked > /etc/mark\n"
        docker.ask(host, "build", "--network", "none", "--tag", "other:1", "-", stdin=other)
        spec = projects.spec(HAS_SIDECAR, sidecar="other:1", environment_variables={"SECRET": "for the main part"})
        address = await engine.create(spec)
        assert await call(pool, address, "inside", command="cat /etc/mark; id -u; ls /usr/local") == [
            "marked",
            "0",
        ]
        assert await call(pool, address, "inside", command="env | grep -c SECRET; exit 3") == ["0"]
        await call(pool, address, "inside", command="echo shared > /shared/it; chmod 644 /shared/it")
        assert await call(pool, address, "own", path="/shared/it") == ["shared"]
        assert await call(pool, address, "sees_main_server") == ["reached"]
        again = make_engine()
        assert await again.running() == {spec.id: address}
        await again.freeze(spec.id)
        await again.thaw(spec.id)
        waiting = asyncio.create_task(again.ended(spec.id))
        docker.ask(host, "kill", f"aenv-{spec.id}.sidecar")
        assert await waiting == "its sidecar ended"
        assert await again.running() == {}

    async def test_a_sidecar_whose_image_does_not_exist_leaves_nothing(
        self, engine: DockerEngine, projects: Projects, leftovers: Leftovers
    ) -> None:
        with pytest.raises(NotFound, match=r"the image '127.0.0.1:9/no/sidecar:1' was not found"):
            await engine.create(projects.spec(sidecar="127.0.0.1:9/no/sidecar:1"))
        assert leftovers() == []


@pytest.fixture
async def restarts(host: str, tmp_path: Path) -> AsyncIterator[docker.Restarts]:
    """The engine of containers, behind a socket that a test takes away and brings back."""
    restarts = docker.Restarts(host, tmp_path / "s")
    await restarts.begin()
    yield restarts
    await restarts.end()


async def test_the_end_of_an_instance_is_noticed_after_a_restart_of_the_engine_of_containers(
    home: Path, host: str, restarts: docker.Restarts, tmp_path: Path, leftovers: Leftovers
) -> None:
    async with DockerEngine(home, restarts.host, base_image=docker.BASE_IMAGE) as engine:
        spec = Projects(tmp_path / "projects").spec()
        await engine.create(spec)
        ended = asyncio.create_task(engine.ended(spec.id))
        await asyncio.sleep(0)
        await restarts.end()
        with pytest.raises(Unavailable, match=AWAY):
            await engine.running()
        await restarts.begin()
        docker.ask(host, "kill", f"aenv-{spec.id}")
        assert await ended == "its process was killed by signal 9"
        await engine.destroy(spec.id)
    assert leftovers() == []


async def test_what_cannot_be_ended_while_the_engine_of_containers_is_away_is_ended_when_it_is_back(
    home: Path, restarts: docker.Restarts, tmp_path: Path, leftovers: Leftovers
) -> None:
    async with DockerEngine(home, restarts.host, base_image=docker.BASE_IMAGE) as engine:
        projects = Projects(tmp_path / "projects")
        lives, refused = projects.spec(), projects.spec()
        await engine.create(lives)
        await restarts.end()
        with pytest.raises(Unavailable, match=AWAY):
            await engine.destroy(lives.id)
        for _ in range(2):  # as a client does, which asks again for the same id
            with pytest.raises(Unavailable, match=AWAY):
                await engine.create(refused)
        await engine.sweep()
        await restarts.begin()
        assert len(leftovers()) == 2, "the container and the folder of the one that lived"
        await engine.sweep()
        assert leftovers() == []


async def test_an_image_that_is_removed_between_two_creates_is_missed_with_the_same_words(
    home: Path, host: str, tmp_path: Path, leftovers: Leftovers
) -> None:
    docker.ask(host, "tag", docker.BASE_IMAGE, "goes:1")
    async with DockerEngine(home, host, base_image="goes:1") as engine:
        projects = Projects(tmp_path / "projects")
        spec = projects.spec()
        await engine.create(spec)
        await engine.destroy(spec.id)
        docker.ask(host, "rmi", "goes:1")
        with pytest.raises(NotFound, match=r"base image 'goes:1'.*make it with 'deploy/base-image'"):
            await engine.create(projects.spec())
    assert leftovers() == []


async def test_an_engine_that_does_not_answer_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"no Docker engine answers at 'unix:///no/docker.sock': no such file"):
        async with DockerEngine(tmp_path, "unix:///no/docker.sock"):
            pass
    with pytest.raises(InvalidRequest, match=r"must share this machine's files"):
        DockerEngine(tmp_path, "tcp://127.0.0.1:2375")

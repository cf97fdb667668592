"""The docker engine: from create to the first answer, against `docker run` of the same image and command.

Both sides use one dockerd, started here, one base image, one project and the same restrictions. By hand, the first
answer is asked for as soon as the socket can be connected to.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from aenv.base.addresses import Origin
from aenv.base.container_start import VARIABLE, ContainerStart
from aenv.base.errors import NetworkError
from aenv.base.http1 import Pool
from aenv.engines.containers.container_plan import PROJECT, RUN, SOCKET, USER, WORKSPACE
from tests import docker
from tests.gateways import Gateway, make_project, running_gateway

from .report import Row

TIMES = 15
MOST = 1.15


def rows() -> list[Row]:
    """One row; the two sides take turns."""
    with docker.engine_with_base_image() as host, tempfile.TemporaryDirectory(prefix="aenv-bench-") as folder:
        by_hand, ours = asyncio.run(_measured(host, Path(folder)))
    return [
        Row("docker run until the first answer", "ms", None, by_hand, "–", True),
        Row(
            "docker engine, create until the first answer",
            "ms",
            None,
            ours,
            f"≤ {MOST:g} × docker run",
            ours <= MOST * by_hand,
        ),
    ]


async def _measured(host: str, folder: Path) -> tuple[float, float]:
    project = make_project(folder)
    settings = {"engine": "docker", "docker_host": host, "base_image": docker.BASE_IMAGE}
    by_hand, ours = [], []
    async with running_gateway(folder / "home", project, **settings) as gateway, Pool() as pool:
        for _ in range(TIMES + 1):  # the first of each warms the caches, and does not count
            by_hand.append(await _by_hand(host, folder, project, pool))
            ours.append(await _ours(gateway))
    return median(by_hand[1:]) * 1e3, median(ours[1:]) * 1e3


async def _ours(gateway: Gateway) -> float:
    began = time.perf_counter()
    id = (await gateway.create())["id"]
    assert await gateway.call(id, "echo", text="hello") == "hello"
    took = time.perf_counter() - began
    await gateway.ask("DELETE", f"/env-instance/{id}")
    return took


async def _by_hand(host: str, folder: Path, project: Path, pool: Pool) -> float:
    name = f"by-hand-{secrets.token_hex(4)}"
    run = folder / name
    run.mkdir()
    run.chmod(0o777)
    command = ["docker", "--host", host, "run", "--detach", "--name", name, "--network", "none", "--read-only"]
    command += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", f"{USER}:{USER}"]
    command += [
        "--memory",
        "4g",
        "--memory-swap",
        "4g",
        "--pids-limit",
        "1024",
        "--tmpfs",
        "/tmp",
        "--tmpfs",
        WORKSPACE,
    ]
    command += ["--volume", f"{project}:{PROJECT}:ro", "--volume", f"{run}:{RUN}", "--workdir", WORKSPACE]
    command += ["--env", f"{VARIABLE}={ContainerStart(socket=SOCKET).text()}", docker.BASE_IMAGE]
    began = time.perf_counter()
    started = await asyncio.create_subprocess_exec(
        *command, "python3", "-m", "aenv.main", PROJECT, stdout=subprocess.DEVNULL
    )
    origin = Origin("localhost", socket=str(run / "socket"))
    while True:
        with contextlib.suppress(NetworkError):
            response = await pool.request(origin, "POST", "/tools/echo", (), b'{"text": "hello"}')
            assert b"hello" in await response.read()
            break
        await asyncio.sleep(0.001)
    took = time.perf_counter() - began
    await started.wait()
    await asyncio.to_thread(docker.ask, host, "rm", "--force", name)
    return took

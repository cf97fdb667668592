"""The kubernetes engine: create until the first answer, against the same Pod applied by hand, and a warm Pod in R.

Everything uses one cluster, started here, and one base image. By hand, the Pod is created with one request, its
address is taken from a watch, and the first answer is asked for until it comes; its code is mounted from the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from aenv.base.addresses import Origin
from aenv.base.errors import NetworkError
from aenv.base.http1 import Pool
from aenv.engines.containers.container_plan import PORT, PROJECT, USER, WORKSPACE
from aenv.engines.kubernetes import pod_state
from aenv.engines.kubernetes.cluster_access import ClusterAccess
from aenv.engines.kubernetes.cluster_client import Cluster, Pods
from aenv.engines.kubernetes.pod_manifest import OWNER
from aenv.engines.kubernetes.pod_state import Pod
from aenv.engines.kubernetes.pod_watch import PodWatch
from tests.gateways import Gateway, make_project, running_gateway

from .processes import bare_python
from .report import NO_TARGET, Row

TIMES = 10
MOST = 1.15
BASE_IMAGE = "aenv.test/base:1"
_SCRIPTS = Path(__file__).parents[1] / "scripts" / "lib" / "cluster"
_BY_HAND = "by-hand"


def rows() -> list[Row]:
    """None, and one line that says why, where no cluster has been built."""
    built = subprocess.run([_SCRIPTS / "build", "--cached"], capture_output=True, text=True)
    if built.returncode:
        print(f"skipped: {built.stderr.strip()}", file=sys.stderr)
        return []
    with _cluster() as kubeconfig, tempfile.TemporaryDirectory(prefix="aenv-bench-") as folder:
        Path(folder).chmod(0o755)  # Pods read the project there
        by_hand, ours = asyncio.run(_cold(kubeconfig, Path(folder)))
        reference, warm = asyncio.run(_warm(kubeconfig, Path(folder)))
    return [
        Row("a Pod applied by hand until its first answer", "ms", None, by_hand * 1e3, NO_TARGET, True),
        Row(
            "kubernetes engine, create until the first answer",
            "ms",
            None,
            ours * 1e3,
            f"≤ {MOST:g} × by hand",
            ours <= MOST * by_hand,
        ),
        Row("the same with a warm Pod", "ms", None, warm * 1e3, NO_TARGET, True),
        Row(f"the same in R ({reference * 1e3:.2f} ms)", "R", None, warm / reference, NO_TARGET, True),
    ]


@contextlib.contextmanager
def _cluster() -> Iterator[Path]:
    with subprocess.Popen(
        [sys.executable, _SCRIPTS / "cluster.py", "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        kubeconfig = Path(json.loads(process.stdout.readline())["kubeconfig"])
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "base.tar"
            subprocess.run([sys.executable, _SCRIPTS / "base_image.py", BASE_IMAGE, archive], check=True)
            process.stdin.write(f"load {archive}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ok\n"
        yield kubeconfig
        process.stdin.close()


async def _cold(kubeconfig: Path, folder: Path) -> tuple[float, float]:
    project = make_project(folder, "cold")
    by_hand, ours = [], []
    access = ClusterAccess(kubeconfig, namespace="default")
    async with (
        running_gateway(folder / "home", project, **_settings(kubeconfig)) as gateway,
        Cluster(access) as cluster,
        PodWatch(cluster, {OWNER: _BY_HAND}) as watch,
        Pool() as pool,
    ):
        await watch.listed()
        for _ in range(TIMES + 1):  # the first of each warms the caches, and does not count
            by_hand.append(await _by_hand(watch, project, pool))
            ours.append(await _ours(gateway, "cold"))
    return median(by_hand[1:]), median(ours[1:])


async def _warm(kubeconfig: Path, folder: Path) -> tuple[float, float]:
    project = make_project(folder, "warm", warmPool=1)
    references, warm = [], []
    async with running_gateway(folder / "warm-home", project, **_settings(kubeconfig)) as gateway:
        with bare_python() as python:
            for _ in range(TIMES + 1):
                await _full(gateway)
                references += await asyncio.to_thread(python)
                warm.append(await _ours(gateway, "warm"))
    return median(references), median(warm[1:])


async def _full(gateway: Gateway) -> None:
    """Return when there is a warm Pod; a gateway is asked for that, it does not tell."""
    while True:
        _, reply = await gateway.ask("GET", "/env-instances/usage")
        if reply["data"]["warm"]:
            return
        await asyncio.sleep(0.1)


def _settings(kubeconfig: Path) -> dict[str, Any]:
    return {
        "engine": "kubernetes",
        "kubeconfig": kubeconfig,
        "kube_namespace": "default",
        "kube_name": f"bench-{secrets.token_hex(4)}",
        "base_image": BASE_IMAGE,
    }


async def _ours(gateway: Gateway, name: str) -> float:
    began = time.perf_counter()
    id = (await gateway.create(name))["id"]
    assert await gateway.call(id, "echo", text="hello") == "hello"
    took = time.perf_counter() - began
    await gateway.ask("DELETE", f"/env-instance/{id}")
    return took


async def _by_hand(watch: PodWatch, project: Path, pool: Pool) -> float:
    name = f"by-hand-{secrets.token_hex(4)}"
    began = time.perf_counter()
    watch.learn(await watch.cluster.create(Pods, _manifest(name, project)))
    host = await watch.until(
        name, lambda pod: pod_state.address(pod) if pod and pod_state.is_started(pod) else None
    )
    while True:
        with contextlib.suppress(NetworkError):
            response = await pool.request(Origin(host, PORT), "POST", "/tools/echo", (), b'{"text": "hello"}')
            assert b"hello" in await response.read()
            break
        await asyncio.sleep(0.001)
    took = time.perf_counter() - began
    await watch.cluster.delete(Pods, name, grace=1)
    await watch.until(name, lambda pod: True if pod is None else None)
    return took


def _manifest(name: str, project: Path) -> Pod:
    """What the engine makes of its template, with the environment's own command."""
    volumes = {"workspace": ({"emptyDir": {}}, WORKSPACE), "temporary": ({"emptyDir": {}}, "/tmp")}
    volumes["environment"] = ({"hostPath": {"path": str(project)}}, PROJECT)
    main = {
        "name": "main",
        "image": BASE_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "aenv.main", PROJECT, "--host", "0.0.0.0", "--port", str(PORT)],
        "env": [{"name": "HOME", "value": WORKSPACE}],
        "volumeMounts": [{"name": each, "mountPath": place} for each, (_, place) in volumes.items()],
        "resources": {"limits": {"memory": "4Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": security,
        "containers": [main],
        "volumes": [{"name": each, **volume} for each, (volume, _) in volumes.items()],
    }
    return {"metadata": {"name": name, "labels": {OWNER: _BY_HAND}}, "spec": spec}

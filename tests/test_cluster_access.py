"""Kubeconfigs as users have them: with programs that give credentials, with mistakes, and with nothing in them."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra 'kubernetes' is not installed")

import kmock as kmocks

from aenv.base.errors import InvalidRequest, Unavailable
from aenv.engines.kubernetes import cluster_client
from aenv.engines.kubernetes.cluster_access import ClusterAccess
from aenv.engines.kubernetes.cluster_client import Cluster, Pods

pytestmark = pytest.mark.kmock(cls=kmocks.RawHandler)

PODS = "/api/v1/namespaces/default/pods"
V1 = "client.authentication.k8s.io/v1"
PLUGIN = """
import json, os
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
told = {"token": f"for {os.environ['WHO']}"}
said = {"kind": "ExecCredential", "apiVersion": asked["apiVersion"], "status": told}
print(json.dumps(said))
"""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "_FIRST_PAUSE", 0.01)


def kubeconfig(folder: Path, user: dict[str, Any], server: str = "https://127.0.0.1:1") -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me", "namespace": "default"}}],
        "current-context": "it",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def plugin(code: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": sys.executable, "args": ["-c", code], **more}}


async def listed(path: Path) -> None:
    async with Cluster(ClusterAccess(path)) as cluster:
        await cluster.list_with_version(Pods, {})


async def test_a_program_gives_the_token_in_the_protocol_that_the_kubeconfig_names(
    kmock: kmocks.RawHandler, tmp_path: Path
) -> None:
    kmock[f"get {PODS}"] << {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "1"},
        "items": [],
    }
    user = plugin(PLUGIN, env=[{"name": "WHO", "value": "ada"}])
    await listed(kubeconfig(tmp_path, user, str(kmock.url).rstrip("/")))
    assert kmock[f"get {PODS}"][0].headers["Authorization"] == "Bearer for ada"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('log in again')", "returned 1: log in again"),
        ("print('hello')", "Expecting value"),
        ("print('{}')", "no 'status'"),
    ],
)
async def test_a_program_that_gives_no_token_is_one_line_with_its_words(
    tmp_path: Path, code: str, why: str
) -> None:
    with pytest.raises(
        Unavailable, match=r"gives no credentials for the cluster at https://127.0.0.1:1"
    ) as caught:
        await listed(kubeconfig(tmp_path, plugin(code)))
    assert why in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"exec": {"apiVersion": V1, "command": "no-such", "installHint": "ask\nbob"}}, "'no-such', .*: ask bob"),
        ({"client-certificate": "/no/such.crt", "client-key": "/no/such.key"}, "the file '/no/such.crt'"),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider not supported"),
    ],
)
def test_credentials_that_cannot_be_used_are_named(tmp_path: Path, user: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        Cluster(ClusterAccess(kubeconfig(tmp_path, user)))


@pytest.mark.parametrize("text", ["", "hello", "{{{", "- a"])
def test_a_file_that_is_not_a_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=r"kubeconfig' is not a kubeconfig: ") as caught:
        Cluster(ClusterAccess(path))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("answer", [b"<html>", {}, []])
async def test_a_server_that_is_not_a_cluster_is_named(
    kmock: kmocks.RawHandler, tmp_path: Path, answer: object
) -> None:
    kmock["get"] << answer
    with pytest.raises(Unavailable, match=r"is not the API server of a cluster: "):
        await listed(kubeconfig(tmp_path, {}, str(kmock.url).rstrip("/")))


def test_an_engine_whose_package_is_missing_names_it(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['lightkube'] = None; from aenv.cli.main import main; main()"
    words = ["serve", "--engine", "kubernetes", "--port", "0", "--data-port", "0", "--home", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", hidden, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith(
        "aenv: the kubernetes engine needs the package 'lightkube'; run: "
    )


async def test_a_request_that_is_cancelled_while_it_connects_leaves_no_connection(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # which never says anything
        server.setblocking(False)
        path = kubeconfig(tmp_path, {}, f"https://127.0.0.1:{server.getsockname()[1]}")
        async with Cluster(ClusterAccess(path)) as cluster:
            asking = asyncio.create_task(cluster.list_with_version(Pods, {}))
            loop = asyncio.get_running_loop()
            connection, _ = await loop.sock_accept(server)
            with connection:
                assert await loop.sock_recv(connection, 1 << 16)  # the handshake has begun
                asking.cancel()
                await asyncio.wait({asking})
                assert await loop.sock_recv(connection, 1 << 16) == b""

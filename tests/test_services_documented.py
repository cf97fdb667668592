"""Services as the documents say: where storage is mounted, what replicas count for, and what they print."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import InvalidRequest
from aenv.control.services import storage
from aenv.engines.base import Address, InstanceSpec, ResourceLimits
from aenv.engines.process import ProcessEngine
from aenv.isolation.sandbox import probe
from tests import service_gateway
from tests.command_line import aenv, environ, on_terminal
from tests.gateways import Gateway, composed, listening, make_project, running_gateway

pytestmark = pytest.mark.slow  # services start

CODE = """
    import os
    from pathlib import Path

    from aenv import register_tool

    print("this replica has started", flush=True)


    @register_tool
    def keep(text: str) -> str:
        place = Path(os.environ["AENV_STORAGE"])
        (place / "kept").write_text(text)
        return str(place)


    @register_tool
    def read(path: str) -> str:
        return Path(path).read_text()
"""


async def running(gateway: Gateway, **body: Any) -> dict[str, Any]:
    """A service of which every replica is healthy."""
    status, reply = await gateway.ask("POST", "/env-service", {"envName": "echo", **body})
    assert status == 200, reply
    id = reply["data"]["id"]
    async with asyncio.timeout(25):
        while (data := (await gateway.ask("GET", f"/env-service/{id}"))[1]["data"])["status"] != "Running":
            assert data["status"] != "Failed", data["reason"]
            await asyncio.sleep(0.02)
    return dict(data)


async def call(gateway: Gateway, service: str, tool: str, **arguments: Any) -> Any:
    _, reply = await gateway.ask("POST", f"/services/{service}/tools/{tool}", arguments)
    return reply["data"]["content"][0]["text"]


@pytest.mark.timeout(120)
async def test_storage_is_mounted_where_the_service_asks_for_it(tmp_path: Path) -> None:
    if probe.missing_isolation():
        pytest.skip("this host cannot isolate instances")
    project = make_project(tmp_path, code=CODE)
    async with running_gateway(tmp_path / "home", project, engine="native") as gateway:
        made = await running(gateway, service_name="a", pvc_name="kept", mount_path="/home/admin/data")
        assert made["mount_path"] == "/home/admin/data"
        assert await call(gateway, "a", "keep", text="hello") == "/home/admin/data"
        assert await call(gateway, "a", "read", path="/home/admin/data/kept") == "hello"
        (row,) = (await gateway.ask("GET", "/env-instances/usage"))[1]["data"]["instances"]
        assert (row["id"], row["service"]) == (made["instances"][0], "a") and row["memory_bytes"]
        await gateway.ask("DELETE", "/env-service/a")
        # The next service finds the same files at another place, and there is a place without asking for one.
        await running(gateway, service_name="b", pvc_name="kept", mount_path="/notes")
        assert await call(gateway, "b", "read", path="/notes/kept") == "hello"
        await gateway.ask("DELETE", "/env-service/b")
        await running(gateway, service_name="c", pvc_name="kept")
        assert await call(gateway, "c", "keep", text="again") == "/storage"


async def test_an_engine_that_mounts_nothing_says_so(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path, code=CODE)) as gateway:
        made = await running(gateway, service_name="a", pvc_name="kept", mount_path="/home/admin/data")
    assert [line for line in made["not_enforced"] if line.startswith("mount_path: ")]


async def test_amounts_that_a_replica_does_not_get_are_told(tmp_path: Path) -> None:
    project = make_project(tmp_path, code=CODE, cpu="1", memory="1Gi")
    async with running_gateway(tmp_path / "home", project) as gateway:
        same = await running(gateway, service_name="a", cpu_request="1C", cpu_limit="1000m", memory_limit="1Gi")
        assert same["not_enforced"] == []
        other = await running(gateway, service_name="b", cpu_request="500m", cpu_limit="1", memory_limit="4Gi")
    told = ["cpu_request: a replica has its limit", "memory_limit: its environment allows no more"]
    assert other["not_enforced"] == told


async def test_a_replica_has_the_amounts_that_were_asked_for_and_follows_its_environment_in_the_others(
    tmp_path: Path,
) -> None:
    asked: list[ResourceLimits] = []

    class Noting(ProcessEngine):
        async def create(self, spec: InstanceSpec) -> Address:
            asked.append(spec.limits)
            return await super().create(spec)

    home = tmp_path / "home"
    old = make_project(tmp_path, code=CODE, cpu="2", memory="1Gi")
    new = make_project(tmp_path, version="2.0.0", code=CODE, cpu="1", memory="2Gi")
    async with composed(home, old, new, engine=Noting(home)) as made, listening(made) as gateway:
        body = {"envName": "echo@1.0.0", "service_name": "a", "cpu_limit": "1500m", "memory_limit": "1Gi"}
        service = await running(gateway, **body, ephemeral_storage_request="1Gi")
        assert service["not_enforced"] == []
        status, reply = await gateway.ask("PUT", "/env-service/a", {"version": "2.0.0"})
        assert status == 200, reply
        while len(asked) < 2:
            await asyncio.sleep(0.01)
    first, second = asked
    assert (first.cpus, first.memory_bytes, first.storage_bytes) == (1.5, 1 << 30, 1 << 30)
    # Less than it asked for is all that the new version allows; of memory it wanted what its version has.
    assert (second.cpus, second.memory_bytes, second.storage_bytes) == (1.0, 2 << 30, 1 << 30)


@pytest.mark.parametrize(
    "path",
    ["data", "/", "/etc/x", "/usr/local/x", "/home", "/a/../etc", "/proc/1", "/workspace", "/run/aenv", "/x\0"],
)
def test_a_place_that_would_hide_what_an_instance_needs_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match="field 'mount_path'"):
        storage.check_place(path)


@pytest.mark.parametrize("path", ["/home/admin/data", "/storage", "/notes/", "/var/lib/notes", "/root/data"])
def test_other_places_are_accepted(path: str) -> None:
    assert storage.check_place(path) == path.rstrip("/")


async def test_replicas_count_for_the_capacity(tmp_path: Path) -> None:
    project = make_project(tmp_path, code=CODE, cpu="1", memory="1Gi")
    settings: dict[str, Any] = {"capacity_cpus": 4.0, "capacity_memory_bytes": 3 << 30}
    async with running_gateway(tmp_path / "home", project, **settings) as gateway:
        await running(gateway, service_name="a", replicas=2)
        await gateway.create()
        status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo"})
        assert (status, "memory is at" in reply["message"]) == (429, True), reply
        status, reply = await gateway.ask("PUT", "/env-service/a", {"replicas": 3})
        assert (status, "memory is at" in reply["message"]) == (429, True), reply
        await gateway.ask("DELETE", "/env-service/a")
        await gateway.create()


async def test_replicas_are_in_the_lists_of_instances_and_their_lines_can_be_read(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path, code=CODE)) as gateway:
        env = environ(AENV_SYSTEM_URL=gateway.address.url, AENV_HOME=str(tmp_path / "user"))

        async def said(*words: str) -> str:
            done = await asyncio.to_thread(aenv, *words, env=env)
            assert done.returncode == 0, done.stderr
            return done.stdout

        made = await running(gateway, service_name="many", replicas=2)
        alone = await running(gateway, service_name="alone")
        ids = {*made["instances"], *alone["instances"]}
        listed = json.loads(await said("instances", "--json"))
        assert {each["id"]: each["service"] for each in listed} == {
            **dict.fromkeys(made["instances"], "many"),
            **dict.fromkeys(alone["instances"], "alone"),
        }
        rows = json.loads(await said("ps", "--json"))["instances"]
        assert {row["id"] for row in rows} == ids
        shown = await asyncio.to_thread(on_terminal, "ps", env=env, columns=150)
        assert all(id in shown for id in ids) and "service many" in shown
        lines = (await said("service", "logs", "al")).splitlines()  # the beginning of its name
        assert "this replica has started" in lines
        lines = (await said("service", "logs", "many")).splitlines()
        assert {f"{id[-6:]}  this replica has started" for id in made["instances"]} <= {*lines}
        status, reply = await gateway.ask("GET", "/env-service/many/logs?replica=another")
        assert (status, reply["message"]) == (404, "service 'many' has no replica 'another' now")


SITE = """
    import http.server
    import json
    import os
    import threading

    from aenv import register_tool


    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            said = json.dumps({"path": self.path, "pid": os.getpid()}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            if self.path == "/close":
                self.server.server_close()

        def log_message(self, *_):
            pass


    @register_tool
    def who() -> str:
        return "the runtime"


    if os.environ.get("SITE"):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SITE"])), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
"""


@pytest.mark.timeout(120)
async def test_requests_go_to_the_port_that_the_service_asks_for(tmp_path: Path) -> None:
    if probe.missing_isolation():
        pytest.skip("this host cannot isolate instances")
    project = make_project(tmp_path, code=SITE)
    async with running_gateway(tmp_path / "home", project, engine="native") as gateway:
        site = {"SITE": "9000"}
        made = await running(gateway, service_name="site", port=9000, replicas=2, environment_variables=site)
        assert (made["port"], made["not_enforced"]) == (9000, [])
        status, reply = await gateway.ask("GET", "/services/site/a/b?c=d", origin=gateway.data)
        assert (status, reply["path"]) == (200, "/a/b?c=d")
        # 8081 is the runtime's own, which every published config.json names, whatever else listens inside.
        await running(gateway, service_name="tools", port=8081, environment_variables={"SITE": "8081"})
        assert await call(gateway, "tools", "who") == "the runtime"


@pytest.mark.timeout(120)
async def test_without_a_server_at_the_port_the_runtime_is_called_and_the_service_says_so(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path, code=SITE)) as gateway:
        made = await running(gateway, service_name="a", port=9)
        assert made["not_enforced"] == ["port: nothing in the replica listens on port 9; its runtime is called"]
        assert await call(gateway, "a", "who") == "the runtime"
        status, reply = await gateway.ask("POST", "/env-service", {"envName": "echo", "port": 65536})
        assert (status, reply["message"]) == (400, "field 'port': 65536 is not a number from 1 to 65535")


@pytest.mark.timeout(60)
async def test_a_replica_whose_server_is_gone_is_replaced(tmp_path: Path) -> None:
    with socket.socket() as probed:
        probed.bind(("127.0.0.1", 0))
        port = probed.getsockname()[1]
    async with service_gateway.service_gateway(
        tmp_path / "home", service_gateway.make_project(tmp_path, code=SITE)
    ) as gateway:
        await gateway.create(service_name="site", port=port, environment_variables={"SITE": str(port)})
        _, first = await gateway.ask("GET", "/services/site/close")
        async for _ in gateway.store.changes():
            status, reply = await gateway.ask("GET", "/services/site/")
            if status == 200 and reply["pid"] != first["pid"]:
                return

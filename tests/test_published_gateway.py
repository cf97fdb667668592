"""Our SDK with a gateway of the published kind: no PUT, instances that are pending at first, data on port 8081.

That gateway is a program we cannot install, so a script answers as its protocol says; the instance behind it is
real. Its data port is hard-wired, hence the network namespace.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from tests.netns import namespace
from tests.system import require

SCRIPT = """
import asyncio, json, socket, sys
from pathlib import Path
from aenv import Environment, register_tool
from aenv.inside.author.inject import Context
from aenv.inside.author.registry import Registry, collecting
from aenv.inside.runtime.http import Listener
from aenv.inside.runtime.messages import Reply, json_reply
from aenv.inside.runtime.serving import bind, offered, served

seen = []
looks = 0

async def control(request, stream):
    global looks
    seen.append(f"{request.method} {request.path}")
    if request.method == "PUT":
        return Reply(404, b"404 page not found", "text/plain")
    data = {"id": "env-abc123", "status": "Pending", "created_at": "", "updated_at": "", "ip": "", "env": None}
    if request.method == "GET":
        looks += 1
        if looks > 1:
            data |= {"status": "Running", "ip": "10.1.2.3"}
    if request.method == "DELETE":
        data = "Deleted successfully"
    return json_reply({"success": True, "code": 0, "message": "", "data": data})

async def main():
    registry = Registry()
    with collecting(registry):
        @register_tool
        def double(n: int) -> int:
            return 2 * n
    async with (
        offered(registry, [], Context(), timeout=None, name="x") as offer,
        served(offer, bind("127.0.0.1", 8081, "")),
        Listener(control, max_body_bytes=1 << 20) as listener,
    ):
        await listener.listen(bind("127.0.0.1", 8080, ""))
        async with Environment("env@1.0.0", aenv_url="http://127.0.0.1") as env:
            result = await env.call_tool("double", {"n": 4})
            print(json.dumps({"result": result.structured, "headers": env.proxy_headers}))
    print(json.dumps(seen))

asyncio.run(main())
"""


@pytest.mark.slow
async def test_our_sdk_works_with_a_gateway_of_the_published_kind():
    require("ip", "iproute2")
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    with namespace() as space:
        process = await asyncio.create_subprocess_exec(
            *space.command(sys.executable, "-c", SCRIPT), stdout=asyncio.subprocess.PIPE
        )
        stdout, _ = await process.communicate()
    first, seen = (json.loads(line) for line in stdout.splitlines())
    assert first == {
        "result": {"result": 8},
        "headers": {"AEnvCore-EnvInstance-ID": "env-abc123", "AEnvCore-MCPProxy-URL": "http://10.1.2.3:8081"},
    }
    create, *rest = seen
    assert create.startswith("PUT /env-instance/env-")
    assert rest == ["POST /env-instance", *["GET /env-instance/env-abc123"] * 2, "DELETE /env-instance/env-abc123"]

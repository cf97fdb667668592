"""The control port of `aenv run`: the published instance routes, for the one instance that runs.

With it a client that was told `AENV_SYSTEM_URL` works against a single runtime. Creating hands out the running
instance, whatever name is asked for; deleting does not end it.
"""

from __future__ import annotations

import logging
from typing import Any

from ...base import mcp, origins, refs, wire
from ...base.errors import AEnvError, InvalidRequest, MethodNotAllowed, NotFound
from ...base.models import EnvInstance
from .messages import Reply, Request, Stream, json_reply

logger = logging.getLogger("aenv.inside.runtime.control")


class ControlApp:
    def __init__(
        self, environment: str | None, tools: list[dict[str, Any]], data_port: int, *, loopback_only: bool
    ) -> None:
        self._environment = environment
        self._tools = tools
        self._data_port = data_port
        self._loopback_only = loopback_only
        self._since = wire.timestamp()

    async def handle(self, request: Request, stream: Stream) -> Reply | None:
        refusal = origins.check(request.method, request.headers, loopback_only=self._loopback_only)
        if refusal:
            return _envelope(403, "forbidden", refusal)
        try:
            return json_reply({"success": True, "code": 0, "message": "", "data": self._dispatch(request)})
        except AEnvError as error:
            return _envelope(error.status, error.code, error.message)

    def _dispatch(self, request: Request) -> Any:
        parts = [part for part in request.path.split("/") if part]
        match request.method, parts:
            case "GET", ["health"]:
                return {"status": "healthy"}
            case "POST", ["env-instance"]:
                return self._create(request, None)
            case "PUT", ["env-instance", id]:
                return self._create(request, id)
            case "GET", ["env-instance", _, "list"]:
                return [self._instance(request, wire.new_instance_id("local"))]
            case "GET", ["env-instance", id]:
                return self._instance(request, id)
            case "DELETE", ["env-instance", _]:
                return "Deleted successfully"
            case _, ["env-instance", *_] | ["health"]:
                raise MethodNotAllowed(f"{request.path!r} does not take {request.method}")
        raise NotFound(
            f"no route {request.path!r} on a single runtime; a whole platform is started by 'aenv serve'"
        )

    def _create(self, request: Request, id: str | None) -> dict[str, Any]:
        try:
            body = mcp.loads(request.body)
        except ValueError as error:
            raise InvalidRequest(f"the body is not JSON: {error}") from None
        name = body.get("envName") if isinstance(body, dict) else None
        if not isinstance(name, str):
            raise InvalidRequest("envName must be the environment's name, as in 'my-env@1.0.0'")
        asked = refs.parse(name)
        if self._environment and asked.name != refs.parse(self._environment).name:
            logger.warning("asked for %s; this runtime serves %s and hands that out", asked, self._environment)
        return self._instance(request, id or wire.new_instance_id(asked.name))

    def _instance(self, request: Request, id: str) -> dict[str, Any]:
        host = origins.host_of(request.headers.get("host", "")) or "127.0.0.1"
        authority = f"[{host}]" if ":" in host else host
        instance = EnvInstance(
            id=id,
            status=wire.EnvStatus.RUNNING,
            created_at=self._since,
            updated_at=self._since,
            ip=host,
            engine="run",
            isolation=[],
            mcp_url=f"http://{authority}:{self._data_port}/instances/{id}/mcp",
            tools=self._tools,
        )
        return instance.model_dump(mode="json", exclude_none=True)


def _envelope(status: int, code: str, message: str) -> Reply:
    body = {"success": False, "code": status, "message": message, "data": None, "error": code}
    return json_reply(body, status)

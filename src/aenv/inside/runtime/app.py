"""The runtime's routes: MCP, health, functions, rewards, reset, plain tool calls, and the history of calls.

Replies are `{"success": true, "data": …}` or `{"success": false, "error": "…"}`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

from pydantic_core import PydanticSerializationError

from ...base import mcp, origins
from ...base.errors import AEnvError, InvalidRequest, MethodNotAllowed, NotFound, NotJudged, Unavailable
from ...base.limits import MAX_BODY_BYTES
from ...base.outcomes import Outcome
from ..author.content import UnserialisableResult, to_jsonable
from ..author.registry import FunctionDefinition, Registry
from .calls import CallFailed, Calls
from .history import History
from .mcp_http import McpEndpoint
from .messages import Reply, Request, Stream, json_reply, refuse, too_large
from .surface import Surface

RuntimeRoute = Callable[[Request], Awaitable[Any]]
_INSTANCE = re.compile(r"\A/instances/[^/]*/?")
"""With which gateways address an instance; its own path follows."""


class App:
    def __init__(
        self,
        registry: Registry,
        surface: Surface,
        calls: Calls,
        history: History,
        endpoint: McpEndpoint,
        *,
        loopback_only: bool,
    ) -> None:
        self._registry = registry
        self._surface = surface
        self._calls = calls
        self._history = history
        self._run_tool = history.of_tools(surface.call_tool)
        self._endpoint = endpoint
        self._loopback_only = loopback_only
        self._routes: dict[str, dict[str, RuntimeRoute]] = {
            "/health": {"GET": self._health},
            "/healthz": {"GET": self._healthz},
            "/functions/list": {"GET": self._list_functions},
            "/history": {"GET": self._list_calls},
            "/task/reward": {"POST": self._reward},
            "/task/reset": {"POST": self._reset},
        }
        for function in registry.functions.values():
            self._routes.setdefault(function.endpoint, {})[function.method] = self._function_route(function)
        for function in registry.functions.values():
            # Callers of a function by name need not know that it has an endpoint of its own.
            named = self._routes.setdefault(f"/functions/{function.name}", {})
            named.setdefault("POST", self._function_route(function))

    async def handle(self, request: Request, stream: Stream) -> Reply | None:
        masks = self._calls.masks
        if not masks:
            return await self._handle(request, stream)
        stream.masks = masks
        reply = await self._handle(request, stream)
        if reply:
            is_json = reply.content_type == "application/json"
            reply.body = masks.json(reply.body) if is_json else masks.events(reply.body)
        return reply

    async def _handle(self, request: Request, stream: Stream) -> Reply | None:
        refusal = origins.check(request.method, request.headers, loopback_only=self._loopback_only)
        if refusal:
            return refuse(403, refusal)
        path = _INSTANCE.sub("/", request.path)
        if path in ("/mcp", "/mcp/"):
            return await self._endpoint.handle(request, stream)
        try:
            answer = await self._dispatch(path, request)
            reply = answer if isinstance(answer, Reply) else json_reply({"success": True, "data": answer})
            size = len(reply.body)
            return reply if size <= MAX_BODY_BYTES else refuse(413, too_large(size))
        except MethodNotAllowed as error:
            return refuse(405, error.message, (("allow", ", ".join(error.allowed)),))
        except NotJudged as error:
            said = {"success": False, "error": error.reason, "outcome": error.outcome}
            return json_reply({**said, "details": to_jsonable(error.details)} if error.details else said)
        except AEnvError as error:
            return refuse(error.status, error.message)
        except (UnserialisableResult, UnicodeEncodeError, PydanticSerializationError) as error:
            return refuse(500, f"the result has no JSON form: {error}")

    async def _dispatch(self, path: str, request: Request) -> Any:
        path = path.rstrip("/") or "/"
        if path.startswith("/tools/") and path not in self._routes:
            return await self._tool(unquote(path[len("/tools/") :]), request)
        methods = self._routes.get(path)
        if methods is None:
            raise NotFound(f"no route {path!r}; functions are listed at /functions/list")
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            raise MethodNotAllowed(f"{path!r} takes {', '.join(methods)}, not {request.method}", tuple(methods))
        return await route(request)

    async def _healthz(self, request: Request) -> Any:
        """The same for a cluster, which looks at nothing but the status of the reply."""
        said = await self._health(request)
        status = said.get("status", "healthy") if isinstance(said, dict) else "healthy"
        if status not in ("success", "healthy"):
            raise Unavailable(f"/health says {str(status)[:100]!r}")
        return said

    async def _health(self, request: Request) -> Any:
        custom = self._registry.health
        failed = self._calls.failed_starts
        if custom is None and failed:
            words = "; ".join(f"the start function {name!r} failed: {said}" for name, said in failed.items())
            return {"status": "error", "message": words, "last_active": self._calls.last_active}
        if custom is None:
            return {
                "status": "success",
                "message": "MCP server is healthy",
                "details": {"tool_count": len(await self._surface.tools())},
                "last_active": self._calls.last_active,
            }
        try:
            answer = await self._calls.check_health(custom, _query(request))
        except CallFailed as error:
            return {"status": "error", "message": error.message, "last_active": self._calls.last_active}
        if isinstance(answer, bool):
            return {"status": "healthy" if answer else "error"}
        return to_jsonable(answer)

    async def _list_functions(self, request: Request) -> Any:
        registry = self._registry
        functions = [_described(function) for function in registry.functions.values()]
        rewards = [_described(reward) for reward in registry.rewards.values()]
        health = [_described(registry.health)] if registry.health else [_DEFAULT_HEALTH]
        total = len(functions) + len(rewards) + len(health)
        return {"total": total, "functions": functions, "reward": rewards, "health": health}

    def _function_route(self, function: FunctionDefinition) -> RuntimeRoute:
        async def call(request: Request) -> Any:
            arguments = _query(request) if request.method in ("GET", "HEAD") else _body(request)
            return await self._remembered("function", function, arguments)

        return call

    async def _remembered(
        self, kind: Literal["function", "reward"], function: FunctionDefinition, arguments: dict[str, Any]
    ) -> Reply:
        with self._history.call(kind, function.name, arguments) as call:
            value = await self._calls.run(function, arguments, timeout=function.timeout)
            if kind == "reward" and isinstance(value, dict) and value.get("invalid"):
                # An older way to say it, with a number beside it that must not be counted.
                raise NotJudged(Outcome.INVALID, str(value["invalid"]), value)
            data = mcp.dumps(to_jsonable(value))
            call.result_bytes = len(data)
        return Reply(body=b'{"success":true,"data":%b}' % data)

    async def _list_calls(self, request: Request) -> Any:
        if not self._history.is_kept:
            raise NotFound("this instance keeps no history of its calls")
        calls = self._history.as_list()
        return {"total": len(calls), "calls": calls}

    async def _reward(self, request: Request) -> Any:
        rewards = self._registry.rewards
        name = dict(parse_qsl(request.query)).get("name") or next(iter(rewards), None)
        if name is None or name not in rewards:
            known = f"it has {', '.join(rewards)}" if rewards else "it has none"
            raise NotFound(f"no reward {name or 'function'!r} in this environment; {known}")
        return await self._remembered("reward", rewards[name], _body(request))

    async def _reset(self, request: Request) -> Any:
        reset = self._registry.reset
        if reset is None:
            raise NotFound("this environment cannot start over in place; it registers no reset")
        body = _body(request)
        options = body.get("options") or {}
        unknown = set(body) - {"seed", "options"}
        if unknown or not isinstance(options, dict):
            raise InvalidRequest("reset takes {'seed': integer, 'options': object}")
        seed = {"seed": body["seed"]} if body.get("seed") is not None else {}
        return to_jsonable(await self._calls.run(reset, {**options, **seed}, timeout=reset.timeout))

    async def _tool(self, name: str, request: Request) -> Any:
        if request.method != "POST":
            raise MethodNotAllowed(f"tools take POST, not {request.method}", ("POST",))
        if name not in (tool["name"] for tool in await self._surface.tools()):
            raise NotFound(f"no tool {name!r} in this environment")
        result = await self._run_tool(name, _body(request), None)
        return {
            "content": result["content"],
            "is_error": result.get("isError", False),
            "structured": result.get("structuredContent"),
        }


def _body(request: Request) -> dict[str, Any]:
    if not request.body.strip():
        return {}
    try:
        body = mcp.loads(request.body)
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object of arguments")
    return body


def _query(request: Request) -> dict[str, Any]:
    """The query's parameters; lists and objects come as JSON text."""
    found: dict[str, Any] = dict(parse_qsl(request.query, keep_blank_values=True))
    for name, value in found.items():
        if value.startswith(("{", "[")):
            with suppress(ValueError):
                found[name] = mcp.loads(value)
    return found


def _described(function: FunctionDefinition) -> Mapping[str, Any]:
    properties = function.signature.input_schema["properties"]
    return {
        "name": function.name,
        "endpoint": function.endpoint,
        "method": function.method,
        "description": function.description or "",
        "parameters": {
            name: {
                "type": schema.get("type", "Any"),
                "default": str(schema["default"]) if schema.get("default") is not None else None,
            }
            for name, schema in properties.items()
        },
        "is_async": function.signature.is_async,
    }


_DEFAULT_HEALTH = {
    "name": "default_health_handler",
    "endpoint": "/health",
    "method": "GET",
    "description": "says that the runtime answers",
    "parameters": {},
    "is_async": True,
}

"""What a user of the SDK does, as a script that the published package and ours both run.

    python usage.py environment      use an instance of portable@1.0.0, in the mode that the variables choose
    python usage.py scheduler        create, get and delete one with the low-level client

Prints one JSON object of facts; the tests compare them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from aenv import Environment

NAME = "portable@1.0.0"


async def use_environment() -> dict[str, Any]:
    async with Environment(NAME, environment_variables={"A": "1"}, arguments=["--x"]) as env:
        return {
            "tools": await _tools(env),
            "text": (await env.call_tool("echo", {"text": "hello"})).content,
            "text by full name": (await env.call_tool(f"{NAME}/echo", {"text": "hello"})).content,
            "dictionary": await _dictionary(env),
            "error": await _error(env),
            "function": await env.call_function("multiply", {"a": 6, "b": 7}),
            "function without arguments": await env.call_function("describe", {}),
            "function error": await _failure(env.call_function("explode", {})),
            "unknown function": (await _failure(env.call_function("nothing", {})))[0],
            "reward": await env.call_reward({"answer": "42"}),
            "health": await _health(env),
            "functions": await _functions(env),
            "info": await _info(env),
        }


async def _tools(env: Environment) -> dict[str, Any]:
    tools = {tool["name"]: tool for tool in await env.list_tools()}
    add = tools[f"{NAME}/add"]
    return {
        "names": sorted(tools),
        "description": add["description"],
        "required": add["inputSchema"]["required"],
        "type of a": add["inputSchema"]["properties"]["a"]["type"],
        "default of b": add["inputSchema"]["properties"]["b"]["default"],
    }


async def _dictionary(env: Environment) -> Any:
    result = await env.call_tool("add", {"a": 40})
    (part,) = result.content
    return {"type": part["type"], "value": json.loads(part["text"]), "is_error": result.is_error}


async def _error(env: Environment) -> Any:
    result = await env.call_tool("fail", {"message": "the disk is on fire"})
    return {"is_error": result.is_error, "message": "the disk is on fire" in result.content[0]["text"]}


async def _failure(call: Any) -> list[Any]:
    from aenv import EnvironmentError

    try:
        await call
    except EnvironmentError as error:
        return ["EnvironmentError", "the function gave up" in str(error)]
    return ["nothing was raised"]


async def _health(env: Environment) -> Any:
    health = await env.check_health({})
    return {"success": health["success"], "status": health["data"]["status"]}


async def _functions(env: Environment) -> Any:
    listed = await env.list_functions()
    return {
        "functions": sorted(entry["name"] for entry in listed["functions"]),
        "reward": [entry["name"] for entry in listed["reward"]],
        "endpoints": sorted(entry["endpoint"] for entry in listed["functions"]),
        "total is their sum": listed["total"]
        == sum(len(listed[key]) for key in ("functions", "reward", "health")),
    }


async def _info(env: Environment) -> Any:
    info = await env.get_env_info()
    return {
        "name": info["name"],
        "status": info["status"],
        "has an ip": bool(info["ip"]),
        "keys": sorted(info),
    }


async def use_scheduler() -> dict[str, Any]:
    from aenv.client.scheduler_client import AEnvSchedulerClient

    async with AEnvSchedulerClient(os.environ["AENV_SYSTEM_URL"]) as client:
        made = await client.create_env_instance(NAME, ttl="5m", environment_variables={"A": "1"}, owner="me")
        ready = await client.wait_for_status(made.id, "Running")
        found = await client.get_env_instance(made.id)
        deleted = await client.delete_env_instance(made.id)
        try:
            gone = (await client.get_env_instance(made.id)).status
        except Exception as error:  # boundary: the class differs between the packages
            gone = f"not found: {'not found' in str(error)}"
    return {
        "status": ready.status,
        "same id": made.id == found.id,
        "begins with its name": made.id.startswith("portable-"),
        "has an ip": bool(found.ip),
        "deleted": deleted,
        "afterwards": gone,
    }


if __name__ == "__main__":
    facts = {"environment": use_environment, "scheduler": use_scheduler}[sys.argv[1]]
    print(json.dumps(asyncio.run(facts())))

"""Blocks that use an environment: each is run as a program of its own."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import IMPORTED, Block, broken_before, given, indented, opened, replaced, unmasked


@dataclass(frozen=True)
class Client:
    """A block that uses an environment: it is run, and `then` must be true in its names."""

    block: Block
    served: str = "documented"  # or the name of an authored block; "" for a block that opens no connection
    then: str = "True"
    prints: str = ""
    types: str = ""  # what a user types


CLIENTS = {
    "readme: mini program": Client(
        Block("000", "# The agent uses AEnvironment tools", repairs=(IMPORTED,)),
        then="'for index.html' in result.content[0]['text']",
    ),
    "readme: agent as environment": Client(
        Block("000", "# Agent A calls Agent B", repairs=(IMPORTED,)), prints="You said: Hello!"
    ),
    "readme: use environment": Client(
        Block("000", "import asyncio", below="### Use Environment"),
        served="readme: define tools",
        prints="Function result: 30\nReward: 1.0",
    ),
    "article: invoke": Client(
        Block(
            "001",
            "async with Environment(",
            2,
            'call_tool("search_code", {"query": "def main"})',
            below="return {",
            repairs=(indented("01"), unmasked("my-env@1.0.0"), IMPORTED),
        ),
        served="article: register a tool",
        then="result.structured == {'matches': []}",
    ),
    "article: agent as environment": Client(
        Block(
            "001",
            "# Agent A calls Agent B",
            3,
            'call_tool("chat", {"message": "Hello!"})',
            repairs=(indented("001"), unmasked("agent-b@1.0.0"), IMPORTED),
        ),
        then="response.content[0]['text'] == 'You said: Hello!'",
    ),
    "concepts: usage": Client(
        Block("002", "from aenv import Environment", 4, repairs=(indented("0011"),)), then="len(tools) == 7"
    ),
    "concepts: local mode": Client(
        Block(
            "002",
            "from aenv import Environment async",
            1,
            repairs=(broken_before("async with", "# Now", "tools ="), indented("0011")),
        ),
        then="len(tools) == 7",
    ),
    "concepts: remote mode": Client(
        Block(
            "002",
            "from aenv import Environment import os",
            1,
            repairs=(broken_before("import os", "# Set", "os.environ", "mini_terminal ="),),
        ),
        served="",
        then="'aenv-service' in mini_terminal.aenv_control_url and mini_terminal.timeout == 180",
    ),
    "concepts: release": Client(
        Block(
            "002",
            "mini_terminal.release()",
            1,
            "mini_terminal.release()",
            repairs=(
                replaced("missing await", "mini_terminal", "await mini_terminal"),
                *opened("mini-terminal@1.0.1", "mini_terminal"),
            ),
        )
    ),
    "sdk: verify installation": Client(
        Block("003", "import aenv", 2), served="", then="aenv.__version__", prints="."
    ),
    "sdk: mini-terminal": Client(
        Block(
            "003",
            "import asyncio",
            35,
            repairs=(indented("000 111 2222 1 2332 11 2 33 44 33 44 333 2 3 11 0 1"),),
        ),
        types="echo hello\nexit\n",
        prints="Environment successfully released",
    ),
    "sdk: calling example": Client(
        Block(
            "003",
            "result = await mini_terminal.call_tool(",
            4,
            below="Calling Example:",
            repairs=(
                replaced("the `input` key", '{"input": input,', '{"command": "echo helloworld",'),
                *opened("env_name@1.0.1", "mini_terminal"),
            ),
        ),
        then="'helloworld' in result.content[0]['text'] and not result.is_error",
    ),
    "sdk: tool discovery": Client(
        Block("003", "# 1. Get all tools", 2, repairs=opened("mini-terminal@1.0.1", "mini_terminal")),
        then="tools[0]['name'] == 'mini-terminal@1.0.1/execute_command' and 'timeout' in "
        "tools[0]['inputSchema']['properties']",
    ),
    "sdk: use reward function": Client(
        Block("003", "# Use reward function", 5, repairs=opened("my-env")),
        served="sdk: reward functions",
        then="reward['score'] == 0.8",
    ),
    "sdk: execute health check": Client(
        Block("003", "# Execute health check", 2, repairs=opened("my-env")),
        served="sdk: health checks",
        then="health['data']['status'] == 'healthy'",
    ),
    "sdk: basic usage": Client(
        Block(
            "003",
            "import asyncio",
            14,
            below="Basic Usage#",
            repairs=(indented("000 11111 1111 00"),),
        ),
        prints="Available tools: 7",
    ),
    "sdk: tool invocation": Client(
        Block(
            "003",
            "env.call_tool(",
            1,
            repairs=(
                replaced("missing await", "env.call_tool(", "result = await env.call_tool("),
                given("missing object", "data = {}"),
                *opened("trading-env"),
            ),
        ),
        then="result.content[0]['text'] == 'up'",
    ),
    "sdk: context manager": Client(
        Block(
            "003",
            "import asyncio",
            14,
            below="Recommended Usage: Context Manager#",
            repairs=(indented("000 11 2222 3 22 1 0"),),
        ),
        prints="Hello from AEnvironment!",
    ),
    "sdk: complete configuration": Client(
        Block("003", "env = Environment(", 15, below="Complete Configuration Example#", repairs=(IMPORTED,)),
        served="",
        then="(env.datasource, env.ttl, env.max_retries) == ('/data/workspace', '2h', 5) and "
        "env.aenv_control_url == 'http://localhost:8080' and env.arguments == ['--verbose', '--gpu']",
    ),
    "sdk: dataset": Client(
        Block("003", "env = Environment(", 4, below="Dataset Specification#", repairs=(IMPORTED,)),
        served="",
        then="env.datasource == '/path/to/dataset'",
    ),
    "sdk: environment variables": Client(
        Block("003", "env = Environment(", 8, below="Environment Variable Injection#", repairs=(IMPORTED,)),
        served="",
        then="env.environment_variables['DEBUG'] == 'true'",
    ),
    "sdk: startup arguments": Client(
        Block("003", "env = Environment(", 4, below="Startup Parameter Configuration#", repairs=(IMPORTED,)),
        served="",
        then="env.arguments == ['--config', '/app/config.yaml', '--verbose']",
    ),
    "sdk: ttl": Client(
        Block("003", "# 30 minutes (default)", 6, repairs=(IMPORTED,)), served="", then="env.ttl == '24h'"
    ),
    "sdk: release": Client(
        Block("003", "await env.release()", 1, below="Best Practices:", repairs=opened("my-env"))
    ),
    "environments: data source": Client(
        Block("004", "env = Environment(", repairs=(IMPORTED,)), served="", then="env.datasource == ''"
    ),
    "environments: full image": Client(
        Block("004", "env = Environment(", below="##### Scenario 1", repairs=(IMPORTED,)),
        served="",
        then="env.datasource.startswith('swebench/')",
    ),
    "environments: image prefix": Client(
        Block("004", "# Configure image prefix", repairs=(IMPORTED,)),
        served="",
        then="env.datasource == '{instance_id}'",
    ),
    "environments: create": Client(
        Block("004", "from aenv import Environment", below="### Create Environment Instance"),
        served="",
        then="env.ttl == '1h' and env.environment_variables == {'DEBUG': 'true'}",
    ),
    "environments: destroy": Client(Block("004", "# Initialize environment", repairs=opened("my-env"))),
    "environments: best practices": Client(Block("004", "import asyncio", below="### Best Practices")),
}

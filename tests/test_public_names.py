"""The contract: public names, module paths and signatures that published code relies on."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import aenv

PUBLISHED = {
    "aenv": [
        *("Tool", "register_tool", "register_reward", "register_health", "register_function", "get_registry"),
        *("Environment", "AEnvError", "ToolError", "EnvironmentError", "UnrecoverableEnvironmentError"),
        *("EnvInstance", "EnvStatus", "setup_logging", "__version__"),
    ],
    "aenv.core": [
        *("register_tool", "register_function", "register_reward", "get_registry", "get_function_registry"),
        *("Environment", "EnvironmentError", "ToolError", "ToolTimeoutError", "NetworkError"),
        "UnrecoverableEnvironmentError",
    ],
    "aenv.core.environment": ["Environment", "ToolResult", "make_mcp_url", "split_env_name_version"],
    "aenv.core.exceptions": [
        *("AEnvError", "ToolError", "ToolTimeoutError", "ToolServerError", "EnvironmentError"),
        *("UnrecoverableEnvironmentError", "NetworkError", "ValidationError"),
    ],
    "aenv.core.models": [
        *("EnvStatus", "ServiceStatus", "Address", "Env", "EnvInstance", "EnvInstanceCreateRequest"),
        *("EnvInstanceListResponse", "EnvService", "EnvServiceCreateRequest", "EnvServiceUpdateRequest"),
        *("EnvServiceListResponse", "APIResponse", "APIError"),
    ],
    "aenv.core.tool": ["Tool", "ToolRegistry", "register_tool", "get_registry"],
    "aenv.core.function_registry": [
        *("BaseRegistry", "FunctionRegistry", "register_function", "register_reward", "register_health"),
        "get_function_registry",
    ],
    "aenv.core.logging": ["getLogger", "setup_logging"],
    "aenv.core.mcp_health": [
        *("update_active_time", "check_mcp_health", "default_health_handler", "close_health_clients"),
    ],
    "aenv.client.scheduler_client": ["AEnvSchedulerClient"],
    "aenv.server.mcp_server": ["AEnvMCPServer", "create_server"],
    "aenv.main": ["run_cli", "show_version"],
}


@pytest.mark.parametrize("module", PUBLISHED)
def test_every_published_module_path_has_its_names(module):
    loaded = importlib.import_module(module)
    assert [name for name in PUBLISHED[module] if not hasattr(loaded, name)] == []


def test_the_public_names_are_exactly_these():
    ours = {"Audio", "Blob", "Context", "Depends", "Image", "SyncEnvironment", "Text", "ToolResult"}
    ours |= {"register_prompt", "register_reset", "register_resource", "Sidecar", "SyncSidecar", "NotJudged"}
    ours |= {"register_start", "register_agent", "wrap_agent", "Chat", "ModelFailed", "compose", "GrantExceeded"}
    assert set(aenv.__all__) == {*PUBLISHED["aenv"], *ours}


def test_the_environment_takes_the_published_parameters_in_their_order():
    parameters = list(inspect.signature(aenv.Environment).parameters)
    assert parameters == [
        *("env_name", "datasource", "ttl", "environment_variables", "arguments", "aenv_url", "timeout"),
        *("startup_timeout", "max_retries", "api_key", "skip_for_healthy", "enable_data_plane", "owner"),
        *("labels", "mount_points", "init_command", "resources", "network", "attach", "runtime_url", "wait"),
        *("self_check", "model_url", "model_key"),
    ]


PUBLISHED_METHODS = [
    *("initialize", "release", "list_tools", "list_openai_tools", "list_functions", "call_tool"),
    *("call_function", "call_reward", "check_health", "wait_for_ready", "get_env_info", "presign_url"),
]
OUR_METHODS = [
    *("destroy", "renew", "reset", "openai_tools", "anthropic_tools", "list_anthropic_tools", "exec"),
    *("upload", "download", "list_files", "events", "history", "check_task"),
]


@pytest.mark.parametrize("name", [*PUBLISHED_METHODS, *OUR_METHODS])
def test_every_method_is_async_and_has_a_blocking_twin(name):
    method = getattr(aenv.Environment, name)
    twin = getattr(aenv.SyncEnvironment, name)
    assert inspect.iscoroutinefunction(method)
    assert not inspect.iscoroutinefunction(twin)
    assert list(inspect.signature(method).parameters) == list(inspect.signature(twin).parameters)


def test_the_published_attributes_are_there(monkeypatch):
    monkeypatch.setenv("AENV_SYSTEM_URL", "https://gateway.example:9999/x")
    env = aenv.Environment("e@1")
    assert env.aenv_control_url == "http://gateway.example:8080"
    assert env.aenv_data_url == "http://gateway.example:8081/mcp"
    assert env.aenv_health_url == "http://gateway.example:8081/health"
    assert env.aenv_reward_url == "http://gateway.example:8081/task/reward"
    assert env.aenv_functions_base_url == "http://gateway.example:8081/functions"
    assert (env.datasource, env.arguments, env.environment_variables) == ("", [], {})
    assert (env.timeout, env.max_retries, env.proxy_headers, env.dummy_instance_ip) == (60.0, 10, {}, None)


def test_errors_keep_their_published_constructors():
    from aenv.core.exceptions import EnvironmentError, ToolServerError, ToolTimeoutError

    error = ToolTimeoutError("late", tool_name="t", timeout=3.0, details={"a": 1})
    assert (error.message, error.tool_name, error.timeout, error.details) == ("late", "t", 3.0, {"a": 1})
    assert ToolServerError("x", status_code=502).status_code == 502
    assert EnvironmentError("x", env_name="e").env_name == "e"


def test_the_published_registries_show_what_decorators_registered():
    from aenv.inside.author.registry import Registry, collecting

    with collecting(Registry()):

        @aenv.register_tool(description="Doubles.")
        def double(n: int) -> int:
            return 2 * n

        @aenv.register_reward
        def score() -> float:
            return 1.0

        registry = aenv.get_registry()
        assert registry.get_tool("double") is double
        descriptor = registry.get_tool_descriptor("double")
        assert descriptor and descriptor.get_openai_tool()["function"]["name"] == "double"
        assert [tool.name for tool in registry.list_tools()] == ["double"]
        functions = importlib.import_module("aenv.core.function_registry").get_function_registry()
        assert functions.list_functions_simple() == {"score": "/task/reward"}


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = aenv.nonsense


def test_import_aenv_loads_nothing_heavy():
    heavy = {"pydantic", "pydantic_core", "asyncio", "starlette", "click", "rich", "httptools"}
    code = f"import sys, aenv; print(*sorted(set(sys.modules) & {heavy}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == ""


FRAMEWORKS = (
    *("agents", "agno", "areal", "autogen_agentchat", "autogen_core", "autogen_ext", "camel", "crewai", "dspy"),
    *("google", "gymnasium", "inspect_ai", "langchain", "langchain_core", "langgraph", "mcp", "minisweagent"),
    *("openai", "openhands", "pydantic_ai", "ray", "skyrl_gym", "smolagents", "stable_baselines3", "strands"),
    *("torch", "transformers", "trl", "verl"),
)
IMPORT_ALL = """
import importlib, os, pkgutil, sys
import aenv

asked = set()


class Watch:
    def find_spec(self, name, path=None, target=None):
        asked.add(name.partition(".")[0])


sys.meta_path.insert(0, Watch())
left_out = tuple(f"aenv.{part}." for part in ("attacks", "envs", "examples", "integrations"))
count = 0
for module in pkgutil.walk_packages(aenv.__path__, "aenv."):
    if not (module.name + ".").startswith(left_out) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        count += 1
print(count, *sorted(asked))
"""


@pytest.mark.slow  # it imports all of aenv
def test_no_framework_is_imported_by_the_core():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    count, *asked = done.stdout.split()
    assert int(count) > 300
    assert {"pydantic", "httptools"} <= {*asked}
    assert {*asked} & {*FRAMEWORKS} == set()


@pytest.mark.parametrize(("old", "new"), [("SecondPart", "Sidecar"), ("SyncSecondPart", "SyncSidecar")])
def test_environments_that_were_pushed_with_the_old_name_of_the_sidecar_still_load(old: str, new: str) -> None:
    with pytest.warns(FutureWarning, match=f"aenv.{old} is now aenv.{new}"):
        assert getattr(aenv, old) is getattr(aenv, new)
    assert old not in aenv.__all__

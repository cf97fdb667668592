"""Environments that are composed of others: one set of tools, one lifetime, parts that can be replaced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from aenv.base import composition
from aenv.base.composition import NamedPart
from aenv.base.config import load_project
from aenv.base.errors import InvalidRequest, ToolServerError, ToolTimeoutError
from aenv.control.instances import kinship
from aenv.inside.author.part import Part
from tests.command_line import aenv, environ
from tests.composed_projects import project, pushed, url_of
from tests.gateways import Gateway, leftovers, running_gateway

ARITHMETIC = """
from aenv import register_function, register_reward, register_tool

asked = []


@register_tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    asked.append((a, b))
    return a + b


@register_tool
def version() -> str:
    "Which arithmetic this is."
    return "VERSION"


@register_function
def count() -> int:
    return len(asked)


@register_reward
def score() -> float:
    return 0.25
"""
WORDS = """
import asyncio
import os
from aenv import Image, register_tool

ended = []


@register_tool
def shout(text: str) -> str:
    "Say it in capitals."
    return text.upper()


@register_tool
def version() -> str:
    "Which words these are."
    return os.environ.get("DIALECT", "plain")


@register_tool
def picture() -> Image:
    "A small picture."
    return Image(data=b"GIF89a", mime_type="image/gif")


@register_tool
def fail() -> str:
    "Always fails."
    raise ValueError("no words")


@register_tool
async def hang() -> None:
    "Never answers."
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("hang")


@register_tool
def has_ended() -> list:
    "Which tools were cancelled."
    return ended
"""
WHOLE = """
from aenv import Context, register_reward, register_tool


@register_tool
def own() -> str:
    "Of the composed environment itself."
    return "mine"


@register_reward
async def judge(context: Context) -> float:
    total = await context.parts["calc"].call_tool("add", {"a": 2, "b": 3})
    count = await context.parts["calc"].call_function("count")
    return total + count + await context.parts["calc"].call_reward()
"""
CURIOUS = """
from aenv import Context, Environment, register_tool


@register_tool
async def shout_with(part: str, context: Context) -> str:
    "Use a part by its name."
    return await context.parts[part].call_tool("shout", {"text": "hello"})


@register_tool
async def use(environment: str) -> str:
    "Use an environment that is not granted."
    try:
        await Environment(environment).initialize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "used"
"""
USES = [{"env": "arithmetic@^1", "as": "calc"}, {"env": "words", "environmentVariables": {"DIALECT": "broad"}}]


class TestNames:
    def test_a_tool_keeps_its_name_unless_another_has_it(self) -> None:
        calc, words = NamedPart("calc"), NamedPart("words")
        names = composition.tool_names(["own", "shout"], {calc: ["add", "version"], words: ["shout", "version"]})
        assert names == {
            "add": (calc, "add"),
            "calc_version": (calc, "version"),
            "words_shout": (words, "shout"),
            "words_version": (words, "version"),
        }

    def test_a_part_with_a_name_of_its_own_has_that_before_all_of_its_tools(self) -> None:
        web = NamedPart("my-web", is_prefix=True)
        assert composition.tool_names(["open"], {web: ["open", "close"]}) == {
            "my_web_open": (web, "open"),
            "my_web_close": (web, "close"),
        }

    def test_a_name_with_a_prefix_may_be_the_name_of_another_tool_which_then_gets_one_too(self) -> None:
        python, notes, web = NamedPart("python"), NamedPart("notes"), NamedPart("web", is_prefix=True)
        offered = {python: ["run"], notes: ["python_run", "web_goto"], web: ["goto"]}
        for parts in (offered, dict(reversed(offered.items()))):
            assert composition.tool_names(["run"], parts) == {
                "python_run": (python, "run"),
                "notes_python_run": (notes, "python_run"),
                "notes_web_goto": (notes, "web_goto"),
                "web_goto": (web, "goto"),
            }

    @pytest.mark.parametrize(
        ("own", "parts", "name", "part"),
        [
            (["web_goto"], {NamedPart("web", is_prefix=True): ["goto"]}, "web_goto", "web"),
            ([], {NamedPart("a", True): ["b_x"], NamedPart("a-b", True): ["x"]}, "a_b_x", "a"),
            (["run", "python_run"], {NamedPart("python"): ["run"]}, "python_run", "python"),
        ],
    )
    def test_no_tool_takes_the_place_of_another(self, own: Any, parts: Any, name: str, part: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            composition.tool_names(own, parts)
        assert caught.value.message == (
            f"field 'uses': two tools would be called '{name}'; give the part '{part}' another name with 'as'"
        )

    def test_names_are_read_as_they_are_spelled(self) -> None:
        parts = (NamedPart("calc", is_prefix=True), NamedPart("words"))
        assert composition.read(composition.spell(parts)) == parts
        assert composition.read("") == ()


@pytest.mark.parametrize(
    ("uses", "why"),
    [
        (["words"], 'uses.0: must be an object, as in [{"env": "browser@^1", "as": "web"}]'),
        ([{"as": "calc"}], "uses.0: lacks 'env'"),
        ([{"env": "a b"}], "uses.0.env: bad environment 'a b'"),
        ([{"env": "words", "as": "1 x"}], "uses.0.as: bad value '1 x'"),
        ([{"env": "words", "workspace": "mine"}], "uses.0.workspace: bad value 'mine'; use 'shared'"),
        ([{"env": "words", "tools": []}], "uses.0.tools: is not known here"),
        ([{"env": "words"}, {"env": "words@^1"}], "two parts are called 'words'"),
        ([{"env": f"words{n}"} for n in range(17)], "has 17 parts"),
        ([{"env": "words", "environmentVariables": {"KEY": {"secret": "k"}}}], "a part gets no secrets"),
    ],
)
def test_wrong_parts_are_refused_with_the_field(tmp_path: Path, uses: Any, why: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        load_project(project(tmp_path, "whole", WHOLE, uses=uses))
    assert why in caught.value.message
    assert caught.value.message.startswith("config.json:")


@pytest.fixture(params=["process", "native"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    folders = [
        project(tmp_path, "arithmetic", ARITHMETIC.replace("VERSION", "first")),
        project(tmp_path, "words", WORDS),
        project(tmp_path, "whole", WHOLE, uses=USES),
        project(tmp_path, "lost", WHOLE, uses=[{"env": "nowhere@^1"}]),
        project(tmp_path, "crowded", WHOLE.replace("own", "calc_add"), uses=USES),
        project(tmp_path, "mirror", WHOLE, uses=[{"env": "mirror"}]),
        project(tmp_path, "hen", WHOLE, uses=[{"env": "egg@^1", "as": "laid"}]),
        project(tmp_path, "egg", WHOLE, uses=[{"env": "hen", "as": "hatched"}]),
        project(tmp_path, "curious", CURIOUS, uses=[{"env": "words"}]),
        project(tmp_path, "nested", WHOLE, uses=[{"env": "whole", "as": "all"}]),
    ]
    async with running_gateway(tmp_path / "home", *folders, engine=request.param) as running:
        yield running
        assert leftovers(running.home) == []


@pytest.mark.slow  # instances are programs
class TestWhole:
    async def test_has_the_tools_of_all_parts_and_ends_with_them(self, gateway: Gateway) -> None:
        async with whole(gateway) as env:
            names = [tool["name"].removeprefix("whole/") for tool in await env.list_tools()]
            assert names == [
                "own",
                "calc_add",
                "calc_version",
                "shout",
                "version",
                "picture",
                "fail",
                "hang",
                "has_ended",
            ]
            assert (await env.call_tool("own", {})).text == "mine"
            assert (await env.call_tool("calc_add", {"a": 20, "b": 22})).text == "42"
            assert (await env.call_tool("shout", {"text": "hello"})).text == "HELLO"
            assert (await env.call_tool("version", {})).text == "broad"
            assert (await env.call_tool("picture", {})).content[0]["mimeType"] == "image/gif"
            parts = await children(gateway, env)
            assert sorted(parts.values()) == ["arithmetic", "words"]
        for id in parts:
            status, reply = await gateway.ask("GET", f"/env-instance/{id}")
            assert (status, reply["data"]["status"]) == (200, "Terminated")

    async def test_what_goes_wrong_in_a_part_is_a_result_for_the_agent(self, gateway: Gateway) -> None:
        async with whole(gateway) as env:
            failed = await env.call_tool("fail", {})
            assert (failed.is_error, "no words" in failed.text) == (True, True)
            wrong = await env.call_tool("calc_add", {"a": "x"})
            assert (wrong.is_error, "b" in wrong.text) == (True, True)
            [id] = [id for id, name in (await children(gateway, env)).items() if name == "words"]
            await gateway.ask("DELETE", f"/env-instance/{id}")
            gone = await env.call_tool("shout", {"text": "hello"})
            assert gone.is_error
            assert "the part 'words' (words@1.0.0) did not answer" in gone.text
            assert (await env.call_tool("calc_add", {"a": 1, "b": 1})).text == "2"

    async def test_who_calls_a_tool_that_is_not_there_is_told_those_of_all_parts(self, gateway: Gateway) -> None:
        async with whole(gateway) as env:
            told = await env.call_tool("add", {"a": 1, "b": 1})
            assert told.is_error
            assert "own, calc_add, calc_version, shout" in told.text

    async def test_a_part_that_never_answers_is_stopped_when_its_caller_waits_no_longer(
        self, gateway: Gateway
    ) -> None:
        async with whole(gateway) as env:
            with pytest.raises(ToolTimeoutError, match="'hang' gave no answer within 1 s"):
                await env.call_tool("hang", {}, timeout=1)
            while (await env.call_tool("has_ended", {})).text != '["hang"]':
                pass  # it is told when the connection of the caller is seen to be closed

    async def test_its_own_reward_uses_the_parts(self, gateway: Gateway) -> None:
        async with whole(gateway) as env:
            await env.call_tool("calc_add", {"a": 1, "b": 1})
            assert await env.call_reward({}) == 5 + 2 + 0.25

    async def test_a_composed_environment_can_be_a_part(self, gateway: Gateway) -> None:
        async with whole(gateway, "nested") as env:
            assert (await env.call_tool("all_calc_add", {"a": 1, "b": 2})).text == "3"

    async def test_its_code_uses_no_environments_but_its_parts_without_a_grant(self, gateway: Gateway) -> None:
        async with whole(gateway, "curious") as env:
            for name in ("arithmetic@1.0.0", "words@1.0.0"):
                told = (await env.call_tool("use", {"environment": name})).text
                assert told.startswith("GrantExceeded: 'curious@1.0.0' may use its parts alone"), told
            assert len(await children(gateway, env)) == 1

    async def test_code_that_names_a_part_wrongly_is_told_the_names(self, gateway: Gateway) -> None:
        async with whole(gateway, "curious") as env:
            assert (await env.call_tool("shout_with", {"part": "words"})).text == "HELLO"
            told = await env.call_tool("shout_with", {"part": "word"})
            assert told.is_error
            assert "no part 'word'; this environment has words" in told.text

    async def test_its_log_names_its_parts_and_takes_no_variable_for_a_mistake(self, gateway: Gateway) -> None:
        async with whole(gateway) as env:
            log = await log_of(gateway, env)
        assert "asked for the part 'calc'" in log
        assert "unknown variable" not in log

    async def test_a_service_cannot_be_composed(self, gateway: Gateway) -> None:
        status, reply = await gateway.ask("POST", "/env-service", {"envName": "whole", "replicas": 1})
        assert (status, "'uses'), and a service cannot be" in reply["message"]) == (501, True), reply

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("lost", "the part 'nowhere' did not start: environment 'nowhere@^1' not found"),
            ("crowded", "two tools would be called 'calc_add'; give the part 'calc' another name with 'as'"),
            ("mirror", "'mirror@1.0.0' contains itself: mirror@1.0.0 uses mirror@1.0.0"),
            ("hen", "'hen@1.0.0' contains itself: hen@1.0.0 uses egg@1.0.0 uses hen@1.0.0"),
        ],
    )
    async def test_a_part_that_cannot_be_made_fails_the_whole(self, gateway: Gateway, name: str, why: str) -> None:
        with pytest.raises(Exception, match="failed to load") as caught:
            await whole(gateway, name).initialize()
        assert why in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    ["x", None, {}, {"content": 5, "is_error": False}, {"content": ["x"], "is_error": False}, {"content": []}],
)
async def test_a_part_that_answers_with_something_else_is_an_error_that_names_it(answer: Any) -> None:
    async def post(path: str, body: Any) -> Any:
        return answer

    with pytest.raises(
        ToolServerError, match="tool 'shout' of the part 'words' answered with something that is not"
    ):
        await Part("words", "words@1.0.0", [], post).call_tool("shout")


@pytest.mark.slow
async def test_parts_that_are_asked_for_at_once_are_no_more_than_one_create_may_bring_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinship, "MOST_BELOW", 4)
    # From the hub, which each part waits for; and asked by a loop that no rate limit ends.
    async with running_gateway(tmp_path / "home", rate_limit=0) as gateway:
        await pushed(gateway, project(tmp_path, "leaf", WHOLE))
        for name, below in (("branch", "leaf"), ("tree", "branch")):
            uses = [{"env": below, "as": f"{below}{number}"} for number in range(3)]
            await pushed(gateway, project(tmp_path, name, WHOLE, uses=uses))
        creating = asyncio.create_task(whole(gateway, "tree").initialize())
        most = 0
        while not creating.done():
            _, reply = await gateway.ask("GET", "/env-instance/*/list")
            most = max(most, len(reply["data"]))
        assert "'tree@1.0.0' is composed of more than 4 instances" in str(creating.exception())
        assert 0 < most <= 1 + 4


def whole(gateway: Gateway, name: str = "whole") -> Environment:
    return Environment(name, aenv_url=url_of(gateway))


async def children(gateway: Gateway, env: Environment) -> dict[str, str]:
    """The ids of the instances that `env` is composed of, with the names of their environments."""
    _, reply = await gateway.ask("GET", "/env-instance/*/list")
    found = [one for one in reply["data"] if one.get("parent") == env.instance_id]
    return {one["id"]: one["env"]["name"] for one in found}


async def log_of(gateway: Gateway, env: Environment) -> str:
    response = await gateway.pool.request(gateway.control, "GET", f"/env-instance/{env.instance_id}/logs")
    return (await response.read()).decode()


def test_aenv_run_says_that_a_gateway_is_needed(tmp_path: Path) -> None:
    folder = project(tmp_path, "whole", WHOLE, uses=USES)
    done = aenv("run", folder, cwd=tmp_path, env=environ(AENV_HOME=str(tmp_path / "home")))
    assert done.returncode == 1
    assert "'whole@1.0.0' is composed of other environments ('uses')" in done.stderr
    assert f"aenv serve {folder}" in done.stderr


@pytest.mark.slow
def test_aenv_test_starts_the_parts_that_are_built_in(tmp_path: Path) -> None:
    asks = 'import os; print(len(E("two", attach=os.environ["AENV_INSTANCE_ID"]).list_tools()))'
    script = f"{sys.executable} -c 'from aenv import SyncEnvironment as E; {asks}'"
    folder = project(tmp_path, "two", WHOLE, uses=[{"env": "gsm-tools"}], testConfig={"script": script})
    variables = environ(AENV_HOME=str(tmp_path / "home"), AENV_ALLOW_UNISOLATED="1")
    done = aenv("test", folder, cwd=tmp_path, env=variables)
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr

"""`aenv demo`: the main job in a second, on free ports and in a temporary folder that is removed again."""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .. import output, scaffold
from ..help_pages import documented

if TYPE_CHECKING:
    from ...client.api import Api
    from ...client.environment import Environment

_NAME, _VERSION = "demo", "1.0.0"
_REF = f"{_NAME}@{_VERSION}"
_LIFE = "1m"  # of what a demo that is killed leaves behind


@documented("demo", examples=("aenv demo",))
def command() -> None:
    """Run through the main features in a few seconds, and clean up."""
    import asyncio

    with tempfile.TemporaryDirectory(prefix="aenv-demo-") as folder:
        asyncio.run(_demo(Path(folder)))
    output.data("done; nothing is left behind")
    output.talk(
        "\nNext steps:\n"
        "  aenv init my-env                    # an environment of your own\n"
        "  aenv run my-env                     # serve it over MCP and HTTP\n"
        "  aenv eval gsm-tools --agent oracle  # play the tasks of a built-in environment"
    )


async def _demo(folder: Path) -> None:
    project = folder / _NAME
    with _step("wrote the project of an environment, from a template") as say:
        files = scaffold.render("default", _NAME, _VERSION)
        del files[Path("Dockerfile")]  # the host's system folders will do, and need not be built
        scaffold.write(project, files)
        say(f"{_REF}, {len(files)} files")
    with _step("imported the SDK"):
        from ...client.address import control_origin
        from ...client.api import Api
        from ...client.environment import Environment

    from ...isolation.sandbox import probe
    from ...rollouts.own_gateway import own_gateway

    missing = probe.missing_isolation()
    engine = "process" if missing else "native"
    async with AsyncExitStack() as stack:
        with _step(f"started a gateway with the {engine} engine") as say:
            started = own_gateway(project, folder / "home", engine=engine, idle_exit=_LIFE)
            url = await stack.enter_async_context(started)
            say(url)
        if missing:
            output.data(f"{'':12}instances are not isolated on this host: {missing}")
        api = await stack.enter_async_context(Api(control_origin(url)))
        new = functools.partial(Environment, _REF, ttl=_LIFE, aenv_url=url, runtime_url="", max_retries=0)
        async with _instance(new(), "started the first instance, which loads the code") as env:
            record = await api.get_instance(str(env.instance_id))
            output.data(f"{'':12}isolation: {', '.join(record.isolation) or 'none'}")
            async with _instance(new(), "started another instance"):
                pass
            if not missing:
                await _pool(api, "asked for a pool of spare instances")
            await _call(env)
            await _attack(env, folder)
        if not missing:
            await _pool(api, "checked the pool")
            async with _instance(new(), "took an instance from the pool"):
                pass


async def _pool(api: Api, what: str) -> None:
    with _step(what) as say:
        pool = await api.keep_warm(_NAME, _VERSION, 2)
        say(f"{pool.ready} of {pool.kept} are ready")


@asynccontextmanager
async def _instance(env: Environment, what: str) -> AsyncIterator[Environment]:
    try:
        with _step(what) as say:
            await env.initialize()
            say(str(env.instance_id))
        yield env
    finally:
        with _step("ended the instance"):
            await env.release()


async def _call(env: Environment) -> None:
    with _step("listed its tools") as say:
        say(", ".join(tool["name"] for tool in await env.list_tools()))
    with _step("called a tool") as say:
        result = await env.call_tool("my_custom_echo_env", {"content": "hello"})
        say(f"my_custom_echo_env(content='hello') → {result.text}")
    with _step("called a function") as say:
        answer = await env.call_function("word_count", {"text": "one two three"})
        say(f"word_count(text='one two three') → {answer}")
    with _step("called a reward") as say:
        reward = await env.call_reward({"task": "say hello"})
        say(f"my_custom_reward(task='say hello') → {json.dumps(reward)}")


async def _attack(env: Environment, folder: Path) -> None:
    """From inside, read a file of the host that its owner can read."""
    secret = folder / "secret"
    secret.write_text("a file of this user\n")
    with _step("attacked from inside the instance") as say:
        done = await env.exec(["cat", str(secret)])
        contained = done.exit_code != 0 and "a file of this user" not in done.stdout
        say(
            "reading a file of the host: "
            + (done.stderr.strip() if contained else "it succeeded, because nothing isolates the instance")
        )
        say("contained" if contained else "not contained")


@contextmanager
def _step(what: str) -> Iterator[Callable[[str], None]]:
    """Time the block, and print it with what it said about itself."""
    said: list[str] = []
    started = time.perf_counter()
    yield said.append
    milliseconds = (time.perf_counter() - started) * 1000
    output.data(f"{milliseconds:7.1f} ms  {': '.join([what, *said])}")

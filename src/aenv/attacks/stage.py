"""The stage of a run: a gateway that is thrown away, the host's things to find, and instances to attack from."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.addresses import Origin, parse_url
from ..base.errors import AEnvError
from ..client.api import Api
from ..client.environment import Environment
from ..client.instance_replies import Instance
from ..client.remote import Remote
from .projects import VERSION

_TTL = "5m"  # should this process be killed, its instances end by themselves, and the gateway after them
TIMEOUT = 30.0
INSIDE = {"own_folder": "/workspace", "project_file": "/environment/src/environment.py"}


class Attacked:
    """An instance that an attacker has taken over."""

    def __init__(self, env: Environment, remote: Remote) -> None:
        self.remote = remote
        self._env = env

    @property
    def id(self) -> str:
        return self.remote.id

    async def record(self) -> Instance:
        """What the gateway says of it."""
        return await self.remote.api.get_instance(self.id)

    async def ended(self) -> Instance:
        """What the gateway says of it once it has ended, or after a while if it does not end."""
        record = await self.record()
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT):
                while record.status == "Running":  # a gateway tells of an end to a client that asks
                    await asyncio.sleep(0.05)
                    record = await self.record()
        return record

    async def evaluate(self, code: str) -> Any:
        """What `code` leaves in `said`, run in the runtime's own process."""
        return (await self._tool("evaluate", {"code": textwrap.dedent(code)}))["said"]

    async def said(self) -> dict[str, Any]:
        """What an author's code has said before there was an instance."""
        return await self._tool("said", {})

    async def attack(
        self, family: str, names: Sequence[str], given: Mapping[str, Any], how: str
    ) -> dict[str, dict[str, Any]]:
        """The verdict on each attack, made as a "tool" or as a "command"."""
        if how == "tool":
            verdicts = [await self._attack_by_tool(family, name, given) for name in names]
        else:
            orders = json.dumps({**given, "attacks": [*names]})
            done = await self.remote.exec(
                ["python3", f"/environment/programs/{family}.py", orders], timeout=2 * TIMEOUT
            )
            verdicts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            said = f"no verdict; exit code {done.exit_code}: {done.stderr[-200:]}"
            verdicts += [{"name": name, "succeeded": None, "said": said} for name in names[len(verdicts) :]]
        return {verdict["name"]: verdict for verdict in verdicts}

    async def _attack_by_tool(self, family: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await self._tool("attack", {"family": family, "name": name, "given": dict(given)})
        except AEnvError as error:
            return {"name": name, "succeeded": None, "said": f"no verdict: {error}"}

    async def _tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await self._env.call_tool(name, arguments, timeout=TIMEOUT)
        if result.is_error:
            raise AEnvError(f"the tool failed: {result.text[-300:]}")
        said: dict[str, Any] = json.loads(result.text)
        return said


@dataclass(frozen=True)
class AttackStage:
    """What every attack can use."""

    api: Api
    url: str
    key: str
    folder: Path
    """Temporary, and this user's alone."""
    given: Mapping[str, Any]
    """What the programs are told of the host."""

    @asynccontextmanager
    async def instance(self, name: str = "attacked", **options: Any) -> AsyncIterator[Attacked]:
        """A new instance, which ends with the block."""
        env = Environment(
            f"{name}@{VERSION}",
            ttl=_TTL,
            aenv_url=self.url,
            api_key=self.key,
            timeout=TIMEOUT,
            max_retries=0,
            runtime_url="",
            **options,
        )
        async with env:
            assert env.instance_id
            yield Attacked(env, Remote(self.api, env.instance_id))

    async def data_path(self, id: str) -> tuple[Origin, str, str]:
        """Where requests to the instance go: the server, the path, and the instance's token."""
        instance = await self.api.get_instance(id)
        origin, target = parse_url(str(instance.mcp_url))
        return origin, target.removesuffix("/mcp"), str(instance.token)

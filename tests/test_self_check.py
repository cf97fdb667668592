"""The self-check: a reward is given once its task has told doing nothing from the reference solution."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment, NotJudged
from aenv.base import mcp
from aenv.base.models import CreateInstance
from aenv.control.gateway.check_keys import CheckKeys
from aenv.control.serving.accounts import LOCAL, Accounts, Role
from aenv.control.stores.sqlite import SqliteStore
from tests.gateways import Gateway, composed, listening, make_project, running_gateway
from tests.task_environments import SUMS, changed

pytestmark = pytest.mark.slow  # several gateways and instances each

TWO = {"ID": "two", "N": "1", "SUM": "1+1"}
SIX = {"ID": "six", "N": "3", "SUM": "3+3"}
RETURN = "    return float(sheet.answer =="
# Each instance leaves a mark, so that a test can count those that were made and see what they were given.
MARKED = changed(
    SUMS,
    (
        "class Sheet:",
        "import os\nfrom pathlib import Path\n\n"
        'if os.environ.get("MARKS"):\n'
        "    Path(os.environ[\"MARKS\"], f\"{os.getpid()}-{os.environ.get('AENV_VALIDATION', '')}\").touch()\n\n\n"
        "class Sheet:",
    ),
)
FREE = changed(MARKED, (RETURN, "    return 1.0\n" + RETURN))
WRONG = changed(MARKED, ("    submit(right, sheet)", "    submit(0, sheet)"))
UNREADY = changed(
    MARKED,
    ("Depends, ToolError", "Depends, NotJudged, ToolError"),
    ("    right = 2", '    raise NotJudged("not_ready", "no abacus; buy one")\n    right = 2'),
)
RAISES = changed(MARKED, ("    right = 2", "    raise ValueError('a flat tyre')\n    right = 2"))
WAITS = changed(MARKED, ("    right = 2", "    open(os.environ['GATE']).close()\n    right = 2"))
KNOWN = FREE + (
    "\n\n@register_function\ndef known_exceptions() -> dict:\n"
    '    """What deviates."""\n'
    '    return {"gold": {}, "empty": {"two": "nothing is to do – truly"}}\n'
)
NO_GOLD = changed(MARKED, ("@register_function\ndef play_gold", "def play_gold"))


def project(folder: Path, name: str, code: str, **config: Any) -> Path:
    made = make_project(folder, name, code=code)
    known = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**known, "selfCheck": True, **config}))
    return made


@asynccontextmanager
async def serving(folder: Path, *projects: Path, **settings: Any) -> AsyncIterator[Gateway]:
    (folder / "marks").mkdir(exist_ok=True)
    async with running_gateway(folder / "home", *projects, **settings) as gateway:
        yield gateway


class Task:
    """Instances of one environment for one task; rewards of an agent that answers."""

    def __init__(self, gateway: Gateway, folder: Path, **variables: str) -> None:
        self._gateway = gateway
        self._marks = folder / "marks"
        self._variables = {"MARKS": str(self._marks), **(variables or TWO)}

    async def reward(
        self, name: str = "sums", answer: int | None = None, **options: Any
    ) -> tuple[float, tuple[str, str] | None]:
        """The number, and what was said of the self-check."""
        env = Environment(
            f"{name}@1.0.0",
            aenv_url=self._gateway.address.url,
            environment_variables=self._variables,
            runtime_url="",
            **options,
        )
        async with env:
            if answer is not None:
                await env.call_tool("submit", {"answer": answer})
            return float(await env.call_reward()), env.checked

    def made(self) -> int:
        """How many instances have begun so far; those that are made ahead have not been given the task."""
        return len(list(self._marks.iterdir()))

    def golden(self) -> int:
        return len(list(self._marks.glob("*-1")))


async def listed(gateway: Gateway) -> list[Any]:
    _, reply = await gateway.ask("GET", "/env-instance/*/list")
    return reply["data"] or []


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_task_is_checked_once_before_its_first_verdict(tmp_path: Path, workers: int) -> None:
    async with serving(tmp_path, project(tmp_path, "sums", MARKED), workers=workers) as gateway:
        task = Task(gateway, tmp_path)
        assert await task.reward(answer=2) == (1.0, ("held", ""))
        assert (task.made(), task.golden()) == (3, 1)  # the agent's, and the two of the check
        assert await task.reward(answer=3) == (0.0, ("held", ""))
        assert task.made() == 4
        assert await listed(gateway) == []
        assert await Task(gateway, tmp_path, **SIX).reward(answer=6) == (1.0, ("held", ""))
        assert task.made() == 7  # another task
    async with serving(tmp_path, tmp_path / "sums-1.0.0") as gateway:
        assert await Task(gateway, tmp_path).reward(answer=2) == (1.0, ("held", ""))
        assert task.made() == 8  # the store remembers


async def test_a_task_can_be_checked_without_a_verdict(tmp_path: Path) -> None:
    rewarded = '    Path(os.environ["MARKS"], f"{os.getpid()}-rewarded").touch()\n'
    code = changed(MARKED, (RETURN, rewarded + RETURN))
    async with serving(tmp_path, project(tmp_path, "sums", code), project(tmp_path, "free", FREE)) as gateway:
        marks = tmp_path / "marks"
        known = {"aenv_url": gateway.address.url, "environment_variables": {"MARKS": str(marks), **TWO}}
        for _ in range(2):
            async with Environment("sums@1.0.0", runtime_url="", **known) as env:
                assert await env.check_task() == ("held", "")
        assert len([*marks.glob("*-rewarded")]) == 2  # those of the check, which is made once
        async with Environment("free@1.0.0", runtime_url="", **known) as env:
            with pytest.raises(NotJudged, match="doing nothing gets the full reward"):
                await env.check_task()
            assert env.checked
            assert env.checked[0] == "failed"


async def test_to_check_a_task_of_an_environment_without_a_self_check_asks_for_no_reward(tmp_path: Path) -> None:
    rewarded = '    Path(os.environ["MARKS"], "rewarded").touch()\n'
    code = changed(MARKED, (RETURN, rewarded + RETURN))
    async with serving(tmp_path, project(tmp_path, "sums", code, selfCheck=False)) as gateway:
        known = {
            "aenv_url": gateway.address.url,
            "environment_variables": {"MARKS": str(tmp_path / "marks"), **TWO},
        }
        async with Environment("sums@1.0.0", runtime_url="", **known) as env:
            assert await env.check_task() is None
            assert not (tmp_path / "marks" / "rewarded").exists()
            await env.call_reward({})
            assert (tmp_path / "marks" / "rewarded").exists()


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("free", FREE, "doing nothing gets the full reward"),
        ("wrong", WRONG, "the reference solution does not get the full reward: 0"),
    ],
)
async def test_where_both_do_not_differ_the_outcome_is_invalid(
    tmp_path: Path, name: str, code: str, why: str
) -> None:
    async with serving(tmp_path, project(tmp_path, name, code)) as gateway:
        task = Task(gateway, tmp_path)
        for made in (3, 4):  # the second time it is remembered
            with pytest.raises(NotJudged) as raised:
                await task.reward(name, answer=2)
            assert raised.value.outcome == "invalid"
            assert raised.value.reason == f"the self-check of this task failed: {why}"
            assert raised.value.details["self_check"] == "failed"
            assert task.made() == made


async def test_a_reference_solution_that_raises_is_invalid_and_is_tried_again(tmp_path: Path) -> None:
    async with serving(tmp_path, project(tmp_path, "raises", RAISES)) as gateway:
        task = Task(gateway, tmp_path)
        for made in (3, 6):
            with pytest.raises(NotJudged, match="a flat tyre") as raised:
                await task.reward("raises")
            assert raised.value.outcome == "invalid"
            assert task.made() == made


async def test_what_is_not_ready_says_so_and_is_tried_again(tmp_path: Path) -> None:
    async with serving(tmp_path, project(tmp_path, "unready", UNREADY)) as gateway:
        task = Task(gateway, tmp_path)
        for made in (3, 6):
            with pytest.raises(NotJudged, match="the self-check could not run: no abacus; buy one") as raised:
                await task.reward("unready")
            assert raised.value.outcome == "not_ready"
            assert task.made() == made


async def test_an_exception_that_the_benchmark_declares_stays_a_number(tmp_path: Path) -> None:
    async with serving(tmp_path, project(tmp_path, "known", KNOWN)) as gateway:
        assert await Task(gateway, tmp_path).reward("known") == (1.0, ("known", "nothing is to do – truly"))
        with pytest.raises(NotJudged):
            await Task(gateway, tmp_path, **SIX).reward("known")


async def test_the_check_can_be_left_out_by_request_and_by_gateway(tmp_path: Path) -> None:
    free = project(tmp_path, "free", FREE)
    async with serving(tmp_path, free) as gateway:
        task = Task(gateway, tmp_path)
        assert await task.reward("free", self_check=False) == (1.0, ("skipped", ""))
        assert task.made() == 1
    async with serving(tmp_path, free, self_check=False) as gateway:
        assert await Task(gateway, tmp_path).reward("free") == (1.0, ("skipped", ""))
        assert task.made() == 2


async def test_an_environment_without_a_reference_solution_cannot_be_checked(tmp_path: Path) -> None:
    async with serving(tmp_path, project(tmp_path, "no-gold", NO_GOLD)) as gateway:
        number, checked = await Task(gateway, tmp_path).reward("no-gold", answer=2)
        assert number == 1.0
        assert checked
        assert checked[0] == "skipped"
        assert "play_gold" in checked[1]


@pytest.mark.parametrize(
    ("config", "checked"),
    [({}, False), ({"evalOnly": True}, True), ({"evalOnly": True, "selfCheck": False}, False)],
)
async def test_environments_for_evaluation_alone_are_checked_unless_they_say_otherwise(
    tmp_path: Path, config: dict[str, bool], checked: bool
) -> None:
    made = make_project(tmp_path, "sums", code=MARKED)
    known = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**known, **config}))
    async with serving(tmp_path, made) as gateway:
        task = Task(gateway, tmp_path)
        assert await task.reward(answer=2) == (1.0, ("held", "") if checked else None)
        assert task.made() == (3 if checked else 1)


async def test_many_who_ask_at_once_wait_for_one_check(tmp_path: Path) -> None:
    async with serving(tmp_path, project(tmp_path, "sums", MARKED)) as gateway:
        task = Task(gateway, tmp_path)
        found = await asyncio.gather(*(task.reward(answer=2) for _ in range(3)))
        assert found == [(1.0, ("held", ""))] * 3
        assert (task.made(), task.golden()) == (5, 1)


async def test_a_check_needs_no_room_of_a_quota(tmp_path: Path) -> None:
    """The instance that waits for it may be what fills the quota."""
    async with serving(tmp_path, project(tmp_path, "sums", MARKED), max_instances=1) as gateway:
        assert await Task(gateway, tmp_path).reward(answer=2) == (1.0, ("held", ""))


async def test_slow_checks_of_one_account_delay_no_other(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "home" / "aenv.db") as store:
        accounts = Accounts(store)
        slow, quick = [(await accounts.create(name, Role.USER))[1] for name in ("slow", "quick")]
    gate = tmp_path / "gate"
    os.mkfifo(gate)  # play_gold opens it, and waits until somebody writes
    projects = project(tmp_path, "waits", WAITS), project(tmp_path, "sums", MARKED)
    async with serving(tmp_path, *projects) as gateway, asyncio.TaskGroup() as group:
        checks = max(2, os.cpu_count() or 2)
        for number in range(checks):
            task = Task(gateway, tmp_path, **TWO, GATE=str(gate), NUMBER=str(number))
            group.create_task(task.reward("waits", api_key=slow))
        while task.golden() < checks:
            await asyncio.sleep(0.01)
        assert await Task(gateway, tmp_path).reward(answer=2, api_key=quick) == (1.0, ("held", ""))
        assert task.golden() == checks + 1
        opened = os.open(gate, os.O_RDWR)  # lets all go on that wait, and those that come to it
    os.close(opened)


@pytest.mark.parametrize("path", ["/task/reward", "/task/reward/", "/task/rew%61rd", "/task/reward?name=right"])
async def test_a_reward_cannot_be_had_around_the_check(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, project(tmp_path, "free", FREE)) as gateway:
        made = await gateway.create("free@1.0.0", environment_variables=TWO)
        status, reply = await gateway.ask("POST", f"/instances/{made['id']}{path}", {}, origin=gateway.data)
        assert reply.get("outcome") == "invalid" or status == 404, reply


async def test_a_reward_that_is_asked_for_with_arguments_is_given_and_marked(tmp_path: Path) -> None:
    code = changed(
        MARKED, ("def right(context: Context, sheet: Current)", "def right(sheet: Current, patch: str = '')")
    )
    code = changed(code, (RETURN, "    return float(patch == 'good')\n" + RETURN))
    async with serving(tmp_path, project(tmp_path, "patches", code)) as gateway:
        made = await gateway.create("patches@1.0.0", environment_variables=TWO)
        target = f"/instances/{made['id']}/task/reward"
        response = await gateway.pool.request(gateway.data, "POST", target, (), b'{"patch": "good"}')
        assert mcp.loads(await response.read()) == {"success": True, "data": 1.0}
        assert response.header(b"aenvcore-self-check") == "skipped"
        assert response.header(b"aenvcore-self-check-reason") == "the reward was asked for with arguments"


async def test_an_instance_of_an_earlier_gateway_cannot_be_checked_and_says_so(tmp_path: Path) -> None:
    folder, home = project(tmp_path, "sums", MARKED), tmp_path / "home"
    request = CreateInstance(envName="sums", environment_variables=TWO)
    async with composed(home, folder, keep_instances=True) as made:
        first = await made.creator.create(request, LOCAL)
        children = dict(made.engine._children)  # type: ignore[attr-defined]  # of the process engine
    async with composed(home, folder) as made, listening(made) as gateway:
        target = f"/instances/{first.id}/task/reward"
        status, reply = await gateway.ask("POST", target, {}, origin=gateway.data)
        assert (status, reply["error"]) == (503, "unavailable")
        assert "create the instance again" in reply["message"]
    for child in children.values():
        await asyncio.to_thread(child.wait)


class TestKeys:
    def key(
        self,
        folder: Path,
        data: Path | None = None,
        *,
        engine: str = "native",
        alias: str = "",
        runtime: str = "",
        **request: Any,
    ) -> str:
        from aenv.artifacts.pythons.runtimes import Python
        from aenv.base.config import load_project
        from aenv.control.instances.admission import Rules, check_request

        place = Path("/home/requirements") / runtime
        python = Python(place / "bin/python", "", place / "lib", (place,)) if runtime else None
        asked = CreateInstance(envName=alias or "sums", **request)
        project = load_project(folder)
        named = replace(project, name=alias or project.name)
        checked = replace(check_request(asked, named, Rules()), data=data)
        return CheckKeys(engine).key(asked, checked, python, "")

    def test_everything_that_a_verdict_depends_on_makes_another_key(self, tmp_path: Path) -> None:
        folder = make_project(tmp_path, "sums", code=SUMS)
        data = tmp_path / "data"
        data.mkdir()
        (data / "one").write_text("1")
        keys = [
            self.key(folder),
            self.key(folder, engine="process"),
            self.key(folder, runtime="of-another-python"),
            self.key(folder, runtime="of-a-third-python"),
            self.key(folder, environment_variables=TWO),
            self.key(folder, environment_variables=SIX),
            self.key(folder, datasource="image:1"),
            self.key(folder, data),
        ]
        (data / "one").write_text("12")
        keys.append(self.key(folder, data))
        (data / "manifest.json").write_text('{"files": []}')
        keys.append(self.key(folder, data))
        (folder / "src" / "environment.py").write_text(FREE)
        keys.append(self.key(folder))
        assert len(set(keys)) == len(keys)

    def test_who_asks_and_whether_the_gold_is_unsealed_makes_none(self, tmp_path: Path) -> None:
        folder = make_project(tmp_path, "sums", code=SUMS)
        first = self.key(folder, environment_variables=TWO)
        validation = {**TWO, "AENV_VALIDATION": "1"}
        assert first == self.key(folder, environment_variables=validation, ttl="1h", owner="me", labels={"a": "b"})
        assert first == self.key(folder, alias="other", environment_variables=TWO)

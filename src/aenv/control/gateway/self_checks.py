"""The self-check: whether a task's reward tells doing nothing from the reference solution, before it is trusted.

Both are judged as the agent's answer will be, in instances of their own that are made of the same request. The
result is kept in the store, so that a task is checked once. Not here: what it is kept under (`check_keys.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

from ...base import mcp, refs
from ...base.errors import AEnvError, ConnectFailed, NetworkError, NotFound, NotJudged, Unavailable
from ...base.http1 import Pool
from ...base.models import CreateInstance
from ...base.outcomes import NOT_JUDGED, Outcome, Reward, read_reward
from ...base.supervision import Tasks
from ...base.wire import SELF_CHECK_HEADER, SELF_CHECK_REASON_HEADER, timestamp
from ..instances import admission
from ..instances.catalog import Catalog
from ..instances.creator import Creator
from ..instances.instance_access import InstanceAccess
from ..instances.supervised import Supervised
from ..serving.accounts import Caller
from ..stores.base import Put, Store
from .check_keys import VALIDATION, CheckKeys
from .data_request import REWARD

logger = logging.getLogger("aenv.control.gateway.self_checks")

LABEL = "aenv-self-check"
"""The label of the instances that a check is made in; its value says what is played there."""
_KIND = "self-checks"
_LIMIT = 3600.0  # seconds for a check, unless the environment's calls may take longer
_MARGIN = 600.0
_MOST = 10_000
_MOST_REASON = 1000  # characters: a header carries it
_JSON = [("content-type", "application/json")]


@dataclass(frozen=True)
class Checked:
    """What a check has found: only `held` and `known` make a verdict that can be trusted."""

    status: Literal["held", "known", "failed", "skipped"]
    reason: str = ""
    empty: str = ""
    """The reward of doing nothing, in words."""
    gold: str = ""
    at: str = ""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """For the reply to a request for a reward."""
        found = [(SELF_CHECK_HEADER.lower().encode(), self.status.encode())]
        if self.reason:
            reason = quote(self.reason[:_MOST_REASON], safe=" ;,:'()")
            found.append((SELF_CHECK_REASON_HEADER.lower().encode(), reason.encode()))
        return found

    @property
    def refusal(self) -> dict[str, Any] | None:
        """The reply in the place of a verdict, where there can be none."""
        if self.status != "failed":
            return None
        details = {"self_check": self.status, "empty": self.empty, "gold": self.gold}
        return {"success": False, "error": self.reason, "outcome": Outcome.INVALID, "details": details}


SKIPPED = Checked("skipped")
# What is judged then is what the arguments say, which no play of the environment's own would be.
ASKED_OTHERWISE = Checked("skipped", "the reward was asked for with arguments")


class SelfChecks:
    """`async with`: the checks of one gateway, each task's once at a time, and few at a time for each account."""

    def __init__(
        self,
        instances: InstanceAccess,
        creator: Creator,
        catalog: Catalog,
        store: Store,
        pool: Pool,
        rules: admission.Rules,
    ) -> None:
        self._instances = instances
        self._creator = creator
        self._catalog = catalog
        self._store = store
        self._pool = pool
        self._rules = rules
        self._keys = CheckKeys(instances.engine.name)
        self._known: dict[str, Checked] = {}
        self._running: dict[str, asyncio.Future[Checked]] = {}
        self._turns: dict[str | None, asyncio.Semaphore] = {}
        """By account: the checks of one, which may take an hour each, delay those of no other."""
        self._checks = Tasks()
        self._tasks = Tasks()

    async def __aenter__(self) -> SelfChecks:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._checks.__aexit__(asyncio.CancelledError)  # they are cancelled; what they hold is given back
        await self._tasks.__aexit__(None)

    async def of(self, instance: Supervised | None, query: str) -> Checked:
        """The check of an instance's task; made first where it is missing, which goes on when the caller leaves.

        `query` is that of the request for a reward. NotJudged when the environment is not ready to be checked,
        Unavailable when the check could not be made; neither is remembered.
        """
        if instance is None or instance.asked is None:
            raise Unavailable(
                "the self-check of this instance's task needs the gateway that created the instance, "
                "which is another one or was started again; create the instance again"
            )
        request, caller = instance.asked
        project = await self._catalog.find(refs.parse(request.env_name), caller)
        checked = admission.check_request(request, project, self._rules)
        python = (await self._catalog.python(project)).python
        key = await asyncio.to_thread(self._keys.key, request, checked, python, query)
        if known := self._known.get(key) or await self._stored(key):
            self._remember(key, known)
            return known
        check = self._running.get(key)
        if check is None:
            limit = max(_LIMIT, project.deploy.call_timeout or 0.0)
            check = self._running[key] = asyncio.get_running_loop().create_future()
            self._checks.create_task(self._run(key, check, _Check(self, request, caller, query, limit)))
        return await asyncio.shield(check)

    async def _run(self, key: str, over: asyncio.Future[Checked], check: _Check) -> None:
        """Make a check, and tell those who wait for it how it ended."""
        try:
            over.set_result(await self._made(key, check))
        except AEnvError as error:
            over.set_exception(error)
            over.exception()  # it has been looked at, even if no request waits for it any more
        finally:
            over.cancel()  # where it has no result: this gateway stops, or has a bug, which is logged
            del self._running[key]

    async def _made(self, key: str, check: _Check) -> Checked:
        async with self._turns_of(check.caller):
            try:
                async with asyncio.timeout(check.limit):
                    found, is_final = await check.run()
            except TimeoutError:
                raise Unavailable(f"the self-check took longer than {check.limit:g} s") from None
            except NotJudged as error:
                why = f"the self-check could not run: {error.reason}"
                raise NotJudged(error.outcome, why, error.details) from None
            except AEnvError as error:
                raise Unavailable(f"the self-check could not run: {error.message}") from None
        logger.info("self-check of a task of %s: %s", check.request.env_name, found.status)
        if is_final:
            self._remember(key, found)
            try:
                await self._store.write(Put(_KIND, key, asdict(found), terms={"all": found.at}))
            except Unavailable as error:  # this process knows it, and the next one checks again
                logger.warning("the result of a self-check is not kept: %s", error)
        return found

    def _turns_of(self, caller: Caller) -> asyncio.Semaphore:
        return self._turns.setdefault(caller.account, asyncio.Semaphore(max(2, os.cpu_count() or 2)))

    async def _stored(self, key: str) -> Checked | None:
        [document] = await self._store.get(_KIND, key)
        return Checked(**document.value) if document else None

    def _remember(self, key: str, found: Checked) -> None:
        if len(self._known) > _MOST:
            self._known.clear()
        self._known[key] = found

    @asynccontextmanager
    async def instance(self, check: _Check, *, gold: bool) -> AsyncIterator[str]:
        """One of the check's own, as the one that waits was made; with its gold unsealed where it is played."""
        asked = check.request
        variables = {name: value for name, value in asked.environment_variables.items() if name != VALIDATION}
        request = asked.model_copy(
            update={
                "environment_variables": {**variables, VALIDATION: "1"} if gold else variables,
                "labels": {LABEL: "gold" if gold else "empty"},
                "ttl": f"{check.limit + _MARGIN:.0f}s",
                "idle_timeout": None,
                "wait": None,
            }
        )
        made = await self._creator.create(request, check.caller, checks=True)
        try:
            yield made.id
        finally:
            # Shielded: a check that is cancelled still gives its instance back.
            await asyncio.shield(self._tasks.create_task(self._given_back(made.id, check.caller)))

    async def _given_back(self, id: str, caller: Caller) -> None:
        try:
            await self._instances.delete(id, caller)
        except NotFound:
            pass  # it has ended by itself
        except Unavailable as error:  # its time to live ends it
            logger.warning("an instance of a self-check is still listed: %s", error)

    async def call(self, id: str, path: str, method: str = "POST") -> Mapping[str, Any]:
        """The reply of an instance's runtime, which is an envelope with `success`."""
        try:
            with await self._instances.use(id) as address:
                body = b"{}" if method == "POST" else b""
                response = await self._pool.request(address.origin, method, path, _JSON, body)
                reply = mcp.loads(await response.read())
        except (ConnectFailed, NetworkError) as error:
            raise Unavailable(f"{path}: {error.message}") from None
        except ValueError:
            raise Unavailable(f"{path}: the answer is not JSON") from None
        if not isinstance(reply, dict) or "success" not in reply:
            raise Unavailable(f"{path}: the answer is not one of a runtime")
        return {"status": response.status, **reply}


@dataclass(frozen=True)
class _Check:
    """One check of one task."""

    checks: SelfChecks
    request: CreateInstance
    caller: Caller
    query: str
    limit: float

    async def run(self) -> tuple[Checked, bool]:
        """What is found, and whether it would be the same again, so that it can be remembered."""
        async with self.checks.instance(self, gold=False) as id:
            listed = await self._said(id, "/functions/list", "GET")
            functions = {one["name"] for one in listed["functions"]}
            if "play_gold" not in functions or not listed["reward"]:
                why = "the environment has no reference solution (play_gold) or no reward to check"
                return self._found("skipped", why), True
            empty, is_final = await self._reward(id)
            exceptions = await self._exceptions(id, functions)
        async with self.checks.instance(self, gold=True) as id:
            gold, is_gold_final = await self._gold(id)
        deviations = []
        if empty.is_full:
            deviations.append(("empty", "doing nothing gets the full reward"))
        if not gold.is_full:
            deviations.append(("gold", f"the reference solution does not get the full reward: {gold}"))
        known = [exceptions[kind] for kind, _ in deviations if kind in exceptions]
        if len(known) < len(deviations):
            why = "; ".join(words for kind, words in deviations if kind not in exceptions)
            found = self._found("failed", f"the self-check of this task failed: {why}")
        else:
            found = self._found("known", "; ".join(known)) if known else self._found("held")
        return replace(found, empty=str(empty), gold=str(gold)), is_final and is_gold_final

    def _found(self, status: Literal["held", "known", "failed", "skipped"], reason: str = "") -> Checked:
        return Checked(status, reason, at=timestamp())

    async def _gold(self, id: str) -> tuple[Reward, bool]:
        reply = await self.checks.call(id, "/functions/play_gold")
        if reply["success"]:
            return await self._reward(id)
        _check_ready(reply)
        return Reward(None, Outcome.ENV_ERROR, str(reply.get("error"))), False

    async def _reward(self, id: str) -> tuple[Reward, bool]:
        """A reward, and whether it was judged: what raised may not raise again."""
        reply = await self.checks.call(id, f"{REWARD}{self.query}")
        if reply["success"]:
            return read_reward(reply.get("data")), True
        _check_ready(reply)
        is_judged = reply.get("outcome") in NOT_JUDGED
        outcome = Outcome.INVALID if is_judged else Outcome.ENV_ERROR
        return Reward(None, outcome, str(reply.get("error"))), is_judged

    async def _exceptions(self, id: str, functions: set[str]) -> dict[str, str]:
        """Why this task deviates, by kind, as far as the environment declares it."""
        if not functions >= {"known_exceptions", "get_task"}:
            return {}
        told, task = [await self._said(id, f"/functions/{name}") for name in ("known_exceptions", "get_task")]
        if not isinstance(told, dict) or not isinstance(task, dict):
            return {}
        declared = {kind: told.get(kind) for kind in ("empty", "gold")}
        name = task.get("id")
        return {kind: str(ids[name]) for kind, ids in declared.items() if isinstance(ids, dict) and name in ids}

    async def _said(self, id: str, path: str, method: str = "POST") -> Any:
        reply = await self.checks.call(id, path, method)
        if not reply["success"]:
            _check_ready(reply)
            raise Unavailable(f"{path}: {reply.get('error')}")
        return reply.get("data")


def _check_ready(reply: Mapping[str, Any]) -> None:
    if reply.get("outcome") == Outcome.NOT_READY:
        raise NotJudged(Outcome.NOT_READY, str(reply.get("error") or "the environment gave no reason"))


def refusal_of(error: NotJudged) -> dict[str, Any]:
    """The reply in the place of a verdict, where the check found the environment not ready."""
    return {"success": False, "error": error.reason, "outcome": error.outcome}

"""Tasks that a model writes: it is shown the tools and some seeds, and its answers are checked field by field."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from random import Random
from typing import Any

from ...base.errors import InvalidRequest
from ...client.chat import Chat, ModelFailed
from ..task import Task
from .proposals import BadProposal, GoldCall, Proposal, of_form, of_variables
from .schema_checks import misfit
from .seeds import SeedSet
from .work_log import WorkLog

_BATCH = 4  # tasks that one request asks for
_SHOWN = 3  # seeds in a request
_FAILED = 5  # replies without a task, one after the other, until it is given up
_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n```\s*\Z", re.DOTALL)
_SYSTEM = (
    "You write new tasks for an environment in which agents are trained and measured. Each task differs from the "
    "examples in its situation, its wording and its numbers, can be solved with the tools alone, and has exactly "
    "one right result. Answer with one JSON object that fits the schema, and nothing else."
)


class ModelSource:
    """Asks a model for tasks, a few at a time. Replies are kept in the log of the run, and not asked for twice."""

    def __init__(self, chat: Chat, model: str, seeds: SeedSet, seed: int, log: WorkLog, temperature: float | None):
        self._model = model
        self._chat = chat
        self._seeds = seeds
        self._seed = seed
        self._log = log
        self._temperature = temperature
        self._takes_schema = True

    async def proposals(self) -> AsyncIterator[Proposal | BadProposal]:
        draw = request = failed = 0
        while failed < _FAILED:
            try:
                entries = self._read(await self._reply(request))
                failed = 0
            except InvalidRequest as error:
                entries, failed = [error], failed + 1
            for entry in entries:
                if isinstance(entry, InvalidRequest):
                    yield BadProposal(f"reply {request} of the model: {entry.message}")
                else:
                    yield self._proposal(entry, draw)
                draw += 1
            request += 1

    def described(self) -> dict[str, Any]:
        return {"temperature": self._temperature}

    async def _reply(self, request: int) -> str:
        known = self._log.reply(request)
        if known is None:
            known = await self._ask(request)
            self._log.replied(request, known)
        return known

    async def _ask(self, request: int) -> str:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": self._messages(request),
            "seed": self._seed + request,
        }
        if self._temperature is not None:
            body["temperature"] = self._temperature
        shape = {"type": "json_schema", "json_schema": {"name": "tasks", "schema": self._schema()}}
        try:
            reply = await self._chat.complete({**body, "response_format": shape} if self._takes_schema else body)
        except ModelFailed as error:
            if error.status_code not in (400, 422) or not self._takes_schema:
                raise
            self._takes_schema = False  # a server that knows no schemas; what it answers is checked all the same
            reply = await self._chat.complete(body)
        return str(reply.message.get("content") or "")

    def _messages(self, request: int) -> list[dict[str, str]]:
        random = Random(f"{self._seed}:{request}")
        tasks = list(self._seeds.tasks)
        shown = random.sample(tasks, min(_SHOWN, len(tasks)))
        examples = [
            one.content if self._seeds.form else {"instruction": one.text, "variables": dict(one.task.variables)}
            for one in shown
        ]
        tools = [
            {name: tool.get(name) for name in ("name", "description", "inputSchema")} for tool in self._seeds.tools
        ]
        parts = {"tools": tools, "examples": examples, "schema": self._schema()}
        text = "\n\n".join(f"{name}:\n{json.dumps(part, ensure_ascii=False)}" for name, part in parts.items())
        return [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": f"{text}\n\nWrite {_BATCH} new tasks. Set {request + 1}."},
        ]

    def _schema(self) -> dict[str, Any]:
        return _object(tasks={"type": "array", "minItems": 1, "items": self._task_schema()})

    def _task_schema(self) -> Mapping[str, Any]:
        """The environment's; else an instruction, the variables that seeds have, and the calls that solve it."""
        if self._seeds.form:
            return self._seeds.form.schema
        names = sorted({name for one in self._seeds.tasks for name in one.task.variables})
        tools = [tool["name"] for tool in self._seeds.tools]
        call = _object(tool={"type": "string", "enum": tools}, arguments={"type": "object"})
        return _object(
            instruction={"type": "string", "minLength": 1},
            variables=_object(**{name: {"type": "string"} for name in names}),
            gold={"type": "array", "items": call, "minItems": 1},
        )

    def _read(self, reply: str) -> list[dict[str, Any] | InvalidRequest]:
        """The tasks of a reply, each checked. InvalidRequest where there are none."""
        fenced = _FENCE.match(reply)
        try:
            answer = json.loads(fenced[1] if fenced else reply)
        except (ValueError, RecursionError):
            raise InvalidRequest("it is not JSON") from None
        whole = {
            "type": "object",
            "properties": {"tasks": {"type": "array", "minItems": 1}},
            "required": ["tasks"],
        }
        if wrong := misfit(whole, answer, "answer"):
            raise InvalidRequest(f"field {wrong}")
        schema = self._schema()["properties"]["tasks"]["items"]
        found: list[dict[str, Any] | InvalidRequest] = []
        for index, entry in enumerate(answer["tasks"]):
            where = f"tasks[{index}]"
            wrong = misfit(schema, entry, where) or self._bad_call(entry, where)
            found.append(InvalidRequest(f"field {wrong}") if wrong else entry)
        return found

    def _bad_call(self, entry: Mapping[str, Any], where: str) -> str:
        if self._seeds.form:
            return ""
        inputs = {tool["name"]: tool.get("inputSchema", {}) for tool in self._seeds.tools}
        found = (
            misfit(inputs[call["tool"]], call["arguments"], f"{where}.gold[{index}].arguments")
            for index, call in enumerate(entry["gold"])
        )
        return next(filter(None, found), "")

    def _proposal(self, entry: Mapping[str, Any], draw: int) -> Proposal:
        if self._seeds.form:
            return of_form(self._seeds.form, entry, "model", None, draw)
        calls: Sequence[GoldCall] = [GoldCall("tool", call["tool"], call["arguments"]) for call in entry["gold"]]
        task = Task("new", dict(entry["variables"]), told={"instruction": entry["instruction"]})
        return of_variables(task, "model", None, draw, calls)


def _object(**properties: Any) -> dict[str, Any]:
    """The schema of an object that has exactly these fields."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}

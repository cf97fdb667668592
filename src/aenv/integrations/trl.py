"""TRL: environment classes for `GRPOTrainer(environment_factory=…)`; needs `pip install 'trl>=1.16'`.

    factory = environment_class("gsm-tools@1.0.0", final_tools=("submit_answer",))
    data = Dataset.from_list(rows("gsm-tools@1.0.0"))
    trainer = GRPOTrainer(model, train_dataset=data, environment_factory=factory)

TRL reads a class for its tools: one is made, with a method for each tool, with its signature and text.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from typing import Any

from aenv.integrations.loop_thread import LOOP
from aenv.integrations.tool_calls import resolved, types_of
from aenv.integrations.tool_episode import EpisodeOptions, ToolEpisode, TrainingTask

_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
_OVER = "the episode is over; say no more"


class AenvEpisodes:
    """What each class of `environment_class` has besides its tools. TRL takes names with "_" for no tools."""

    _options: EpisodeOptions

    def __init__(self) -> None:
        self._episode = ToolEpisode(self._options)
        self._over = False

    def reset(self, **row: Any) -> str:
        """Begin the task that a row of the dataset names (`task`), or one at random; gives its text."""
        self._over = False
        return str(LOOP.run(self._begin(row.get("task"))).instruction)

    def get_reward(self) -> float:
        """What the environment gives for the episode."""
        return LOOP.run(self._episode.reward())

    async def _begin(self, id: str | None) -> Any:
        known = {task.id: task for task in await self._episode.tasks()}
        if id is None:
            return await self._episode.begin(random.choice(list(known.values())))
        return await self._episode.begin(known.get(id) or TrainingTask(id))

    async def _call(self, tool: str, arguments: dict[str, Any]) -> str:
        if self._over:
            return _OVER
        seen = await LOOP.within(self._episode.call(tool, arguments))
        self._over = seen.done or self._episode.is_out_of_steps
        return str(seen.text)


def environment_class(env_name: str, **options: Any) -> type[AenvEpisodes]:
    """A class whose methods are the tools of an environment. Starts an instance once, to read them."""
    chosen = EpisodeOptions(env_name, **options)
    tools = LOOP.run(ToolEpisode(chosen).tools())
    methods = {tool["function"]["name"]: _method(tool["function"]) for tool in tools}
    taken = {"reset", "get_reward"} & set(methods)
    if taken:
        raise ValueError(f"{env_name} has a tool {min(taken)!r}, a name that TRL keeps for itself")
    return type("AenvEnvironment", (AenvEpisodes,), {**methods, "_options": chosen})


def rows(env_name: str, *, limit: int | None = None, **options: Any) -> list[dict[str, Any]]:
    """A dataset's rows: an empty prompt with the system text, to which `reset` adds the task."""

    async def read() -> list[dict[str, Any]]:
        episode = ToolEpisode(EpisodeOptions(env_name, **options))
        tasks = (await episode.tasks())[:limit]
        try:
            system = (await episode.begin(tasks[0])).system
        finally:
            await episode.close()
        first = [{"role": "system", "content": system}] if system else []
        return [{"prompt": [*first, {"role": "user", "content": ""}], "task": task.id} for task in tasks]

    return LOOP.run(read())


def _method(function: Mapping[str, Any]) -> Callable[..., Any]:
    name, schema = function["name"], resolved(function["parameters"])
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))

    async def call(self: AenvEpisodes, *given: Any, **named: Any) -> str:
        bound = signature.bind(self, *given, **named)
        return await self._call(name, {key: value for key, value in bound.arguments.items() if key != "self"})

    kinds = {key: _type(value) if key in required else _type(value) | None for key, value in properties.items()}
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    # Those that must be given stand first, as Python wants it.
    for key in sorted(properties, key=lambda key: key not in required):
        default = inspect.Parameter.empty if key in required else properties[key].get("default")
        parameters.append(
            inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kinds[key])
        )
    signature = inspect.Signature(parameters, return_annotation=str)
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {**kinds, "return": str}
    call.__name__ = call.__qualname__ = name
    call.__doc__ = _docstring(function.get("description") or name, properties)
    return call


def _docstring(text: str, properties: Mapping[str, Any]) -> str:
    """In the form that transformers reads schemas from: a line for each argument, and what comes back."""
    told = [f"    {key}: {' '.join(value.get('description', key).split())}" for key, value in properties.items()]
    return "\n".join(
        [text.strip(), "", *(["Args:", *told, ""] if told else []), "Returns:", "    What the tool says."]
    )


def _type(schema: Mapping[str, Any]) -> Any:
    """The Python type that a model is told; a text where the schema allows everything."""
    types = types_of(schema)
    first, *others = (_TYPES[name] for name in (types if len(types) < len(_TYPES) else ["string"]))
    joined = first
    for kind in others:
        joined = joined | kind
    return joined

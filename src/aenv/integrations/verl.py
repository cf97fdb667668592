"""verl: an environment's tools, and an agent loop that plays its tasks; needs `pip install 'verl>=0.9'`.

`AenvAgentLoop` is an agent loop for verl's `agent_loop_config_path`: each sample is one task in one instance, and
its reward is the environment's.

    - name: aenv_agent
      _target_: aenv.integrations.verl.AenvAgentLoop
      env_name: gsm-tools@1.0.0
      final_tools: [submit_answer]

`AenvTool` is a tool for verl's own loops, which make and release one for each call: for tools without a state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.tool_agent_loop import AgentState, ToolAgentLoop
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from aenv.integrations.tool_calls import resolved, types_of
from aenv.integrations.tool_episode import EpisodeOptions, ToolEpisode, TrainingTask


class AenvTool(BaseTool):
    """One tool of an environment. `config` has `env_name` and the options of `EpisodeOptions`.

    `create(create_kwargs={"task": id})` begins an episode, `calc_reward` asks for its reward, `release` ends it.
    """

    def __init__(
        self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema, episode: ToolEpisode | None = None
    ) -> None:
        super().__init__(config, tool_schema)
        self._shared = episode
        """The episode of an agent loop, which outlives the tool."""
        self._episodes: dict[str, ToolEpisode] = {}

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        id = instance_id or str(uuid4())
        if self._shared is None:
            self._episodes[id] = ToolEpisode(EpisodeOptions(**self.config))
            await _begin(self._episodes[id], (kwargs.get("create_kwargs") or {}).get("task"))
        return id, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        seen = await self._episode(instance_id).call(self.name, parameters)
        return ToolResponse(text=seen.text), 0.0, {"is_error": seen.is_error, "done": seen.done}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        return await self._episode(instance_id).reward()

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        if episode := self._episodes.pop(instance_id, None):
            await episode.close()

    def _episode(self, instance_id: str) -> ToolEpisode:
        return self._shared or self._episodes[instance_id]


class _LoopTool(AenvTool):
    """A tool of an agent loop; notes that the episode is over."""

    over = False

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        response, reward, seen = await super().execute(instance_id, parameters, **kwargs)
        self.over = self.over or seen["done"]
        return response, reward, seen


class AenvAgentLoop(ToolAgentLoop):
    """verl's loop of tool calls in one episode: the row's `task` (or one of `extra_info`) names it.

    The task's own text is added to the prompt of the row. The loop ends with the episode, and the environment's
    reward is the sample's.
    """

    def __init__(
        self, *args: Any, env_name: str, final_tools: Sequence[str] = (), split: str = "", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._episode = ToolEpisode(EpisodeOptions(env_name, final_tools=tuple(final_tools), split=split))

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        extra = kwargs.get("extra_info") or {}
        try:
            briefing = await _begin(self._episode, kwargs.get("task", extra.get("task")))
            await self._take_tools()
            told = [*kwargs.pop("raw_prompt", ()), {"role": "user", "content": briefing.instruction}]
            if briefing.system and told[0]["role"] != "system":
                told.insert(0, {"role": "system", "content": briefing.system})
            output = await super().run(sampling_params, raw_prompt=told, **kwargs)
            output.reward_score = await self._episode.reward()
            return output
        finally:
            await asyncio.shield(self._episode.close())

    async def _take_tools(self) -> None:
        self.tools = {}
        for described in await self._episode.tools():
            schema = OpenAIFunctionToolSchema.model_validate(_flat(described))
            self.tools[schema.function.name] = _LoopTool({}, schema, self._episode)
        schemas = [tool.tool_schema for tool in self.tools.values()]
        self.tool_schemas = [schema.model_dump(exclude_unset=True, exclude_none=True) for schema in schemas]

    async def _handle_processing_tools_state(self, agent_data: Any) -> AgentState:
        state = await super()._handle_processing_tools_state(agent_data)
        is_over = self._episode.is_out_of_steps or any(tool.over for tool in self.tools.values())
        return AgentState.TERMINATED if is_over else state


async def _begin(episode: ToolEpisode, task: str | None) -> Any:
    known = {one.id: one for one in await episode.tasks()}
    chosen = next(iter(known.values())) if task is None else known.get(task) or TrainingTask(task)
    return await episode.begin(chosen)


def _flat(tool: dict[str, Any]) -> dict[str, Any]:
    """The tool as verl's schema has it: each parameter has a type, or a list of types, and no references."""
    parameters = resolved(tool["function"]["parameters"])
    properties = {
        name: {**value, "type": types[0] if len(types := types_of(value)) == 1 else types}
        for name, value in parameters.get("properties", {}).items()
    }
    return {**tool, "function": {**tool["function"], "parameters": {**parameters, "properties": properties}}}

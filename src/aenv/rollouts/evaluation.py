"""`aenv eval`: a run of an agent over tasks, as the command line asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any

from . import locations, runner, summaries
from .episodes import Agent, Timeouts
from .results import RolloutResult
from .runner import RunnerOptions
from .task import TaskSelection
from .task_instances import InstanceSource


def evaluated(
    opened: AbstractAsyncContextManager[InstanceSource],
    wanted: TaskSelection,
    agent: Agent,
    options: RunnerOptions,
    tell: Callable[[dict[str, Any]], None] | None,
) -> tuple[list[RolloutResult], str]:
    """Open the place, and the capture if there is one, evaluate, and say what it took.

    KeyboardInterrupt when it was stopped, in order.
    """
    started = time.monotonic()

    async def main() -> list[RolloutResult]:
        try:
            async with opened as there, options.capture or nullcontext():
                limited = replace(options, timeouts=Timeouts(whole=there.limit))
                told = (lambda result: tell(result.as_json())) if tell else None
                return await runner.run(there, wanted, agent, limited, told)
        finally:
            await agent.close()

    found = locations.run(main)
    return found, summaries.spent(found, time.monotonic() - started)

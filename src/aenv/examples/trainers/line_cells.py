"""The line of seven cells as numbers, for algorithms that take no texts."""

from typing import Any

import gymnasium
import numpy

from aenv.integrations.tool_episode import Briefing, Observation


class Cells:
    """Where the walker is and where it should go; one to the left or to the right."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (14,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def call(self, action: Any) -> tuple[str, dict[str, Any]]:
        return "move", {"by": 1 if int(action) else -1}

    def begun(self, briefing: Briefing) -> Any:
        return self._seen(briefing.instruction)

    def seen(self, observation: Observation) -> Any:
        return self._seen(observation.text)

    def _seen(self, text: str) -> Any:
        position, goal = map(int, text.split())
        cells = numpy.zeros(14, numpy.float32)
        cells[position] = cells[7 + goal] = 1.0
        return cells

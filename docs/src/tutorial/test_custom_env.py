"""Unit tests of the environment: plain calls, no server."""

import pytest
from custom_env import TASKS, Game, found, guess, list_tasks, new_game, play_gold

from aenv import Context, ToolError


def test_a_guess_says_where_the_number_is() -> None:
    small = Game("small")
    assert guess(1, small) == {"observation": "higher"}
    assert guess(10, small) == {"observation": "lower"}
    assert guess(7, small) == {"observation": "correct", "done": True}
    assert found(small) == 1.0


def test_a_wrong_guess_is_not_rewarded() -> None:
    small = Game("small")
    guess(1, small)
    assert found(small) == 0.0


@pytest.mark.parametrize("task", [task["id"] for task in list_tasks()])
def test_the_reference_solution_finds_every_number(task: str) -> None:
    context = Context(variables={"TASK": task, "AENV_VALIDATION": "1"})
    played = new_game(context)
    play_gold(context, played)
    assert played.guesses[-1] == TASKS[task][2]
    assert found(played) == 1.0


def test_the_reference_solution_is_closed_to_agents() -> None:
    with pytest.raises(ToolError, match="AENV_VALIDATION"):
        play_gold(Context(), Game("small"))

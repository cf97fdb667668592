"""Guess a number: the agent guesses, and is told whether the number is higher or lower."""

from typing import Annotated

from aenv import Context, Depends, ToolError, register_function, register_reward, register_tool

TASKS = {"small": (1, 10, 7), "medium": (1, 100, 42), "large": (1, 1000, 613)}
MAX_GUESSES = 12


class Game:
    """One rollout: the task of the instance, and the guesses so far."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.low, self.high, self.number = TASKS[task]
        self.guesses: list[int] = []


def new_game(context: Context) -> Game:
    """Called once for each instance, at the first call that needs it."""
    return Game(context.variables.get("TASK", "small"))


CurrentGame = Annotated[Game, Depends(new_game)]


@register_tool
def guess(number: int, game: CurrentGame) -> dict[str, str | bool]:
    """Guess the number. The answer is "higher", "lower" or "correct".

    Args:
        number: Your guess.
    """
    if len(game.guesses) >= MAX_GUESSES:
        raise ToolError(f"all {MAX_GUESSES} guesses are used")
    game.guesses.append(number)
    if number == game.number:
        return {"observation": "correct", "done": True}
    return {"observation": "higher" if number < game.number else "lower"}


@register_reward
def found(game: CurrentGame) -> float:
    """1.0 when the last guess is the number."""
    return float(game.guesses[-1:] == [game.number])


@register_function
def list_tasks(split: str = "") -> list[dict]:
    """The tasks, each with the variables of its instances."""
    if split:
        raise ToolError(f"no split {split!r}; there are none")
    return [{"id": id, "variables": {"TASK": id}} for id in TASKS]


@register_function
def get_task(game: CurrentGame) -> dict:
    """The task of this instance, as an agent is told it."""
    instruction = f"Find the number between {game.low} and {game.high}. Use the tool guess."
    return {"id": game.task, "instruction": instruction, "max_steps": MAX_GUESSES}


@register_function
def play_gold(context: Context, game: CurrentGame) -> dict:
    """Play the reference solution: halve the range until the number is found."""
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError("play_gold is for validation; create the instance with AENV_VALIDATION=1")
    low, high, steps = game.low, game.high, 0
    while True:
        middle, steps = (low + high) // 2, steps + 1
        answer = guess(middle, game)["observation"]
        if answer == "correct":
            return {"steps": steps}
        low, high = (middle + 1, high) if answer == "higher" else (low, middle - 1)

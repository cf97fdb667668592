"""Arithmetic word problems for agents: a problem from a seed, a calculator, an answer, and a reward of 0 or 1.

The problems: `gsm_tools_problems.py`. No tool shows a seed, a step or an answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from gsm_tools_arithmetic import NotExact, evaluate, number_of, spelled
from gsm_tools_given import SCHEMA, VARIABLE, NotGiven, given, written
from gsm_tools_problems import LEVELS, MAX_SEED, Problem, problem

from aenv import Context, Depends, ToolError, register_function, register_reset, register_reward, register_tool

_PER_SPLIT = MAX_SEED // 2
SPLITS = {"train": 0, "test": _PER_SPLIT}  # where the seeds of a split begin
_COUNT = 20
_MOST_TASKS = 100_000
_TASK_ID = re.compile(r"([1-5])-(0|[1-9]\d{0,11})")
_SYSTEM = (
    "You solve arithmetic word problems. Work out each step with the calculate tool, then give the final number "
    "with submit_answer. Only the last number that you submit counts, and it must be exact."
)


@dataclass
class Episode:
    """The problem of this instance, and what the agent has made of it."""

    task: Problem
    submitted: Fraction | None = None
    calculations: int = 0


def begin(context: Context) -> Episode:
    """The problem that the variables name."""
    return Episode(_asked_for(context))


CurrentEpisode = Annotated[Episode, Depends(begin)]


@register_tool(annotations={"readOnlyHint": True})
def read_problem(episode: CurrentEpisode) -> str:
    """The problem to solve."""
    return episode.task.text


@register_tool
def calculate(episode: CurrentEpisode, expression: str) -> str:
    """Work out an expression exactly: '(3 + 4) * 2.5' gives '17.5', '1 / 3' gives '1/3'.

    Args:
        expression: Numbers with + - * / // % ** and brackets; abs, min, max, floor, ceil, round(value, places).
    """
    episode.calculations += 1
    try:
        return spelled(evaluate(expression))
    except NotExact as error:
        raise ToolError(str(error)) from None


@register_tool
def submit_answer(episode: CurrentEpisode, answer: str | int | float) -> str:
    """Give the final answer. A later one takes its place.

    Args:
        answer: The number, exactly: '42', '12.5' or '3/4', without words.
    """
    try:
        episode.submitted = number_of(answer if isinstance(answer, str) else repr(answer))
    except NotExact as error:
        raise ToolError(str(error)) from None
    return f"noted: {spelled(episode.submitted)}"


@register_reward
def reward(episode: CurrentEpisode) -> dict[str, Any]:
    """1.0 when the last answer is exactly right, else 0.0."""
    is_right = episode.submitted == episode.task.answer
    return {
        "reward": 1.0 if is_right else 0.0,
        "task": episode.task.id,
        "answered": episode.submitted is not None,
        "calculations": episode.calculations,
    }


@register_reset
def reset(
    context: Context, episode: CurrentEpisode, seed: int | None = None, difficulty: int | None = None
) -> dict[str, Any]:
    """Begin an episode: the problem of this seed and difficulty, or the same one again."""
    if seed is not None or difficulty is not None:  # one that was given has no seed to begin again from
        level = episode.task.difficulty if difficulty is None else _level(difficulty, "difficulty")
        number = episode.task.seed if seed is None else _seed(seed, "seed")
        episode.task = problem(level, number)
    episode.submitted, episode.calculations = None, 0
    return get_task(episode)


@register_function
def list_tasks(context: Context, split: str = "") -> list[dict[str, Any]]:
    """Tasks of a split, or of both: GSM_COUNT of each, from GSM_SEED on, of GSM_DIFFICULTY or of all in turn."""
    if split and split not in SPLITS:
        raise ToolError(f"no split {split!r}; there are {', '.join(SPLITS)}")
    count = _number(context, "GSM_COUNT", _COUNT)
    if not 0 <= count <= _MOST_TASKS:
        raise ToolError(f"GSM_COUNT is a number from 0 to {_MOST_TASKS}, not {count}")
    first, most = _number(context, "GSM_SEED", 0), _PER_SPLIT - count
    if not 0 <= first <= most:
        raise ToolError(f"GSM_SEED is a number from 0 to {most} where tasks are listed, not {first}")
    levels = [_level(_number(context, "GSM_DIFFICULTY", 0), "GSM_DIFFICULTY")] if _has_level(context) else LEVELS
    ids = [
        (name, f"{levels[n % len(levels)]}-{start + first + n}")
        for name, start in SPLITS.items()
        if split in ("", name)
        for n in range(count)
    ]
    return [{"id": id, "variables": {"GSM_TASK_ID": id}, "split": name} for name, id in ids]


@register_function
def get_task(episode: CurrentEpisode) -> dict[str, Any]:
    """The problem of this instance, for who drives the agent."""
    task = episode.task
    return {"id": task.id, "instruction": task.text, "system": _SYSTEM, "max_steps": 10 + 4 * task.difficulty}


@register_function
def play_gold(context: Context, episode: CurrentEpisode) -> dict[str, Any]:
    """Solve the problem with the tools, step by step, as an agent would."""
    _for_validation(context, "play_gold")
    results = [calculate(episode, step) for step in episode.task.steps]
    submit_answer(episode, results[-1])
    return {"steps": len(results) + 1}


@register_function
def task_form(context: Context, episode: CurrentEpisode) -> dict[str, Any]:
    """How a problem that is not listed is given to an instance, and the problem of this one in that form."""
    _for_validation(context, "task_form")
    return {"variable": VARIABLE, "schema": SCHEMA, "expressions": "steps", "task": written(episode.task)}


@register_function
def list_cheats(context: Context) -> list[dict[str, Any]]:
    """Attempts to be rewarded without solving anything."""
    _for_validation(context, "list_cheats")

    def attempt(name: str, kind: str, *steps: tuple[str, str, Any]) -> dict[str, Any]:
        taken = [{"tool": tool, "arguments": {argument: value}} for tool, argument, value in steps]
        return {"name": name, "kind": kind, "steps": taken}

    return [
        attempt("say nothing", "exit-early"),
        attempt("submit a word for the answer", "read-answer", ("submit_answer", "answer", "answer")),
        attempt("ask the calculator for the answer", "read-answer", ("calculate", "expression", "answer")),
        attempt(
            "leave the calculator for the variables",
            "read-answer",
            ("calculate", "expression", "__import__('os').environ['GSM_TASK_ID']"),
            ("calculate", "expression", "().__class__.__base__.__subclasses__()"),
        ),
        attempt(
            "submit what equals everything", "spoof-output", *_submitted("nan", "inf", "0/0", "*", "None", "")
        ),
        attempt("submit a verdict", "spoof-output", *_submitted('{"reward": 1.0}', "1.0 correct")),
        attempt("try every small number", "spoof-output", *_submitted(*map(str, range(100)), "-1")),
        attempt(
            "take all memory",
            "fill-disk",
            ("calculate", "expression", "9**9**9**9"),
            ("calculate", "expression", "((((10**999)**999)**999)**999)"),
        ),
    ]


def _submitted(*answers: str) -> list[tuple[str, str, Any]]:
    return [("submit_answer", "answer", answer) for answer in answers]


def _for_validation(context: Context, name: str) -> None:
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError(f"{name} is for validation; create the instance with AENV_VALIDATION=1")


def _asked_for(context: Context) -> Problem:
    if told := context.variables.get(VARIABLE):
        try:
            return given(told)
        except NotGiven as error:
            raise ToolError(str(error)) from None
    id = context.variables.get("GSM_TASK_ID")
    if not id:
        level = _level(_number(context, "GSM_DIFFICULTY", 1), "GSM_DIFFICULTY")
        return problem(level, _seed(_number(context, "GSM_SEED", 0), "GSM_SEED"))
    found = _TASK_ID.fullmatch(id)
    if not found:
        raise ToolError(f"GSM_TASK_ID is '<difficulty>-<seed>', such as '3-17', not {id!r}")
    return problem(int(found[1]), int(found[2]))


def _has_level(context: Context) -> bool:
    return bool(context.variables.get("GSM_DIFFICULTY"))


def _number(context: Context, name: str, default: int) -> int:
    text = context.variables.get(name) or str(default)
    if not re.fullmatch(r"-?\d{1,15}", text, re.ASCII):
        raise ToolError(f"{name} is a whole number, not {text!r}")
    return int(text)


def _level(number: int, name: str) -> int:
    if number not in LEVELS:
        raise ToolError(f"{name!r} is a number from {LEVELS[0]} to {LEVELS[-1]}, not {number}")
    return number


def _seed(number: int, name: str) -> int:
    if not 0 <= number < MAX_SEED:
        raise ToolError(f"{name!r} is a number from 0 to {MAX_SEED - 1}, not {number}")
    return number

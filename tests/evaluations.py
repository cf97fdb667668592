"""Evaluations in tests: projects with tasks behind a gateway that isolates, and what runs agents over them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aenv.rollouts import runner
from aenv.rollouts.episodes import Timeouts
from aenv.rollouts.results import RolloutResult
from aenv.rollouts.runner import RunnerOptions
from aenv.rollouts.task import TaskSelection
from aenv.rollouts.task_instances import InstanceSource
from tests.command_line import serving
from tests.gateways import make_project
from tests.native import traces
from tests.task_environments import DICE, SUMS, changed

HANG = '''
@register_tool
async def hang() -> None:
    """Never answer."""
    import asyncio

    await asyncio.Event().wait()


@register_tool
def picture() -> Image:
    """A picture."""
    return Image(b"\\x89PNG\\r\\n\\x1a\\n")


@register_tool
def send_message(message: str, sheet: Current) -> dict:
    """Talk to the user."""
    sheet.answer = int(message) if message.isdecimal() else None
    return {"observation": "" if sheet.answer else "which number?", "done": sheet.answer is not None}
'''
INVALID = changed(
    SUMS,
    (
        "    return float(sheet.answer ==",
        '    return {"invalid": "no evidence", "reward": 0.0}\n    return float(sheet.answer ==',
    ),
)
UNREADY = changed(
    SUMS,
    ("Depends, ToolError", "Depends, NotJudged, ToolError"),
    ("    submit(right, sheet)", '    raise NotJudged("not_ready", "no abacus; buy one")'),
    (
        "    return float(sheet.answer ==",
        '    raise NotJudged("not_ready", "no abacus; buy one")\n    return float(',
    ),
)
WRONG = changed(SUMS, ("    return float(sheet.answer ==", "    return 7.0\n    return float(sheet.answer =="))
PROJECTS = {
    "sums": SUMS,
    "unready": UNREADY,
    "wrong": WRONG,
    "silent": changed(SUMS, ('{"steps": 1, ', "{")),
    "refused": changed(SUMS, ('"split": one}', '"split": one, "datasource": "/no/such/folder"}')),
    "talk": changed(SUMS, ("Depends, ToolError", "Depends, Image, ToolError")) + HANG,
    "unjudged": INVALID,
    "bare": DICE,
}


@contextmanager
def served_projects(folder: Path) -> Iterator[tuple[str, Path]]:
    """A gateway that isolates, with all of PROJECTS: its URL, and its home."""
    projects = [make_project(folder, name, code=code) for name, code in PROJECTS.items()]
    options = ("--port", "0", "--data-port", "0", "--engine", "native", "--home", folder / "home")
    # Nobody reads what it logs, and a pipe that is full would stop it.
    with serving("serve", *projects, *options, "--log-level", "WARNING") as server:
        *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
        yield line.partition("=")[2], folder / "home"
    assert traces(folder / "home") == []


class Run:
    """Evaluates, in this process, and keeps what was told."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.told: list[RolloutResult] = []

    async def __call__(
        self,
        env: str,
        agent: Any,
        *,
        tasks: tuple[str, ...] = (),
        split: str = "",
        limit: float = 60.0,
        eval_only: bool = False,
        resume: bool = False,
        **options: Any,
    ) -> list[RolloutResult]:
        place = InstanceSource(f"{env}@1.0.0", self.url, limit=limit, eval_only=eval_only)
        given = {
            "out": self.folder / "out.jsonl",
            "mode": "resume" if resume else "new",
            "concurrency": 2,
            **options,
        }
        given["timeouts"] = Timeouts(whole=limit)
        try:
            return await runner.run(
                place, TaskSelection.of(tasks or None, split), agent, RunnerOptions(**given), self.told.append
            )
        finally:
            await agent.close()


def outcomes(found: list[RolloutResult]) -> dict[str, str]:
    """The outcome of each task, "pass" and "fail" for those that were judged."""
    for one in found:
        is_judged = one.outcome == "reward"
        assert (isinstance(one.reward, float), isinstance(one.passed, bool)) == (is_judged, is_judged)
        assert bool(one.reason) is not is_judged
    words = {True: "pass", False: "fail", None: ""}
    return {one.task: words[one.passed] or one.outcome for one in found}


def lines(file: Path, kind: str = "result") -> list[dict[str, Any]]:
    """The lines of one type in a journal."""
    return [line for line in map(json.loads, file.read_text().splitlines()) if line["type"] == kind]


def by_key(results: Iterable[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Results by task and attempt: those that end at the same time are written in either order."""
    return {(one["task"], one.get("attempt", 1)): one for one in results}

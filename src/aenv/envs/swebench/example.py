"""An agent repairs a repository, and hidden tests judge its patch.

    python src/aenv/envs/swebench/example.py

Without SWEBENCH_DATA_DIR it makes a small repository with one problem, and a scripted agent solves it. With
OPENAI_BASE_URL (and OPENAI_API_KEY, OPENAI_MODEL) a model does, for that problem or for the instance of your data
that SWEBENCH_INSTANCE_ID names.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from aenv import Chat, Environment

RUNNER = """\
import importlib
import sys

for file in sys.argv[1:]:
    if file[0] != "-":
        sys.path.insert(0, "")
        module = importlib.import_module(file[:-3].replace("/", "."))
        for name in [name for name in vars(module) if name.startswith("test_")]:
            try:
                vars(module)[name]()
                print(name, "ok")
            except AssertionError:
                print(name, "F")
"""
FILES = {
    "bin/test": RUNNER,
    "clock/__init__.py": "",
    "clock/times.py": "def minutes(text):\n    hours, rest = text.split(':')\n"
    "    return int(hours) * 60 + int(hours)\n",
    "clock/tests/__init__.py": "",
}
TESTS = "from clock.times import minutes\n\n\ndef test_minutes():\n    assert minutes('1:30') == 90\n"
RECORD = {
    "instance_id": "demo__clock-1",
    "repo": "demo/clock",
    "sdist": "clock-1.0",
    "runner": "sympy",  # it has a bin/test of its own: the demonstration needs no pytest
    "problem_statement": "minutes('1:30') should be 90, and is 61.",
    "patch": "--- a/clock/times.py\n+++ b/clock/times.py\n@@ -1,3 +1,3 @@\n def minutes(text):\n"
    "     hours, rest = text.split(':')\n-    return int(hours) * 60 + int(hours)\n"
    "+    return int(hours) * 60 + int(rest)\n",
    "test_patch": "--- /dev/null\n+++ b/clock/tests/test_times.py\n@@ -0,0 +1,5 @@\n"
    + "".join(f"+{line}\n" for line in TESTS.splitlines()),
    "FAIL_TO_PASS": ["test_minutes"],
    "PASS_TO_PASS": [],
}
SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"command": "ls; git log --oneline"}),
    ("view", {"path": "clock/times.py"}),
    ("edit", {"path": "clock/times.py", "old": "60 + int(hours)", "new": "60 + int(rest)"}),
    ("bash", {"command": "python -c \"from clock.times import minutes; print(minutes('1:30'))\"; git diff"}),
    ("submit", {}),
]


def demonstration(folder: Path) -> Path:
    """A data folder: one record, and the release that is its base tree."""
    (folder / "sdists").mkdir()
    with tarfile.open(folder / "sdists" / "clock-1.0.tar.gz", "w:gz") as tar:
        for name, text in FILES.items():
            member = tarfile.TarInfo(f"clock-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    (folder / "records.jsonl").write_text(json.dumps(RECORD))
    return folder


async def act(env: Environment, tool: str, arguments: dict[str, Any]) -> str:
    result = await env.call_tool(tool, arguments)
    text = "\n".join(part.get("text", "") for part in result.content)
    print(f"> {tool} {json.dumps(arguments)[:200]}\n{text[:2000]}\n")
    return text


async def scripted(env: Environment, task: dict[str, Any]) -> None:
    for tool, arguments in SCRIPT:
        await act(env, tool, arguments)


async def modelled(env: Environment, task: dict[str, Any]) -> None:
    """The usual loop: ask the model, call its tools, until it has submitted or has nothing more to do."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": task["system"]},
        {"role": "user", "content": task["instruction"]},
    ]
    body = {
        "model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        "messages": messages,
        "tools": await env.openai_tools(),
    }
    async with Chat(os.environ["OPENAI_BASE_URL"], os.environ.get("OPENAI_API_KEY")) as chat:
        for _ in range(task["max_steps"]):
            message = (await chat.complete(body)).message
            messages.append(message)
            calls = message.get("tool_calls") or []
            for call in calls:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
                text = await act(env, name, arguments)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
                if name == "submit":
                    return
            if not calls:
                return


async def main() -> None:
    agent = modelled if os.environ.get("OPENAI_BASE_URL") else scripted
    with tempfile.TemporaryDirectory() as folder:
        if "SWEBENCH_DATA_DIR" not in os.environ:
            os.environ["SWEBENCH_DATA_DIR"] = str(demonstration(Path(folder)))
        elif agent is scripted:
            raise SystemExit(
                "the script knows the demonstration only; set OPENAI_BASE_URL, or unset SWEBENCH_DATA_DIR"
            )
        chosen = {
            name: os.environ[name] for name in ("SWEBENCH_INSTANCE_ID", "SWEBENCH_BASE") if name in os.environ
        }
        async with Environment("swebench@1.0.0", environment_variables=chosen, ttl="2h", timeout=3600) as env:
            task = await env.call_function("get_task", {})
            print(f"{task['id']}: {task['instruction'][:1000]}\n")
            await agent(env, task)
            reward = await env.call_reward({})
            print(json.dumps({key: reward[key] for key in ("resolved", "reward", "variant", "tests")}, indent=2))


if __name__ == "__main__":
    asyncio.run(main())

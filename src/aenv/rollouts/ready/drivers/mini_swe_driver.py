"""Plays one job with mini-swe-agent: its commands are calls of the environment's tool. Prints the last message."""

from __future__ import annotations

import itertools
import json
import sys
import urllib.request
from typing import Any


class ToolShell:
    """What mini-swe-agent takes for a machine: commands that a tool of the environment runs."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._url, self._headers, self._tool = job["tools_url"], job["tools_headers"], job["shell"]
        self._numbers = itertools.count(1)

    def run(self, command: str) -> dict[str, Any]:
        """What a command printed, and its exit code, by the names under which tools tell them."""
        answer = self._call("tools/call", {"name": self._tool, "arguments": {"command": command}})
        text = "\n".join(part["text"] for part in answer["content"] if part.get("type") == "text")
        told = answer.get("structuredContent") or {}
        told = told if isinstance(told, dict) else {}
        output, code = told.get("output", text), told.get("returncode", told.get("exit_code"))
        if isinstance(output, list):  # a text, and whether that is all of it
            output = output[0] if output else ""
        return {"output": str(output), "returncode": code if isinstance(code, int) else int(answer["isError"])}

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        headers = {**self._headers, "Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as reply:
            found: dict[str, Any] = json.load(reply)
        if "error" in found:
            raise RuntimeError(found["error"]["message"])
        result: dict[str, Any] = found["result"]
        return result


class ToolMachine:
    """The same as the `Environment` of mini-swe-agent, whose last command says that the work is done."""

    config = None

    def __init__(self, job: dict[str, Any]) -> None:
        self._shell = ToolShell(job)

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        from minisweagent.exceptions import Submitted

        done = {**self._shell.run(action.get("command", "")), "exception_info": ""}
        first, _, rest = done["output"].lstrip().partition("\n")
        if first.strip() == "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" and done["returncode"] == 0:
            extra = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": extra})
        return done

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        return {"system": "Linux", "release": "", "version": "", "machine": "", **more}

    def serialize(self) -> dict[str, Any]:
        return {}


def main(job: dict[str, Any]) -> str:
    import yaml
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.config import builtin_config_dir
    from minisweagent.models.litellm_model import LitellmModel

    told = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
    # Its client knows by the prefix which API the server speaks.
    model = LitellmModel(
        model_name=f"openai/{job['model']}",
        model_kwargs={"api_base": job["model_url"], "api_key": job["model_key"], "drop_params": True},
        cost_tracking="ignore_errors",
        **{name: told["model"][name] for name in ("observation_template", "format_error_template")},
    )
    templates = {name: told["agent"][name] for name in ("system_template", "instance_template")}
    agent = DefaultAgent(model, ToolMachine(job), step_limit=job["max_steps"] + 1, cost_limit=0.0, **templates)
    done = agent.run(job["task"])
    return str(done.get("submission") or done.get("exit_status") or "")


if __name__ == "__main__":
    print(json.dumps({"message": main(json.load(sys.stdin))}))

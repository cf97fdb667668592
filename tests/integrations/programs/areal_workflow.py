"""AReaL's own workflow and proxy server play tasks in real instances; the engine is that of its example."""

import asyncio
import json
import sys
from typing import Any

from areal.experimental.openai.proxy import proxy_rollout_server as proxy
from areal.experimental.openai.proxy.client_session import OpenAIProxyClient, post_json
from areal.experimental.openai.proxy.workflow import OpenAIProxyWorkflow
from areal.infra import workflow_context

from aenv.examples.trainers.areal_proxy import KEY, ScriptedEngine, served
from aenv.integrations.areal import AenvAgent, run_in_session


async def told(interactions: dict[str, Any]) -> dict[str, Any]:
    """What the trainer would learn from."""
    tensors = [one.to_tensor_dict() for one in interactions.values()]
    return {
        "rewards": [one.reward for one in interactions.values()],
        "learned": all(0 < int(one["loss_mask"].sum()) < one["loss_mask"].numel() for one in tensors),
    }


async def played(url: str, agent: AenvAgent, mode: str, sign: str) -> dict[str, Any]:
    ScriptedEngine.sign = sign
    workflow = OpenAIProxyWorkflow(mode, agent, url, KEY, subproc_max_workers=1)
    workflow_context.set(workflow_context.WorkflowContext(task_id=7))
    return await told(await workflow.arun_episode(None, {"task_id": "1-0"}))


async def outside(url: str, agent: AenvAgent, refused: asyncio.Event) -> dict[str, Any]:
    """In a session of an agent's own, which has to wait until the trainer has room for it."""
    session = await workflow_context.get_aiohttp_session()
    playing = asyncio.create_task(run_in_session(agent, {"task_id": "1-0"}, proxy_url=url, admin_key=KEY))
    await refused.wait()
    await post_json(session, f"{url}/grant_capacity", headers={"Authorization": f"Bearer {KEY}"})
    reward = await playing
    asked = OpenAIProxyClient(session, url, "1-0", KEY)
    asked.session_id = "1-0-0"
    return {"reward": reward, **await told(await asked.export_interactions())}


async def main() -> None:
    loop, refused = asyncio.get_running_loop(), asyncio.Event()

    @proxy.app.middleware("http")
    async def watched(request: Any, following: Any) -> Any:
        reply = await following(request)
        if reply.status_code == 429:
            loop.call_soon_threadsafe(refused.set)
        return reply

    url = await served()
    agent = AenvAgent("gsm-tools@1.0.0", final_tools=("submit_answer",), split="train")
    said = {
        "inline": [await played(url, agent, "inline", sign) for sign in "+-*/"],
        "subproc": await played(url, agent, "subproc", "-"),
        "outside": await outside(url, agent, refused),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()

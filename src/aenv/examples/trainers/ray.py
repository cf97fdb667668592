"""Ray plays episodes in actors, and for the rows of a dataset."""

import logging
from operator import itemgetter

from aenv.examples.agents import framework
from aenv.examples.trainers import NAME, OPTIONS, expression

with framework("Ray", "ray[data]>=2.40"):
    import ray

    from aenv.integrations.ray import TaskPlayer, play_tasks
    from aenv.integrations.tool_episode import ToolEpisode


async def agent(episode: ToolEpisode) -> None:
    assert episode.briefing
    seen = await episode.call("calculate", {"expression": expression(episode.briefing.instruction)})
    await episode.call("submit_answer", {"answer": seen.text})


def main() -> None:
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=10**8
    )
    for played in play_tasks(NAME, agent, actors=2, **OPTIONS):
        print(f"an actor played {played.task} in {played.steps} steps: reward {played.reward}")
    rows = ray.data.from_items([{"task": "1-0"}, {"task": "1-2"}])
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    one = ray.data.ActorPoolStrategy(size=1)
    mapped = rows.map(TaskPlayer, fn_constructor_args=(NAME, agent, OPTIONS), compute=one).take_all()
    for row in sorted(mapped, key=itemgetter("task")):
        print(f"a dataset played {row['task']}: reward {row['reward']}")
    ray.shutdown()


if __name__ == "__main__":
    main()

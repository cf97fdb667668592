"""Gymnasium plays episodes one after the other, and then four at the same time."""

from aenv.examples.agents import framework
from aenv.examples.trainers import NAME, OPTIONS, call, expression

with framework("Gymnasium", "gymnasium>=1.0"):
    import gymnasium

    import aenv.integrations.gymnasium  # noqa: F401 - registers aenv/…


def main() -> None:
    env = gymnasium.make(f"aenv/{NAME}", **OPTIONS)
    for task in ("1-0", "1-1", "1-2"):
        problem, _ = env.reset(options={"task": task})
        work = expression(problem)
        result, *_ = env.step(call("calculate", expression=work))
        _, reward, *_ = env.step(call("submit_answer", answer=result))
        print(f"task {task}: {work} = {result}, reward {reward:g}")
    env.close()

    envs = gymnasium.make_vec(f"aenv/{NAME}", num_envs=4, vectorization_mode="vector_entry_point", **OPTIONS)
    problems, info = envs.reset(seed=1)
    results, *_ = envs.step([call("calculate", expression=expression(problem)) for problem in problems])
    _, rewards, *_ = envs.step([call("submit_answer", answer=result) for result in results])
    envs.close()
    print(f"at the same time: tasks {', '.join(info['task'])}, rewards {rewards.tolist()}")


if __name__ == "__main__":
    main()

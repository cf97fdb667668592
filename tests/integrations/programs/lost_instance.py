"""A vector of instances, one of which is ended by others in the middle of an episode."""

import json
import os
import sys
import urllib.request

from aenv.examples.trainers.line_cells import Cells

NAME = "line@1.0.0"
URL = os.environ["AENV_SYSTEM_URL"]


def ask(method: str, path: str) -> list[dict[str, str]]:
    with urllib.request.urlopen(urllib.request.Request(URL + path, method=method)) as reply:
        found: list[dict[str, str]] = json.load(reply)["data"]
        return found


def stepped_with_gymnasium() -> dict[str, object]:
    from aenv.integrations.gymnasium import AenvVector

    envs = AenvVector(NAME, num_envs=3, codec=Cells())
    first, _ = envs.reset(seed=1)
    ask("DELETE", f"/env-instance/{ask('GET', '/env-instance/*/list')[0]['id']}")
    seen, rewards, ended, cut, info = envs.step([1, 1, 1])
    [lost] = [place for place in range(3) if info["lost"][place]]
    told = {
        "cut": [bool(cut[lost]), sum(map(int, info["lost"])), bool(ended[lost]), float(rewards[lost])],
        "as_before": bool((seen[lost] == first[lost]).all()),
    }
    *_, info = envs.step([1, 1, 1])
    envs.close()
    return {**told, "goes_on": "lost" not in info}


def lost_between_with_gymnasium() -> bool:
    """Whether an instance that is lost after its episode is replaced when the next one begins in its place."""
    from aenv.integrations.gymnasium import AenvVector

    envs = AenvVector(NAME, num_envs=2, codec=Cells(), in_place=True)
    envs.reset(seed=1)
    over = [False, False]
    while not over[0]:
        _, _, ended, cut, _ = envs.step([1, 1])
        over = (ended | cut).tolist()
    lost = envs._slots[0].episode._env.instance_id
    ask("DELETE", f"/env-instance/{lost}")
    *_, info = envs.step([1, 1])
    envs.step([1, 1])
    replaced = envs._slots[0].episode._env.instance_id
    envs.close()
    return replaced != lost and "lost" not in info


def lost_between_with_stable_baselines3() -> bool:
    """The same, where the next episode begins in the step that ends the last one."""
    from aenv.integrations.stable_baselines3 import AenvVecEnv

    envs = AenvVecEnv(NAME, 2, codec=Cells(), in_place=True)
    envs.reset()
    lost = envs._slots[0].episode._env.instance_id
    ask("DELETE", f"/env-instance/{lost}")
    envs.reset()
    replaced = envs._slots[0].episode._env.instance_id
    envs.close()
    return replaced != lost


def stepped_with_stable_baselines3() -> dict[str, object]:
    from aenv.integrations.stable_baselines3 import AenvVecEnv

    envs = AenvVecEnv(NAME, 3, codec=Cells())
    first = envs.reset()
    ask("DELETE", f"/env-instance/{ask('GET', '/env-instance/*/list')[0]['id']}")
    _, rewards, ended, infos = envs.step([1, 1, 1])
    [lost] = [place for place in range(3) if infos[place].get("lost")]
    told = {
        "cut": [infos[lost]["TimeLimit.truncated"], 1, not ended[lost], float(rewards[lost])],
        "as_before": bool((infos[lost]["terminal_observation"] == first[lost]).all()),
    }
    infos = envs.step([1, 1, 1])[3]
    envs.close()
    return {**told, "goes_on": not any(info.get("lost") for info in infos)}


STEPPED = {"gymnasium": stepped_with_gymnasium, "stable_baselines3": stepped_with_stable_baselines3}
BETWEEN = {"gymnasium": lost_between_with_gymnasium, "stable_baselines3": lost_between_with_stable_baselines3}
print(json.dumps({**STEPPED[sys.argv[1]](), "replaced": BETWEEN[sys.argv[1]]()}))

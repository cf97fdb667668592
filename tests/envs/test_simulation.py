"""simulation: worlds that a script or a model plays, within what the scenario allows, judged by their state."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from aenv import Context, NotJudged, ToolError
from aenv.inside.zygote.purity import is_same_for_all
from tests.envs.shells import ENVIRONMENTS, module, native_gateway, post, result_of
from tests.gateways import running_gateway

simulation = module("simulation", "simulation")
scenarios = module("simulation", "simulation_scenario")
schemas = module("simulation", "simulation_schema")

KEY = "sk-very-secret"
NAMES = ("greenhouse", "help-desk", "trading-post")


class ModelServer:
    """Stands for an OpenAI-compatible server: answers what the test gives it, and remembers what it was asked."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}/v1"
        self.answers: list[Any] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def says(self, *answers: Any) -> None:
        """An answer is a dict (the JSON that the model writes), a text (its words as they are) or a status."""
        self.answers = list(answers)


@contextmanager
def model_server() -> Iterator[ModelServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            known.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            known.headers.append(dict(self.headers))
            assert self.path == "/v1/chat/completions"
            answer = known.answers.pop(0)
            if isinstance(answer, int):
                self.send_response(answer)
                self.send_header("Location", "/v1/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            text = answer if isinstance(answer, str) else json.dumps(answer)
            body = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        known = ModelServer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield known
        server.shutdown()
        thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with model_server() as server:
        yield server


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., Any]:
    def open_one(scenario: str = "greenhouse", **variables: str) -> Any:
        return simulation.Session(
            Context(workspace=tmp_path, variables={"SIMULATION_SCENARIO": scenario, **variables})
        )

    return open_one


@pytest.fixture
def played(session: Callable[..., Any], server: ModelServer) -> Any:
    """A help desk that a model plays."""
    variables = {"SIMULATION_LLM_API_BASE": server.base, "SIMULATION_LLM_API_KEY": KEY}
    return session("help-desk", SIMULATION_LLM="some-model", **variables)


def written(tmp_path: Path, **changes: Any) -> Path:
    """The help desk as a file, with other fields."""
    scenario = json.loads(scenarios.shipped()["help-desk"].read_text())
    path = tmp_path / "own.json"
    path.write_text(json.dumps({**scenario, "name": "own", **changes}))
    return path


def test_loading_the_environment_does_the_same_for_all_instances() -> None:
    assert is_same_for_all(str(ENVIRONMENTS / "simulation" / "src"))


def test_every_shipped_scenario_is_a_task() -> None:
    assert [task["id"] for task in simulation.list_tasks()] == list(NAMES)
    assert simulation.list_tasks("test")[0]["variables"] == {"SIMULATION_SCENARIO": "greenhouse"}
    with pytest.raises(ToolError, match=r"no split 'train'; there is test"):
        simulation.list_tasks("train")


# Played by the script


@pytest.mark.parametrize("name", NAMES)
async def test_gold_reaches_the_goal_and_an_empty_episode_does_not(name: str, session: Callable[..., Any]) -> None:
    context = Context(variables={"AENV_VALIDATION": "1"})
    empty = session(name)
    assert (await simulation.finish(empty))["done"]
    assert simulation.goal_reward(empty)["reward"] == 0.0
    gold = session(name)
    await simulation.play_gold(context, gold)
    verdict = simulation.goal_reward(gold)
    assert (verdict["reward"], verdict["finished"], verdict["world"]) == (1.0, True, "script")


@pytest.mark.parametrize("name", NAMES)
async def test_no_cheat_gets_a_reward(name: str, session: Callable[..., Any]) -> None:
    for cheat in simulation.list_cheats(Context(variables={"AENV_VALIDATION": "1"})):
        world = session(name)
        for step in cheat["steps"]:
            try:
                await getattr(simulation, step["tool"])(world, **step["arguments"])
            except ToolError:
                continue  # a refusal is an answer
        assert simulation.goal_reward(world)["reward"] == 0.0, cheat["name"]


async def test_gold_and_cheats_are_for_validation_only(session: Callable[..., Any]) -> None:
    with pytest.raises(
        ToolError, match=r"play_gold is for validation; create the instance with AENV_VALIDATION=1"
    ):
        await simulation.play_gold(Context(), session())
    with pytest.raises(ToolError, match=r"list_cheats is for validation"):
        simulation.list_cheats(Context())


async def test_the_world_changes_by_its_rules_and_says_so(session: Callable[..., Any]) -> None:
    world = session("greenhouse")
    seen = await simulation.observe(world)
    assert seen["visible"]["water"] == 1
    assert seen["actions"]["heater"]["arguments"] == {"on": {"type": "boolean"}}
    said = await simulation.act(world, "water")
    assert said["observation"] == "The soil drinks the water; it is at 3 now."
    await simulation.act(world, "water")
    assert "flooded" not in (await simulation.act(world, "wait"))["observation"]
    assert "wilt" in (await simulation.act(world, "water"))["observation"]
    assert (await simulation.observe(world))["visible"]["wilted"] is True


async def test_what_is_hidden_is_never_shown(session: Callable[..., Any]) -> None:
    world = session("help-desk")
    shown = [await simulation.observe(world), simulation.get_task(world)]
    assert "'cause': 'driver'" not in str(shown) and "folder_reachable" not in str(shown)


async def test_a_wrong_action_or_argument_is_named_and_is_no_step(session: Callable[..., Any]) -> None:
    world = session("help-desk")
    for action, arguments, words in (
        ("fly", {}, "no action 'fly'; there are ask, check, repair, close_ticket"),
        ("check", {}, "takes part; given: none"),
        ("check", {"part": "cable", "force": 1}, "takes part; given: force, part"),
        ("check", {"part": "ticket.open"}, "part must be one of 'cable'"),
        ("check", {"part": 5}, "part must be of type string"),
    ):
        with pytest.raises(ToolError, match=words):
            await simulation.act(world, action, arguments)
    assert (await simulation.observe(world))["step"] == 0


async def test_an_episode_ends_when_its_steps_are_used_up(session: Callable[..., Any]) -> None:
    world = session("help-desk")
    for step in range(15):
        assert (await simulation.act(world, "ask", {"about": "others"}))["done"] is (step == 14)
    with pytest.raises(ToolError, match=r"has ended: all 15 steps are used up"):
        await simulation.act(world, "ask", {"about": "others"})


async def test_a_reset_begins_again_or_another_scenario(session: Callable[..., Any]) -> None:
    world = session("greenhouse")
    await simulation.act(world, "wait")
    assert (await simulation.start_over(world))["id"] == "greenhouse"
    assert (await simulation.observe(world))["visible"]["hour"] == 0
    assert (await simulation.start_over(world, scenario="trading-post"))["id"] == "trading-post"


# Scenario files


async def test_a_scenario_of_ones_own_is_found_in_the_workspace(
    tmp_path: Path, session: Callable[..., Any]
) -> None:
    written(tmp_path, opening="Our own desk.")
    assert (await simulation.observe(session("own.json")))["observation"] == "Our own desk."
    with pytest.raises(
        ToolError, match=r"neither a shipped scenario \(greenhouse, help-desk, trading-post\) nor a file"
    ):
        session("../own.json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        ({"goal": {"equals": ["a", 1]}}, "goal has 'equals', and must have one of is,"),
        ({"goal": {"is": ["no.such", 1]}}, "the state has no 'no.such'"),
        ({"goal": {"is": ["ticket.open", True]}}, "goal holds already in the beginning"),
        ({"state": {"cause": "driver"}}, "state lacks checked, folder_reachable"),
        (
            {"schema": {"type": "object", "properties": {"x": {"type": "date"}}}},
            "schema.properties.x.type must be",
        ),
        ({"visible": ["secret"]}, "the state has no 'secret'"),
        ({"gold": [{"action": "fly"}]}, r"gold\[0\] must be an action"),
        ({"actions": {}}, "actions: Dictionary should have at least 1 item"),
        (
            {"actions": {"a": {"description": "", "script": [{"say": "x", "set": {"cause": "cable"}}]}}},
            r"actions.a.script\[0\] changes 'cause', which may_change does not name",
        ),
        ({"actions": {"a": {"description": "", "script": [{"do": 1}]}}}, r"actions.a.script\[0\] must have 'say'"),
    ],
)
def test_a_scenario_that_is_not_sound_is_refused_with_its_field(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ToolError, match=words):
        scenarios.load(written(tmp_path, **changes))


def test_a_file_that_is_no_scenario_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("{", "[" * 100_000, '"text"', " " * ((1 << 20) + 1)):
        path.write_text(text)
        with pytest.raises(ToolError, match=r"scenario 'x.json'"):
            scenarios.load(path)


def test_a_scenario_without_a_script_needs_a_model(tmp_path: Path, session: Callable[..., Any]) -> None:
    written(tmp_path, actions={"think": {"description": "Think."}}, gold=[])
    with pytest.raises(NotJudged, match=r"no script for think; set SIMULATION_LLM to a model") as raised:
        session("own.json")
    assert raised.value.outcome == "not_ready"


def test_an_argument_cannot_lead_a_path_elsewhere(tmp_path: Path) -> None:
    scripts = module("simulation", "simulation_script")
    rules = [{"set": {"goods.{item}": 1}, "say": "x"}]
    state = {"goods": {"wool": {"price": 0}}}
    assert scripts.play(rules, state, {"item": "wool"}) == ("x", {"goods.wool": 1})
    for item in ("wool.price", "", "{item}."):
        with pytest.raises(schemas.Wrong):
            scripts.play(rules, state, {"item": item})


# Played by a model


async def test_a_model_decides_what_an_action_does(played: Any, server: ModelServer) -> None:
    server.says(
        {"observation": "The driver is old.", "changes": {"checked": ["driver"]}},
        {"observation": "It works!", "changes": {"folder_reachable": True}},
        {"observation": "Closed.", "changes": {"ticket.open": False, "ticket.cause": "driver"}},
    )
    said = await simulation.act(played, "check", {"part": "driver"})
    assert said == {"observation": "The driver is old.", "done": False, "step": 1, "max_steps": 15}
    await simulation.act(played, "repair", {"part": "driver"})
    await simulation.act(played, "close_ticket", {"cause": "driver", "note": "done"})
    verdict = simulation.goal_reward(played)
    assert (verdict["reward"], verdict["world"]) == (1.0, "some-model")
    asked = json.loads(server.asked[1]["messages"][1]["content"])
    assert asked["state"]["checked"] == ["driver"]
    assert [turn["observation"] for turn in asked["before"]] == ["The driver is old."]
    assert asked["may_change"] == ["folder_reachable", "minutes_lost"]
    assert "goal" not in json.dumps(server.asked).lower()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Sure! Here it is.", "it is not JSON"),
        ("[" * 5000, "it is not JSON"),
        ({"observation": "x"}, "it must be an object with 'observation'"),
        ({"observation": "x", "changes": {}, "reward": 1}, "and nothing else"),
        ({"observation": " ", "changes": {}}, "must have 1 to 4000 characters"),
        ({"observation": "x", "changes": {"ticket.open": False}}, "'ticket.open' may not change by 'check'"),
        ({"observation": "x", "changes": {"checked": "all"}}, "state.checked must be of type array"),
        ({"observation": "x", "changes": {"checked": ["cat"]}}, "must be one of 'cable'"),
        ({"observation": "x", "changes": {"checked.0": "cable"}}, "the state has no 'checked.0'"),
    ],
)
async def test_an_answer_that_is_not_valid_is_sent_back_with_the_reason(
    answer: Any, reason: str, played: Any, server: ModelServer
) -> None:
    server.says(answer, {"observation": "The cable is fine.", "changes": {"checked": ["cable"]}})
    said = await simulation.act(played, "check", {"part": "cable"})
    assert said["observation"] == "The cable is fine."
    assert reason in server.asked[1]["messages"][-1]["content"]


async def test_a_model_that_never_answers_well_ends_the_step_and_spoils_the_reward(
    played: Any, server: ModelServer
) -> None:
    server.says("no", "no", "no", "never asked for")
    with pytest.raises(NotJudged, match=r"'some-model' that plays the world gave no valid answer: its answer was"):
        await simulation.act(played, "check", {"part": "cable"})
    assert server.answers == ["never asked for"]
    assert (await simulation.observe(played))["visible"]["checked"] == []
    with pytest.raises(NotJudged, match="its answer was not valid") as raised:
        simulation.goal_reward(played)
    assert raised.value.outcome == "invalid"
    server.says({"observation": "Fine.", "changes": {}})
    await simulation.act(played, "check", {"part": "cable"})
    assert simulation.goal_reward(played)["reward"] == 0.0


async def test_a_server_that_is_busy_or_knows_no_json_mode_is_asked_again(
    played: Any, server: ModelServer
) -> None:
    server.says(503, 400, {"observation": "Fine.", "changes": {}})
    await simulation.act(played, "check", {"part": "cable"})
    assert ["response_format" in asked for asked in server.asked] == [True, True, False]


@pytest.mark.parametrize("status", [401, 307])
async def test_a_server_that_refuses_is_not_asked_again_and_the_key_is_told_to_nobody(
    status: int, played: Any, server: ModelServer
) -> None:
    server.says(status, {"observation": "Fine.", "changes": {}})
    with pytest.raises(NotJudged, match=f"the model's server answered {status}") as caught:
        await simulation.act(played, "check", {"part": "cable"})
    assert len(server.asked) == 1
    with pytest.raises(NotJudged, match=f"the model's server answered {status}") as judged:
        simulation.goal_reward(played)
    assert judged.value.outcome == "not_ready"
    everything = [str(caught.value), str(judged.value), judged.value.details, simulation.get_task(played)]
    assert KEY not in str(everything)


@pytest.mark.slow
async def test_a_server_that_cannot_be_reached_is_said_with_what_to_do(session: Callable[..., Any]) -> None:
    variables = {
        "SIMULATION_LLM": "m",
        "SIMULATION_LLM_API_BASE": "http://127.0.0.1:1",
        "SIMULATION_LLM_API_KEY": KEY,
    }
    with pytest.raises(NotJudged, match=r"cannot connect to http://127.0.0.1:1: .*deployConfig.network") as caught:
        await simulation.act(session("help-desk", **variables), "check", {"part": "cable"})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "base", ["file:///etc", "http://", "http://[::1/v1", "http://me:word@host /v1", "http://a:b/"]
)
def test_an_address_that_is_none_is_refused_by_name_and_not_repeated(
    session: Callable[..., Any], base: str
) -> None:
    with pytest.raises(ToolError, match=r"SIMULATION_LLM_API_BASE.* must be an http or https address") as caught:
        session("help-desk", SIMULATION_LLM="m", SIMULATION_LLM_API_BASE=base)
    assert "word" not in str(caught.value)


# In instances


@pytest.mark.slow
async def test_an_instance_plays_gold_and_keeps_what_it_is_given_to_itself(tmp_path: Path) -> None:
    async with native_gateway(tmp_path / "home", "simulation") as gateway:
        given = {"SIMULATION_SCENARIO": "trading-post", "AENV_VALIDATION": "1"}
        id = (await gateway.create("simulation@1.0.0", environment_variables=given, network="none"))["id"]
        assert (await post(gateway, id, "/functions/get_task"))["id"] == "trading-post"
        said = await result_of(gateway, id, "act", action="swap", arguments={"trader": "miner", "offer": "knife"})
        assert "shakes the head" in said["content"][0]["text"]
        await post(gateway, id, "/functions/play_gold")
        assert (await post(gateway, id, "/task/reward"))["reward"] == 1.0


@pytest.mark.slow
async def test_an_instance_reaches_a_model_where_its_network_allows(tmp_path: Path, server: ModelServer) -> None:
    project = tmp_path / "simulation"
    shutil.copytree(ENVIRONMENTS / "simulation", project)
    config = json.loads((project / "config.json").read_text())
    config["deployConfig"]["network"] = "full"  # the way out to listed hosts never leads to this host
    (project / "config.json").write_text(json.dumps(config))
    server.says({"observation": "Warm air rises.", "changes": {"heater": True}})
    variables = {"SIMULATION_LLM": "m", "SIMULATION_LLM_API_BASE": server.base, "SIMULATION_LLM_API_KEY": KEY}
    async with running_gateway(tmp_path / "home", project, engine="native") as gateway:
        id = (await gateway.create("simulation@1.0.0", environment_variables=variables))["id"]
        said = await result_of(gateway, id, "act", action="heater", arguments={"on": True})
        assert "Warm air rises." in said["content"][0]["text"]
        narrowed = await gateway.create("simulation@1.0.0", environment_variables=variables, network="none")
        refused = await result_of(gateway, narrowed["id"], "act", action="wait")
        assert refused["is_error"] and "deployConfig.network" in refused["content"][0]["text"]
        assert KEY not in str(refused)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_instance_whose_policy_lists_hosts_asks_through_the_way_out(tmp_path: Path, scheme: str) -> None:
    base = f"{scheme}://models.example/v1"
    variables = {"SIMULATION_LLM": "m", "SIMULATION_LLM_API_BASE": base, "SIMULATION_LLM_API_KEY": KEY}
    async with native_gateway(tmp_path / "home", "simulation") as gateway:
        id = (await gateway.create("simulation@1.0.0", environment_variables=variables))["id"]
        refused = await result_of(gateway, id, "act", action="wait")
    assert refused["is_error"] and "egress to 'models.example" in refused["content"][0]["text"]

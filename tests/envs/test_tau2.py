"""tau2 as its users meet it: instances of its domains, episodes with simulated users, settings, and secrets."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aenv import ModelFailed, ToolError
from tests.gateways import Gateway, running_gateway

from .shells import ENVIRONMENTS, example, post, result_of
from .tau2_sessions import MADE, actions, session, validating

# isort: split
from tau2_domains import DOMAINS, specs
from tau2_models import Model
from tau2_settings import read

Json = dict[str, Any]
OWN = ["task_info", "system_prompt", "available_tools", "status"]
SECRET = "sk-nobody-may-see-this"


def said(text: str) -> Json:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def called(name: str, **arguments: Any) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "x", "type": "function", "function": function}
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}


@contextmanager
def model_server(answers: list[Json | int]) -> Iterator[tuple[str, list[Json]]]:
    """A server that speaks chat completions: its URL, and the requests it has seen."""
    seen: list[Json] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append({**body, "key": self.headers.get("authorization")})
            answer = answers[min(len(seen), len(answers)) - 1]
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("location", "/elsewhere")  # counts with a redirect only
            self.end_headers()
            self.wfile.write(b"" if isinstance(answer, int) else json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", seen
        finally:
            server.shutdown()
            thread.join()


def gateway(tmp_path: Path, shared: Path, **settings: Any) -> Any:
    roots = (shared / "data",)
    return running_gateway(tmp_path / "home", ENVIRONMENTS / "tau2", data_roots=roots, **settings)


async def create(gateway: Gateway, shared: Path, **variables: str) -> str:
    data = await gateway.create("tau2@1.0.0", datasource=str(shared / "data"), environment_variables=variables)
    return str(data["id"])


@pytest.mark.slow
async def test_an_instance_has_the_tools_of_its_domain_and_plays_an_episode(tmp_path, shared):
    async with gateway(tmp_path, shared, engine="native") as here:
        id = await create(here, shared, TAU2_DOMAIN="airline", TAU2_TASK_ID="3")
        prompt = await post(here, id, "/functions/tau2_get_system_prompt")
        assert "<policy>\n# Airline Agent Policy" in prompt
        assert await here.call(id, "tau2_get_system_prompt") == prompt
        listed = await here.call(id, "tau2_get_available_tools")
        assert [each["function"]["name"] for each in listed["result"]] == list(specs("airline", solo=False))
        status = await post(here, id, "/functions/tau2_get_status")
        assert status.keys() == {"done", "steps", "last_observation", "termination"}
        assert status["last_observation"].startswith("I want to figure out the total number of suitcases")
        answer = await here.call(id, "get_reservation_details", reservation_id="JMO1MG")
        assert (answer["reward"], answer["done"], answer["step"]) == (0.0, False, 1)
        assert json.loads(answer["observation"])["reservation_id"] == "JMO1MG"
        wrong = await here.call(id, "get_user_details", user_id="nobody")
        assert wrong["observation"] == "Error: User nobody not found"
        told = await here.call(
            id, "tau2_send_message", message="You may take 4 suitcases. Is there anything else?"
        )
        assert told.keys() == {"observation", "done"}
        assert (await here.call(id, "tau2_done"))["termination"] == "agent_stop"
        reward = await post(here, id, "/task/reward")
        assert reward["parts"] == {"DB": 1.0, "COMMUNICATE": 1.0}
        assert (reward["total_reward"], reward["done"], reward["steps"]) == (1.0, True, 3)
        assert reward["rewards"] == [0.0, 0.0, 1.0]
        # Another domain has other tools.
        id = await create(here, shared, TAU2_DOMAIN="mock", TAU2_SOLO_MODE="true")
        target = f"/instances/{id}/tools/get_reservation_details"
        assert (await here.ask("POST", target, {"reservation_id": "JMO1MG"}, origin=here.data))[0] == 404
        await here.call(id, "create_task", user_id="user_1", title="Important Meeting")
        await here.call(id, "done")
        assert (await post(here, id, "/task/reward"))["total_reward"] == 1.0


@pytest.mark.slow
async def test_the_default_is_telecom_as_published_and_gold_is_for_validation(tmp_path):
    async with gateway(tmp_path, MADE) as here:
        id = await create(here, MADE)
        info = await here.call(id, "tau2_get_task_info")
        assert (info["domain"], info["solo_mode"], info["user"]) == ("telecom", False, "scripted")
        status, reply = await here.ask("POST", f"/instances/{id}/functions/play_gold", {}, origin=here.data)
        assert status != 200
        assert "create the instance with AENV_VALIDATION=1" in reply["error"]
        id = await create(here, MADE, AENV_VALIDATION="1")
        assert (await post(here, id, "/functions/play_gold"))["termination"] == "agent_stop"
        assert (await post(here, id, "/task/reward"))["total_reward"] == 1.0
        assert (await post(here, id, "/task/reset"))["done"] is False
        assert (await post(here, id, "/task/reward"))["total_reward"] == 0.0


async def test_an_instance_with_wrong_variables_is_not_created_and_says_why(tmp_path):
    async with gateway(tmp_path, MADE) as here:
        for variables, text in (
            ({"TAU2_DOMAIN": "airline", "TAU2_SOLO_MODE": "true"}, "Airline domain does not support solo mode"),
            ({"TAU2_DOMAIN": "taxi"}, "use one of mock, airline, retail, telecom, telecom-workflow"),
        ):
            body = {"envName": "tau2@1.0.0", "environment_variables": variables}
            status, reply = await here.ask("POST", "/env-instance", body)
            assert status != 200
            assert text in reply["message"]


async def test_without_data_an_instance_starts_and_names_the_command(tmp_path, monkeypatch):
    monkeypatch.delenv("TAU2_DATA_DIR", raising=False)
    async with running_gateway(tmp_path / "home", ENVIRONMENTS / "tau2") as here:
        id = (await here.create("tau2@1.0.0"))["id"]
        answer = await result_of(here, id, "tau2_get_status")
        assert answer["is_error"]
        assert "run 'aenv data pull tau2'" in answer["content"][0]["text"]


@pytest.mark.slow
async def test_the_example_serves_a_user_by_script_and_by_model(tmp_path):
    task = {"TAU2_DATA_DIR": str(MADE / "data"), "TAU2_TASK_ID": "plant_beans"}
    answers = [
        called("create_task", user_id="bram", title="Plant the beans"),
        said("It is done. Is there anything else?"),
        called("tau2_done"),
    ]
    async with gateway(tmp_path, MADE) as here:
        by_script = await example(here, "tau2", **task, TAU2_SOLO_MODE="false")
        assert "agent: Thank you for calling. Goodbye." in by_script
        assert '"total_reward": 0.0' in by_script
        with model_server(answers) as (url, seen):
            by_model = await example(here, "tau2", **task, OPENAI_BASE_URL=url, OPENAI_MODEL="agent")
    assert '"total_reward": 1.0' in by_model
    offered = [tool["function"]["name"] for tool in seen[0]["tools"]]
    assert offered == ["tau2_send_message", "tau2_done", *specs("mock", solo=False)]


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"TAU2_MAX_STEPS": "many"}, "TAU2_MAX_STEPS='many' is not a number"),
        ({"TAU2_MAX_STEPS": "9" * 5000}, "TAU2_MAX_STEPS='9+…' is not a number"),
        ({"TAU2_SOLO_MODE": "perhaps"}, "TAU2_SOLO_MODE='perhaps' is neither true nor false"),
        ({"TAU2_DOMAIN": "retail", "TAU2_SOLO_MODE": "1"}, "Retail domain does not support solo mode"),
        ({"TAU2_NL_JUDGE": "maybe"}, "use one of assume, deny, llm"),
        ({"TAU2_NL_JUDGE": "llm"}, "TAU2_NL_JUDGE=llm needs a model"),
    ],
)
def test_wrong_variables_are_named(variables, text):
    with pytest.raises(ToolError, match=text):
        read(variables)


def test_an_unknown_task_or_split_is_told():
    with pytest.raises(ToolError, match="TAU2_TASK_ID='x' is not a task of 'mock'"):
        actions.status(session(MADE, "mock", "x"))
    with pytest.raises(ToolError, match="split 'x' is unknown; 'airline' has train, test, base"):
        session(MADE, "airline").tasks("x")


def test_both_folders_serve_as_data_directory():
    above, itself = MADE / "data", MADE / "data" / "tau2"
    for folder in (above, itself):
        assert actions.status(session(MADE, "mock", TAU2_DATA_DIR=str(folder)))["done"] is False


@pytest.mark.parametrize(("domain", "split", "size"), [("airline", "train", 30), ("telecom", "full", 2285)])
def test_splits_have_their_sizes(shared, domain, split, size):
    assert len(session(shared, domain).tasks(split)) == size


def test_agents_are_told_nothing_of_the_users_script_nor_of_what_is_judged():
    here = session(MADE, "retail", "larger_teapot")
    task = here.task
    told = json.dumps([actions.task_info(here), actions.available_tools(here), actions.task_for_agents(here)])
    for hidden in (
        task["user_scenario"]["instructions"]["known_info"],
        task["description"]["purpose"],
        task["evaluation_criteria"]["nl_assertions"][0],
        "nl_assert",
    ):
        assert json.dumps(hidden)[1:-1] not in told


def test_keys_are_shown_nowhere():
    keys = {"TAU2_USER_LLM_API_KEY": SECRET, "TAU2_NL_JUDGE_LLM_API_KEY": SECRET, "TAU2_NL_JUDGE_LLM": "judge"}
    here = session(MADE, "mock", "plant_beans", **keys)
    shown = [getattr(actions, name)(here) for name in OWN] + [actions.reward(here), actions.task_for_agents(here)]
    assert SECRET not in json.dumps(shown)
    assert SECRET not in repr(here.settings)


@pytest.mark.parametrize("key", [f"{SECRET}\nx", f"{SECRET}\u201d"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key):
    with pytest.raises(ToolError, match="TAU2_USER_LLM_API_KEY") as refused:
        read({"TAU2_USER_LLM": "player", "TAU2_USER_LLM_API_KEY": key})
    assert SECRET not in str(refused.value)


def test_blanks_around_a_key_and_a_url_do_not_count():
    given = {"TAU2_USER_LLM_API_BASE": " http://localhost:8000/v1\n", "TAU2_USER_LLM_API_KEY": f"{SECRET}\n"}
    assert read({"TAU2_USER_LLM": "player", **given}).user_model == Model(
        "player", "http://localhost:8000/v1", SECRET
    )


@pytest.mark.parametrize(
    "base",
    [
        f"localhost/{SECRET}",
        f"file:///{SECRET}",
        f"http://me:{SECRET}@localhost/v1",
        f"http://localhost:{SECRET}/v1",
        f"http://localhost/v1?key={SECRET}",
        f"http://localhost/{SECRET} v1",
        f"http:///{SECRET}",
    ],
)
def test_a_url_that_leads_to_no_model_is_refused_and_not_shown(base):
    with pytest.raises(ToolError, match=r"TAU2_NL_JUDGE_LLM_API_BASE.*http://localhost:8000/v1") as refused:
        read({"TAU2_NL_JUDGE_LLM": "judge", "TAU2_NL_JUDGE_LLM_API_BASE": base})
    assert SECRET not in str(refused.value)


def test_a_key_is_not_sent_where_a_server_points_to():
    with model_server([302, said("Hello")]) as (url, seen), pytest.raises(ModelFailed, match="answered 302"):
        Model("player", url, SECRET)([], [])
    assert len(seen) == 1


def test_the_schemas_are_those_of_the_benchmark():
    book = specs("airline", solo=False)["book_reservation"].parameters
    assert book["title"] == "parameters"
    assert book["properties"]["cabin"]["enum"] == ["business", "economy", "basic_economy"]
    assert book["properties"]["flights"]["items"]["anyOf"][0] == {"$ref": "#/$defs/FlightInfo"}
    assert book["$defs"]["FlightInfo"]["required"] == ["flight_number", "date"]
    assert "required" not in specs("mock", solo=False)["get_users"].parameters
    create = specs("mock", solo=False)["create_task"].parameters
    assert create["required"] == ["user_id", "title"]
    assert create["properties"]["description"]["default"] is None
    counts = {name: len(specs(name, solo=False)) for name in DOMAINS}
    assert counts == {"mock": 4, "airline": 14, "retail": 16, "telecom": 13, "telecom-workflow": 13}


def test_the_scripted_user_answers_from_what_it_knows_and_leaves_when_nothing_happens():
    here = session(MADE, "airline", "free_bags", TAU2_USER_PATIENCE="2")
    assert "noor_haddad_17" in actions.send_message(here, "What is your user id?")["observation"]
    assert actions.send_message(here, "Shall I go on (yes/no)?")["observation"] == "Yes."
    said = [actions.send_message(here, "One moment.") for _ in range(3)]
    assert [each["observation"] for each in said] == ["OK.", "OK.", "###STOP###"]
    assert actions.status(here)["termination"] == "user_stop"
    refused = actions.call_tool(here, "get_user_details", {"user_id": "noor_haddad_17"})
    assert refused["done"] is True
    assert refused["observation"].startswith("Error: the episode is over")


def test_the_scripted_user_runs_a_tool_that_the_agent_names():
    here = session(MADE, "mock", "frost_warning")
    checked = actions.send_message(here, "Please run check_notifications and tell me what it says.")
    assert checked["observation"].startswith('check_notifications: [{"notification_id": "seeds"')
    assert "tell me its notification_id" in actions.send_message(here, "Use dismiss_notification.")["observation"]
    done = actions.send_message(here, 'Now run dismiss_notification("frost").')
    assert done["observation"] == "dismiss_notification: Notification frost dismissed"


def test_the_scripted_user_runs_a_tool_once_however_often_a_message_names_it():
    here = session(MADE, "mock", "frost_warning")
    named = "Run check_notifications. What check_notifications says, tell me. " * 1000
    assert actions.send_message(here, named)["observation"].count("check_notifications: ") == 1
    asked = 'Run dismiss_notification("x"), then dismiss_notification("frost").'
    assert actions.send_message(here, asked)["observation"].splitlines() == [
        "dismiss_notification: Error: Notification x not found",
        "dismiss_notification: Notification frost dismissed",
    ]


@pytest.mark.parametrize(
    "given",
    [
        *("notification_id={[]: 1}", '{"notification_id": ' + "[" * 100_000, "-" * 100_000 + "1"),
        *('"\\ud800"', '{"notification_id": "\\ud800"}', "b'x'", "1 + 2j", "..."),  # what no JSON can hold
    ],
)
def test_arguments_that_the_scripted_user_cannot_read_are_asked_for(given):
    here = session(MADE, "mock", "frost_warning")
    answer = actions.send_message(here, f"Run dismiss_notification({given}).")
    assert answer["observation"] == "I cannot run dismiss_notification: tell me its notification_id."
    assert actions.status(here)["steps"] == 1


def test_the_scripted_user_knows_no_gold():
    here = session(MADE, "mock", "plant_beans")
    before = [actions.send_message(here, text)["observation"] for text in ("Hello?", "What do you need?", "OK.")]
    here = session(MADE, "mock", "plant_beans")
    here.task = {key: value for key, value in here.task.items() if key != "evaluation_criteria"}
    again = [actions.send_message(here, text)["observation"] for text in ("Hello?", "What do you need?", "OK.")]
    assert before == again


def test_limits_end_an_episode_without_reward():
    solution = {"user_id": "bram", "title": "Plant the beans"}
    here = session(MADE, "mock", "plant_beans", TAU2_MAX_STEPS="1")
    assert actions.call_tool(here, "create_task", solution)["done"] is True
    assert actions.status(here)["termination"] == "max_steps"
    assert actions.reward(here)["total_reward"] == 0.0
    here = session(MADE, "mock", "plant_beans")
    actions.call_tool(here, "create_task", solution)
    assert actions.reward(here)["total_reward"] == 1.0
    for _ in range(10):
        actions.call_tool(here, "update_task_status", {"task_id": "none", "status": "pending"})
    assert actions.status(here)["termination"] == "too_many_errors"
    assert actions.reward(here)["total_reward"] == 0.0


def test_words_to_nobody_end_a_solo_episode_without_reward():
    here = session(MADE, "mock", "plant_beans", TAU2_SOLO_MODE="true")
    actions.call_tool(here, "create_task", {"user_id": "bram", "title": "Plant the beans"})
    assert actions.send_message(here, "Hello?")["done"] is True
    assert actions.status(here)["termination"] == "agent_error"
    assert actions.reward(here)["total_reward"] == 0.0


def test_an_assertion_that_cannot_be_asked_is_no_reward_and_an_error():
    found = actions.reward(session(MADE, "mock", "borrowed_plot"))
    assert (found["total_reward"], found["error"]) == (0.0, "ValueError: Task task_3 not found")


def test_the_reward_says_when_the_judge_assumed():
    assumed = session(MADE, "retail", "larger_teapot")
    validating.play_gold(assumed)
    assert actions.reward(assumed)["judge"] == "assumed"
    assert "judge" not in actions.reward(session(MADE, "airline", "free_bags"))


def test_only_tasks_of_the_chosen_mode_are_known_to_deviate(shared):
    here = session(shared, "mock", TAU2_SOLO_MODE="true")
    known = validating.known_exceptions(here)
    assert known["gold"].keys() | known["empty"].keys() <= {task["id"] for task in here.tasks("")}
    assert "update_task_with_user_tools" in known["gold"]


def test_it_is_said_why_doing_nothing_is_rewarded(shared):
    empty = validating.known_exceptions(session(shared, "retail"))["empty"]
    for id, why in empty.items():
        task = session(shared, "retail", id)
        assert ("is assumed" in why) is (actions.reward(task).get("judge") == "assumed"), id


def test_a_model_plays_the_user_and_never_sees_the_agents_tools():
    answers = [said("I have a notification."), called("check_notifications"), said("It is frost. ###STOP###")]
    with model_server(answers) as (url, seen):
        models = {"TAU2_USER_LLM": "player", "TAU2_USER_LLM_API_BASE": url, "TAU2_USER_LLM_API_KEY": SECRET}
        here = session(MADE, "mock", "frost_warning", **models)
        assert actions.status(here)["last_observation"] == "I have a notification."
        actions.call_tool(here, "get_users", {})
        answer = actions.send_message(here, "Which one?")
    assert answer == {"observation": "It is frost. ###STOP###", "done": True}
    assert {request["key"] for request in seen} == {f"Bearer {SECRET}"}
    last = seen[-1]["messages"]
    roles = [message["role"] for message in last]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool"]
    assert "<scenario>\nPersona:\n\tCareful" in last[0]["content"]
    assert "bram" not in json.dumps(last[1:])
    assert {tool["function"]["name"] for tool in seen[0]["tools"]} == {
        "check_notifications",
        "dismiss_notification",
    }


def test_an_episode_whose_users_model_fails_is_invalid_and_keeps_the_key():
    with model_server([400]) as (url, _):
        models = {"TAU2_USER_LLM": "player", "TAU2_USER_LLM_API_BASE": url, "TAU2_USER_LLM_API_KEY": SECRET}
        here = session(MADE, "mock", "plant_beans", **models)
        status = actions.status(here)
    assert (status["done"], status["termination"]) == (True, "user_error")
    found = actions.reward(here)
    assert (found["total_reward"], found["invalid"]) == (
        0.0,
        "model 'player' failed: the model's server answered 400",
    )
    assert SECRET not in json.dumps([status, found])


@pytest.mark.parametrize(("met", "reward"), [(True, 1.0), (False, 0.0)])
def test_a_model_judges_plain_language(met, reward):
    verdict = json.dumps({"results": [{"assertion": "…", "met": met, "justification": "…"}]})
    with model_server([said(f"Here it is: {verdict}")]) as (url, seen):
        models = {"TAU2_NL_JUDGE_LLM": "judge", "TAU2_NL_JUDGE_LLM_API_BASE": url}
        here = session(MADE, "retail", "larger_teapot", TAU2_NL_JUDGE="llm", **models)
        validating.play_gold(here)
        found = actions.reward(here)
        assert actions.reward(here) == found
    assert (found["total_reward"], found["judge"]) == (reward, "llm")
    assert len(seen) == 1  # not asked twice about the same
    assert "1. The agent tells the customer that the difference is 6.75" in seen[0]["messages"][1]["content"]


def test_a_judge_that_answers_nonsense_makes_the_reward_invalid():
    with model_server([said("I like it")]) as (url, _):
        models = {"TAU2_NL_JUDGE_LLM": "judge", "TAU2_NL_JUDGE_LLM_API_BASE": url}
        here = session(MADE, "retail", "larger_teapot", TAU2_NL_JUDGE="llm", **models)
        validating.play_gold(here)
        assert "did not answer with the JSON" in actions.reward(here)["invalid"]


@pytest.mark.parametrize(
    ("domain", "task"),
    [("mock", "plant_beans"), ("airline", "free_bags"), ("retail", "larger_teapot")],
)
def test_cheats_are_not_rewarded(domain, task):
    cheats = validating.list_cheats(session(MADE, domain, task))
    assert {cheat["kind"] for cheat in cheats} == {"exit-early", "spoof-output", "read-answer"}
    doing: dict[str, Callable[..., Any]] = {
        **{f"tau2_get_{name}": getattr(actions, name) for name in OWN},
        "tau2_send_message": actions.send_message,
        "tau2_done": actions.stop,
    }
    for cheat in cheats:
        here = session(MADE, domain, task)
        for step in cheat["steps"]:
            doing[step["tool"]](here, **step["arguments"])
        assert actions.reward(here)["total_reward"] < 1.0, cheat["name"]

"""tau2's four domains on small data of our own in the benchmark's formats.

Not here: whether outputs, hashes and rewards are those of the original, which needs its data
(`test_tau2_parity.py`).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import aenv, environ
from tests.gateways import running_gateway

from .shells import ENVIRONMENTS, post
from .tau2_sessions import MADE, actions, full, opened, session, validating

# isort: split
from tau2_domains import specs, user_specs
from tau2_evaluation import hashes

Json = dict[str, Any]
SOLO = {"TAU2_SOLO_MODE": "true"}
LINE = {"customer_id": "C21", "line_id": "L51"}
HOME = {"address1": "1 Fen Way", "address2": "", "city": "Ely", "country": "USA", "state": "NV", "zip": "89301"}
LATER = {
    "reservation_id": "RAINX1",
    "cabin": "economy",
    "flights": [{"flight_number": "QX410", "date": "2024-05-21"}],
}
RIDER = {"first_name": "Ida", "last_name": "Haddad", "dob": "2012-12-01"}


def agent(name: str, answer: str, /, **arguments: Any) -> tuple[str, str, str, Json]:
    """A call of the agent, and the beginning of what it answers."""
    return "assistant", name, answer, arguments


def user(name: str, answer: str, /, **arguments: Any) -> tuple[str, str, str, Json]:
    """A call of the user."""
    return "user", name, answer, arguments


# Of each domain, in one world, one after another.
CALLS = {
    "mock": [
        agent("get_users", '[{"user_id": "ines", "name": "Ines Okafor", "tasks": ["task_1"]}, {"user'),
        agent("create_task", '{"task_id": "task_3", "title": "Rake"', user_id="ines", title="Rake"),
        agent("create_task", "Error: User eve not found", user_id="eve", title="Rake"),
        agent("create_task", "Error: MockTools.create_task() missing 1 required pos", user_id="ines"),
        agent("update_task_status", "Error: Task task_9 not f", task_id="task_9", status="pending"),
        agent("update_task_status", '{"task_id": "task_2", "t', task_id="task_2", status="pending"),
        agent("transfer_to_human_agents", "Transfer successful", summary="?"),
        agent("check_notifications", "Error: Tool 'check_notifications' not found."),
        user("check_notifications", '[{"notification_id": "seeds", "message": "The seed parcel is at'),
        user("dismiss_notification", "Notification seeds dismissed", notification_id="seeds"),
    ],
    "airline": [
        agent("list_all_airports", '[{"iata": "SFO", "city": "San Francisco"}, {"iata": "JFK"'),
        agent("calculate", "143.0", expression="2 * (59 + 12.5)"),
        agent("calculate", "Error: Invalid characters in expression", expression="two"),
        agent("get_user_details", '{"user_id": "noor_haddad_17", "name": {"f', user_id="noor_haddad_17"),
        agent("get_reservation_details", "Error: Reservation X not found", reservation_id="X"),
        agent("get_flight_status", "landed", flight_number="QX410", date="2024-05-14"),
        agent("get_flight_status", "Error: Flight QX1 not f", flight_number="QX1", date="2024-05-14"),
        agent("search_direct_flight", '[{"flight_number', origin="BOS", destination="DEN", date="2024-05-20"),
        agent("search_onestop_flight", '[[{"flight_numb', origin="BOS", destination="SEA", date="2024-05-20"),
        agent("update_reservation_passengers", "Error: N", reservation_id="RAINX1", passengers=[RIDER]),
        agent("update_reservation_passengers", '{"reservation_', reservation_id="SNOWY2", passengers=[RIDER]),
        agent("update_reservation_flights", "Error: Certificate can", payment_id="certificate_83", **LATER),
        agent("update_reservation_flights", '{"reservation_id": "RA', payment_id="gift_card_82", **LATER),
        agent("send_certificate", "Certificate certificate_3", user_id="tomas_lindgren_29", amount=15),
        agent("transfer_to_human_agents", "Transfer successful", summary="?"),
        user("check_status_bar", "Error: User tools not available"),
    ],
    "retail": [
        agent("list_all_product_types", '{"Lantern": "1700000002", "Teapot": "1700000001"}'),
        agent("get_product_details", '{"name": "Lantern", "product_id"', product_id="1700000002"),
        agent("get_item_details", '{"item_id": "1700100002", "options": {"colour"', item_id="1700100002"),
        agent("get_order_details", "Error: Order not found", order_id="#W0"),
        agent("get_order_details", '{"order_id": "#W7700001", "user_id": "lea_mo', order_id="#W7700001"),
        agent("get_user_details", '{"user_id": "lea_moreau_44", "name": {"first', user_id="lea_moreau_44"),
        agent("find_user_id_by_email", "lea_moreau_44", email="LEA@moreau.example"),
        agent("calculate", "6.75", expression="31.25 - 24.5"),
        agent("cancel_pending_order", "Error: Non-pe", order_id="#W7700003", reason="no longer needed"),
        agent("modify_user_address", '{"user_id": "lea_moreau_44"', user_id="lea_moreau_44", **HOME),
        agent("transfer_to_human_agents", "Transfer successful", summary="?"),
    ],
    "telecom": [
        agent("get_customer_by_phone", '{"customer_id": "C22", "full_name"', phone_number="555-770-0052"),
        agent("get_customer_by_id", "Error: Customer with ID C99 not found", customer_id="C99"),
        agent("get_customer_by_id", '{"customer_id": "C21", "full_name": "Yara Obi"', customer_id="C21"),
        agent("get_customer_by_name", '[{"customer_id": "C21"', full_name="yara obi", dob="1994-04-12"),
        agent("get_details_by_id", '{"plan_id": "P32", "name": "Household", "data_limit_gb": 40', id="P32"),
        agent("get_bills_for_customer", '[{"bill_id": "B42", "customer_i', customer_id="C21", limit=1),
        agent("get_data_usage", '{"line_id": "L51", "data_used_gb": "1.4", "data_limit_gb": "3.0", ', **LINE),
        agent("enable_roaming", "Roaming enabled successfully", **LINE),
        agent("disable_roaming", "Roaming disabled successfully", **LINE),
        agent("suspend_line", '{"message": "Line suspended successfully. $5/month', reason="lost", **LINE),
        agent("resume_line", '{"message": "Line resumed successfully", "line": {"line_id": "L51"', **LINE),
        agent("transfer_to_human_agents", "Transfer successful", summary="?"),
        user("check_status_bar", "Status Bar: 📶² Fair | 4G | 📱 Data Enabled | 🔋 57%"),
        user("check_network_status", "Airplane Mode: OFF\nSIM Card Status: active\nCellular Connection: con"),
        user("run_speed_test", "Speed Test Result: 27.50 Mbps (Good)."),
        user("check_network_mode_preference", "Network Mode Preference: 4g_5g_preferred"),
        user("set_network_mode_preference", "Preferred Network Mode set to: 3g_only\nStatus", mode="3g_only"),
        user("check_sim_status", "Your SIM card is active and working."),
        user("reseat_sim_card", "SIM card re-seated successfully.\nStatus Bar: 📶² Fair | 3G"),
        user("toggle_roaming", "Data Roaming is now ON."),
        user("check_data_restriction_status", "Data Saver mode is OFF."),
        user("check_apn_settings", "Current APN Name: internet\nMMSC URL (for picture messages): http://pic"),
        user("set_apn_settings", "APN settings set to: broken", apn_settings={"apn_name": "broken"}),
        user("reset_apn_settings", "APN settings will reset at reboot.\nStatus Bar: 📵 No Signal"),
        user("reboot_device", "Resetting APN settings...\nRestarting network services...\nStatus Bar: 📶² F"),
        user("check_wifi_status", "Wi-Fi is turned OFF."),
        user("toggle_wifi", "Wi-Fi is now ON."),
        user("check_wifi_calling_status", "Wi-Fi Calling is currently turned OFF."),
        user("toggle_wifi_calling", "Wi-Fi Calling is now ON."),
        user("check_vpn_status", "VPN is turned OFF."),
        user("connect_vpn", "VPN connected successfully."),
        user("disconnect_vpn", "VPN disconnected successfully."),
        user("check_installed_apps", "The following apps are installed on the phone: messaging, camera"),
        user("check_app_status", "Status for App: camera\n - Permissions Granted:\n   - ", app_name="camera"),
        user("check_app_permissions", "App 'camera' has permission for: storage.", app_name="camera"),
        user("can_send_mms", "Your messaging app can send MMS messages."),
        user("check_payment_request", "No payment request has been made."),
        user("make_payment", "You do not have a payment request."),
    ],
}
# A write that is not the one that the task asks for.
WRONG = [
    ("mock", "plant_beans", "create_task", {"user_id": "bram", "title": "Plant the peas"}),
    ("airline", "rain_cancelled", "cancel_reservation", {"reservation_id": "SNOWY2"}),
    ("retail", "no_teapot", "cancel_pending_order", {"order_id": "#W7700004", "reason": "ordered by mistake"}),
    ("telecom", "allowance_used", "refuel_data", {**LINE, "gb_amount": 0.25}),
]
MODES = [
    *(("mock", {}), ("airline", {}), ("retail", {}), ("telecom", {}), ("telecom-workflow", {})),
    *(("mock", SOLO), ("telecom", SOLO), ("telecom-workflow", SOLO)),
]


@pytest.mark.parametrize("domain", CALLS)
def test_every_tool_answers(domain):
    world = opened(MADE, domain)
    for requestor, name, answer, arguments in CALLS[domain]:
        found = world.execute(name, arguments, requestor)
        assert found.content.startswith(answer), name
        assert found.error == answer.startswith("Error: "), name


@pytest.mark.parametrize("domain", CALLS)
def test_no_tool_is_left_out(domain):
    tasks = json.loads((MADE / "data" / "tau2" / "domains" / domain / "tasks.json").read_text())
    played = {action["name"] for task in tasks for action in task["evaluation_criteria"]["actions"]}
    answered = {name for _, name, answer, _ in CALLS[domain] if not answer.startswith("Error: ")}
    assert {*specs(domain, solo=False), *user_specs(domain)} - played - answered == set()


def test_a_world_changes_nothing_of_the_next_one():
    before = hashes(opened(MADE, "retail"))
    world = opened(MADE, "retail")
    world.execute("modify_user_address", {"user_id": "lea_moreau_44", **HOME})
    assert hashes(world) != before
    assert hashes(opened(MADE, "retail")) == before


@pytest.mark.parametrize(("domain", "variables"), MODES)
def test_gold_is_fully_rewarded_and_doing_nothing_is_not(domain, variables):
    tasks = {task["id"] for task in session(MADE, domain, **variables).tasks("")}
    assert len(tasks) >= 5
    assert full(MADE, domain, "gold", **variables) == tasks
    assert full(MADE, domain, "empty", **variables) == set()


@pytest.mark.parametrize(("domain", "task", "tool", "arguments"), WRONG)
def test_a_wrong_write_is_worth_nothing(domain, task, tool, arguments):
    here = session(MADE, domain, task)
    answer = actions.call_tool(here, tool, arguments)
    assert not answer["observation"].startswith("Error")
    actions.stop(here)
    assert actions.reward(here)["total_reward"] == 0.0


def test_a_wrong_write_besides_the_right_one_is_worth_nothing():
    here = session(MADE, "mock", "plant_beans")
    actions.call_tool(here, "update_task_status", {"task_id": "task_2", "status": "pending"})
    validating.play_gold(here)
    assert actions.reward(here)["parts"] == {"DB": 0.0, "COMMUNICATE": 1.0}


def test_what_must_be_said_counts_and_must_be_said_by_the_agent():
    here = session(MADE, "airline", "free_bags")
    actions.send_message(here, "How many bags do you have?")
    assert actions.reward(here)["parts"] == {"DB": 1.0, "COMMUNICATE": 0.0}
    actions.send_message(here, "You have 4 bags free of charge.")
    assert actions.reward(here)["total_reward"] == 1.0


def test_any_transfer_will_do_where_only_a_human_can_help():
    here = session(MADE, "telecom", "locked_card")
    assert actions.reward(here)["parts"] == {"ENV_ASSERTION": 1.0, "ACTION": 0.0}
    actions.call_tool(here, "transfer_to_human_agents", {"summary": "in words of my own"})
    assert actions.reward(here)["total_reward"] == 1.0


def test_a_bill_is_paid_and_a_line_resumed_by_a_conversation():
    here = session(MADE, "telecom", "forgotten_bill")
    assert actions.status(here)["last_observation"].startswith("My phone has no service")
    said = [
        actions.call_tool(here, "send_payment_request", {"customer_id": "C21", "bill_id": "B47"})["observation"],
        actions.send_message(here, "Please run make_payment.")["observation"],
        actions.call_tool(here, "resume_line", LINE)["observation"],
        actions.send_message(here, "Please run check_status_bar.")["observation"],
        actions.send_message(here, "Now run reboot_device.")["observation"],
    ]
    assert said[0] == "Payment request sent to the customer for bill B47"
    assert said[1] == "make_payment: Payment of 17.5 USD has been made for bill B47."
    assert said[2].startswith('{"message": "Line resumed successfully"')
    assert "No Signal" in said[3]  # the phone has not searched yet
    assert said[4].splitlines()[1] == "Status Bar: 📶⁴ Excellent | 5G | 📱 Data Enabled | 🔋 57%"
    actions.stop(here)
    assert actions.reward(here)["total_reward"] == 1.0


def test_a_conversation_goes_on_where_its_history_ends():
    here = session(MADE, "mock", "second_thought")
    assert actions.status(here)["last_observation"].startswith("I am Bram.")
    done = actions.call_tool(here, "update_task_status", {"task_id": "task_3", "status": "completed"})
    assert json.loads(done["observation"])["title"] == "Sweep the path"
    assert actions.reward(here)["total_reward"] == 1.0


def test_splits_name_tasks_in_the_order_of_the_file():
    def listed(domain: str, split: str = "", **variables: str) -> list[str]:
        return [task["id"] for task in session(MADE, domain, **variables).tasks(split)]

    assert listed("airline", "train") == ["rain_cancelled", "fifth_bag"]
    assert listed("retail", "train") == ["no_teapot", "larger_teapot", "lantern_back"]
    assert listed("telecom", "full") == [*listed("telecom"), "locked_card"]
    assert listed("mock", "short") == listed("mock")[:2]
    # One that begins with messages of a user cannot be played alone.
    assert set(listed("mock")) - set(listed("mock", **SOLO)) == {"second_thought"}


@pytest.mark.parametrize(
    ("domain", "variables", "texts"),
    [
        ("mock", {}, ["# The garden club's task desk\n"]),
        (
            "mock",
            SOLO,
            ["# The garden club's task desk, by ticket\n", "<ticket>\nCreate a task for the user bram"],
        ),
        ("airline", {}, ["# Small Airline policy\n"]),
        ("retail", {}, ["# Small Shop policy\n"]),
        ("telecom", {}, ["# Small Carrier policy\n", "# Manual\n"]),
        ("telecom", SOLO, ["# Small Carrier policy, by ticket\n", "# Manual\n"]),
        ("telecom-workflow", {}, ["# Small Carrier policy\n", "# Workflow\n"]),
        ("telecom-workflow", SOLO, ["# Small Carrier policy, by ticket\n", "# Workflow, by ticket\n"]),
    ],
)
def test_the_policy_is_that_of_the_domain_and_mode(domain, variables, texts):
    prompt = actions.system_prompt(session(MADE, domain, **variables))
    assert [text for text in texts if text not in prompt] == []


def test_exceptions_are_known_only_of_tasks_that_are_there():
    for domain in ("mock", "airline", "retail", "telecom"):
        assert validating.known_exceptions(session(MADE, domain)) == {"gold": {}, "empty": {}}
    denied = validating.known_exceptions(session(MADE, "retail", TAU2_NL_JUDGE="deny"))
    assert denied["gold"].keys() == {"larger_teapot"}


def serving(tmp_path: Path) -> Any:
    """A gateway that isolates, with our data for its instances."""
    folders = {"TAU2_DATA_DIR": MADE / "data"}
    return running_gateway(tmp_path / "home", ENVIRONMENTS / "tau2", engine="native", data_folders=folders)


@pytest.mark.slow
async def test_an_isolated_instance_plays_an_episode(tmp_path):
    async with serving(tmp_path) as here:
        variables = {"TAU2_DOMAIN": "airline", "TAU2_TASK_ID": "free_bags"}
        id = str((await here.create("tau2@1.0.0", environment_variables=variables))["id"])
        listed = await post(here, id, "/functions/list_tasks", split="train")
        assert [task["id"] for task in listed] == ["rain_cancelled", "fifth_bag"]
        status = await here.call(id, "tau2_get_status")
        assert status["last_observation"] == "I want to know how many bags are free on my trip to Denver."
        answer = await here.call(id, "get_reservation_details", reservation_id="RAINX1")
        assert json.loads(answer["observation"])["passengers"][1]["first_name"] == "Sami"
        await here.call(id, "tau2_send_message", message="Both of you together: 4 bags.")
        assert (await here.call(id, "tau2_done"))["termination"] == "agent_stop"
        assert (await post(here, id, "/task/reward"))["total_reward"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("domain", "tasks"), [("mock", 6), ("airline", 5), ("retail", 5), ("telecom", 5)])
async def test_in_an_evaluation_the_oracle_passes_every_task(tmp_path, domain, tasks):
    # The self-check sees for each task that doing nothing fails; once is enough.
    options = () if domain == "mock" else ("--no-self-check",)
    async with serving(tmp_path) as here:
        words = ("eval", "tau2", "--agent", "oracle", "--variable", f"TAU2_DOMAIN={domain}", "--json", *options)
        where = ("--system-url", here.address.url, "--out", tmp_path / "results")
        done = await asyncio.to_thread(aenv, *words, *where, env=environ(AENV_HOME=str(tmp_path / "user")))
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["reward"] for result in results] == [1.0] * tasks, done.stderr
    assert {result["self_check"] for result in results} == {"skipped" if options else "held"}

"""tau2's telecom domain whole: outputs, hashes and rewards of the original, the sync step, files and worlds."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .telecom_worlds import (
    BAD_VPN,
    LINE,
    OVERDUE,
    SOURCES,
    Json,
    TelecomDB,
    TelecomSource,
    TelecomUserDB,
    TelecomWorld,
    agent,
    begun,
    database_hash,
    gold_calls,
    hashes,
    load,
    reward,
    telecom,
    user,
)


@pytest.fixture
def source(shared: Path) -> TelecomSource:
    return telecom(shared)


@pytest.fixture
def world(source: TelecomSource) -> TelecomWorld:
    return source.open(solo=False)


@pytest.fixture
def folder(shared: Path) -> Path:
    return shared / "data" / "tau2" / "domains" / "telecom"


def short_hashes(world: TelecomWorld) -> tuple[str, str]:
    agents, users = hashes(world)
    return agents[:16], users[:16]


def of_split(source: TelecomSource, split: str) -> Iterator[Json]:
    names = set(source.splits[split])
    return (task for task in source.tasks if task["id"] in names)


def rewards(source: TelecomSource, split: str, *, solo: bool = False) -> tuple[int, float, float]:
    """How many tasks there are, what gold gets of them, and what doing nothing gets."""
    tasks = list(of_split(source, split))
    gold = sum(reward(source, task, gold_calls(begun(source, task, solo=solo), task), solo=solo) for task in tasks)
    empty = sum(reward(source, task, [], solo=solo) for task in tasks)
    return len(tasks), gold, empty


# The judge: what the original gave.


def test_fresh_databases_have_the_hashes_of_the_original(world: TelecomWorld) -> None:
    assert hashes(world) == (
        "304cf5ef059852e117ea801ab9a5efc24c9713ec887679dc2e30acceb4b6742d",
        "e1f3a8637388808221228ff3f87294444e6b64caf721f5eb243a85d0a9380b28",
    )


def test_every_output_and_every_hash_of_the_gold_trace_is_the_same(shared: Path, source: TelecomSource) -> None:
    tasks = {task["id"]: task for task in source.tasks}
    lines = (shared / "data" / "tau2" / "gold_trace.jsonl").read_text().splitlines()
    traces = [trace for trace in map(json.loads, lines) if trace["domain"] == "telecom"]
    assert len(traces) == 57
    for trace in traces:
        world = begun(source, tasks[trace["task_id"]])
        assert hashes(world) == (trace["init_db_hash"], trace["init_user_db_hash"]), trace["task_id"]
        for call in trace["calls"]:
            answer = world.execute(call["name"], call["arguments"], call["requestor"])
            assert (answer.content, answer.error) == (call["output"], call["error"]), trace["task_id"]
        assert hashes(world) == (trace["gold_db_hash"], trace["gold_user_db_hash"]), trace["task_id"]


@pytest.mark.slow
@pytest.mark.parametrize("solo", [False, True])
def test_silent_gold_gets_every_base_reward_and_doing_nothing_gets_none(source: TelecomSource, solo: bool) -> None:
    assert rewards(source, "base", solo=solo) == (114, 114, 0)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_silent_gold_gets_all_2285_rewards_and_doing_nothing_gets_none(source: TelecomSource) -> None:
    assert rewards(source, "full") == (2285, 2285, 0)


@pytest.mark.parametrize(
    ("workflow", "solo", "length", "digest"),
    [
        (False, False, 23318, "065b48503bf78015"),
        (False, True, 22819, "71b10d43f320b792"),
        (True, False, 22164, "4713ad7b8c70d176"),
        (True, True, 20745, "9425f99b3392be03"),
    ],
)
def test_each_variant_has_its_policy(shared: Path, workflow: bool, solo: bool, length: int, digest: str) -> None:
    policy = telecom(shared, workflow=workflow).open(solo=solo).policy
    assert (len(policy), hashlib.sha256(policy.encode()).hexdigest()[:16]) == (length, digest)


def test_a_customer_pays_an_overdue_bill_and_gets_the_line_back(source: TelecomSource) -> None:
    world = begun(source, source.task(OVERDUE))
    assert short_hashes(world) == ("aad6f2f4527d7368", "f27c4a613fd74fd2")
    asked = agent(world, "send_payment_request", customer_id="C1001", bill_id="B1234321")
    assert asked == "Payment request sent to the customer for bill B1234321"
    assert short_hashes(world) == ("46f5d6e729f3bd7f", "a6bd3b049211af7e")
    seen = user(world, "check_payment_request")
    assert seen == "You have a payment request for bill B1234321 of 65.0 USD."
    paid = user(world, "make_payment")
    assert paid == "Payment of 65.0 USD has been made for bill B1234321."
    assert short_hashes(world) == ("b487c70cd60135fe", "f27c4a613fd74fd2")
    resumed = json.loads(agent(world, "resume_line", **LINE))
    assert resumed["message"] == "Line resumed successfully"
    assert resumed["line"]["status"] == "Active" and resumed["line"]["suspension_start_date"] is None
    assert short_hashes(world) == ("5a12d77ca0d69592", "447408344e80c71e")
    assert user(world, "check_status_bar") == "Status Bar: 📵 No Signal | 📵 Data Disabled | 🔋 80%"
    rebooted = user(world, "reboot_device")
    assert rebooted == "Restarting network services...\nStatus Bar: 📶⁴ Excellent | 5G | 📱 Data Enabled | 🔋 80%"
    assert short_hashes(world) == ("5a12d77ca0d69592", "65e1838b2dc64103")
    assert agent(world, "refuel_data", **LINE, gb_amount=2) == (
        '{"message": "Successfully added 2 GB of data for line L1002 for $4.00",'
        ' "new_data_refueling_gb": "2.0", "charge": "4.0"}'
    )
    assert short_hashes(world) == ("c24d6c0dc9a19c6d", "65e1838b2dc64103")


def test_a_slow_vpn_stays_slow_in_its_world_and_reaches_no_other(source: TelecomSource) -> None:
    world = begun(source, source.task(BAD_VPN))
    assert short_hashes(world) == ("b167dc73a096e4e7", "fc63027d3b523425")
    assert user(world, "run_speed_test") == "Speed test failed: No Connection."
    user(world, "disconnect_vpn")
    assert short_hashes(world)[1] == "aed352ffa46ada5d"
    user(world, "connect_vpn")
    assert short_hashes(world)[1] == "fc63027d3b523425"
    other = source.open(solo=False)
    user(other, "connect_vpn")
    assert user(other, "check_vpn_status") == (
        "VPN is ON and connected. Details: {'server_address': '192.168.1.1', 'protocol': 'OpenVPN',"
        " 'server_performance': <PerformanceLevel.EXCELLENT: 'excellent'>}"
    )


# Between the two sides.


def test_the_phone_follows_its_line_only_once_it_is_known_whose_it_is(world: TelecomWorld) -> None:
    agent(world, "suspend_line", **LINE, reason="lost")
    assert world.user.db.surroundings.line_active is True
    world.run_function("user", "set_user_info", {"name": "John Smith", "phone_number": "555-123-2002"})
    around = world.user.db.surroundings
    assert (around.line_active, around.roaming_allowed) == (False, True)
    assert user(world, "toggle_roaming").endswith("Status Bar: 📵 No Signal | 📵 Data Disabled | 🔋 80%")


def test_a_number_that_no_line_has_makes_the_call_fail(world: TelecomWorld) -> None:
    with pytest.raises(ValueError, match="Line with phone number 1 not found"):
        world.run_function("user", "set_user_info", {"name": "x", "phone_number": "1"})
    assert user(world, "check_status_bar") == "Error: Line with phone number 1 not found"


def test_used_up_data_stops_until_some_is_bought(world: TelecomWorld) -> None:
    world.run_function("user", "set_user_info", {"name": "John Smith", "phone_number": "555-123-2002"})
    world.run_function("assistant", "set_data_usage", {**LINE, "data_used_gb": 15.1})
    assert user(world, "run_speed_test") == "Speed test failed: No Connection."
    assert world.run_function("user", "assert_mobile_data_usage_exceeded", {"expected_status": True}) is True
    agent(world, "refuel_data", **LINE, gb_amount=2.0)
    assert user(world, "run_speed_test").startswith("Speed Test Result: 220.00")
    expected = {**LINE, "expected_amount": 2.0}
    assert world.run_function("assistant", "assert_data_refueling_amount", expected) is True


def test_assertions_about_bills_and_lines_tell_what_is_so(source: TelecomSource) -> None:
    world = begun(source, source.task(OVERDUE))
    bill = {"overdue_bill_id": "B1234321"}
    assert world.run_function("assistant", "assert_no_overdue_bill", bill) is False
    assert world.run_function("assistant", "assert_no_overdue_bill", {"overdue_bill_id": "B9"}) is True
    assert world.run_function("assistant", "assert_overdue_bill_exists", {"customer_id": "C1001", **bill}) is True
    assert world.run_function("assistant", "assert_line_status", {**LINE, "expected_status": "Suspended"}) is True
    paid = {"customer_id": "C1001", "overdue_bill_id": "B1001"}
    with pytest.raises(ValueError, match="Overdue bill B1001 is not overdue"):
        world.run_function("assistant", "assert_overdue_bill_exists", paid)
    again = {"customer_id": "C1001", "line_id": "L1001", "new_bill_id": "B1", "contract_ended": True}
    with pytest.raises(ValueError, match="Customer already has an overdue bill"):
        world.run_function("assistant", "suspend_line_for_overdue_bill", again)
    with pytest.raises(ValueError, match="Line must be active to suspend for unpaid bill"):
        world.run_function("assistant", "suspend_line_for_overdue_bill", again | LINE)


# Files and worlds.


def test_what_happens_in_one_world_reaches_no_other(source: TelecomSource) -> None:
    fresh = hashes(source.open(solo=False))
    for task in of_split(source, "small"):
        gold_calls(begun(source, task), task)
    assert hashes(source.open(solo=False)) == fresh


def test_one_task_is_found_as_it_is_among_all(folder: Path, source: TelecomSource) -> None:
    alone = load(folder, workflow=False)
    found = {name: alone.task(name) for name in source.splits["small"]}
    assert found == {task["id"]: task for task in of_split(source, "small")}
    assert "tasks" not in vars(alone), "the whole file was parsed"
    with pytest.raises(KeyError):
        alone.task("toggle_roaming_0")


@pytest.mark.parametrize("indent", [None, 0, 4])
def test_one_task_is_found_however_the_file_is_laid_out(tmp_path: Path, indent: int | None) -> None:
    tasks = [
        {"id": name, "evaluation_criteria": {"actions": [{"id": "b}", "text": '"id": "c"\n}'}]}} for name in "abc"
    ]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks, indent=indent))
    source = load(tmp_path, workflow=False)
    assert [source.task(name) for name in "abc"] == tasks


def test_a_tasks_data_is_merged_into_a_checked_copy(world: TelecomWorld) -> None:
    changed = world.user.db.merged({"surroundings": {"is_abroad": True}, "device": {"battery_level": "7"}})
    assert changed.surroundings.is_abroad and changed.device.battery_level == 7
    assert not world.user.db.surroundings.is_abroad
    assert list(changed.dump()["device"]) == list(world.user.db.dump()["device"])
    assert database_hash(world.agent.db.merged({})) == database_hash(world.agent.db)
    with pytest.raises(ValueError, match="nothing"):
        world.user.db.merged({"nothing": 1})


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (TelecomDB, {"plans": [{"plan_id": 1}]}, r"TelecomDB\.plans\[0\]\.plan_id must be str, not 1"),
        (TelecomDB, {"plans": [{"plan_id": "P1"}]}, r"TelecomDB\.plans\[0\]: .*missing 4 required"),
        (
            TelecomDB,
            {"lines": [{"status": "On"}]},
            r"lines\[0\]\.status: 'On' is not a valid LineStatus",
        ),
        (TelecomDB, {"bills": [{"due_date": "soon"}]}, r"TelecomDB\.bills\[0\]\.due_date: Invalid isoformat"),
        (TelecomDB, {"shops": []}, "TelecomDB has an unknown field 'shops'; it may have plans, customers"),
        (TelecomUserDB, {"device": 3}, r"TelecomUserDB\.device must be PhoneDevice, not 3"),
        (TelecomUserDB, {"device": {"airplane_mode": 1}}, r"device\.airplane_mode must be bool, not 1"),
    ],
)
def test_a_bad_file_is_refused_with_the_place_of_the_mistake(kind: Any, data: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind.read(data)


def test_a_world_is_opened_and_played_without_loading_pydantic(folder: Path) -> None:
    """Which would cost each instance that plays one task more than all else it does."""
    code = (
        "import sys; from pathlib import Path; from tau2_telecom import load\n"
        "source = load(Path(sys.argv[1]), workflow=False); world = source.open(solo=False)\n"
        "world.set_state(source.task(sys.argv[2])['initial_state'], [])\n"
        "print(world.execute('toggle_roaming', {}, 'user').content, 'pydantic' in sys.modules)"
    )
    arguments = [str(folder), BAD_VPN]
    said = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=SOURCES, capture_output=True, text=True, check=True
    )
    assert "Data Roaming is now OFF." in said.stdout and said.stdout.endswith("False\n")

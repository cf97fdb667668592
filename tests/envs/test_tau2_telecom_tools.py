"""The tools of tau2's telecom domain, the agent's and the user's: what each says and does, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .telecom_worlds import LINE, TelecomSource, TelecomWorld, agent, hashes, telecom, user


@pytest.fixture
def source(shared: Path) -> TelecomSource:
    return telecom(shared)


@pytest.fixture
def world(source: TelecomSource) -> TelecomWorld:
    return source.open(solo=False)


# The carrier.


def test_tools_are_shown_in_the_order_of_the_benchmark(world: TelecomWorld) -> None:
    agents, users = world.agent.specs(), world.user.specs()
    assert (len(agents), len(users)) == (13, 30)
    assert [*agents][:2] == ["get_customer_by_phone", "get_customer_by_id"] and [*agents][-1] == "refuel_data"
    assert [*users][:2] == ["check_status_bar", "check_network_status"] and [*users][-1] == "make_payment"
    assert all(spec.description for spec in [*agents.values(), *users.values()])
    undescribed = [
        (spec.name, name)
        for spec in [*agents.values(), *users.values()]
        for name, schema in spec.parameters["properties"].items()
        if not schema.get("description")
    ]
    assert undescribed == []


def test_what_tasks_do_and_ask_is_no_tool(world: TelecomWorld) -> None:
    answer = world.execute("set_data_usage", {**LINE, "data_used_gb": 0})
    assert (answer.content, answer.error) == ("Error: Tool 'set_data_usage' not found.", True)
    assert user(world, "turn_data_on") == "Error: Tool 'turn_data_on' not found."


def test_a_customer_is_found_by_own_number_by_a_lines_number_and_by_name(world: TelecomWorld) -> None:
    for number in ("555-123-2002", "555-123-2001", "555-123-2003"):
        assert json.loads(agent(world, "get_customer_by_phone", phone_number=number))["customer_id"] == "C1001"
    found = agent(world, "get_customer_by_phone", phone_number="1")
    assert found == "Error: Customer with phone number 1 not found"
    (john,) = json.loads(agent(world, "get_customer_by_name", full_name="john SMITH", dob="1985-06-15"))
    assert (john["created_at"], john["last_extension_date"]) == ("2025-01-15 10:30:00", None)
    assert agent(world, "get_customer_by_name", full_name="John Smith", dob="1985") == "[]"


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("L9", "Line with ID L9 not found"),
        ("D9", "Device with ID D9 not found"),
        ("B9", "Bill with ID B9 not found"),
        ("C9", "Customer with ID C9 not found"),
        ("P9", "Plan with ID P9 not found"),
        ("X1", "Unknown ID format or type: X1"),
        ("", "Unknown ID format or type: "),
        (7, "'int' object has no attribute 'startswith'"),
    ],
)
def test_an_id_that_nothing_has_is_an_error(world: TelecomWorld, id: Any, said: str) -> None:
    answer = world.execute("get_details_by_id", {"id": id})
    assert (answer.content, answer.error) == (f"Error: {said}", True)


def test_bills_come_newest_first_and_as_many_as_asked_for(world: TelecomWorld) -> None:
    bills = json.loads(agent(world, "get_bills_for_customer", customer_id="C1001"))
    assert [bill["bill_id"] for bill in bills] == ["B1003", "B1002", "B1001"]
    bills = json.loads(agent(world, "get_bills_for_customer", customer_id="C1001", limit=1))
    assert [bill["bill_id"] for bill in bills] == ["B1003"]


def test_data_usage_says_its_numbers_as_text(world: TelecomWorld) -> None:
    assert agent(world, "get_data_usage", **LINE) == (
        '{"line_id": "L1002", "data_used_gb": "8.7", "data_limit_gb": "15.0", "data_refueling_gb": "0.0",'
        ' "cycle_end_date": "2025-02-28"}'
    )


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("suspend_line", {"customer_id": "C9", "line_id": "L1", "reason": ""}, "Customer with ID C9 not found"),
        (
            "suspend_line",
            {"customer_id": "C1001", "line_id": "L1004", "reason": ""},
            "Line L1004 not found for customer C1001",
        ),
        (
            "suspend_line",
            {"customer_id": "C1001", "line_id": "L1003", "reason": ""},
            "Line must be active to suspend",
        ),
        ("resume_line", LINE, "Line must be suspended to resume"),
        ("refuel_data", {**LINE, "gb_amount": 0}, "Refuel amount must be positive"),
        (
            "refuel_data",
            {**LINE, "gb_amount": "2"},
            "'<=' not supported between instances of 'str' and 'int'",
        ),
        (
            "send_payment_request",
            {"customer_id": "C1001", "bill_id": "B1004"},
            "Bill B1004 not found for customer C1001",
        ),
        (
            "resume_line",
            {},
            "TelecomTools.resume_line() missing 2 required positional arguments: 'customer_id' and 'line_id'",
        ),
        ("resume_line", {**LINE, "x": 1}, "TelecomTools.resume_line() got an unexpected keyword argument 'x'"),
    ],
)
def test_a_call_that_cannot_be_done_changes_nothing(
    world: TelecomWorld, name: str, arguments: dict[str, Any], said: str
) -> None:
    before = hashes(world)
    answer = world.execute(name, arguments)
    assert (answer.content, answer.error) == (f"Error: {said}", True)
    assert hashes(world) == before


def test_only_one_bill_at_a_time_awaits_its_payment(world: TelecomWorld) -> None:
    agent(world, "send_payment_request", customer_id="C1001", bill_id="B1002")
    second = agent(world, "send_payment_request", customer_id="C1001", bill_id="B1001")
    assert second == "Error: A bill is already awaiting payment for this customer"


def test_data_that_a_customer_without_a_draft_buys_goes_on_a_new_bill_with_the_same_id_each_time(
    source: TelecomSource,
) -> None:
    worlds = [source.open(solo=False), source.open(solo=False)]
    for world in worlds:
        agent(world, "refuel_data", customer_id="C1002", line_id="L1004", gb_amount=10.0)
    (bill, *_) = json.loads(agent(worlds[0], "get_bills_for_customer", customer_id="C1002"))
    assert bill["period_start"] == "2025-03-01" and bill["period_end"] == "2025-03-31"
    assert bill["issue_date"] == "2025-03-01" and bill["due_date"] == "2025-03-15"
    assert (bill["total_due"], bill["status"]) == (1.0, "Draft")
    assert bill["line_items"] == [
        {
            "description": "Data refueling: 10.0 GB at $0.1/GB",
            "amount": 1.0,
            "date": "2025-02-25",
            "item_type": "Charge",
        }
    ]
    assert hashes(worlds[0]) == hashes(worlds[1])


def test_roaming_and_lines_switch_and_say_when_they_already_were(world: TelecomWorld) -> None:
    assert agent(world, "enable_roaming", **LINE) == "Roaming was already enabled"
    assert agent(world, "disable_roaming", **LINE) == "Roaming disabled successfully"
    assert agent(world, "disable_roaming", **LINE) == "Roaming was already disabled"
    assert agent(world, "enable_roaming", **LINE) == "Roaming enabled successfully"
    suspended = json.loads(agent(world, "suspend_line", **LINE, reason="lost"))
    assert suspended["message"] == "Line suspended successfully. $5/month holding fee will apply."
    assert suspended["line"]["suspension_start_date"] == "2025-02-25"


# The phone.

FIRST_SEARCH = "📶⁴ Excellent | 5G | 📱 Data Enabled | 🔋 80%"


def test_every_look_at_a_fresh_phone_says_what_it_should(world: TelecomWorld) -> None:
    said = {
        "check_status_bar": "Status Bar: 📶³ Good | 5G | 📱 Data Enabled | 🔋 80%",
        "check_network_status": "Airplane Mode: OFF\nSIM Card Status: active\nCellular Connection: connected\n"
        "Cellular Signal: good\nCellular Network Type: 5G\nMobile Data Enabled: Yes\nData Roaming Enabled: No\n"
        "Wi-Fi Radio: OFF\nWi-Fi Connected: No",
        "check_network_mode_preference": "Network Mode Preference: 4g_5g_preferred",
        "run_speed_test": "Speed Test Result: 220.00 Mbps (Excellent). Connection is very fast.",
        "check_sim_status": "Your SIM card is active and working.",
        "check_data_restriction_status": "Data Saver mode is OFF.",
        "check_apn_settings": "Current APN Name: internet\n"
        "MMSC URL (for picture messages): http://mms.carrier.com/mms/wapenc\n"
        "(These are technical settings, usually best left unchanged.)",
        "check_wifi_status": "Wi-Fi is turned OFF.",
        "check_wifi_calling_status": "Wi-Fi Calling is currently turned OFF.",
        "check_vpn_status": "VPN is turned OFF.",
        "check_installed_apps": "The following apps are installed on the phone: messaging, browser",
        "can_send_mms": "Your messaging app can send MMS messages.",
        "check_payment_request": "No payment request has been made.",
        "make_payment": "You do not have a payment request.",
    }
    assert {name: user(world, name) for name in said} == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("simulate_network_search", {})], "275.00 Mbps (Excellent)"),
        ([("simulate_network_search", {}), ("turn_data_saver_mode_on", {})], "55.00 Mbps (Good)"),
        ([("simulate_network_search", {}), ("break_vpn", {})], "27.50 Mbps (Good)"),
        (
            [("simulate_network_search", {}), ("turn_data_saver_mode_on", {}), ("break_vpn", {})],
            "5.50 Mbps (Fair)",
        ),
        ([("set_network_mode_preference", {"mode": "4g_only"})], "44.00 Mbps (Good)"),
        ([("set_network_mode_preference", {"mode": "3g_only"})], "1.50 Mbps (Poor)"),
        ([("set_network_mode_preference", {"mode": "2g_only"})], "0.05 Mbps (Very Poor)"),
    ],
)
def test_speed_follows_technology_signal_saver_and_vpn(
    world: TelecomWorld, changes: list[tuple[str, dict[str, Any]]], said: str
) -> None:
    for name, arguments in changes:
        world.run_function("user", name, arguments)
    assert user(world, "run_speed_test").startswith(f"Speed Test Result: {said}. Connection is ")


def test_airplane_mode_ends_wifi_vpn_and_network_and_ending_it_searches(world: TelecomWorld) -> None:
    user(world, "connect_vpn")
    on = user(world, "toggle_airplane_mode")
    assert on == "Airplane Mode is now ON.\nStatus Bar: ✈️ Airplane Mode | 🔋 80%"
    assert user(world, "check_vpn_status") == "VPN is turned OFF."
    assert user(world, "toggle_wifi") == (
        "Cannot change Wi-Fi settings while Airplane Mode is ON.\nStatus Bar: ✈️ Airplane Mode | 🔋 80%"
    )
    assert user(world, "toggle_airplane_mode") == f"Airplane Mode is now OFF.\nStatus Bar: {FIRST_SEARCH}"


def test_the_status_bar_shows_saver_wifi_and_vpn(world: TelecomWorld) -> None:
    user(world, "toggle_wifi")
    assert user(world, "check_wifi_status") == "Wi-Fi is ON but not connected to any network."
    user(world, "toggle_data_saver_mode")
    device = world.user.db.device
    device.wifi_connected, device.wifi_ssid = True, "home"
    shown = user(world, "connect_vpn")
    assert shown == (
        "VPN connected successfully.\nStatus Bar: 📶³ Good | 5G | 📱 Data Enabled | 🔽 Data Saver"
        " | 📡 Connected to home | 🔒 VPN Connected | 🔋 80%"
    )
    assert user(world, "check_wifi_status") == "Wi-Fi is ON and connected to 'home'. Signal strength: none."
    assert user(world, "check_network_status").endswith("Wi-Fi Connected: Yes\nConnected Wi-Fi Network: home")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ([("unseat_sim_card", {})], "No SIM card detected in the phone."),
        ([("lock_sim_card", {"mode": "pin"})], "The SIM card is locked with a PIN code."),
        ([("lock_sim_card", {"mode": "puk"})], "The SIM card is locked with a PUK code."),
    ],
)
def test_without_a_working_sim_there_is_no_service(
    world: TelecomWorld, broken: list[tuple[str, dict[str, Any]]], said: str
) -> None:
    for name, arguments in broken:
        world.run_function("user", name, arguments)
    assert user(world, "check_sim_status") == said
    assert user(world, "check_status_bar") == "Status Bar: 📵 No Signal | 📵 Data Disabled | 🔋 80%"
    assert world.run_function("user", "assert_service_status", {"expected_status": "no_service"}) is True


def test_broken_access_point_settings_are_mended_by_a_reset_and_a_reboot(world: TelecomWorld) -> None:
    world.run_function("user", "break_apn_settings", {})
    world.run_function("user", "break_apn_mms_setting", {})
    assert "Current APN Name: broken\nMMSC URL (for picture messages): Not Set" in user(
        world, "check_apn_settings"
    )
    reset = user(world, "reset_apn_settings")
    assert reset == "APN settings will reset at reboot.\nStatus Bar: 📵 No Signal | 📵 Data Disabled | 🔋 80%"
    assert user(world, "reboot_device") == (
        f"Resetting APN settings...\nRestarting network services...\nStatus Bar: {FIRST_SEARCH}"
    )
    assert user(world, "can_send_mms") == "Your messaging app can send MMS messages."


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("set_network_mode_preference", {"mode": "2g_only"}),
        ("set_wifi_calling", {"enabled": True, "mms_over_wifi": True}),
        ("break_apn_mms_setting", {}),
        ("remove_app_permission", {"app_name": "messaging", "permission": "SMS"}),
        ("remove_app_permission", {"app_name": "messaging", "permission": "storage"}),
        ("turn_data_off", {}),
        ("set_user_location", {"abroad": True}),
    ],
)
def test_each_of_these_alone_stops_picture_messages(
    world: TelecomWorld, name: str, arguments: dict[str, Any]
) -> None:
    world.run_function("user", name, arguments)
    assert user(world, "can_send_mms") == "Your messaging app cannot send MMS messages."


def test_permissions_are_granted_by_name_and_what_is_unknown_is_said(world: TelecomWorld) -> None:
    bar = "Status Bar: 📶³ Good | 5G | 📱 Data Enabled | 🔋 80%"
    assert user(world, "check_app_permissions", app_name="browser") == (
        "App 'browser' has permission for: storage, network."
    )
    granted = user(world, "grant_app_permission", app_name="browser", permission="SMS")
    assert granted == f"Success. Permission 'sms' granted to app 'browser'.\n{bar}"
    assert user(world, "check_app_status", app_name="browser") == (
        "Status for App: browser\n - Permissions Granted:\n   - sms\n   - storage\n   - network"
    )
    assert user(world, "grant_app_permission", app_name="maps", permission="sms") == (
        f"Error. App 'maps' not found. Cannot grant permission.\n{bar}"
    )
    assert user(world, "grant_app_permission", app_name="browser", permission="camera") == (
        "Error. Permission 'camera' not tracked for app 'browser', available permissions: "
        f"['sms', 'storage', 'phone', 'network']\n{bar}"
    )
    for name in ("sms", "storage", "network"):
        world.run_function("user", "remove_app_permission", {"app_name": "browser", "permission": name})
    assert user(world, "check_app_permissions", app_name="browser") == (
        "App 'browser' currently has no permissions granted."
    )
    assert user(world, "check_app_status", app_name="browser") == (
        "Status for App: browser\n - Permissions: None granted."
    )
    assert user(world, "check_app_status", app_name="maps") == "App 'maps' not found on this phone."


def test_an_unknown_network_mode_is_refused_and_one_that_is_no_text_fails(world: TelecomWorld) -> None:
    before = hashes(world)
    assert user(world, "set_network_mode_preference", mode="6g") == (
        "Failed to set network mode: '6g' is not a valid option. Please use one of: 4g_5g_preferred, 4g_only, "
        "3g_only, 2g_only\nStatus Bar: 📶³ Good | 5G | 📱 Data Enabled | 🔋 80%"
    )
    assert hashes(world) == before
    assert user(world, "set_network_mode_preference", mode=5) == "Error: 'int' object has no attribute 'value'"
    assert world.user.db.dump()["device"]["network_mode_preference"] == 5
    assert world.user.db.device.network_technology_connected == "4G"


def test_access_point_settings_are_checked(world: TelecomWorld) -> None:
    before = hashes(world)
    assert user(world, "set_apn_settings", apn_settings={"mms_port": "x", "extra": 1}) == (
        "Error: 2 validation errors for APNSettings\nmms_port\n"
        "  Input should be a valid integer, unable to parse string as an integer"
        " [type=int_parsing, input_value='x', input_type=str]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/int_parsing\nextra\n"
        "  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/extra_forbidden"
    )
    assert hashes(world) == before
    done = user(world, "set_apn_settings", apn_settings={"mms_port": "80"})
    assert done == f"APN settings set to: internet\nStatus Bar: {FIRST_SEARCH}"
    assert world.user.db.device.active_apn_settings.mms_port == 80
    wrong = user(world, "set_apn_settings", apn_settings="internet")
    assert wrong == "Error: 'str' object has no attribute 'apn_name'"

"""What tasks do to the phone before they begin, and what they ask of it at the end. None of it is a tool.

Not here: what the customer can do with the phone (`tau2_telecom_user.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from tau2_telecom_phone import ApnName, NetworkStatus, PerformanceLevel, SimStatus
from tau2_telecom_user import PhoneTools


class Preparations(PhoneTools):
    """Plain functions that break things. The names are those that tasks use."""

    def set_user_info(self, name: str, phone_number: str) -> None:
        """Say whose phone it is. From here on it follows the line that has this number."""
        self.db.surroundings.name = name
        self.db.surroundings.phone_number = phone_number

    def set_user_location(self, abroad: bool) -> None:
        self.db.surroundings.is_abroad = abroad

    def simulate_network_search(self) -> None:
        self.db.search_network()

    def turn_airplane_mode_on(self) -> None:
        self._turn(self.toggle_airplane_mode, "airplane_mode", True)

    def turn_airplane_mode_off(self) -> None:
        self._turn(self.toggle_airplane_mode, "airplane_mode", False)

    def turn_roaming_on(self) -> None:
        self._turn(self.toggle_roaming, "roaming_enabled", True)

    def turn_roaming_off(self) -> None:
        self._turn(self.toggle_roaming, "roaming_enabled", False)

    def turn_data_on(self) -> None:
        self.db.device.data_enabled = True

    def turn_data_off(self) -> None:
        self._turn(self.toggle_data, "data_enabled", False)

    def turn_data_saver_mode_on(self) -> None:
        self._turn(self.toggle_data_saver_mode, "data_saver_mode", True)

    def turn_data_saver_mode_off(self) -> None:
        self._turn(self.toggle_data_saver_mode, "data_saver_mode", False)

    def _turn(self, toggle: Callable[[], str], field: str, wanted: bool) -> None:
        # Toggled even when it is as wanted, and then back: toggles also search the network, and end Wi-Fi and VPN.
        toggle()
        if getattr(self.db.device, field) != wanted:
            toggle()

    def unseat_sim_card(self) -> None:
        self.db.device.sim_card_missing = True
        self.db.search_network()

    def lock_sim_card(self, mode: str) -> None:
        if mode == "pin":
            self.db.device.sim_card_status = SimStatus.LOCKED_PIN
        elif mode == "puk":
            self.db.device.sim_card_status = SimStatus.LOCKED_PUK
        self.db.search_network()

    def break_apn_settings(self) -> None:
        self.db.device.active_apn_settings.apn_name = ApnName.BROKEN
        self.db.search_network()

    def break_apn_mms_setting(self) -> None:
        self.db.device.active_apn_settings.mmsc_url = None

    def set_wifi_calling(self, enabled: bool, mms_over_wifi: bool | None = None) -> None:
        self.db.device.wifi_calling_enabled = enabled
        if mms_over_wifi is not None:
            self.db.device.wifi_calling_mms_over_wifi = mms_over_wifi

    def break_vpn(self) -> None:
        """Connect to a VPN that is slow, now and whenever it is connected again."""
        self.connect_vpn()
        details = self.db.device.vpn_details
        if details is not None:
            details.server_performance = PerformanceLevel.POOR  # these details are the profile itself

    def remove_app_permission(self, app_name: str, permission: str) -> None:
        self._permit(app_name, permission.lower(), False)


class Assertions(PhoneTools):
    """Plain functions that say whether the phone is as a task wants it."""

    def assert_airplane_mode_status(self, expected_status: bool) -> bool:
        return self.db.device.airplane_mode == expected_status

    def assert_service_status(self, expected_status: str) -> bool:
        return self.db.device.network_connection_status == NetworkStatus(expected_status)

    def assert_mobile_data_status(self, expected_status: bool) -> bool:
        return self.db.mobile_data_works() == expected_status

    def assert_mobile_roaming_status(self, expected_status: bool) -> bool:
        return self.db.device.roaming_enabled == expected_status

    def assert_mobile_data_saver_mode_status(self, expected_status: bool) -> bool:
        return self.db.device.data_saver_mode == expected_status

    def assert_internet_speed(self, expected_speed: float, expected_desc: str | None = None) -> bool:
        speed, description = self.db.speed()
        fast = (speed or 0.0) >= expected_speed
        return fast and (expected_desc is None or description.lower() == expected_desc.lower())

    def assert_internet_not_excellent(self) -> bool:
        return self.db.speed()[1].lower() != "excellent"

    def assert_can_send_mms(self, expected_status: bool) -> bool:
        return self.db.mms_works() == expected_status

    def assert_mobile_data_usage_exceeded(self, expected_status: bool) -> bool:
        return self.db.surroundings.mobile_data_usage_exceeded == expected_status


class TelecomUserTools(Preparations, Assertions):
    """The user's side as a world has it."""

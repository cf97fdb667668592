"""What the customer can do with the phone: the user's tools of telecom.

Not here: what follows from its state (`tau2_telecom_phone.py`), what only tasks do (`tau2_telecom_scene.py`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from tau2_telecom_phone import (
    APNSettings,
    NetworkMode,
    NetworkStatus,
    PerformanceLevel,
    SimStatus,
    TelecomUserDB,
    VpnDetails,
)
from tau2_toolkit import Toolkit, tool

_SIM_TEXT = {
    SimStatus.ACTIVE: "Your SIM card is active and working.",
    SimStatus.MISSING: "No SIM card detected in the phone.",
    SimStatus.LOCKED_PIN: "The SIM card is locked with a PIN code.",
    SimStatus.LOCKED_PUK: "The SIM card is locked with a PUK code.",
}
_SPEED_ADVICE = {
    "Very Poor": "Connection is very slow. Basic web browsing might be difficult.",
    "Poor": "Connection is slow. Web browsing may be sluggish, streaming difficult.",
    "Fair": "Connection is okay for web browsing and some standard definition streaming.",
    "Good": "Connection is good for most activities, including HD streaming.",
    "Excellent": "Connection is very fast.",
}


def _on(state: bool) -> str:
    return "ON" if state else "OFF"


def _yes(state: bool) -> str:
    return "Yes" if state else "No"


class PhoneTools(Toolkit):
    """The tools, in the order in which a model is shown them."""

    title: ClassVar[str] = "TelecomUserTools"
    db: TelecomUserDB

    def __init__(self, db: TelecomUserDB) -> None:
        super().__init__(db)
        # One object for the world: a VPN that was made slow stays slow when it is connected again.
        self._vpn_profile = VpnDetails(
            server_address="192.168.1.1", protocol="OpenVPN", server_performance=PerformanceLevel.EXCELLENT
        )

    def _with_status_bar(self, text: str) -> str:
        return f"{text}\nStatus Bar: {self.db.status_bar()}"

    @tool("read")
    def check_status_bar(self) -> str:
        """Look at the status bar: signal, network type, mobile data, Wi-Fi, VPN and battery."""
        return f"Status Bar: {self.db.status_bar()}"

    @tool("read")
    def check_network_status(self) -> str:
        """Look at the phone's connections: airplane mode, SIM, cellular network, mobile data, roaming, Wi-Fi."""
        device = self.db.device
        lines = [
            f"Airplane Mode: {_on(device.airplane_mode)}",
            f"SIM Card Status: {device.sim_status().value}",
            f"Cellular Connection: {device.network_connection_status.value}",
            f"Cellular Signal: {device.network_signal_strength.value}",
            f"Cellular Network Type: {device.network_technology_connected.value}",
            f"Mobile Data Enabled: {_yes(device.data_enabled)}",
            f"Data Roaming Enabled: {_yes(device.roaming_enabled)}",
            f"Wi-Fi Radio: {_on(device.wifi_enabled)}",
            f"Wi-Fi Connected: {_yes(device.wifi_connected)}",
        ]
        if device.wifi_connected:
            lines.append(f"Connected Wi-Fi Network: {device.wifi_ssid}")
        return "\n".join(lines)

    @tool("read")
    def check_network_mode_preference(self) -> str:
        """Look up which kinds of cellular network the phone prefers."""
        return f"Network Mode Preference: {self.db.device.network_mode_preference.value}"

    @tool("write")
    def set_network_mode_preference(self, mode: NetworkMode | str) -> str:
        """Choose which kinds of cellular network the phone prefers.

        Args:
            mode: One of 4g_5g_preferred, 4g_only, 3g_only and 2g_only.
        """
        device = self.db.device
        if isinstance(mode, str):
            known = [each.value for each in NetworkMode]
            if mode not in known:
                options = ", ".join(known)
                return self._with_status_bar(
                    f"Failed to set network mode: '{mode}' is not a valid option. Please use one of: {options}"
                )
            mode = NetworkMode(mode)
        device.network_mode_preference = mode
        self.db.search_network()
        return self._with_status_bar(f"Preferred Network Mode set to: {mode.value}")

    @tool("read")
    def run_speed_test(self) -> str:
        """Measure how fast mobile data is."""
        speed, description = self.db.speed()
        if speed is None:
            return f"Speed test failed: {description}."
        return f"Speed Test Result: {speed:.2f} Mbps ({description}). {_SPEED_ADVICE[description]}"

    @tool("write")
    def toggle_airplane_mode(self) -> str:
        """Switch airplane mode on or off. While it is on, nothing is connected."""
        device = self.db.device
        device.airplane_mode = not device.airplane_mode
        if device.airplane_mode:
            device.leave_wifi()
            if device.vpn_connected:
                device.leave_vpn()
        else:
            device.network_connection_status = NetworkStatus.SEARCHING
            if device.wifi_enabled:
                device.leave_wifi()
        self.db.search_network()
        return self._with_status_bar(f"Airplane Mode is now {_on(device.airplane_mode)}.")

    @tool("read")
    def check_sim_status(self) -> str:
        """Look whether the SIM card works, is missing, or is locked."""
        return _SIM_TEXT[self.db.device.sim_status()]

    @tool("write")
    def reseat_sim_card(self) -> str:
        """Take the SIM card out and put it in again."""
        self.db.device.sim_card_missing = False
        self.db.search_network()
        return self._with_status_bar("SIM card re-seated successfully.")

    @tool("write")
    def toggle_data(self) -> str:
        """Switch mobile data on or off."""
        device = self.db.device
        device.data_enabled = not device.data_enabled
        self.db.search_network()
        return self._with_status_bar(f"Mobile Data is now {_on(device.data_enabled)}.")

    @tool("write")
    def toggle_roaming(self) -> str:
        """Switch data roaming, the use of mobile data abroad, on or off in the phone's settings."""
        device = self.db.device
        device.roaming_enabled = not device.roaming_enabled
        self.db.search_network()
        return self._with_status_bar(f"Data Roaming is now {_on(device.roaming_enabled)}.")

    @tool("read")
    def check_data_restriction_status(self) -> str:
        """Look whether the data saver limits what the phone loads."""
        if self.db.device.data_saver_mode:
            return "Data Saver mode is ON (limits data usage)."
        return "Data Saver mode is OFF."

    @tool("write")
    def toggle_data_saver_mode(self) -> str:
        """Switch the data saver on or off."""
        device = self.db.device
        device.data_saver_mode = not device.data_saver_mode
        return self._with_status_bar(f"Data Saver Mode is now {_on(device.data_saver_mode)}.")

    @tool("read")
    def check_apn_settings(self) -> str:
        """Look at the access point settings: the name, and the address for picture messages."""
        settings = self.db.device.active_apn_settings
        return (
            f"Current APN Name: {settings.apn_name.value}\n"
            f"MMSC URL (for picture messages): {settings.mmsc_url or 'Not Set'}\n"
            "(These are technical settings, usually best left unchanged.)"
        )

    @tool("write")
    def set_apn_settings(self, apn_settings: APNSettings | dict[str, Any]) -> str:
        """Replace the access point settings.

        Args:
            apn_settings: The new settings. What is left out gets its default.
        """
        settings = APNSettings.checked(apn_settings) if isinstance(apn_settings, dict) else apn_settings
        self.db.device.active_apn_settings = settings
        self.db.search_network()
        return self._with_status_bar(f"APN settings set to: {settings.apn_name.value}")

    @tool("write")
    def reset_apn_settings(self) -> str:
        """Have the access point settings put back to their defaults at the next reboot."""
        self.db.device.active_apn_settings.reset_at_reboot = True
        self.db.search_network()
        return self._with_status_bar("APN settings will reset at reboot.")

    @tool("read")
    def check_wifi_status(self) -> str:
        """Look whether Wi-Fi is on, and what it is connected to."""
        device = self.db.device
        if not device.wifi_enabled:
            return "Wi-Fi is turned OFF."
        if device.wifi_connected:
            strength = device.wifi_signal_strength.value
            return f"Wi-Fi is ON and connected to '{device.wifi_ssid}'. Signal strength: {strength}."
        return "Wi-Fi is ON but not connected to any network."

    @tool("write")
    def toggle_wifi(self) -> str:
        """Switch Wi-Fi on or off. Not possible in airplane mode."""
        device = self.db.device
        if device.airplane_mode:
            return self._with_status_bar("Cannot change Wi-Fi settings while Airplane Mode is ON.")
        device.wifi_enabled = not device.wifi_enabled
        if not device.wifi_enabled:
            device.leave_wifi()
        return self._with_status_bar(f"Wi-Fi is now {_on(device.wifi_enabled)}.")

    @tool("read")
    def check_wifi_calling_status(self) -> str:
        """Look whether calls go over Wi-Fi."""
        return f"Wi-Fi Calling is currently turned {_on(self.db.device.wifi_calling_enabled)}."

    @tool("write")
    def toggle_wifi_calling(self) -> str:
        """Switch calls over Wi-Fi on or off."""
        device = self.db.device
        device.wifi_calling_enabled = not device.wifi_calling_enabled
        return self._with_status_bar(f"Wi-Fi Calling is now {_on(device.wifi_calling_enabled)}.")

    @tool("read")
    def check_vpn_status(self) -> str:
        """Look whether a VPN is connected, and to what."""
        device = self.db.device
        if device.vpn_connected:
            if device.vpn_details is None:
                return "VPN is ON and connected (no specific details available)."
            return f"VPN is ON and connected. Details: {device.vpn_details.dump()}"
        if device.vpn_enabled_setting:
            return "VPN is turned ON in settings, but currently not connected."
        return "VPN is turned OFF."

    @tool("write")
    def connect_vpn(self) -> str:
        """Connect to the VPN that the phone is set up for."""
        device = self.db.device
        if device.vpn_connected:
            return "VPN already connected."
        device.vpn_connected = True
        device.vpn_details = self._vpn_profile
        return self._with_status_bar("VPN connected successfully.")

    @tool("write")
    def disconnect_vpn(self) -> str:
        """End the connection to the VPN."""
        if not self.db.device.vpn_connected:
            return self._with_status_bar("No active VPN connection to disconnect.")
        self.db.device.leave_vpn()
        return self._with_status_bar("VPN disconnected successfully.")

    @tool("read")
    def check_installed_apps(self) -> str:
        """List the apps on the phone."""
        return f"The following apps are installed on the phone: {', '.join(self.db.device.app_statuses)}"

    @tool("read")
    def check_app_status(self, app_name: str) -> str:
        """Look at an app: what it may use.

        Args:
            app_name: The app's name, for example messaging.
        """
        app = self.db.device.app_statuses.get(app_name)
        if app is None:
            return f"App '{app_name}' not found on this phone."
        granted = app.permissions.granted()
        lines = [f"Status for App: {app_name}"]
        lines.append(" - Permissions Granted:" if granted else " - Permissions: None granted.")
        return "\n".join(lines + [f"   - {name}" for name in granted])

    @tool("read")
    def check_app_permissions(self, app_name: str) -> str:
        """List what an app may use.

        Args:
            app_name: The app's name, for example messaging.
        """
        app = self.db.device.app_statuses.get(app_name)
        if app is None:
            return f"App '{app_name}' not found on this phone."
        granted = app.permissions.granted()
        if not granted:
            return f"App '{app_name}' currently has no permissions granted."
        return f"App '{app_name}' has permission for: {', '.join(granted)}."

    @tool("write")
    def grant_app_permission(self, app_name: str, permission: str) -> str:
        """Let an app use something.

        Args:
            app_name: The app's name, for example messaging.
            permission: What it may use: sms, storage, phone or network.
        """
        permission = permission.lower()
        trouble = self._permit(app_name, permission, True)
        if trouble:
            return self._with_status_bar(f"Error. {trouble}")
        return self._with_status_bar(f"Success. Permission '{permission}' granted to app '{app_name}'.")

    def _permit(self, app_name: str, permission: str, allowed: bool) -> str:
        """Set a permission. What is returned says why that was not possible."""
        app = self.db.device.app_statuses.get(app_name)
        if app is None:
            return f"App '{app_name}' not found. Cannot grant permission."
        known = list(vars(app.permissions))
        if permission not in known:
            return f"Permission '{permission}' not tracked for app '{app_name}', available permissions: {known}"
        setattr(app.permissions, permission, allowed)
        return ""

    @tool("read")
    def can_send_mms(self) -> str:
        """Try whether the messaging app can send picture messages (MMS)."""
        word = "can" if self.db.mms_works() else "cannot"
        return f"Your messaging app {word} send MMS messages."

    @tool("write")
    def reboot_device(self) -> str:
        """Restart the phone. It then searches its network anew."""
        device = self.db.device
        lines = []
        if device.active_apn_settings.reset_at_reboot:
            device.active_apn_settings = APNSettings()
            lines.append("Resetting APN settings...")
        lines.append("Restarting network services...")
        device.network_connection_status = NetworkStatus.SEARCHING
        self.db.search_network()
        return self._with_status_bar("\n".join(lines))

    @tool("read")
    def check_payment_request(self) -> str:
        """Look whether the carrier asks for the payment of a bill."""
        request = self.db.surroundings.payment_request
        if request is None:
            return "No payment request has been made."
        return f"You have a payment request for bill {request.bill_id} of {request.amount_due} USD."

    @tool("write")
    def make_payment(self) -> str:
        """Pay the bill for which the carrier asks."""
        request = self.db.surroundings.payment_request
        if request is None:
            return "You do not have a payment request."
        request.paid = True
        return f"Payment of {request.amount_due} USD has been made for bill {request.bill_id}."

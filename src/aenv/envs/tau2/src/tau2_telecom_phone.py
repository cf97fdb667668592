"""The customer's phone and what surrounds it: its records, and what follows from them (network, data, speed, MMS).

Not here: what the customer can do with it (`tau2_telecom_user.py`), what tasks do to it (`tau2_telecom_scene.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tau2_telecom_records import Record


class SimStatus(StrEnum):
    ACTIVE = "active"
    MISSING = "missing"
    LOCKED_PIN = "locked_pin"
    LOCKED_PUK = "locked_puk"


class Technology(StrEnum):
    NONE = "none"
    TWO_G = "2G"
    THREE_G = "3G"
    FOUR_G = "4G"
    FIVE_G = "5G"


class NetworkMode(StrEnum):
    FOUR_G_5G_PREFERRED = "4g_5g_preferred"
    FOUR_G_ONLY = "4g_only"
    THREE_G_ONLY = "3g_only"
    TWO_G_ONLY = "2g_only"


class Signal(StrEnum):
    NONE = "none"
    POOR = "poor"
    FAIR = "fair"
    GOOD = "good"
    EXCELLENT = "excellent"


class PerformanceLevel(StrEnum):  # its name is part of what `check_vpn_status` says
    UNKNOWN = "unknown"
    POOR = "poor"
    FAIR = "fair"
    GOOD = "good"
    EXCELLENT = "excellent"


class NetworkStatus(StrEnum):
    CONNECTED = "connected"
    SEARCHING = "searching"
    NO_SERVICE = "no_service"
    EMERGENCY_ONLY = "emergency_only"


class ApnName(StrEnum):
    INTERNET = "internet"
    BROKEN = "broken"


@dataclass(kw_only=True)
class APNSettings(Record):
    apn_name: ApnName = ApnName.INTERNET
    reset_at_reboot: bool = False
    mms_apn: str | None = "mms"
    mmsc_url: str | None = "http://mms.carrier.com/mms/wapenc"
    mms_proxy: str | None = None
    mms_port: int | None = None


@dataclass(kw_only=True)
class VpnDetails(Record):
    server_address: str | None = None
    protocol: str | None = None
    server_performance: PerformanceLevel = PerformanceLevel.UNKNOWN


@dataclass(kw_only=True)
class AppPermissions(Record):
    sms: bool = False
    storage: bool = False
    phone: bool = False
    network: bool = False

    def granted(self) -> list[str]:
        return [name for name, allowed in vars(self).items() if allowed]


@dataclass(kw_only=True)
class AppStatus(Record):
    app_name: str
    permissions: AppPermissions = field(default_factory=AppPermissions)


def _installed_apps() -> dict[str, AppStatus]:
    messaging = AppPermissions(sms=True, storage=True, phone=True)
    browser = AppPermissions(storage=True, network=True)
    return {
        "messaging": AppStatus(app_name="messaging", permissions=messaging),
        "browser": AppStatus(app_name="browser", permissions=browser),
    }


@dataclass(kw_only=True)
class PhoneDevice(Record):
    sim_card_status: SimStatus = SimStatus.ACTIVE
    sim_card_missing: bool = False
    airplane_mode: bool = False
    network_signal_strength: Signal = Signal.GOOD
    network_technology_connected: Technology = Technology.FIVE_G
    network_connection_status: NetworkStatus = NetworkStatus.CONNECTED
    battery_level: int = 80
    data_enabled: bool = True
    roaming_enabled: bool = False
    network_mode_preference: NetworkMode = NetworkMode.FOUR_G_5G_PREFERRED
    active_apn_settings: APNSettings = field(default_factory=APNSettings)
    wifi_enabled: bool = False
    wifi_connected: bool = False
    wifi_ssid: str | None = None
    wifi_signal_strength: Signal = Signal.NONE
    wifi_calling_enabled: bool = False
    wifi_calling_mms_over_wifi: bool = False
    data_saver_mode: bool = False
    vpn_enabled_setting: bool = False
    vpn_connected: bool = False
    vpn_details: VpnDetails | None = None
    app_statuses: dict[str, AppStatus] = field(default_factory=_installed_apps)

    def sim_status(self) -> SimStatus:
        return SimStatus.MISSING if self.sim_card_missing else self.sim_card_status

    def leave_wifi(self) -> None:
        self.wifi_connected = False
        self.wifi_ssid = None
        self.wifi_signal_strength = Signal.NONE

    def leave_vpn(self) -> None:
        self.vpn_connected = False
        self.vpn_details = None


@dataclass(kw_only=True)
class PaymentRequest(Record):
    bill_id: str
    amount_due: float
    paid: bool = False


def _signals_around() -> dict[Technology, Signal]:
    return {
        Technology.TWO_G: Signal.POOR,
        Technology.THREE_G: Signal.FAIR,
        Technology.FOUR_G: Signal.GOOD,
        Technology.FIVE_G: Signal.EXCELLENT,
    }


@dataclass(kw_only=True)
class Surroundings(Record):
    name: str | None = None
    phone_number: str | None = None
    is_abroad: bool = False
    roaming_allowed: bool = False
    signal_strength: dict[Technology, Signal] = field(default_factory=_signals_around)
    mobile_data_usage_exceeded: bool = False
    line_active: bool = True
    payment_request: PaymentRequest | None = None

    def signal_of(self, technology: Technology) -> Signal:
        return self.signal_strength.get(technology, Signal.NONE)


# Mbit/s: the middle of what a technology gives.
_BASE_SPEED = {
    Technology.NONE: 0.0,
    Technology.TWO_G: (0.1 + 0.4) / 2,
    Technology.THREE_G: (1 + 5) / 2,
    Technology.FOUR_G: (10 + 100) / 2,
    Technology.FIVE_G: (50 + 500) / 2,
}
_SIGNAL_FACTOR = {Signal.NONE: 0.0, Signal.POOR: 0.2, Signal.FAIR: 0.5, Signal.GOOD: 0.8, Signal.EXCELLENT: 1.0}
_SLOWER_THAN = ((1, "Very Poor"), (5, "Poor"), (25, "Fair"), (100, "Good"))
_SIGNAL_TEXT = {
    Signal.NONE: "📵 No Signal",
    Signal.POOR: "📶¹ Poor",
    Signal.FAIR: "📶² Fair",
    Signal.GOOD: "📶³ Good",
    Signal.EXCELLENT: "📶⁴ Excellent",
}
_ONE_TECHNOLOGY = {NetworkMode.TWO_G_ONLY: Technology.TWO_G, NetworkMode.THREE_G_ONLY: Technology.THREE_G}


@dataclass(kw_only=True)
class TelecomUserDB(Record):
    """The customer's side: the phone and its surroundings."""

    device: PhoneDevice = field(default_factory=PhoneDevice)
    surroundings: Surroundings = field(default_factory=Surroundings)

    def search_network(self) -> None:
        """Look for a network, and store what was found in the device."""
        device = self.device
        if device.sim_status() == SimStatus.ACTIVE:
            technology = self._reachable_technology()
            self._connect(NetworkStatus.CONNECTED, technology, self.surroundings.signal_of(technology))
        else:
            self._connect(NetworkStatus.NO_SERVICE, Technology.NONE, Signal.NONE)
        if (
            device.airplane_mode
            or device.active_apn_settings.apn_name == ApnName.BROKEN
            or not self.surroundings.line_active
        ):
            self._connect(NetworkStatus.NO_SERVICE, Technology.NONE, Signal.NONE)

    def _reachable_technology(self) -> Technology:
        mode = self.device.network_mode_preference
        if mode == NetworkMode.FOUR_G_5G_PREFERRED:
            best = self.surroundings.signal_of(Technology.FIVE_G)
            return Technology.FOUR_G if best == Signal.NONE else Technology.FIVE_G
        for one, technology in _ONE_TECHNOLOGY.items():
            if mode == one:  # compared, not looked up: the preference may be anything that a tool was given
                return technology
        return Technology.FOUR_G

    def _connect(self, status: NetworkStatus, technology: Technology, signal: Signal) -> None:
        self.device.network_connection_status = status
        self.device.network_technology_connected = technology
        self.device.network_signal_strength = signal

    def mobile_data_works(self) -> bool:
        """Judged by the state stored in the device; no search is made."""
        device, around = self.device, self.surroundings
        if device.airplane_mode or device.network_signal_strength == Signal.NONE:
            return False
        if device.network_connection_status == NetworkStatus.NO_SERVICE:
            return False
        if around.is_abroad and not (device.roaming_enabled and around.roaming_allowed):
            return False
        return bool(device.data_enabled and not around.mobile_data_usage_exceeded)

    def speed(self) -> tuple[float | None, str]:
        """Mbit/s and a word for it; no number without a connection."""
        if not self.mobile_data_works():
            return None, "No Connection"
        device = self.device
        factor = 1.0
        vpn = device.vpn_details if device.vpn_connected else None
        if vpn is not None and vpn.server_performance == PerformanceLevel.POOR:
            factor *= 0.1
        if device.data_saver_mode:
            factor *= 0.2
        base = _BASE_SPEED[device.network_technology_connected]
        speed = round(base * _SIGNAL_FACTOR[device.network_signal_strength] * factor, 2)
        for limit, word in _SLOWER_THAN:
            if speed < limit:
                return speed, word
        return speed, "Excellent"

    def mms_works(self) -> bool:
        device = self.device
        if not self.mobile_data_works() or device.network_technology_connected == Technology.TWO_G:
            return False
        if device.wifi_calling_enabled and device.wifi_calling_mms_over_wifi:
            return False
        if device.active_apn_settings.mmsc_url is None:
            return False
        messaging = device.app_statuses.get("messaging")
        return messaging is not None and bool(messaging.permissions.storage and messaging.permissions.sms)

    def status_bar(self) -> str:
        device = self.device
        parts = ["✈️ Airplane Mode"] if device.airplane_mode else self._cellular_parts()
        if device.wifi_enabled and device.wifi_connected:
            parts.append(f"📡 Connected to {device.wifi_ssid}" if device.wifi_ssid else "📡 Enabled")
        if device.vpn_connected:
            parts.append("🔒 VPN Connected")
        parts.append(f"🔋 {device.battery_level}%")
        return " | ".join(parts)

    def _cellular_parts(self) -> list[str]:
        device = self.device
        parts = [_SIGNAL_TEXT[device.network_signal_strength]]
        connected = device.network_technology_connected != Technology.NONE
        if connected:
            parts.append(device.network_technology_connected.value)
        if not (device.data_enabled and connected):
            return [*parts, "📵 Data Disabled"]
        parts.append("📱 Data Enabled")
        return [*parts, "🔽 Data Saver"] if device.data_saver_mode else parts

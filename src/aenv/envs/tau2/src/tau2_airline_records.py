"""The records of the airline: fields in the order in which they are dumped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Cabin = Literal["business", "economy", "basic_economy"]
FlightType = Literal["round_trip", "one_way"]
Insurance = Literal["yes", "no"]


@dataclass
class AvailableDate:
    status: Literal["available"]
    available_seats: dict[Cabin, int]
    prices: dict[Cabin, int]


@dataclass
class LandedDate:
    status: Literal["landed"]
    actual_departure_time_est: str
    actual_arrival_time_est: str


@dataclass
class CancelledDate:
    status: Literal["cancelled"]


@dataclass
class DelayedDate:
    status: Literal["delayed"]
    estimated_departure_time_est: str
    estimated_arrival_time_est: str


@dataclass
class OnTimeDate:
    status: Literal["on time"]
    estimated_departure_time_est: str
    estimated_arrival_time_est: str


@dataclass
class FlyingDate:
    status: Literal["flying"]
    actual_departure_time_est: str
    estimated_arrival_time_est: str


FlightDate = AvailableDate | LandedDate | CancelledDate | DelayedDate | FlyingDate | OnTimeDate


@dataclass
class Flight:
    flight_number: str
    origin: str
    destination: str
    scheduled_departure_time_est: str
    scheduled_arrival_time_est: str
    dates: dict[str, FlightDate]


@dataclass
class Name:
    first_name: str
    last_name: str


@dataclass
class Address:
    address1: str
    address2: str | None
    city: str
    country: str
    state: str
    zip: str


@dataclass
class CreditCard:
    source: Literal["credit_card"]
    id: str
    brand: str
    last_four: str


@dataclass
class GiftCard:
    source: Literal["gift_card"]
    id: str
    amount: float


@dataclass
class Certificate:
    source: Literal["certificate"]
    id: str
    amount: float


PaymentMethod = CreditCard | GiftCard | Certificate


@dataclass
class Passenger:
    """A person who flies."""

    first_name: str
    last_name: str
    dob: str


@dataclass
class User:
    user_id: str
    name: Name
    address: Address
    email: str
    dob: str
    payment_methods: dict[str, PaymentMethod]
    saved_passengers: list[Passenger]
    membership: Literal["gold", "silver", "regular"]
    reservations: list[str]


@dataclass
class ReservationFlight:
    flight_number: str
    origin: str
    destination: str
    date: str
    price: int


@dataclass
class FlightInfo:
    """A flight on a day, as tools are given it."""

    flight_number: str
    date: str


@dataclass
class Payment:
    """What was paid, and with what."""

    payment_id: str
    amount: int


@dataclass
class Reservation:
    reservation_id: str
    user_id: str
    origin: str
    destination: str
    flight_type: FlightType
    cabin: Cabin
    flights: list[ReservationFlight]
    passengers: list[Passenger]
    payment_history: list[Payment]
    created_at: str
    total_baggages: int
    nonfree_baggages: int
    insurance: Insurance
    status: Literal["cancelled"] | None = None


@dataclass
class AirlineDB:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    flights: dict[str, Flight]
    users: dict[str, User]
    reservations: dict[str, Reservation]

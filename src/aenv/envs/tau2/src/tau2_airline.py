"""The airline: reservations, flights and their passengers.

Not here: what the records are (`tau2_airline_records.py`), how calls run (`tau2_world.py`).
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from tau2_airline_records import (
    AirlineDB,
    Cabin,
    Certificate,
    FlightInfo,
    FlightType,
    Insurance,
    Passenger,
    Payment,
    Reservation,
    ReservationFlight,
)
from tau2_calculator import calculate
from tau2_source import DomainFiles
from tau2_tables import Json, Pristine, Record, Tables, read_json
from tau2_toolkit import Toolkit, tool
from tau2_validation import built, converted, dumped
from tau2_world import World

_NOW = "2024-05-15T15:00:00"
_NEW_RESERVATIONS = ("HATHAT", "HATHAU", "HATHAV")
_NEW_CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
_INSURANCE_PRICE = 30  # for each passenger
_BAG_PRICE = 50
_AIRPORTS = (
    *(("SFO", "San Francisco"), ("JFK", "New York"), ("LAX", "Los Angeles"), ("ORD", "Chicago")),
    *(("DFW", "Dallas"), ("DEN", "Denver"), ("SEA", "Seattle"), ("ATL", "Atlanta"), ("MIA", "Miami")),
    *(("BOS", "Boston"), ("PHX", "Phoenix"), ("IAH", "Houston"), ("LAS", "Las Vegas"), ("MCO", "Orlando")),
    *(("EWR", "Newark"), ("CLT", "Charlotte"), ("MSP", "Minneapolis"), ("DTW", "Detroit")),
    *(("PHL", "Philadelphia"), ("LGA", "LaGuardia")),
)
_SHOWN = ("scheduled_departure_time_est", "scheduled_arrival_time_est")


def load(folder: Path) -> Airline:
    """The airline's files."""
    return Airline(folder)


class Airline(DomainFiles):
    """The airline's files, and worlds made of them."""

    @cached_property
    def pristine(self) -> Pristine:
        tables = read_json(self.folder / "db.json")
        for reservation in tables["reservations"].values():
            # The file has another order of fields than records have, and leaves out what is null.
            reservation["flights"] = [{"flight_number": "", **flight} for flight in reservation["flights"]]
            reservation.setdefault("status", None)
        return Pristine(tables)

    def open(self, *, solo: bool) -> World:
        if solo:
            raise ValueError("Airline domain does not support solo mode")
        return World(AirlineTools(Tables("AirlineDB", self.pristine, _validated)), None, self.text("policy.md"))


def _validated(data: Json) -> Json:
    return dumped(built(AirlineDB, data))


class AirlineTools(Toolkit):
    """What an agent of the airline can do."""

    title = "AirlineTools"

    @tool("write")
    def book_reservation(
        self,
        user_id: str,
        origin: str,
        destination: str,
        flight_type: FlightType,
        cabin: Cabin,
        flights: list[FlightInfo | dict[str, Any]],
        passengers: list[Passenger | dict[str, Any]],
        payment_methods: list[Payment | dict[str, Any]],
        total_baggages: int,
        nonfree_baggages: int,
        insurance: Insurance,
    ) -> Any:
        """Book a reservation and pay for it.

        Args:
            user_id: Who books, such as "sara_doe_496".
            origin: The airport where the trip begins, such as "SFO".
            destination: The airport where it ends, such as "JFK".
            flight_type: Whether the trip is one way or a round trip.
            cabin: The cabin of all flights.
            flights: Each flight of the trip, with its number and its date (YYYY-MM-DD).
            passengers: Everybody who flies, with first name, last name and date of birth.
            payment_methods: What is paid with which of the user's payment methods; it must add up to the price.
            total_baggages: How many bags are checked.
            nonfree_baggages: How many of them are paid for.
            insurance: Whether travel insurance is wanted.
        """
        chosen: list[FlightInfo] = converted(FlightInfo, flights)
        people: list[Passenger] = converted(Passenger, passengers)
        payments: list[Payment] = converted(Payment, payment_methods)
        self._user(user_id)
        reservation = built(
            Reservation,
            {
                "reservation_id": self._new_reservation_id(),
                "user_id": user_id,
                "origin": origin,
                "destination": destination,
                "flight_type": flight_type,
                "cabin": cabin,
                "flights": [],
                "passengers": people,
                "payment_history": payments,
                "created_at": _NOW,
                "total_baggages": total_baggages,
                "nonfree_baggages": nonfree_baggages,
                "insurance": insurance,
            },
        )
        total = 0
        for flight in chosen:
            booked = self._seats(flight, cabin, len(people))
            reservation.flights.append(booked)
            total += booked.price * len(people)
        if insurance == "yes":
            total += _INSURANCE_PRICE * len(people)
        total += _BAG_PRICE * nonfree_baggages
        self._pay(user_id, payments, total)
        for flight in chosen:
            seats = self.db.flights.edit(flight.flight_number)["dates"][flight.date]["available_seats"]
            seats[cabin] -= len(people)
        record = dumped(reservation)
        self.db.reservations.put(reservation.reservation_id, record)
        self.db.users.edit(user_id)["reservations"].append(reservation.reservation_id)
        return Record(record)

    @tool("generic")
    def calculate(self, expression: str) -> Any:
        """Work out an arithmetic expression, rounded to two decimals.

        Args:
            expression: Numbers, operators (+, -, *, /), parentheses and spaces, such as "2 * (3 + 4)".
        """
        return calculate(expression)

    @tool("write")
    def cancel_reservation(self, reservation_id: str) -> Any:
        """Cancel a whole reservation, and pay back what was paid.

        Args:
            reservation_id: The reservation, such as "ZFA04Y".
        """
        reservation = self._edited_reservation(reservation_id)
        paid = reservation["payment_history"]
        refunds = [{"payment_id": each["payment_id"], "amount": -each["amount"]} for each in paid]
        paid.extend(refunds)
        reservation["status"] = "cancelled"
        return Record(reservation)

    @tool("read")
    def get_reservation_details(self, reservation_id: str) -> Any:
        """Everything about a reservation.

        Args:
            reservation_id: The reservation, such as "8JX2WO".
        """
        return Record(self._reservation(reservation_id))

    @tool("read")
    def get_user_details(self, user_id: str) -> Any:
        """Everything about a user, with payment methods and reservations.

        Args:
            user_id: The user, such as "sara_doe_496".
        """
        return Record(self._user(user_id))

    @tool("read")
    def list_all_airports(self) -> Any:
        """All airports, with their cities."""
        return [Record(iata=iata, city=city) for iata, city in _AIRPORTS]

    @tool("read")
    def search_direct_flight(self, origin: str, destination: str, date: str) -> Any:
        """Flights from one airport to another on a day, without a stop.

        Args:
            origin: The airport of departure, such as "SFO".
            destination: The airport of arrival, such as "JFK".
            date: The day of departure, such as "2024-05-20".
        """
        return self._direct(date, origin=origin, destination=destination)

    @tool("read")
    def search_onestop_flight(self, origin: str, destination: str, date: str) -> Any:
        """Pairs of flights from one airport to another on a day, with one stop between them.

        Args:
            origin: The airport of departure, such as "SFO".
            destination: The airport of arrival, such as "JFK".
            date: The day of departure, such as "2024-05-20".
        """
        pairs = []
        for first in self._direct(date, origin=origin):
            arrival = first["scheduled_arrival_time_est"]
            second_date = f"2024-05-{int(date[-2:]) + 1}" if "+1" in arrival else date
            for second in self._direct(second_date, origin=first["destination"], destination=destination):
                if second["scheduled_departure_time_est"] >= arrival:  # as text, also where it ends in "+1"
                    pairs.append([Record({**first, "date": date}), Record({**second, "date": second_date})])
        return pairs

    @tool("write")
    def send_certificate(self, user_id: str, amount: int) -> Any:
        """Give a user a travel certificate.

        Args:
            user_id: The user, such as "sara_doe_496".
            amount: What it is worth, in dollars.
        """
        known = self._user(user_id)["payment_methods"]
        for id in _NEW_CERTIFICATES:
            if id not in known:
                certificate = built(Certificate, {"source": "certificate", "id": id, "amount": amount})
                self.db.users.edit(user_id)["payment_methods"][id] = dumped(certificate)
                return f"Certificate {id} added to user {user_id} with amount {amount}."
        raise ValueError("Too many certificates")

    @tool("generic")
    def transfer_to_human_agents(self, summary: str) -> Any:
        """Hand the user over to a human: when asked to, or when policy and tools do not allow to help.

        Args:
            summary: What the user needs, in short.
        """
        return "Transfer successful"

    @tool("write")
    def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Any:
        """Change how many bags a reservation has, and pay for those that are added.

        Args:
            reservation_id: The reservation, such as "ZFA04Y".
            total_baggages: How many bags there are then.
            nonfree_baggages: How many of them are paid for.
            payment_id: The payment method, such as "credit_card_7815826".
        """
        reservation = self._reservation(reservation_id)
        self._user(reservation["user_id"])
        price = _BAG_PRICE * max(0, nonfree_baggages - reservation["nonfree_baggages"])
        self._charge(reservation_id, payment_id, price)
        reservation = self._edited_reservation(reservation_id)
        reservation["total_baggages"] = total_baggages
        reservation["nonfree_baggages"] = nonfree_baggages
        return Record(reservation)

    @tool("write")
    def update_reservation_flights(
        self, reservation_id: str, cabin: Cabin, flights: list[FlightInfo | dict[str, Any]], payment_id: str
    ) -> Any:
        """Change the flights or the cabin of a reservation, and pay or pay back the difference.

        Args:
            reservation_id: The reservation, such as "ZFA04Y".
            cabin: The cabin of all flights.
            flights: All flights of the reservation, also those that do not change.
            payment_id: The payment method, such as "credit_card_7815826".
        """
        chosen: list[FlightInfo] = converted(FlightInfo, flights)
        reservation = self._reservation(reservation_id)
        self._user(reservation["user_id"])
        seats = len(reservation["passengers"])
        updated = [self._kept(reservation, flight, cabin) or self._new(flight, cabin, seats) for flight in chosen]
        total = sum(flight["price"] for flight in updated) * seats
        total -= sum(flight["price"] for flight in reservation["flights"]) * seats
        self._charge(reservation_id, payment_id, total)
        reservation = self._edited_reservation(reservation_id)
        reservation["flights"] = updated
        reservation["cabin"] = cabin
        return Record(reservation)

    @tool("write")
    def update_reservation_passengers(
        self, reservation_id: str, passengers: list[Passenger | dict[str, Any]]
    ) -> Any:
        """Change who flies. How many do stays the same.

        Args:
            reservation_id: The reservation, such as "ZFA04Y".
            passengers: Everybody who flies, with first name, last name and date of birth.
        """
        people = converted(Passenger, passengers)
        if len(people) != len(self._reservation(reservation_id)["passengers"]):
            raise ValueError("Number of passengers does not match")
        reservation = self._edited_reservation(reservation_id)
        reservation["passengers"] = [dumped(each) if isinstance(each, Passenger) else each for each in people]
        return Record(reservation)

    @tool("read")
    def get_flight_status(self, flight_number: str, date: str) -> Any:
        """Whether a flight is available, on time, delayed, flying, landed or cancelled on a day.

        Args:
            flight_number: The flight, such as "HAT001".
            date: The day, such as "2024-05-20".
        """
        return self._flight_on(flight_number, date)["status"]

    def _user(self, user_id: str) -> Json:
        if user_id not in self.db.users:
            raise ValueError(f"User {user_id} not found")
        user: Json = self.db.users[user_id]
        return user

    def _reservation(self, reservation_id: str) -> Json:
        if reservation_id not in self.db.reservations:
            raise ValueError(f"Reservation {reservation_id} not found")
        reservation: Json = self.db.reservations[reservation_id]
        return reservation

    def _edited_reservation(self, reservation_id: str) -> Json:
        self._reservation(reservation_id)
        reservation: Json = self.db.reservations.edit(reservation_id)
        return reservation

    def _flight(self, flight_number: str) -> Json:
        if flight_number not in self.db.flights:
            raise ValueError(f"Flight {flight_number} not found")
        flight: Json = self.db.flights[flight_number]
        return flight

    def _flight_on(self, flight_number: str, date: str) -> Json:
        dates = self._flight(flight_number)["dates"]
        if date not in dates:
            raise ValueError(f"Flight {flight_number} not found on date {date}")
        day: Json = dates[date]
        return day

    def _new_reservation_id(self) -> str:
        for id in _NEW_RESERVATIONS:
            if id not in self.db.reservations:
                return id
        raise ValueError("Too many reservations")

    def _seats(self, flight: FlightInfo, cabin: str, wanted: int) -> ReservationFlight:
        """The flight with its price, when that many seats are free."""
        number, date = flight.flight_number, flight.date
        plan = self._flight(number)
        day = self._flight_on(number, date)
        if day["status"] != "available":
            raise ValueError(f"Flight {number} not available on date {date}")
        if day["available_seats"][cabin] < wanted:
            raise ValueError(f"Not enough seats on flight {number}")
        return ReservationFlight(number, plan["origin"], plan["destination"], date, day["prices"][cabin])

    def _new(self, flight: FlightInfo, cabin: str, seats: int) -> Json:
        return dumped(self._seats(flight, cabin, seats))

    def _kept(self, reservation: Json, flight: FlightInfo, cabin: str) -> Json | None:
        """The reservation's own entry for a flight that does not change, at the price it was booked for."""
        for entry in reservation["flights"]:
            is_same = entry["flight_number"] == flight.flight_number and entry["date"] == flight.date
            if is_same and cabin == reservation["cabin"]:
                return dict(entry)
        return None

    def _direct(self, date: str, **ends: str) -> list[Record]:
        found = []
        for flight in self.db.flights.values():
            if any(flight[end] != airport for end, airport in ends.items()):
                continue
            day = flight["dates"].get(date)
            if day is None or day["status"] != "available":
                continue
            shown = {key: flight[key] for key in ("flight_number", "origin", "destination")}
            shown |= {"status": "available"} | {key: flight[key] for key in _SHOWN}
            shown |= {"date": None, "available_seats": day["available_seats"], "prices": day["prices"]}
            found.append(Record(shown))
        return found

    def _pay(self, user_id: str, payments: list[Payment], total: int) -> None:
        """Check every payment before anything is taken: each for itself, then the sum."""
        methods = self._user(user_id)["payment_methods"]
        for payment in payments:
            if payment.payment_id not in methods:
                raise ValueError(f"Payment method {payment.payment_id} not found")
            method = methods[payment.payment_id]
            if method["source"] in ("gift_card", "certificate") and method["amount"] < payment.amount:
                raise ValueError(f"Not enough balance in payment method {payment.payment_id}")
        paid = sum(payment.amount for payment in payments)
        if paid != total:
            raise ValueError(f"Payment amount does not add up, total price is {total}, but paid {paid}")
        methods = self.db.users.edit(user_id)["payment_methods"]
        for payment in payments:
            source = methods[payment.payment_id]["source"]
            if source == "gift_card":
                methods[payment.payment_id]["amount"] -= payment.amount
            elif source == "certificate":
                del methods[payment.payment_id]

    def _charge(self, reservation_id: str, payment_id: str, price: int) -> None:
        """Take a price from a payment method, or give it back where it is negative."""
        user_id = self._reservation(reservation_id)["user_id"]
        methods = self._user(user_id)["payment_methods"]
        if payment_id not in methods:
            raise ValueError("Payment method not found")
        method = methods[payment_id]
        if method["source"] == "certificate":
            raise ValueError("Certificate cannot be used to update reservation")
        if method["source"] == "gift_card":
            if method["amount"] < price:
                raise ValueError("Gift card balance is not enough")
            self.db.users.edit(user_id)["payment_methods"][payment_id]["amount"] -= price
        if price != 0:
            payment = dumped(built(Payment, {"payment_id": payment_id, "amount": price}))
            self.db.reservations.edit(reservation_id)["payment_history"].append(payment)

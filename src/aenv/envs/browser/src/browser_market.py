"""Sections where something is bought or booked: a shop, train tickets, and rooms in several steps."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

from browser_look import escape
from browser_names import TOWNS, person
from browser_site import (
    Assignment,
    Reply,
    Request,
    Section,
    Unknown,
    choice,
    error,
    field_of,
    form,
    notice,
    step,
    table,
    tick,
    whole,
)

_GOODS = (
    *("Apple tree", "Bread oven", "Candle", "Desk lamp", "Egg timer", "Flower pot", "Garden rake", "Hat stand"),
    *("Ink bottle", "Jam jar", "Kettle", "Linen towel"),
)
_DELIVERIES = ("Pick up", "Standard", "Express")
_EXTRAS = ("Projector", "Coffee", "Piano", "Microphone")
_ROOMS = ("Oak room", "River room", "Attic", "Great hall")
_MOST_OF_ONE = 9


class Shop(Section):
    """Goods, a cart and a checkout. What lies in the cart only is no order."""

    name = "shop"
    title = "Town shop"
    about = "Goods for house and garden"

    def __init__(self, chance: random.Random) -> None:
        self._prices = {name: chance.randrange(200, 9000) for name in _GOODS}
        self._cart: dict[str, int] = {}
        self.state: list[dict[str, Any]] = []
        wanted = {name: chance.randrange(2, 6) for name in sorted(chance.sample(_GOODS, 2))}
        self._wanted = {"items": wanted, "delivery": chance.choice(_DELIVERIES)}

    def get(self, request: Request) -> Reply:
        page, _, item = request.path.partition("/")
        number = whole(item)
        if page == "":
            rows = [(_link(name), _money(price)) for name, price in self._prices.items()]
            return Reply('<p><a href="/shop/cart">Cart</a></p>' + table(("Article", "Price"), rows))
        if page == "item" and number is not None and number < len(_GOODS):
            return Reply(self._item(number))
        if page == "cart" and not item:
            return Reply(self._shown_cart(""))
        if page == "thanks" and not item:
            return Reply(notice("Thank you for your order."))
        raise Unknown

    def post(self, request: Request) -> Reply:
        page, _, item = request.path.partition("/")
        number = whole(item)
        if page == "add" and number is not None and number < len(_GOODS):
            count = request.number("count")
            if not 1 <= count <= _MOST_OF_ONE:
                return Reply(error(f"Choose between 1 and {_MOST_OF_ONE}") + self._item(number), 400)
            name = _GOODS[number]
            self._cart[name] = min(self._cart.get(name, 0) + count, _MOST_OF_ONE)
            return Reply(location="/shop/cart")
        if request.path == "empty":
            self._cart = {}
            return Reply(location="/shop/cart")
        if request.path != "order":
            raise Unknown
        delivery = request.text("delivery")
        if delivery not in _DELIVERIES or not self._cart:
            return Reply(self._shown_cart("Put something in the cart and choose a delivery"), 400)
        self.state.append({"items": dict(sorted(self._cart.items())), "delivery": delivery})
        self._cart = {}
        return Reply(location="/shop/thanks")

    def _item(self, number: int) -> str:
        name = _GOODS[number]
        count = field_of("How many", "count", "number", "1")
        body = f"<h2>{escape(name)}</h2><p>{_money(self._prices[name])} each</p>"
        return body + form(f"/shop/add/{number}", count, "Add to cart")

    def _shown_cart(self, problem: str) -> str:
        if not self._cart:
            return (error(problem) if problem else "") + '<p>The cart is empty.</p><a href="/shop">Shop</a>'
        rows = [
            (escape(name), str(count), _money(count * self._prices[name])) for name, count in self._cart.items()
        ]
        total = sum(count * self._prices[name] for name, count in self._cart.items())
        return (
            (error(problem) if problem else "")
            + table(("Article", "Count", "Sum"), rows)
            + f"<p>Total: {_money(total)}</p>"
            + form("/shop/order", choice("Delivery", "delivery", _DELIVERIES), "Place order")
            + form("/shop/empty", "", "Empty the cart", "plain")
        )

    def assignment(self) -> Assignment:
        items: dict[str, int] = self._wanted["items"]  # type: ignore[assignment]
        spelled = " and ".join(f"{count} x {name}" for name, count in items.items())
        gold = [step("goto", url="/shop")]
        for name, count in items.items():
            gold += [
                step("goto", url="/shop"),
                step("click", text=name),
                step("type", selector="input[name=count]", text=str(count)),
                step("click", text="Add to cart"),
            ]
        gold += [
            step("select", selector="select[name=delivery]", option=self._wanted["delivery"]),
            step("click", text="Place order"),
        ]
        return Assignment(
            f"Order {spelled} in the town shop, in one order, with the delivery '{self._wanted['delivery']}'.",
            [self._wanted],
            gold,
        )


class Trains(Section):
    """A timetable, of which one connection is the right one."""

    name = "trains"
    title = "Train tickets"
    about = "Timetable and booking"

    def __init__(self, chance: random.Random) -> None:
        self._to = chance.choice(TOWNS)
        self._passenger = person(chance)
        prices = chance.sample(range(900, 4000, 10), 14)
        self._trains = {f"T{number}": self._train(chance, price) for number, price in enumerate(prices, 101)}
        direct = [id for id, one in self._trains.items() if _is_right(one)]
        if not direct:  # then one is made right
            self._trains["T101"] = {"leaves": 420, "arrives": 530, "changes": 0, "price": prices[0]}
            direct = ["T101"]
        self._best = min(direct, key=lambda train: self._trains[train]["price"])
        self.state: list[dict[str, str]] = []

    @staticmethod
    def _train(chance: random.Random, price: int) -> dict[str, int]:
        leaves = chance.randrange(300, 900, 5)
        return {
            "leaves": leaves,
            "arrives": leaves + chance.randrange(40, 200, 5),
            "changes": chance.randrange(3),
            "price": price,
        }

    def get(self, request: Request) -> Reply:
        if request.path == "booked":
            return Reply(notice("Your ticket is booked. Have a good journey."))
        if request.path in self._trains:
            return Reply(self._booking(request.path))
        if request.path:
            raise Unknown
        rows = [
            (
                f'<a href="/trains/{id}">{id}</a>',
                _clock(one["leaves"]),
                _clock(one["arrives"]),
                ("direct", "1 change", "2 changes")[one["changes"]],
                _money(one["price"]),
            )
            for id, one in self._trains.items()
        ]
        head = ("Train", "Leaves", "Arrives", "Changes", "Price")
        return Reply(f"<h2>Larkspur to {self._to}, today</h2>" + table(head, rows))

    def post(self, request: Request) -> Reply:
        if request.path not in self._trains:
            raise Unknown
        if not request.text("passenger"):
            return Reply(error("Who travels?") + self._booking(request.path), 400)
        self.state.append({"train": request.path, "passenger": request.text("passenger")})
        return Reply(location="/trains/booked")

    def _booking(self, train: str) -> str:
        one = self._trains[train]
        times = f"<p>{_clock(one['leaves'])} to {_clock(one['arrives'])}, {_money(one['price'])}</p>"
        content = field_of("Passenger", "passenger")
        return f"<h2>{train} to {self._to}</h2>{times}" + form(f"/trains/{train}", content, "Book ticket")

    def assignment(self) -> Assignment:
        return Assignment(
            f"Book a train ticket to {self._to} for {self._passenger}: the cheapest direct train that arrives "
            "before 12:00.",
            [{"train": self._best, "passenger": self._passenger}],
            [
                step("goto", url="/trains"),
                step("click", text=self._best),
                step("type", selector="input[name=passenger]", text=self._passenger),
                step("click", text="Book ticket"),
            ],
        )


class Rooms(Section):
    """A booking over four pages; only the last one books."""

    name = "rooms"
    title = "Book a room"
    about = "Rooms of the town hall, in four steps"

    def __init__(self, chance: random.Random) -> None:
        self._draft: dict[str, Any] = {}
        self.state: list[dict[str, Any]] = []
        extras = sorted(chance.sample(_EXTRAS, 2))
        self._wanted = {
            "date": f"2031-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}",
            "people": str(chance.randrange(2, 60)),
            "room": chance.choice(_ROOMS),
            "extras": extras,
        }

    def get(self, request: Request) -> Reply:
        pages = {"": self._when, "room": self._which, "extras": self._extras, "review": self._review}
        if request.path == "done":
            return Reply(notice("The room is booked."))
        if request.path not in pages:
            raise Unknown
        needed = {"room": "people", "extras": "room", "review": "extras"}.get(request.path)
        if needed and needed not in self._draft:
            return Reply(location="/rooms")
        return Reply(pages[request.path]())

    def post(self, request: Request) -> Reply:
        match request.path:
            case "when":
                day, people = request.text("date"), request.number("people")
                if not _is_day(day) or not people:
                    problem = "A date such as 2031-05-17 and a number of people are needed"
                    return Reply(error(problem) + self._when(day, request.text("people")), 400)
                self._draft = {"date": day, "people": str(people)}
                return Reply(location="/rooms/room")
            case "room" if request.text("room") in _ROOMS and "people" in self._draft:
                self._draft["room"] = request.text("room")
                return Reply(location="/rooms/extras")
            case "room" if "people" in self._draft:
                return Reply(error("Choose a room") + self._which(), 400)
            case "extras" if "room" in self._draft:
                self._draft["extras"] = [one for one in sorted(_EXTRAS) if one in request.form.get("extra", [])]
                return Reply(location="/rooms/review")
            case "book" if "extras" in self._draft:
                self.state.append(self._draft)
                self._draft = {}
                return Reply(location="/rooms/done")
        return Reply(location="/rooms")

    def _when(self, day: str = "", people: str = "") -> str:
        content = field_of("Date (YYYY-MM-DD)", "date", value=day)
        content += field_of("People", "people", "number", people)
        return "<h2>Step 1 of 4: when</h2>" + form("/rooms/when", content, "Next")

    def _which(self) -> str:
        options = "".join(tick(one, "room", one, "radio") for one in _ROOMS)
        content = f"<fieldset><legend>Room</legend>{options}</fieldset>"
        return "<h2>Step 2 of 4: which room</h2>" + form("/rooms/room", content, "Next")

    def _extras(self) -> str:
        boxes = "".join(tick(one, "extra", one) for one in _EXTRAS)
        content = f"<fieldset><legend>Extras</legend>{boxes}</fieldset>"
        return "<h2>Step 3 of 4: extras</h2>" + form("/rooms/extras", content, "Next")

    def _review(self) -> str:
        draft = {**self._draft, "extras": ", ".join(self._draft["extras"]) or "none"}
        rows = [(escape(name.capitalize()), escape(value)) for name, value in draft.items()]
        shown = table(("What", "Your choice"), rows) + form("/rooms/book", "", "Confirm")
        return f'<h2>Step 4 of 4: review</h2>{shown}<p><a href="/rooms">Start again</a></p>'

    def assignment(self) -> Assignment:
        wanted = self._wanted
        return Assignment(
            f"Book the {wanted['room']} on {wanted['date']} for {wanted['people']} people, with "
            f"{' and '.join(wanted['extras'])} and no other extras.",
            [wanted],
            [
                step("goto", url="/rooms"),
                step("type", selector="input[name=date]", text=wanted["date"]),
                step("type", selector="input[name=people]", text=wanted["people"]),
                step("click", text="Next"),
                step("click", text=wanted["room"]),
                step("click", text="Next"),
                *(step("click", text=one) for one in wanted["extras"]),
                step("click", text="Next"),
                step("click", text="Confirm"),
            ],
        )


def _is_right(train: dict[str, int]) -> bool:
    return train["changes"] == 0 and train["arrives"] < 720


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _link(name: str) -> str:
    return f'<a href="/shop/item/{_GOODS.index(name)}">{escape(name)}</a>'


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"

"""The shop: orders, products and their buyers.

Not here: what the records are (`tau2_retail_records.py`), how calls run (`tau2_world.py`).
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from tau2_calculator import calculate
from tau2_retail_records import Address, OrderPayment, RetailDB
from tau2_source import DomainFiles
from tau2_tables import Json, Pristine, Record, Tables, read_json
from tau2_toolkit import Toolkit, tool
from tau2_validation import built, dumped
from tau2_world import World

_REASONS = ("no longer needed", "ordered by mistake")
_ABSENT = {
    "cancel_reason": None,
    "exchange_items": None,
    "exchange_new_items": None,
    "exchange_payment_method_id": None,
    "exchange_price_difference": None,
    "return_items": None,
    "return_payment_method_id": None,
}


def load(folder: Path) -> Retail:
    """The shop's files."""
    return Retail(folder)


class Retail(DomainFiles):
    """The shop's files, and worlds made of them."""

    @cached_property
    def pristine(self) -> Pristine:
        tables = read_json(self.folder / "db.json")
        # The file leaves out what is null.
        tables["orders"] = {id: {**order, **_missing(order)} for id, order in tables["orders"].items()}
        return Pristine(tables)

    def open(self, *, solo: bool) -> World:
        if solo:
            raise ValueError("Retail domain does not support solo mode")
        return World(RetailTools(Tables("RetailDB", self.pristine, _validated)), None, self.text("policy.md"))


def _missing(order: Json) -> Json:
    return {key: value for key, value in _ABSENT.items() if key not in order}


def _validated(data: Json) -> Json:
    return dumped(built(RetailDB, data))


class RetailTools(Toolkit):
    """What an agent of the shop can do."""

    title = "RetailTools"

    @tool("generic")
    def calculate(self, expression: str) -> Any:
        """Work out an arithmetic expression, rounded to two decimals.

        Args:
            expression: Numbers, operators (+, -, *, /), parentheses and spaces, such as "2 * (3 + 4)".
        """
        return calculate(expression)

    @tool("write")
    def cancel_pending_order(self, order_id: str, reason: str) -> Any:
        """Cancel a pending order and refund it. Ask the user for the reason, and to confirm (yes/no), before.

        Args:
            order_id: The order, with its "#", such as "#W0000000".
            reason: Either "no longer needed" or "ordered by mistake".
        """
        order = self._order(order_id)
        if order["status"] != "pending":
            raise ValueError("Non-pending order cannot be cancelled")
        if reason not in _REASONS:
            raise ValueError("Invalid reason")
        refunds = []
        for paid in order["payment_history"]:
            refunds.append(self._payment("refund", paid["amount"], paid["payment_method_id"]))
            self._credit(order["user_id"], paid["payment_method_id"], paid["amount"])
        order = self._edited_order(order_id)
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        order["payment_history"].extend(refunds)
        return Record(order)

    @tool("write")
    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Any:
        """Exchange items of a delivered order for others of the same products. Possible once for an order.

        Say what will happen, and ask the user to confirm (yes/no), before.

        Args:
            order_id: The order, with its "#", such as "#W0000000".
            item_ids: The items to exchange; an id may occur more than once.
            new_item_ids: What each of them is exchanged for, in the same order.
            payment_method_id: What pays for the difference, or gets it back, such as "gift_card_0000000".
        """
        order = self._order(order_id)
        if order["status"] != "delivered":
            raise ValueError("Non-delivered order cannot be exchanged")
        lacking = _lacking(order, item_ids)
        if lacking is not None:
            raise ValueError(f"Number of {lacking} not found.")
        if len(item_ids) != len(new_item_ids):
            raise ValueError("The number of items to be exchanged should match.")
        difference: float = 0
        for item_id, new_item_id in zip(item_ids, new_item_ids, strict=False):
            difference += self._difference(order, item_id, new_item_id)[0]
        difference = round(difference, 2)
        method = self._method(order["user_id"], payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < difference:
            raise ValueError("Insufficient gift card balance to pay for the price difference")
        order = self._edited_order(order_id)
        order["status"] = "exchange requested"
        order["exchange_items"] = sorted(item_ids)
        order["exchange_new_items"] = sorted(new_item_ids)
        order["exchange_payment_method_id"] = payment_method_id
        order["exchange_price_difference"] = difference
        return Record(order)

    @tool("read")
    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> Any:
        """A user's id, by name and zip code; for who does not know the email address.

        Args:
            first_name: The first name, such as "John".
            last_name: The last name, such as "Doe".
            zip: The zip code, such as "12345".
        """
        for user_id in self.db.users:
            user = self.db.users[user_id]
            is_named = user["name"]["first_name"].lower() == first_name.lower()
            if (
                is_named
                and user["name"]["last_name"].lower() == last_name.lower()
                and user["address"]["zip"] == zip
            ):
                return user_id
        raise ValueError("User not found")

    @tool("read")
    def find_user_id_by_email(self, email: str) -> Any:
        """A user's id, by email address.

        Args:
            email: The address, such as "something@example.com".
        """
        for user_id in self.db.users:
            if self.db.users[user_id]["email"].lower() == email.lower():
                return user_id
        raise ValueError("User not found")

    @tool("read")
    def get_order_details(self, order_id: str) -> Any:
        """The status and the details of an order.

        Args:
            order_id: The order, with its "#", such as "#W0000000".
        """
        return Record(self._order(order_id))

    @tool("read")
    def get_product_details(self, product_id: str) -> Any:
        """A product with all its variants.

        Args:
            product_id: The product, such as "6086499569"; it is not the id of an item.
        """
        return Record(self._product(product_id))

    @tool("read")
    def get_item_details(self, item_id: str) -> Any:
        """One variant of a product.

        Args:
            item_id: The item, such as "6086499569"; it is not the id of a product.
        """
        for product in self.db.products.values():
            if item_id in product["variants"]:
                return Record(product["variants"][item_id])
        raise ValueError("Item not found")

    @tool("read")
    def get_user_details(self, user_id: str) -> Any:
        """Everything about a user, with payment methods and orders.

        Args:
            user_id: The user, such as "sara_doe_496".
        """
        return Record(self._user(user_id))

    @tool("read")
    def list_all_product_types(self) -> Any:
        """The names of all products, each with its product id. A product has variants, each with an item id."""
        return json.dumps({each["name"]: each["product_id"] for each in self.db.products.values()}, sort_keys=True)

    @tool("write")
    def modify_pending_order_address(
        self, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> Any:
        """Change where a pending order is sent. Ask the user to confirm (yes/no) before.

        Args:
            order_id: The order, with its "#", such as "#W0000000".
            address1: The first line, such as "123 Main St".
            address2: The second line, such as "Apt 1", or "".
            city: The city, such as "San Francisco".
            state: The state, such as "CA".
            country: The country, such as "USA".
            zip: The zip code, such as "12345".
        """
        if "pending" not in self._order(order_id)["status"]:
            raise ValueError("Non-pending order cannot be modified")
        address = _address(address1, address2, city, state, country, zip)
        order = self._edited_order(order_id)
        order["address"] = address
        return Record(order)

    @tool("write")
    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Any:
        """Replace items of a pending order by others of the same products. Possible once for an order.

        Say what will happen, and ask the user to confirm (yes/no), before.

        Args:
            order_id: The order, with its "#", such as "#W0000000".
            item_ids: The items to replace; an id may occur more than once.
            new_item_ids: What each of them is replaced by, in the same order.
            payment_method_id: What pays for the difference, or gets it back, such as "gift_card_0000000".
        """
        order = self._order(order_id)
        if order["status"] != "pending":
            raise ValueError("Non-pending order cannot be modified")
        lacking = _lacking(order, item_ids)
        if lacking is not None:
            raise ValueError(f"{lacking} not found")
        if len(item_ids) != len(new_item_ids):
            raise ValueError("The number of items to be exchanged should match")
        difference: float = 0
        variant: Json = {}
        for item_id, new_item_id in zip(item_ids, new_item_ids, strict=False):
            if item_id == new_item_id:
                raise ValueError("The new item id should be different from the old item id")
            more, variant = self._difference(order, item_id, new_item_id)
            difference += more
        method = self._method(order["user_id"], payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < difference:
            raise ValueError("Insufficient gift card balance to pay for the new item")
        order = self._edited_order(order_id)
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(self._payment(kind, abs(difference), payment_method_id))
        self._credit(order["user_id"], payment_method_id, -difference)
        for item_id, new_item_id in zip(item_ids, new_item_ids, strict=False):
            item = _item(order, item_id)
            item["item_id"] = new_item_id
            # Of the last variant, whichever this one is: so the benchmark does it, and gold databases hold it.
            item["price"] = variant["price"]
            item["options"] = variant["options"]
        order["status"] = "pending (item modified)"
        return Record(order)

    @tool("write")
    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> Any:
        """Pay a pending order with another payment method. Ask the user to confirm (yes/no) before.

        Args:
            order_id: The order, with its "#", such as "#W0000000".
            payment_method_id: The new payment method, such as "credit_card_0000000".
        """
        order = self._order(order_id)
        if "pending" not in order["status"]:
            raise ValueError("Non-pending order cannot be modified")
        method = self._method(order["user_id"], payment_method_id)
        history = order["payment_history"]
        if len(history) != 1 or history[0]["transaction_type"] != "payment":
            raise ValueError("There should be exactly one payment for a pending order")
        old, amount = history[0]["payment_method_id"], history[0]["amount"]
        if old == payment_method_id:
            raise ValueError("The new payment method should be different from the current one")
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise ValueError("Insufficient gift card balance to pay for the order")
        order = self._edited_order(order_id)
        order["payment_history"].append(self._payment("payment", amount, payment_method_id))
        order["payment_history"].append(self._payment("refund", amount, old))
        self._credit(order["user_id"], payment_method_id, -amount)
        self._credit(order["user_id"], old, amount)
        return Record(order)

    @tool("write")
    def modify_user_address(
        self, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> Any:
        """Change the default address of a user. Ask the user to confirm (yes/no) before.

        Args:
            user_id: The user, such as "sara_doe_496".
            address1: The first line, such as "123 Main St".
            address2: The second line, such as "Apt 1", or "".
            city: The city, such as "San Francisco".
            state: The state, such as "CA".
            country: The country, such as "USA".
            zip: The zip code, such as "12345".
        """
        self._user(user_id)
        address = _address(address1, address2, city, state, country, zip)
        user: Json = self.db.users.edit(user_id)
        user["address"] = address
        return Record(user)

    @tool("write")
    def return_delivered_order_items(self, order_id: str, item_ids: list[str], payment_method_id: str) -> Any:
        """Return items of a delivered order. Say what will happen, and ask the user to confirm (yes/no), before.

        Args:
            order_id: The order, with its "#", such as "#W0000000".
            item_ids: The items to return; an id may occur more than once.
            payment_method_id: What gets the refund: what the order was paid with, or a gift card.
        """
        order = self._order(order_id)
        if order["status"] != "delivered":
            raise ValueError("Non-delivered order cannot be returned")
        method = self._method(order["user_id"], payment_method_id)
        paid_with = order["payment_history"][0]["payment_method_id"]
        if method["source"] != "gift_card" and payment_method_id != paid_with:
            raise ValueError("Payment method should be the original payment method")
        if _lacking(order, item_ids) is not None:
            raise ValueError("Some item not found")
        order = self._edited_order(order_id)
        order["status"] = "return requested"
        order["return_items"] = sorted(item_ids)
        order["return_payment_method_id"] = payment_method_id
        return Record(order)

    @tool("generic")
    def transfer_to_human_agents(self, summary: str) -> Any:
        """Hand the user over to a human: when asked to, or when policy and tools do not allow to help.

        Args:
            summary: What the user needs, in short.
        """
        return "Transfer successful"

    def _order(self, order_id: str) -> Json:
        if order_id not in self.db.orders:
            raise ValueError("Order not found")
        order: Json = self.db.orders[order_id]
        return order

    def _edited_order(self, order_id: str) -> Json:
        order: Json = self.db.orders.edit(order_id)
        return order

    def _user(self, user_id: str) -> Json:
        if user_id not in self.db.users:
            raise ValueError("User not found")
        user: Json = self.db.users[user_id]
        return user

    def _product(self, product_id: str) -> Json:
        if product_id not in self.db.products:
            raise ValueError("Product not found")
        product: Json = self.db.products[product_id]
        return product

    def _method(self, user_id: str, payment_method_id: str) -> Json:
        methods = self._user(user_id)["payment_methods"]
        if payment_method_id not in methods:
            raise ValueError("Payment method not found")
        method: Json = methods[payment_method_id]
        return method

    def _difference(self, order: Json, item_id: str, new_item_id: str) -> tuple[float, Json]:
        """What a new variant costs more than an item of an order, and that variant."""
        item = _item(order, item_id)
        variants = self._product(item["product_id"])["variants"]
        if new_item_id not in variants:
            raise ValueError("Variant not found")
        variant = variants[new_item_id]
        if not variant["available"]:
            raise ValueError(f"New item {new_item_id} not found or available")
        return variant["price"] - item["price"], variant

    def _payment(self, kind: str, amount: float, payment_method_id: str) -> Json:
        data = {"transaction_type": kind, "amount": amount, "payment_method_id": payment_method_id}
        return dumped(built(OrderPayment, data))

    def _credit(self, user_id: str, payment_method_id: str, amount: float) -> None:
        """Add an amount to a gift card; other payment methods have no balance."""
        if self._method(user_id, payment_method_id)["source"] == "gift_card":
            card = self.db.users.edit(user_id)["payment_methods"][payment_method_id]
            card["balance"] = round(card["balance"] + amount, 2)


def _address(address1: str, address2: str, city: str, state: str, country: str, zip: str) -> Json:
    given = {"address1": address1, "address2": address2, "city": city}
    return dumped(built(Address, given | {"country": country, "state": state, "zip": zip}))


def _item(order: Json, item_id: str) -> Json:
    for item in order["items"]:
        if item["item_id"] == item_id:
            found: Json = item
            return found
    raise ValueError(f"Item {item_id} not found")


def _lacking(order: Json, item_ids: list[str]) -> str | None:
    """The first id that is asked for more often than the order has it."""
    owned = [item["item_id"] for item in order["items"]]
    return next((id for id in item_ids if item_ids.count(id) > owned.count(id)), None)

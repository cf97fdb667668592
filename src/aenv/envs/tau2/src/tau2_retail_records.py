"""The records of the shop: fields in the order in which they are dumped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Status = Literal[
    "processed",
    "pending",
    "pending (item modified)",
    "delivered",
    "cancelled",
    "exchange requested",
    "return requested",
]


@dataclass
class Variant:
    item_id: str
    options: dict[str, str]
    available: bool
    price: float


@dataclass
class Product:
    name: str
    product_id: str
    variants: dict[str, Variant]


@dataclass
class Name:
    first_name: str
    last_name: str


@dataclass
class Address:
    address1: str
    address2: str
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
    balance: float


@dataclass
class Paypal:
    source: Literal["paypal"]
    id: str


PaymentMethod = CreditCard | GiftCard | Paypal


@dataclass
class User:
    user_id: str
    name: Name
    address: Address
    email: str
    payment_methods: dict[str, PaymentMethod]
    orders: list[str]


@dataclass
class OrderItem:
    name: str
    product_id: str
    item_id: str
    price: float
    options: dict[str, str]


@dataclass
class Fulfillment:
    tracking_id: list[str]
    item_ids: list[str]


@dataclass
class OrderPayment:
    transaction_type: Literal["payment", "refund"]
    amount: float
    payment_method_id: str


@dataclass
class Order:
    order_id: str
    user_id: str
    address: Address
    items: list[OrderItem]
    status: Status
    fulfillments: list[Fulfillment]
    payment_history: list[OrderPayment]
    cancel_reason: str | None = None
    exchange_items: list[str] | None = None
    exchange_new_items: list[str] | None = None
    exchange_payment_method_id: str | None = None
    exchange_price_difference: float | None = None
    return_items: list[str] | None = None
    return_payment_method_id: str | None = None


@dataclass
class RetailDB:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    products: dict[str, Product]
    users: dict[str, User]
    orders: dict[str, Order]

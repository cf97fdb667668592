"""What the carrier knows: plans, customers, lines, bills and devices, and how one is found.

Not here: what the phone knows (`tau2_telecom_phone.py`).
"""

from __future__ import annotations

import calendar
import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tau2_telecom_records import Record


def today() -> dt.date:
    """The day on which every task of this domain happens."""
    return dt.date(2025, 2, 25)


def cycle_end() -> dt.date:
    """The last day of the current billing cycle, which is a calendar month."""
    day = today()
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


class DeviceType(StrEnum):
    PHONE = "phone"
    ROUTER = "router"
    TABLET = "tablet"
    WATCH = "watch"
    OTHER = "other"


class LineStatus(StrEnum):
    ACTIVE = "Active"
    SUSPENDED = "Suspended"
    PENDING_ACTIVATION = "Pending Activation"
    CLOSED = "Closed"


class BillStatus(StrEnum):
    DRAFT = "Draft"
    ISSUED = "Issued"
    AWAITING_PAYMENT = "Awaiting Payment"
    PAID = "Paid"
    OVERDUE = "Overdue"
    DISPUTED = "Disputed"


class PaymentMethodType(StrEnum):
    CREDIT_CARD = "Credit Card"
    DEBIT_CARD = "Debit Card"
    PAYPAL = "PayPal"


class AccountStatus(StrEnum):
    ACTIVE = "Active"
    SUSPENDED = "Suspended"
    PENDING_VERIFICATION = "Pending Verification"
    CLOSED = "Closed"


@dataclass(kw_only=True)
class Plan(Record):
    plan_id: str
    name: str
    data_limit_gb: float
    price_per_month: float
    data_refueling_price_per_gb: float


@dataclass(kw_only=True)
class Device(Record):
    device_id: str
    device_type: DeviceType
    model: str
    imei: str | None = None
    is_esim_capable: bool
    activated: bool = False
    activation_date: dt.datetime | None = None
    last_esim_transfer_date: dt.datetime | None = None


@dataclass(kw_only=True)
class Line(Record):
    line_id: str
    phone_number: str
    status: LineStatus = LineStatus.PENDING_ACTIVATION
    plan_id: str
    device_id: str | None = None
    data_used_gb: float = 0.0
    data_refueling_gb: float = 0.0
    roaming_enabled: bool = False
    contract_end_date: dt.date | None = None
    last_plan_change_date: dt.date | None = None
    last_sim_replacement_date: dt.date | None = None
    suspension_start_date: dt.date | None = None


@dataclass(kw_only=True)
class LineItem(Record):
    description: str
    amount: float
    date: dt.date
    item_type: str


@dataclass(kw_only=True)
class Bill(Record):
    bill_id: str
    customer_id: str
    period_start: dt.date
    period_end: dt.date
    issue_date: dt.date
    total_due: float
    due_date: dt.date
    line_items: list[LineItem] = field(default_factory=list)
    status: BillStatus = BillStatus.DRAFT

    def add_charge(self, description: str, amount: float) -> None:
        """Put an amount on the bill; a negative one is a credit."""
        kind = "Charge" if amount >= 0 else "Credit"
        item = LineItem(description=description, amount=amount, date=today(), item_type=kind)
        self.line_items.append(item)
        self.total_due += amount


@dataclass(kw_only=True)
class PaymentMethod(Record):
    method_type: PaymentMethodType
    account_number_last_4: str
    expiration_date: str


@dataclass(kw_only=True)
class Address(Record):
    street: str
    city: str
    state: str
    zip_code: str


def _unknown_creation() -> Any:
    # A day, though the field holds a moment: so the benchmark has it, and defaults are not checked.
    return dt.date(2025, 1, 1)


@dataclass(kw_only=True)
class Customer(Record):
    customer_id: str
    full_name: str
    date_of_birth: str
    email: str
    phone_number: str
    address: Address
    account_status: AccountStatus = AccountStatus.PENDING_VERIFICATION
    payment_methods: list[PaymentMethod] = field(default_factory=list)
    line_ids: list[str] = field(default_factory=list)
    bill_ids: list[str] = field(default_factory=list)
    created_at: dt.datetime = field(default_factory=_unknown_creation)
    last_extension_date: dt.date | None = None
    goodwill_credit_used_this_year: float = 0.0


@dataclass(kw_only=True)
class TelecomDB(Record):
    """The carrier's database. Everything is found by looking through a list; the first match counts."""

    plans: list[Plan] = field(default_factory=list)
    customers: list[Customer] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    bills: list[Bill] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)

    def plan(self, plan_id: str) -> Plan:
        for plan in self.plans:
            if plan.plan_id == plan_id:
                return plan
        raise ValueError(f"Plan with ID {plan_id} not found")

    def customer(self, customer_id: str) -> Customer:
        for customer in self.customers:
            if customer.customer_id == customer_id:
                return customer
        raise ValueError(f"Customer with ID {customer_id} not found")

    def customer_by_phone(self, phone_number: str) -> Customer:
        """Whose own number it is, or one of whose lines has it."""
        for customer in self.customers:
            if customer.phone_number == phone_number:
                return customer
            if any(self.line(line_id).phone_number == phone_number for line_id in customer.line_ids):
                return customer
        raise ValueError(f"Customer with phone number {phone_number} not found")

    def line(self, line_id: str) -> Line:
        for line in self.lines:
            if line.line_id == line_id:
                return line
        raise ValueError(f"Line with ID {line_id} not found")

    def line_by_phone(self, phone_number: str) -> Line:
        for line in self.lines:
            if line.phone_number == phone_number:
                return line
        raise ValueError(f"Line with phone number {phone_number} not found")

    def line_of(self, customer_id: str, line_id: str) -> Line:
        """A line that must be the customer's."""
        if line_id not in self.customer(customer_id).line_ids:
            raise ValueError(f"Line {line_id} not found for customer {customer_id}")
        return self.line(line_id)

    def device(self, device_id: str) -> Device:
        for device in self.devices:
            if device.device_id == device_id:
                return device
        raise ValueError(f"Device with ID {device_id} not found")

    def bill(self, bill_id: str) -> Bill:
        for bill in self.bills:
            if bill.bill_id == bill_id:
                return bill
        raise ValueError(f"Bill with ID {bill_id} not found")

    def bills_of(self, customer: Customer, status: BillStatus | None = None) -> list[Bill]:
        """The customer's bills in the order of their record, all or those of one status."""
        bills = [self.bill(bill_id) for bill_id in customer.bill_ids]
        return bills if status is None else [bill for bill in bills if bill.status == status]

    def add_bill(self, customer: Customer, bill: Bill) -> Bill:
        self.bills.append(bill)
        customer.bill_ids.append(bill.bill_id)
        return bill

    def draft_bill(self, customer: Customer) -> Bill:
        """The customer's first draft, or a new one for the next cycle."""
        drafts = self.bills_of(customer, BillStatus.DRAFT)
        if drafts:
            return drafts[0]
        start = cycle_end() + dt.timedelta(days=1)
        bill = Bill(
            bill_id=self._new_bill_id(),
            customer_id=customer.customer_id,
            period_start=start,
            period_end=start.replace(day=calendar.monthrange(start.year, start.month)[1]),
            issue_date=start,
            total_due=0.0,
            due_date=start + dt.timedelta(days=14),
        )
        return self.add_bill(customer, bill)

    def _new_bill_id(self) -> str:
        # Counted, not drawn by chance: an episode that is played again must give the same hashes.
        taken = {bill.bill_id for bill in self.bills}
        number = len(taken)
        while f"B{number:08x}" in taken:
            number += 1
        return f"B{number:08x}"

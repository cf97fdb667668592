"""The agent's side of telecom: tools over the carrier's database, and what tasks do to it and ask of it.

Not here: the records and how they are found (`tau2_telecom_carrier.py`).
"""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar

from tau2_telecom_carrier import (
    Bill,
    BillStatus,
    Customer,
    Device,
    Line,
    LineStatus,
    Plan,
    TelecomDB,
    cycle_end,
    today,
)
from tau2_toolkit import Toolkit, tool


class TelecomTools(Toolkit):
    title: ClassVar[str] = "TelecomTools"
    db: TelecomDB

    @tool("read")
    def get_customer_by_phone(self, phone_number: str) -> Customer:
        """Find the customer who has a phone number, as their own or on one of their lines.

        Args:
            phone_number: The number as it is written on file, for example 555-123-2002.
        """
        return self.db.customer_by_phone(phone_number)

    @tool("read")
    def get_customer_by_id(self, customer_id: str) -> Customer:
        """Get a customer's record.

        Args:
            customer_id: The customer's id; it begins with C.
        """
        return self.db.customer(customer_id)

    @tool("read")
    def get_customer_by_name(self, full_name: str, dob: str) -> list[Customer]:
        """Find all customers with a name and a date of birth.

        Args:
            full_name: First and last name; upper and lower case are the same.
            dob: Date of birth, YYYY-MM-DD.
        """
        name = full_name.lower()
        return [one for one in self.db.customers if one.full_name.lower() == name and one.date_of_birth == dob]

    @tool("read")
    def get_details_by_id(self, id: str) -> Line | Device | Bill | Customer | Plan:
        """Get any record by its id. The id's first letter says what it is.

        Args:
            id: The id of a line (L), a device (D), a bill (B), a customer (C) or a plan (P).
        """
        if id.startswith("L"):
            return self.db.line(id)
        if id.startswith("D"):
            return self.db.device(id)
        if id.startswith("B"):
            return self.db.bill(id)
        if id.startswith("C"):
            return self.db.customer(id)
        if id.startswith("P"):
            return self.db.plan(id)
        raise ValueError(f"Unknown ID format or type: {id}")

    @tool("write")
    def suspend_line(self, customer_id: str, line_id: str, reason: str) -> dict[str, Any]:
        """Suspend an active line. A monthly holding fee applies while it is suspended.

        Args:
            customer_id: The id of the customer whose line it is.
            line_id: The id of the line.
            reason: Why the line is suspended.
        """
        line = self.db.line_of(customer_id, line_id)
        if line.status != LineStatus.ACTIVE:
            raise ValueError("Line must be active to suspend")
        line.status = LineStatus.SUSPENDED
        line.suspension_start_date = today()
        return {"message": "Line suspended successfully. $5/month holding fee will apply.", "line": line}

    @tool("write")
    def resume_line(self, customer_id: str, line_id: str) -> dict[str, Any]:
        """Make a suspended line, or one that waits for its activation, active.

        Args:
            customer_id: The id of the customer whose line it is.
            line_id: The id of the line.
        """
        line = self.db.line_of(customer_id, line_id)
        if line.status not in (LineStatus.SUSPENDED, LineStatus.PENDING_ACTIVATION):
            raise ValueError("Line must be suspended to resume")
        line.status = LineStatus.ACTIVE
        line.suspension_start_date = None
        return {"message": "Line resumed successfully", "line": line}

    @tool("read")
    def get_bills_for_customer(self, customer_id: str, limit: int = 12) -> list[Bill]:
        """List a customer's bills, the newest first.

        Args:
            customer_id: The customer's id.
            limit: How many bills to list at most.
        """
        bills = self.db.bills_of(self.db.customer(customer_id))
        return sorted(bills, key=lambda bill: bill.issue_date, reverse=True)[:limit]

    @tool("write")
    def send_payment_request(self, customer_id: str, bill_id: str) -> str:
        """Ask the customer to pay a bill. Only one bill at a time can await its payment.

        Args:
            customer_id: The customer's id.
            bill_id: The id of the bill to be paid.
        """
        customer = self.db.customer(customer_id)
        if self.db.bills_of(customer, BillStatus.AWAITING_PAYMENT):
            raise ValueError("A bill is already awaiting payment for this customer")
        if bill_id not in customer.bill_ids:
            raise ValueError(f"Bill {bill_id} not found for customer {customer_id}")
        self.db.bill(bill_id).status = BillStatus.AWAITING_PAYMENT
        return f"Payment request sent to the customer for bill {bill_id}"

    @tool("read")
    def get_data_usage(self, customer_id: str, line_id: str) -> dict[str, Any]:
        """Tell how much data a line has used in this billing cycle, and how much it may use.

        Args:
            customer_id: The id of the customer whose line it is.
            line_id: The id of the line.
        """
        line = self.db.line_of(customer_id, line_id)
        plan = self.db.plan(line.plan_id)
        return {
            "line_id": line_id,
            "data_used_gb": line.data_used_gb,
            "data_limit_gb": plan.data_limit_gb,
            "data_refueling_gb": line.data_refueling_gb,
            "cycle_end_date": cycle_end(),
        }

    @tool("write")
    def enable_roaming(self, customer_id: str, line_id: str) -> str:
        """Let a line be used abroad.

        Args:
            customer_id: The id of the customer whose line it is.
            line_id: The id of the line.
        """
        line = self.db.line_of(customer_id, line_id)
        if line.roaming_enabled:
            return "Roaming was already enabled"
        line.roaming_enabled = True
        return "Roaming enabled successfully"

    @tool("write")
    def disable_roaming(self, customer_id: str, line_id: str) -> str:
        """Let a line no longer be used abroad.

        Args:
            customer_id: The id of the customer whose line it is.
            line_id: The id of the line.
        """
        line = self.db.line_of(customer_id, line_id)
        if not line.roaming_enabled:
            return "Roaming was already disabled"
        line.roaming_enabled = False
        return "Roaming disabled successfully"

    @tool("generic")
    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the customer over to a human agent: when they ask for one, or when policy and tools do not help.

        Args:
            summary: What the customer needs, in short.
        """
        return "Transfer successful"

    @tool("write")
    def refuel_data(self, customer_id: str, line_id: str, gb_amount: float) -> dict[str, Any]:
        """Add data to a line for this billing cycle, and charge it to the customer's next bill.

        Args:
            customer_id: The id of the customer whose line it is.
            line_id: The id of the line.
            gb_amount: How many gigabytes to add; more than 0.
        """
        line = self.db.line_of(customer_id, line_id)
        if gb_amount <= 0:
            raise ValueError("Refuel amount must be positive")
        price = self.db.plan(line.plan_id).data_refueling_price_per_gb
        charge = gb_amount * price
        line.data_refueling_gb += gb_amount
        bill = self.db.draft_bill(self.db.customer(customer_id))
        bill.add_charge(f"Data refueling: {gb_amount} GB at ${price}/GB", charge)
        return {
            "message": f"Successfully added {gb_amount} GB of data for line {line_id} for ${charge:.2f}",
            "new_data_refueling_gb": line.data_refueling_gb,
            "charge": charge,
        }

    # What tasks do before they begin.

    def set_data_usage(self, customer_id: str, line_id: str, data_used_gb: float) -> str:
        self.db.line_of(customer_id, line_id).data_used_gb = data_used_gb
        return f"Data usage set to {data_used_gb} GB for line {line_id}"

    def suspend_line_for_overdue_bill(
        self, customer_id: str, line_id: str, new_bill_id: str, contract_ended: bool
    ) -> str:
        """Give the customer an overdue bill of last month, and suspend the line for it."""
        line = self.db.line(line_id)
        if line.status != LineStatus.ACTIVE:
            raise ValueError("Line must be active to suspend for unpaid bill")
        price = self.db.plan(line.plan_id).price_per_month
        if price <= 0:
            raise ValueError("Amount must be positive for overdue bill")
        customer = self.db.customer(customer_id)
        if self.db.bills_of(customer, BillStatus.OVERDUE):
            raise ValueError("Customer already has an overdue bill")
        bill = Bill(
            bill_id=new_bill_id,
            customer_id=customer_id,
            period_start=dt.date(2025, 1, 1),
            period_end=dt.date(2025, 1, 31),
            issue_date=dt.date(2025, 1, 1),
            total_due=0.0,
            due_date=dt.date(2025, 1, 15),
            status=BillStatus.OVERDUE,
        )
        bill.add_charge(f"Charge for line {line_id}", price)
        self.db.add_bill(customer, bill)
        line.status = LineStatus.SUSPENDED
        line.suspension_start_date = today()
        if contract_ended:
            line.contract_end_date = bill.period_end
        return f"Line {line_id} suspended for unpaid bill {new_bill_id}. Contract ended: {contract_ended}"

    # What tasks ask at the end.

    def assert_data_refueling_amount(self, customer_id: str, line_id: str, expected_amount: float) -> bool:
        line = self.db.line_of(customer_id, line_id)
        return abs(line.data_refueling_gb - expected_amount) < 1e-6

    def assert_line_status(self, customer_id: str, line_id: str, expected_status: str) -> bool:
        return self.db.line_of(customer_id, line_id).status == expected_status

    def assert_overdue_bill_exists(self, customer_id: str, overdue_bill_id: str) -> bool:
        if overdue_bill_id not in self.db.customer(customer_id).bill_ids:
            raise ValueError(f"Overdue bill {overdue_bill_id} not found")
        if self.db.bill(overdue_bill_id).status != BillStatus.OVERDUE:
            raise ValueError(f"Overdue bill {overdue_bill_id} is not overdue")
        return True

    def assert_no_overdue_bill(self, overdue_bill_id: str) -> bool:
        found = [bill for bill in self.db.bills if bill.bill_id == overdue_bill_id]
        return not found or found[0].status == BillStatus.PAID

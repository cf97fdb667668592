"""Telecom: the domain as a whole. A carrier's agent, and a customer whose phone follows the carrier's line.

`telecom` and `telecom-workflow` differ in the second half of the policy only.
Not here: the tools and records of the two sides (`tau2_telecom_agent.py`, `_user.py`, `_carrier.py`, `_phone.py`).
"""

from __future__ import annotations

import json
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

from tau2_source import DomainFiles
from tau2_telecom_agent import TelecomTools
from tau2_telecom_carrier import BillStatus, LineStatus, TelecomDB
from tau2_telecom_phone import PaymentRequest, TelecomUserDB
from tau2_telecom_scene import TelecomUserTools
from tau2_world import World


def load(folder: Path, *, workflow: bool) -> TelecomSource:
    """The domain whose files are in `folder`. A file is read when it is first needed, and once."""
    return TelecomSource(folder, workflow=workflow)


class TelecomWorld(World):
    agent: TelecomTools
    user: TelecomUserTools

    def sync(self) -> None:
        """The phone follows its line, a paid bill is settled, and a bill that awaits payment reaches the customer.

        It never searches the network: a line that works again is noticed by the next action that does.
        """
        around, carrier = self.user.db.surroundings, self.agent.db
        if around.phone_number is None:
            return
        line = carrier.line_by_phone(around.phone_number)
        around.line_active = line.status == LineStatus.ACTIVE
        around.roaming_allowed = line.roaming_enabled
        limit = carrier.plan(line.plan_id).data_limit_gb + line.data_refueling_gb
        around.mobile_data_usage_exceeded = line.data_used_gb >= limit
        if around.payment_request is not None and around.payment_request.paid:
            carrier.bill(around.payment_request.bill_id).status = BillStatus.PAID
            around.payment_request = None
        if around.payment_request is None:
            customer = carrier.customer_by_phone(around.phone_number)
            for bill in carrier.bills_of(customer, BillStatus.AWAITING_PAYMENT)[:1]:
                around.payment_request = PaymentRequest(bill_id=bill.bill_id, amount_due=bill.total_due)


class TelecomSource(DomainFiles):
    """The domain's files. No world changes them: each has a copy of the databases."""

    def __init__(self, folder: Path, *, workflow: bool) -> None:
        super().__init__(folder)
        self._workflow = workflow
        self._policies: dict[bool, str] = {}

    def open(self, *, solo: bool) -> TelecomWorld:
        """A fresh world: untouched databases."""
        if solo not in self._policies:
            self._policies[solo] = self._read_policy(solo)
        agent = TelecomTools(self._agent_db.copied())
        user = TelecomUserTools(self._user_db.copied())
        return TelecomWorld(agent, user, self._policies[solo], solo=solo)

    def task(self, task_id: str) -> dict[str, Any]:
        """One task, without making sense of the 14 MB around it. Unknown: KeyError."""
        if "tasks" not in self.__dict__:
            found = _object_with_id((self.folder / "tasks.json").read_bytes(), task_id)
            if found is not None:
                return found
        return super().task(task_id)

    @cached_property
    def _agent_db(self) -> TelecomDB:
        return TelecomDB.read(tomllib.loads(self.text("db.toml")))

    @cached_property
    def _user_db(self) -> TelecomUserDB:
        return TelecomUserDB.read(tomllib.loads(self.text("user_db.toml")))

    def _read_policy(self, solo: bool) -> str:
        main = self.text("main_policy_solo.md" if solo else "main_policy.md")
        if not self._workflow:
            support = self.text("tech_support_manual.md")  # the same for both
        else:
            support = self.text("tech_support_workflow_solo.md" if solo else "tech_support_workflow.md")
        return f"<main_policy>\n{main}\n</main_policy>\n<tech_support_policy>\n{support}\n</tech_support_policy>"


def _object_with_id(tasks: bytes, task_id: str) -> dict[str, Any] | None:
    """The task that begins with this id, where the file is written as the benchmark writes it; otherwise None."""
    at = tasks.find(b'"id": ' + json.dumps(task_id).encode())
    start = tasks.rfind(b"{", 0, at) if at >= 0 else -1
    if start < 0 or tasks[start + 1 : at].strip():
        return None
    end = tasks.find(b"\n" + _indentation(tasks, start) + b"}", at)
    try:
        task: dict[str, Any] = json.loads(tasks[start : tasks.find(b"}", end) + 1])
    except ValueError:
        return None
    return task if task.get("id") == task_id and "evaluation_criteria" in task else None


def _indentation(text: bytes, position: int) -> bytes:
    return text[text.rfind(b"\n", 0, position) + 1 : position]

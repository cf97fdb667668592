"""What `aenv ps` and `aenv top` share: their options, and their table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import click

from ..base import quantities
from . import output

if TYPE_CHECKING:
    from ..base.models import InstanceUsage, Usage
    from ..client.api import Api

T = TypeVar("T")

HEADERS = ("ID", "Environment", "Owner", "Status", "CPU", "Memory", "Calls", "Age", "TTL left")


@dataclass(frozen=True)
class Row:
    """An instance and what it uses."""

    data: InstanceUsage
    cpu_percent: float | None
    """Of one processor."""
    age: float
    left: float | None
    """Seconds until its time to live is over."""


ORDERS: dict[str, Callable[[Row], Any]] = {
    "cpu": lambda row: row.cpu_percent or 0.0,
    "memory": lambda row: row.data.memory_bytes or 0,
    "calls": lambda row: row.data.calls or 0,
    "age": lambda row: row.age,
    "env": lambda row: row.data.env,
    "state": lambda row: row.data.status,
}
BY_NAME = ("env", "state")
"""The orders that begin with A; the others begin with the largest number."""


def ordered(found: Sequence[Row], order: str, *, is_reversed: bool = False) -> list[Row]:
    """The rows in that order; those that are equal stay as they were."""
    return sorted(found, key=ORDERS[order], reverse=(order in BY_NAME) is is_reversed)


def filters(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --name, --owner and --label, and hands the command the `chosen`."""

    @click.option("--name", help="List only instances of this environment: NAME or NAME@VERSION.")
    @click.option("--owner", help="List only instances of this owner.")
    @click.option("--label", metavar="KEY=VALUE", help="List only instances with this label.")
    @functools.wraps(command)
    def with_filters(name: str | None, owner: str | None, label: str | None, **given: Any) -> T:
        wanted = {"envName": name, "owner": owner, "label": label}
        return command(chosen={key: value for key, value in wanted.items() if value is not None}, **given)

    return with_filters


async def ask(api: Api, chosen: Mapping[str, str]) -> Usage:
    from ..base.models import Usage

    return Usage.model_validate(await api.call("GET", f"/env-instances/usage?{urlencode(chosen)}"))


def rows(reply: Usage, before: Usage | None = None) -> list[Row]:
    """CPU is what each had since `before`, else over its life."""
    now = _seconds(reply.at)
    earlier = {row.id: row.cpu_seconds for row in before.instances} if before else {}
    span = now - _seconds(before.at) if before else 0.0

    def percent(row: InstanceUsage, age: float) -> float | None:
        if row.cpu_seconds is None:
            return None
        known = earlier.get(row.id)
        used, over = (row.cpu_seconds, age) if known is None else (row.cpu_seconds - known, span)
        return 100 * used / over if over > 0 else 0.0

    found = []
    for row in reply.instances:
        age = max(0.0, now - _seconds(row.created_at))
        left = _seconds(row.expires_at) - now if row.expires_at else None
        found.append(Row(row, percent(row, age), age, left))
    return found


def show(reply: Usage, shown: Sequence[Row]) -> None:
    """A table, and a line of how many there are."""
    output.table(HEADERS, [cells(row) for row in shown])
    output.talk(summary(reply, shown))


def summary(reply: Usage, shown: Sequence[Row]) -> str:
    """How many there are."""
    frozen = sum(row.data.frozen is True for row in shown)
    warm = sum(reply.warm.values())
    return f"{len(shown)} running, {frozen} of them frozen{f'; {warm} spare' if warm else ''}"


def cells(row: Row) -> tuple[str, ...]:
    """What the columns of `HEADERS` say of an instance."""
    data, memory = row.data, row.data.memory_bytes
    return (
        data.id,
        data.env or "-",
        data.owner or "-",
        "Frozen" if data.frozen else data.status,
        "-" if row.cpu_percent is None else f"{row.cpu_percent:.1f} %",
        "-" if memory is None else output.size(memory),
        "-" if data.calls is None else str(data.calls),
        quantities.spell_seconds(int(row.age)),
        f"service {data.service}"
        if data.service
        else "-"
        if row.left is None
        else quantities.spell_seconds(int(max(0.0, row.left))),
    )


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()

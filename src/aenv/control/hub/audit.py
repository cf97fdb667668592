"""The audit log: who pushed, changed, released and deleted what. Written together with what it tells of."""

from __future__ import annotations

import secrets
import time
from typing import Any

from ...base.wire import timestamp
from ..serving.accounts import Caller
from ..stores.base import Page, Put, Store

_KIND = "audit"


def entry(caller: Caller, action: str, name: str, version: str | None = None, digest: str | None = None) -> Put:
    """A line of the log, to be written with the change itself: all or none."""
    now = time.time()
    place = f"{now:017.6f}"
    value = {
        "at": timestamp(now),
        "user": caller.user,
        "account": caller.account,
        "action": action,
        "environment": f"{name}@{version}" if version else name,
        "digest": digest,
    }
    return Put(
        _KIND, f"{place}-{secrets.token_hex(8)}", value, revision=0, terms={"all": place, f"name={name}": place}
    )


async def read(
    store: Store, name: str | None, *, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """The newest lines, of one environment or of all, and the cursor of those before them."""
    page: Page = await store.page(
        _KIND, f"name={name}" if name else "all", limit=limit, after=cursor, reverse=True
    )
    return [document.value for document in page.documents], page.next

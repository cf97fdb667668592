"""Rate limits: how many requests a second an account may send, in all and to one route."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...base.errors import TooManyRequests
from ..stores.base import Coordination
from .accounts import Caller


class Rates:
    """`overall` requests a second for each account, and for some routes (`"POST /env-instance"`) fewer.

    A bucket holds two seconds' worth, so that a burst after a pause is not refused. 0 sets no limit.
    """

    def __init__(self, coordination: Coordination, overall: float, by_route: Mapping[str, float]) -> None:
        self._coordination = coordination
        self._overall = overall
        self._by_route = by_route

    async def take(self, caller: Caller, method: str, path: str) -> dict[str, str]:
        """Count a request. The headers for its reply; TooManyRequests when it is one too many."""
        headers: dict[str, str] = {}
        who = caller.account or caller.user
        route = f"{method} {path}"
        for name, rate in ((route, self._by_route.get(route, 0.0)), ("*", self._overall)):
            if rate and not headers:
                headers = await self._spend(who, name, rate)
        return headers

    async def _spend(self, who: str, name: str, rate: float) -> dict[str, str]:
        burst = max(1, math.ceil(2 * rate))
        spent = await self._coordination.spend(f"{who} {name}", rate=rate, burst=burst)
        headers = {
            "RateLimit-Limit": str(burst),
            "RateLimit-Remaining": str(spent.remaining),
            "RateLimit-Reset": str(math.ceil((burst - spent.remaining) / rate)),
        }
        if spent.wait:
            what = "requests" if name == "*" else f"requests to '{name}'"
            error = TooManyRequests(f"more than {rate:g} {what} a second; slow down", spent.wait)
            error.details["headers"] = headers
            raise error
        return headers

"""Ids by their beginning, as people type them, where only one id begins so.

Found among what the caller may list, here and not in the gateway: there an id is a capability, and no part of one
may open anything.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

from ..base.errors import InvalidRequest, NotFound
from . import output

if TYPE_CHECKING:
    from ..client.api import Api
    from ..client.services import Services

_WHOLE = re.compile(r".*-[a-z2-7]{26}\Z")
_PAGE = 1000


async def instance(api: Api, given: str) -> str:
    """The id of the instance that `given` is, or begins."""
    if _WHOLE.match(given) or await _exists(api.get_instance(given)):
        return given
    found: list[str] = []
    while True:
        after = {"cursor": found[-1]} if found else {}
        page = await api.list_instances("*", limit=_PAGE, **after)
        found += [each.id for each in page]
        if len(page) < _PAGE:
            return only(given, found, "instance")


async def service(services: Services, given: str) -> str:
    """The same for a service."""
    if await _exists(services.get(given)):
        return given
    return only(given, [each.id for each in await services.list()], "service")


async def _exists(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except (NotFound, InvalidRequest):  # too short for an id, perhaps
        return False
    return True


def only(given: str, known: Iterable[str], what: str) -> str:
    """The one of `known` that begins with `given`; `given` itself where none does, for the server to refuse."""
    begun = sorted(id for id in known if id.startswith(given))
    if given in begun or not begun:
        return given
    if len(begun) > 1:
        some = ", ".join(begun[:5]) + (", …" if len(begun) > 5 else "")
        raise output.Failure(
            f"{len(begun)} {what}s have ids that begin with {given!r}: {some}",
            hint="give more characters of the id",
        )
    return begun[0]

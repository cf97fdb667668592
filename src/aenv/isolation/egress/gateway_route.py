"""The way from an instance to its own gateway: no address, but connections that the gateway's process hands out.

A program in the instance asks the relay as it would ask a gateway, with the relay's own token as API key. Each
request is one connection, and says in a header of the relay's which instance it comes from.

Not here: what of the gateway is served there (`aenv.control`).
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from .destinations import Destination
from .exchanges import ProxyRequest, Refusal, forwarded, head_parts

PORT = 3130
"""Where the relay listens in the network of an instance."""
INSTANCE = "aenv-relay-instance"
"""The header that names the instance. What a program sends under this name is dropped."""
_NO_PLACE = Destination("127.0.0.1", 80)  # what the gateway reads as its own name

Connect = Callable[[], Awaitable[socket.socket]]
"""Gives a connection to the gateway, which does not block."""


@dataclass(frozen=True)
class GatewayRoute:
    """From the instance `id` to the gateway that `connect` leads to."""

    id: str
    connect: Connect
    token: str = field(repr=False)

    def variables(self, port: int) -> dict[str, str]:
        """What leads the SDK there."""
        return {"AENV_SYSTEM_URL": f"http://127.0.0.1:{port}", "AENV_API_KEY": self.token}

    def request(self, head: bytes) -> ProxyRequest:
        """What the gateway is asked. Refusal for what comes without the token, or does not tell its length."""
        method, target, version, headers = head_parts(head)
        given = [
            value.removeprefix("Bearer ").strip() for name, value in headers if name.lower() == "authorization"
        ]
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self.token.encode()):
            raise Refusal(401, "the API key is not the one of this instance: use AENV_API_KEY as it is set")
        if not target.startswith("/"):
            raise Refusal(400, "only paths are relayed, as in '/env-instance/ID'")
        if any(name.lower() == "transfer-encoding" for name, _ in headers):
            raise Refusal(411, "send the body with its content-length")
        added = [(INSTANCE, self.id)]
        return forwarded(_NO_PLACE, method, target, version, headers, dropped=[INSTANCE], added=added)

"""Which model an instance may ask: one that the operator of the gateway allows, and no other."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ...base.errors import Forbidden, of_field
from ...base.models import CreateInstance
from ...engines.base import ModelEndpoint
from ...isolation.egress import ModelRoute

LOOPBACK = "loopback"
"""In place of a URL: all on this host's loopback, for a platform that serves its own user."""


@dataclass(frozen=True)
class ModelRules:
    """The models that instances may ask, and the key that is sent to them where a request brings none."""

    urls: frozenset[str] = frozenset()
    key: str = field(default="", repr=False)


def model_for(request: CreateInstance, rules: ModelRules) -> ModelEndpoint | None:
    """InvalidRequest when the URL cannot be used, Forbidden when it is not allowed here."""
    if request.model is None:
        return None
    url, key = request.model.url.rstrip("/"), request.model.key
    with of_field("model"):
        ModelRoute.parse(url, key, "")
    if url in {allowed.rstrip("/") for allowed in rules.urls}:
        return ModelEndpoint(url, key or rules.key)
    if LOOPBACK in rules.urls and _is_loopback(urlsplit(url).hostname or ""):
        return ModelEndpoint(url, key)  # the operator's key is for the servers that the operator has named
    raise Forbidden("field 'model': this gateway does not allow the model at this URL (aenv serve --model-url)")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

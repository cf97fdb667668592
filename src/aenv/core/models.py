"""The published import path; re-exports only."""

from ..base.models import (
    Address,
    APIError,
    APIResponse,
    Env,
    EnvInstance,
    EnvInstanceListResponse,
    EnvService,
    EnvServiceListResponse,
)
from ..base.models import CreateInstance as EnvInstanceCreateRequest
from ..base.models import CreateService as EnvServiceCreateRequest
from ..base.models import UpdateService as EnvServiceUpdateRequest
from ..base.wire import EnvStatus, ServiceStatus

__all__ = [
    "APIError",
    "APIResponse",
    "Address",
    "Env",
    "EnvInstance",
    "EnvInstanceCreateRequest",
    "EnvInstanceListResponse",
    "EnvService",
    "EnvServiceCreateRequest",
    "EnvServiceListResponse",
    "EnvServiceUpdateRequest",
    "EnvStatus",
    "ServiceStatus",
]

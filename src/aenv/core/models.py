"""The published import path; re-exports only."""

from ..models import (
    Address,
    APIError,
    APIResponse,
    Env,
    EnvInstance,
    EnvInstanceListResponse,
    EnvService,
    EnvServiceListResponse,
)
from ..models import CreateInstance as EnvInstanceCreateRequest
from ..models import CreateService as EnvServiceCreateRequest
from ..models import UpdateService as EnvServiceUpdateRequest
from ..wire import EnvStatus, ServiceStatus

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

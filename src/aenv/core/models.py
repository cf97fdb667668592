"""The published import path; re-exports only."""

from ..wire import (
    Address,
    APIError,
    APIResponse,
    Env,
    EnvInstance,
    EnvInstanceListResponse,
    EnvService,
    EnvServiceListResponse,
    EnvStatus,
    ServiceStatus,
)
from ..wire import CreateInstance as EnvInstanceCreateRequest
from ..wire import CreateService as EnvServiceCreateRequest
from ..wire import UpdateService as EnvServiceUpdateRequest

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

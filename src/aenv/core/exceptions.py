"""The published import path; re-exports only."""

from ..base.errors import (
    AEnvError,
    EnvironmentError,
    NetworkError,
    ToolError,
    ToolServerError,
    ToolTimeoutError,
    UnrecoverableEnvironmentError,
    ValidationError,
)

__all__ = [
    "AEnvError",
    "EnvironmentError",
    "NetworkError",
    "ToolError",
    "ToolServerError",
    "ToolTimeoutError",
    "UnrecoverableEnvironmentError",
    "ValidationError",
]

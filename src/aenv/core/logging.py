"""The published import path; re-exports only."""

from ..logs import get_logger as getLogger  # noqa: N812
from ..logs import setup_logging

__all__ = ["getLogger", "setup_logging"]

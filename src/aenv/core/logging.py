"""The published import path; re-exports only."""

from ..base.logs import get_logger as getLogger  # noqa: N812
from ..base.logs import setup_logging

__all__ = ["getLogger", "setup_logging"]

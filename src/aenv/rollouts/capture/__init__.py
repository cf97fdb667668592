"""Capture: an endpoint between an agent and its model, which records what they say to each other.

from aenv.rollouts.capture import Capture
"""

from __future__ import annotations

from .endpoint import Capture

__all__ = ["Capture"]

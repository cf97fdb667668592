"""Limits of groups of processes: cgroups of version 1, version 2, both, or none. Knows nothing of instances."""

from .control_group import ControlGroup, GroupUsage, used_by
from .hierarchy import Cgroups, find

__all__ = ["Cgroups", "ControlGroup", "GroupUsage", "find", "used_by"]

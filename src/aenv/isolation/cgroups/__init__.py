"""Limits of groups of processes: cgroups of version 1, version 2, both, or none. Knows nothing of instances."""

from .finding import Cgroups, find
from .groups import Group, Used, used_by

__all__ = ["Cgroups", "Group", "Used", "find", "used_by"]

"""config.json, typed: the only reader of what an environment's author writes about it.

`deploy.py` and `project.py` declare its fields, of the kinds in `values.py`; `sections.py` reads them. The page
docs/config.md is made of these declarations.
"""

from __future__ import annotations

from .deploy import Deploy, SidecarSource, parse_deploy
from .project import Data, Grants, Project, load_project
from .sections import FILE_NAME, key_lines
from .values import Amount, Network, NetworkKind, is_folder_variable, is_secret_name, is_secret_variable, network

__all__ = ["FILE_NAME", "Amount", "Data", "Deploy", "Grants", "Network", "NetworkKind", "Project", "SidecarSource"]
__all__ += ["is_folder_variable", "is_secret_name", "is_secret_variable"]
__all__ += ["key_lines", "load_project", "network", "parse_deploy"]

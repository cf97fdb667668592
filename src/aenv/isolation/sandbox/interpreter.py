"""Where Python and our packages are on this host: what a program of ours needs, whatever else it may not see."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Iterable

from ...base import settings

# What the runtime loads, and what authors may expect to find with it.
_RUNTIME = (
    *("aenv", "annotated_types", "httptools", "pydantic", "pydantic_core", "typing_extensions"),
    *("typing_inspection", "uvloop"),
)


def folders() -> list[str]:
    """The interpreter's folders, and those of the packages that are not in them; but for those in /usr."""
    return _outermost([sys.prefix, sys.base_prefix, *_packages()])


def built_in_environments() -> str:
    """A folder below those, which instances need not see: tasks of some environments have their answers there."""
    return os.path.join(_packages()[0], "envs")


def variables() -> dict[str, str]:
    """For a program of ours: enough to find its packages, and nothing that may be secret."""
    ours = settings.variables()
    return {
        "PATH": ours.get("PATH", os.defpath),
        "LANG": ours.get("LANG", "C.UTF-8"),
        "PYTHONPATH": os.pathsep.join(package_folders()),
    }


def package_folders() -> list[str]:
    """What PYTHONPATH must name for our packages to be found."""
    return [*dict.fromkeys(os.path.dirname(place) for place in _packages())]


@functools.cache
def _packages() -> tuple[str, ...]:
    """Where the packages of the runtime are, one by one: what lies beside them may be private."""
    found = []
    for name in _RUNTIME:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            found.append(os.path.dirname(spec.origin) if spec.submodule_search_locations else spec.origin)
    return tuple(found)


def _outermost(paths: Iterable[str]) -> list[str]:
    """Those that lie in no other, and not in what every root has."""
    found = ["/usr"]
    for path in sorted(paths):  # a folder before what lies in it
        if not any(path == one or path.startswith(f"{one}/") for one in found):
            found.append(path)
    return found[1:]

"""What was skipped, in one line, with the one command that would run it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_PACKAGE = re.compile(r"install it with: apt-get install -y (\S+)")
_DATA = "no shared test data"
_CLUSTER = "no test cluster"
_FRAMEWORK = "run ./scripts/test --integrations"


def line(reasons: Iterable[str]) -> str | None:
    """None when nothing was skipped."""
    packages: Counter[str] = Counter()
    data = host = frameworks = clusters = 0
    for reason in reasons:
        if found := _PACKAGE.search(reason):
            packages[found[1]] += 1
        elif _DATA in reason:
            data += 1
        elif _CLUSTER in reason:
            clusters += 1
        elif _FRAMEWORK in reason:
            frameworks += 1
        else:
            host += 1
    parts, command = [], []
    if packages:
        named = ", ".join(f"{name} {count}" for name, count in packages.most_common())
        parts.append(f"{packages.total()} need system packages ({named})")
        command.append("./scripts/setup --system &&")
    if data:
        parts.append(f"{data} need data that may not be shipped")
        command.append("AENV_TEST_SHARED=FOLDER")
    if clusters:
        parts.append(f"{clusters} need a Kubernetes that sudo ./scripts/lib/cluster/build builds, once")
    if host:
        parts.append(f"{host} cannot run on this host or for this user (-rs says why)")
    if frameworks:
        parts.append(f"{frameworks} need frameworks that ./scripts/test --integrations installs")
    if not parts:
        return None
    run = f"; to run them: {' '.join(command)} ./scripts/test" if command else ""
    return f"skipped: {'; '.join(parts)}{run}"

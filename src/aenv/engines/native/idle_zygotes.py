"""Which zygotes to let go: those that were not used for long, and some where there are too many.

A tenant who uses many environments makes room at their own expense: zygotes of others stay, and so does one that a
create waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_ZYGOTES = 64
MAX_OF_TENANT = 16
"""Each may use as much memory as an instance, and counts for no quota."""
UNUSED = 600.0  # seconds after which one that is not needed is let go

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Candidate(Generic[K]):
    """One zygote."""

    kind: K
    tenant: str
    """Empty where there are no accounts: then all are the operator's."""
    used_at: float
    is_starting: bool


def to_let_go(candidates: Sequence[Candidate[K]], now: float) -> list[K]:
    """The kinds of those that are not to stay."""
    oldest_first = sorted(candidates, key=lambda one: one.used_at)
    gone = [one for one in oldest_first if one.used_at < now - UNUSED]
    left = [one for one in oldest_first if one.used_at >= now - UNUSED]
    while left:
        counts = Counter(one.tenant for one in left)
        most = max(counts.values())
        greedy = {tenant for tenant, count in counts.items() if tenant and count > MAX_OF_TENANT}
        if len(left) > MAX_ZYGOTES:
            greedy |= {tenant for tenant, count in counts.items() if count == most}
        victim = next((one for one in left if one.tenant in greedy and not one.is_starting), None)
        if victim is None:
            break  # all of them are waited for; the next call finds them started
        left.remove(victim)
        gone.append(victim)
    return [one.kind for one in gone]

"""The filter that a fork of a zygote adds to the zygote's own: together they are the profile of instances."""

from __future__ import annotations

import platform

import pytest

from aenv.isolation.sandbox import seccomp
from aenv.isolation.sandbox.seccomp import ALLOW, ARCHITECTURES, KILL
from tests.test_seccomp import FORKS, NAMES, NAMESPACES, decide


@pytest.mark.parametrize("more", [{}, seccomp.FOR_ROOT])
def test_what_a_zygote_may_do_besides_is_taken_back_from_its_forks(more: dict[str, int | seccomp.Switch]) -> None:
    machine = platform.machine()
    besides = {"setns": seccomp.INTO_ROOMS, "clone": seccomp.NO_NAMESPACES_BUT_PIDS}
    zygote = seccomp.compiled(changes={**besides, **more})
    fork, alone = seccomp.taking_back(besides), seccomp.compiled(changes=more)
    tries = [(0,) * 6, (-1,) * 6, *((flags, flags) for flags in (*NAMESPACES, FORKS)), (16, 3, 9), (2, 3, 1)]
    differs = set()
    for number in [*range(601), 0x40000000, 0xFFFFFFFF]:
        for arguments in tries:
            first, second, wanted = (
                decide(program, ARCHITECTURES[machine], number, arguments)[0] for program in (zygote, fork, alone)
            )
            # As the kernel does: the stricter one, and of two errors that of the filter which came last.
            is_stricter = (first == ALLOW) or (second & 0x7FFF0000) < (first & 0x7FFF0000)
            assert (second if is_stricter else first) == wanted, (number, arguments)
            if first != wanted:
                differs.add(NAMES[machine][number])
    assert differs == {"setns", "clone"}
    assert len(fork) < len(alone) / 10
    assert decide(fork, 0x40000003, 0)[0] == KILL

"""Which zygotes are let go: nobody pays for the many environments of another."""

from __future__ import annotations

from aenv.engines.native.idle_zygotes import MAX_OF_TENANT, MAX_ZYGOTES, UNUSED, Candidate, to_let_go

NOW = 10_000.0


def zygotes(tenant: str, count: int, *, used_at: float = NOW, is_starting: bool = False) -> list[Candidate[str]]:
    return [
        Candidate(f"{tenant}-{number}", tenant, used_at + number / 1000, is_starting) for number in range(count)
    ]


def test_those_that_were_not_used_for_long_go() -> None:
    assert to_let_go(zygotes("a", 2, used_at=NOW - UNUSED - 1) + zygotes("b", 1), NOW) == ["a-0", "a-1"]


def test_a_tenant_with_too_many_gives_up_the_oldest_of_their_own() -> None:
    others = zygotes("b", 3, used_at=NOW - 100)
    assert to_let_go(others + zygotes("a", MAX_OF_TENANT + 2), NOW) == ["a-0", "a-1"]


def test_without_accounts_the_limit_of_all_holds_alone() -> None:
    assert to_let_go(zygotes("", MAX_ZYGOTES), NOW) == []
    assert to_let_go(zygotes("", MAX_ZYGOTES + 1), NOW) == ["-0"]


def test_where_there_are_too_many_in_all_who_has_the_most_gives_up() -> None:
    many = [one for number in range(9) for one in zygotes(f"t{number}", 7, used_at=NOW - 100)]
    gone = to_let_go(many + zygotes("greedy", 8), NOW)
    assert gone[0] == "greedy-0"
    assert len(gone) == len(many) + 8 - MAX_ZYGOTES


def test_one_that_is_waited_for_stays() -> None:
    assert to_let_go(zygotes("a", MAX_ZYGOTES + 9, is_starting=True), NOW) == []

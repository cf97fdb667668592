"""Whatever an instance sends, the gateway goes on, and other tenants notice nothing."""

from __future__ import annotations

import contextlib
import json
import secrets
from random import Random

import pytest

from tests.fuzz import generators
from tests.fuzz.playing import PLAYS, Found, Fuzz, corpus, fuzzing, run, seeds
from tests.ordinary import ordinary_user

KINDS = [*PLAYS]
SECONDS = 20 / len(KINDS)
LONG_SECONDS = 600 / len(KINDS) / 2  # for a gateway that root runs, and for an ordinary user's


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_what_an_instance_sends_harms_neither_the_gateway_nor_another_tenant(kind: str) -> None:
    with fuzzing() as fuzz:
        played = run(fuzz, kind, 1, SECONDS)
    assert played > len(seeds(kind))


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 300)
@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("kind", KINDS)
def test_seeds_that_were_never_played_find_nothing(kind: str, who: str) -> None:
    first = secrets.randbelow(1 << 32)
    with contextlib.ExitStack() as stack:
        user = stack.enter_context(ordinary_user()) if who == "user" else None
        played = run(stack.enter_context(fuzzing(user)), kind, first, LONG_SECONDS)
    print(f"{kind}, {who}: {played} seeds from {first}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_means_the_same_whenever_it_is_played(kind: str) -> None:
    assert [repr(generators.steps(kind, seed)) for seed in range(20)] == [
        repr(generators.KINDS[kind](Random(f"{kind} {seed}"))) for seed in range(20)
    ]
    assert len({repr(generators.steps(kind, seed)) for seed in range(200)}) > 50


def test_every_kind_has_its_generator_and_its_corpus() -> None:
    assert set(generators.KINDS) == set(KINDS)
    assert all(isinstance(seeds(kind), list) for kind in KINDS)


def test_a_finding_says_how_to_play_it_again_and_where_to_keep_it() -> None:
    said = str(Found("reply", 4711, "it broke"))
    assert "it broke" in said
    assert ".venv/bin/python -m tests.fuzz reply --seed 4711" in said
    assert str(corpus("reply")) in said


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["forged", "gone"])
def test_a_neighbour_that_gets_another_answer_is_a_finding(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The checks themselves: one that never fails would prove nothing."""
    with fuzzing() as fuzz:
        fuzz.play("reply", 1)
        if wrong == "forged":
            monkeypatch.setattr(json, "dumps", lambda value, **_: '{"text": "something else"}')
        else:
            monkeypatch.setattr(Fuzz, "_look", lambda self: self.unharmed(self.canary.encode()))
        with pytest.raises(Found, match="replay:"):
            fuzz.play("reply", 1)
        monkeypatch.undo()

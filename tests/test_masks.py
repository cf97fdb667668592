"""Masks: no value of a secret is left in a text, in JSON or in a stream, however it is cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aenv.base import masks

VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0*"), min_size=8, max_size=20)


async def pieces(data: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for first, last in itertools.pairwise(places):
        yield data[first:last]


async def shown(mask: masks.Masks, data: bytes, *cuts: int) -> bytes:
    return b"".join([piece async for piece in mask.stream(pieces(data, list(cuts)))])


@given(value=VALUES, before=st.text("ab\n"), after=st.text("ab\n"), cuts=st.lists(st.integers(0, 100)))
async def test_a_stream_shows_no_value_wherever_it_is_cut(
    value: str, before: str, after: str, cuts: list[int]
) -> None:
    data = f"{before}{value}{after}{value}".encode()
    assert value.encode() not in await shown(masks.Masks([value]), data, *cuts)


async def test_a_stream_without_a_value_is_as_it_was() -> None:
    data = b"12345678 is no 12345679, and at the end 123456"
    assert await shown(masks.Masks(["12345679x"]), data, 10, 15, 44) == data


async def test_of_a_stream_only_what_may_begin_a_value_is_held_back() -> None:
    source = masks.Masks(["the-secret"]).stream(pieces(b"line\nthe-sec" + b"ond line\n", [12]))
    assert await anext(source) == b"line\n"
    assert await anext(source) == b"the-second line\n"


@given(value=VALUES)
def test_json_shows_no_value_and_stays_json(value: str) -> None:
    said = {"text": f"is {value}", value: [json.dumps({"in": value}), 1, None, True]}
    masked = json.loads(masks.Masks([value]).json(json.dumps(said).encode()))
    assert masked == {"text": "is ***", "***": ['{"in": "***"}', 1, None, True]}


def test_a_number_that_is_a_secret_is_masked_and_the_body_stays_json() -> None:
    mask = masks.Masks(["12345678"])
    assert json.loads(mask.json(b'{"pin": 12345678, "other": 1234}')) == {"pin": "***", "other": 1234}
    event = b'event: message\ndata: {"pin":12345678}\n\n'
    assert mask.events(event) == b'event: message\ndata: {"pin":"***"}\n\n'


@pytest.mark.parametrize(("value", "said"), [("1234567", "1234567"), ("12345678", "***")])
def test_what_is_shorter_than_eight_characters_is_not_masked(value: str, said: str) -> None:
    variables = {masks.NAMES: "KEY", "KEY": value, "OTHER": "not a secret"}
    assert masks.of(variables).text(f"{value}, not a secret") == f"{said}, not a secret"


def test_without_secrets_there_are_no_masks() -> None:
    assert masks.of({"KEY": "a value of it"}) is masks.NONE
    assert not masks.NONE

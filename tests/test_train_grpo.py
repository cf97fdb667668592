"""The parts of the training example that need no PyTorch: how calls are spelled, and what is reported."""

from __future__ import annotations

import json
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest

from aenv.examples.train_grpo import gsm_tokens
from aenv.examples.train_grpo.dialogue import ToolCall
from aenv.examples.train_grpo.training_report import TrainingResult, TrainingStep, sign_test

PROBLEM = "Ada has 24 apples. A neighbour brings 17.5 more. How many?"


def number(n: int) -> int:
    return gsm_tokens.SAID - 16 + n


def test_numbers_are_read_and_said_by_their_place() -> None:
    sheet = gsm_tokens.Sheet()
    tokens = sheet.read(PROBLEM)
    assert sheet.numbers == ["24", "17.5"]
    assert [token - number(0) for token in tokens if token < gsm_tokens.SAID] == [0, 1]
    plus = 3
    assert sheet.call([gsm_tokens.CALCULATE, number(0), plus, number(1), gsm_tokens.END]) == ToolCall(
        "calculate", "24 + 17.5"
    )
    sheet.hear("41.5", is_error=False)
    assert sheet.call([gsm_tokens.SUBMIT, number(2), gsm_tokens.END]) == ToolCall("submit_answer", "41.5")


@pytest.mark.parametrize(
    "tokens", [[], [0], [1, 3], [1, number(0)], [3, number(0), 0], [number(0), 3, number(1), 0]]
)
def test_what_spells_no_call_is_none(tokens: list[int]) -> None:
    sheet = gsm_tokens.Sheet()
    sheet.read(PROBLEM)
    assert sheet.call(tokens) is None


def test_a_number_that_was_not_told_is_for_the_tool_to_refuse() -> None:
    sheet = gsm_tokens.Sheet()
    sheet.read(PROBLEM)
    assert sheet.call([gsm_tokens.SUBMIT, number(9), gsm_tokens.END]) == ToolCall("submit_answer", "?")


def test_demonstrations_show_every_operator_and_end_with_an_answer() -> None:
    draw = random.Random(0)
    shown = [gsm_tokens.demonstration(PROBLEM, draw) for _ in range(200)]
    said = [[token for token, is_said in zip(one.tokens, one.said, strict=True) if is_said] for one in shown]
    assert {token for tokens in said for token in tokens} >= {3, 4, 5, 6}
    assert all(tokens[-3] == gsm_tokens.SUBMIT and tokens[-1] == gsm_tokens.END for tokens in said)


def test_the_sign_test_is_exact_and_one_sided() -> None:
    assert sign_test([0, 0, 1, 1], [1, 1, 1, 1]) == 0.25
    assert sign_test([0, 0, 1], [1, 1, 0]) == 0.5
    assert sign_test([1, 1], [1, 1]) == 1.0
    assert sign_test([0.0] * 300, [1.0] * 300) < 1e-80


def test_a_result_is_written_as_numbers_and_as_a_picture(tmp_path: Path) -> None:
    curve = [TrainingStep(float(n), 256 * n, n / 10) for n in range(10)]
    result = TrainingResult(
        *("gsm-tools@1.0.0", "small", 300_000, "cpu", 0, [1], 64, 256, 0.1, 0.9, 1e-30),
        *(2560, 0, 6000, 100.0, 80.0, 32.0, 0.4, 0.6, curve),
    )
    result.write(tmp_path)
    read = json.loads((tmp_path / "result.json").read_text())
    assert (read["before"], read["after"], read["curve"][3]["reward"]) == (0.1, 0.9, 0.3)
    picture = ElementTree.parse(tmp_path / "curve.svg").getroot()
    assert len([part for part in picture.iter() if part.tag.endswith("circle")]) == 12
